import Foundation
import Testing
import TileStore
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct TimestampTests {
    @Test(
        "Times are printed as RFC 3339",
        arguments: [
            (0, "1970-01-01T00:00:00Z"), (951_782_400, "2000-02-29T00:00:00Z"), (1_769_860_800, "2026-01-31T12:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"), (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (-86_400, "1969-12-31T00:00:00Z"), (-2_208_988_800, "1900-01-01T00:00:00Z"),
        ] as [(Int64, String)])
    func text(seconds: Int64, expected: String) {
        #expect(Timestamp(seconds: seconds).description == expected)
    }

    @Test("Adding stops at the ends of the range")
    func saturation() {
        #expect(Timestamp(seconds: .max).adding(seconds: 1).seconds == .max)
        #expect(Timestamp(seconds: .min).adding(seconds: -1).seconds == .min)
        #expect(Timestamp(seconds: 5).adding(seconds: -7).seconds == -2)
        #expect(!Timestamp(seconds: .max).description.isEmpty)
        #expect(!Timestamp(seconds: .min).description.isEmpty)
    }

    @Test("Dates are rounded down, and what is no number becomes 1970")
    func dates() {
        #expect(Timestamp(Date(timeIntervalSince1970: 1.9)).seconds == 1)
        #expect(Timestamp(Date(timeIntervalSince1970: -0.1)).seconds == -1)
        #expect(Timestamp(Date(timeIntervalSince1970: .infinity)).seconds == .max)
        #expect(Timestamp(Date(timeIntervalSince1970: -.infinity)).seconds == .min)
        #expect(Timestamp(Date(timeIntervalSince1970: .nan)).seconds == 0)
        #expect(Timestamp(Date.distantFuture).date == Date.distantFuture)
    }

    @Test("An entry is stale from its expiry on, and when it comes from the future")
    func staleness() {
        let now = Timestamp(seconds: 1000)
        func metadata(stored: Int64, expires: Int64) -> TileMetadata {
            TileMetadata(storedAt: Timestamp(seconds: stored), expires: Timestamp(seconds: expires))
        }
        #expect(!metadata(stored: 1000, expires: 1001).isStale(at: now))
        #expect(metadata(stored: 1000, expires: 1000).isStale(at: now))
        #expect(!metadata(stored: 1060, expires: 2000).isStale(at: now))
        #expect(metadata(stored: 1061, expires: 2000).isStale(at: now))
    }
}
