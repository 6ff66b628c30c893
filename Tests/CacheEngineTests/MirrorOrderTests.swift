import HTTPCaching
import Testing
import TileStore

@testable import CacheEngine

/// In which order hosts that stand for one another are asked.
struct MirrorOrderTests {
    private let own = OriginHost(scheme: "https", authority: "own")
    private let second: UInt64 = 1_000_000_000
    private let time = Locked<UInt64>(0)
    private let health: OriginHealth
    private let hosts = ["https://own", "http://b:81", "https://c"].compactMap { OriginHost($0) }

    init() {
        let time = time
        health = OriginHealth(.tiles(Backoff()), ticks: { time.withLock { $0 } }, random: { 7 })
    }

    private func ask(at now: UInt64) -> (order: String, probe: UInt64?) {
        time.withLock { $0 = now }
        let order = health.order(of: hosts)
        return (order.hosts.map(\.name).joined(separator: " "), order.probe)
    }

    private func order(at now: UInt64) -> String { ask(at: now).order }

    private func fail(
        _ host: OriginHost, at now: UInt64, _ blame: OriginSetback.Blame = .silent, pause: Duration? = nil,
        probe: UInt64? = nil
    ) {
        time.withLock { $0 = now }
        health.judge(
            host, .failed(OriginSetback(blame, .unreachable, retryAfter: pause)), sentAt: now, probe: probe)
    }

    private func host(_ url: String) throws -> OriginHost { try #require(OriginHost(url)) }

    @Test
    func hostsAreAskedAsTheyAreWritten() throws {
        #expect(order(at: 0) == "own b c")
        #expect(health.order(of: [own]).hosts == [own])
    }

    /// One that asks to be left alone is; the others are asked meanwhile, and what is known together is when the first is back.
    @Test
    func aHostThatAsksForItRestsForSoLong() throws {
        let b = try host("http://b:81")
        fail(b, at: 0, .overloaded, pause: .seconds(3600))
        #expect(order(at: 3599 * second) == "own c b")
        fail(own, at: 0)
        time.withLock { $0 = second }
        #expect(health.rest(of: [own, b]) == .seconds(1))
        #expect(health.rest(of: [b]) == .seconds(3599))
        #expect(health.rest(of: [own, b, try host("https://c")]) == .zero)
    }

    @Test(arguments: [OriginSetback.Blame.unconnected, .silent, .overloaded, .error, .none])
    func aHostThatRestsIsAskedLast(blame: OriginSetback.Blame) throws {
        fail(own, at: 0, blame)
        #expect(order(at: second) == "b c own")
        fail(try host("http://b:81"), at: second, blame)
        #expect(order(at: second) == "c own b")
        fail(try host("https://c"), at: second, blame)
        #expect(order(at: second) == "own b c", "where all rest, the order is as written")
        health.judge(own, .answered, sentAt: second, probe: nil)
        #expect(order(at: second) == "own b c")
    }

    @Test
    func aRestIsTwoSecondsAndTwiceAsLongEachTimeUpToAMinute() throws {
        var now: UInt64 = 0
        for seconds in [2, 4, 8, 16, 32, 60, 60, 60] as [UInt64] {
            fail(own, at: now)
            #expect(order(at: now + seconds * second - 1) == "b c own")
            now += seconds * second
        }
        let tried = ask(at: now)
        #expect(tried.order == "own b c" && tried.probe != nil)
        health.judge(own, .answered, sentAt: now, probe: tried.probe)
        fail(own, at: now + 1)
        #expect(order(at: now + 1 + 2 * second) == "own b c", "an answer has it forgotten")
    }

    /// Else all requests would wait for a host that hangs, each time that its rest is over.
    @Test
    func afterARestOneRequestTriesTheHostAndOthersDoNot() throws {
        fail(own, at: 0)
        let first = ask(at: 2 * second)
        #expect(first.order == "own b c" && first.probe != nil)
        let patience = OriginState.patience
        #expect(order(at: 2 * second) == "b c own" && order(at: 2 * second + patience - 1) == "b c own")
        let second = ask(at: 2 * self.second + patience)
        #expect(second.order == "own b c", "the one that tried it may be gone")
        // What becomes of the one before says nothing more.
        fail(own, at: 3 * self.second + patience, probe: first.probe)
        #expect(order(at: 3 * self.second + patience) == "b c own")
        health.abandoned(own, probe: try #require(second.probe))
        let third = ask(at: 3 * self.second + patience)
        #expect(third.order == "own b c", "one that was given up has told nothing")
        fail(own, at: 4 * self.second + patience, probe: third.probe)
        #expect(order(at: 8 * self.second + patience - 1) == "b c own")
        #expect(order(at: 8 * self.second + patience) == "own b c")
    }

    @Test
    func aMirrorThatWouldNotBeTheFirstIsNotTried() throws {
        fail(try host("http://b:81"), at: 0)
        for _ in 0..<3 { #expect(order(at: 10 * second) == "own c b") }
        fail(own, at: 10 * second)
        #expect(order(at: 10 * second) == "b c own", "now it is the first")
        #expect(order(at: 10 * second) == "c own b")
    }

    @Test
    func aHostThatWasNotAskedIsNotLeftAlone() {
        fail(own, at: 0, .unasked)
        #expect(order(at: 0) == "own b c")
    }

    /// An origin that is asked by itself is left alone for reasons of its own.
    @Test
    func aHostThatRestsIsNotLeftAloneWhereNobodyStandsForIt() {
        fail(own, at: 0)
        #expect(health.wait(forOrigin: "own") == nil && health.leave(for: "own") == .ask)
    }

    @Test
    func anotherConfigurationForgetsWhatHasFailed() throws {
        fail(own, at: 0)
        health.forgetMirrors()
        #expect(order(at: 0) == "own b c")
    }

    @Test
    func aHostIsKnownByItsNameOnAnyPort() throws {
        #expect(try host("http://[::1]:81").name == "::1" && host("http://A.test:1").name == "a.test")
    }
}
