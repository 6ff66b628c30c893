import Testing
import TileStoreTesting

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct BackoffTests {
    @Test func eachFailureDoublesTheWaitUpToTheLongest() {
        let backoff = Backoff(first: .seconds(1), longest: .seconds(300))
        // The largest random part: the whole wait.
        let waits = (1...12).map { failures -> UInt64 in
            let full = UInt64(min(300, 1 << (failures - 1))) * 1_000_000_000
            return backoff.nanoseconds(failures: failures, random: full - full / 2)
        }
        #expect(waits.prefix(9).map { $0 / 1_000_000_000 } == [1, 2, 4, 8, 16, 32, 64, 128, 256])
        #expect(waits.suffix(3).allSatisfy { $0 == 300_000_000_000 })
    }

    @Test func everyWaitLiesBetweenHalfAndAll() {
        var random = SplitMix64(seed: 7)
        for _ in 0..<20_000 {
            let first = Int64(random.below(100_000)) - 1000
            let longest = Int64(random.below(1_000_000)) - 1000
            let backoff = Backoff(first: .milliseconds(first), longest: .milliseconds(longest))
            let failures = random.oneIn(10) ? Int.max : random.below(80) - 2
            let wait = backoff.nanoseconds(failures: failures, random: random.next())
            let base = UInt64(max(first * 1_000_000, 1))
            let ceiling = UInt64(max(longest * 1_000_000, 1))
            var full = min(base, ceiling)
            for _ in 0..<max(0, min(failures - 1, 62)) where full < ceiling { full = min(full * 2, ceiling) }
            #expect(wait >= full / 2 && wait <= full)
        }
    }

    @Test func absurdDurationsDoNotTrap() {
        let long = Duration.seconds(Int64.max)
        for first in [long, .zero, .seconds(-1), .nanoseconds(1)] {
            for longest in [long, .zero, .seconds(-5)] {
                let backoff = Backoff(first: first, longest: longest)
                for failures in [Int.min, 0, 1, 64, Int.max] {
                    _ = backoff.nanoseconds(failures: failures, random: .max)
                }
            }
        }
    }
}
