import CacheEngine
import Testing
import TileStore

@testable import TileProxyServer

/// In which order the hosts of a source are asked.
struct MirrorsTests {
    private let own = OriginHost(scheme: "https", authority: "own")
    private let second: UInt64 = 1_000_000_000
    private let mirrors = Mirrors()
    private let others = ["http://b:81", "https://c", "https://own"].compactMap { OriginHost($0) }

    private func order(at now: UInt64) -> String {
        mirrors.order(own, others, at: now).map { $0.name }.joined(separator: " ")
    }

    private func host(_ url: String) throws -> OriginHost { try #require(OriginHost(url)) }

    @Test
    func hostsAreAskedAsTheyAreWritten() throws {
        #expect(order(at: 0) == "own b c", "its own is not its mirror")
        #expect(mirrors.order(own, [], at: 0) == [own])
    }

    /// One that asks to be left alone is; the others are asked meanwhile, and what is known together is when the first is back.
    @Test
    func aHostThatAsksForItRestsForSoLong() throws {
        let b = try host("http://b:81")
        mirrors.note(b, failed: true, pause: .seconds(3600), at: 0)
        #expect(order(at: 3599 * second) == "own c b")
        mirrors.note(own, failed: true, at: 0)
        #expect(mirrors.shortestRest(of: [own, b], at: second) == .seconds(1))
        #expect(mirrors.shortestRest(of: [b], at: second) == .seconds(3599))
        #expect(mirrors.shortestRest(of: [own, b, try host("https://c")], at: second) == .zero)
    }

    @Test
    func aHostThatRestsIsAskedLast() throws {
        mirrors.note(own, failed: true, at: 0)
        #expect(order(at: second) == "b c own")
        mirrors.note(try host("http://b:81"), failed: true, at: second)
        #expect(order(at: second) == "c own b")
        mirrors.note(try host("https://c"), failed: true, at: second)
        #expect(order(at: second) == "own b c", "where all rest, the order is as written")
        mirrors.note(own, failed: false, at: second)
        #expect(order(at: second) == "own b c")
    }

    @Test
    func aRestIsTwoSecondsAndTwiceAsLongEachTimeUpToAMinute() throws {
        var now: UInt64 = 0
        for seconds in [2, 4, 8, 16, 32, 60, 60, 60] as [UInt64] {
            mirrors.note(own, failed: true, at: now)
            #expect(order(at: now + seconds * second - 1) == "b c own")
            now += seconds * second
        }
        #expect(order(at: now) == "own b c")
        mirrors.note(own, failed: false, at: now)
        mirrors.note(own, failed: true, at: now)
        #expect(order(at: now + 2 * second) == "own b c", "an answer has it forgotten")
    }

    /// Else all requests would wait for a host that hangs, each time that its rest is over.
    @Test
    func afterARestOneRequestTriesTheHostAndOthersDoNot() throws {
        mirrors.note(own, failed: true, at: 0)
        #expect(order(at: 2 * second) == "own b c")
        #expect(order(at: 2 * second) == "b c own" && order(at: 4 * second - 1) == "b c own")
        #expect(order(at: 4 * second) == "own b c", "the one that tried it may be gone")
        mirrors.note(own, failed: true, at: 5 * second)
        #expect(order(at: 9 * second - 1) == "b c own")
    }

    @Test
    func aMirrorThatWouldNotBeTheFirstIsNotTried() throws {
        mirrors.note(try host("http://b:81"), failed: true, at: 0)
        for _ in 0..<3 { #expect(order(at: 10 * second) == "own c b") }
        mirrors.note(own, failed: true, at: 10 * second)
        #expect(order(at: 10 * second) == "b c own", "now it is the first")
        #expect(order(at: 10 * second) == "c own b")
    }

    @Test
    func anotherConfigurationForgetsWhatHasFailed() throws {
        mirrors.note(own, failed: true, at: 0)
        mirrors.forget()
        #expect(order(at: 0) == "own b c")
    }

    @Test
    func aHostIsKnownByItsNameOnAnyPort() throws {
        #expect(try host("http://[::1]:81").name == "::1" && host("http://A.test:1").name == "a.test")
    }
}
