import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct FailureLogTests {
    private let clock = TestClock()
    private let log: FailureLog

    init() { log = FailureLog(backoff: Backoff(first: .seconds(2), longest: .seconds(60)), clock: clock.cacheClock) }

    private func key(_ number: Int) throws -> TileKey {
        try TileKey(source: "lab", z: 15, x: number % 32768, y: number / 32768)
    }

    private func fail(_ number: Int, host: String = "a", blamesHost: Bool = false, retryAfter: Duration? = nil) throws {
        log.failed(
            try key(number), host: host, setback: .refused, blame: blamesHost ? .host : .none, retryAfter: retryAfter)
    }

    @Test func aTileIsLeftAloneForLongerEachTime() throws {
        try fail(1)
        let first = try #require(log.wait(for: try key(1)))
        #expect(first.setback == .refused)
        #expect(first.until > clock.manual.ticks && first.until <= clock.manual.ticks + 2_000_000_000)
        #expect(try log.wait(for: key(2)) == nil)
        clock.advance(seconds: 2)
        #expect(try log.wait(for: key(1)) == nil)
        for _ in 0..<20 { try fail(1) }
        let last = try #require(log.wait(for: try key(1)))
        #expect(last.until >= clock.manual.ticks + 30_000_000_000)
        #expect(last.until <= clock.manual.ticks + 60_000_000_000)
    }

    @Test func aSuccessForgetsTileAndHost() throws {
        for number in 0..<CircuitBreaker.threshold { try fail(number, blamesHost: true) }
        #expect(log.wait(forHost: "a") != nil)
        #expect(log.wait(forHost: "b") == nil)
        log.succeeded(try key(1), host: "a")
        #expect(log.wait(forHost: "a") == nil)
        #expect(try log.wait(for: key(1)) == nil)
        #expect(try log.wait(for: key(2)) != nil)
        log.forget()
        #expect(try log.wait(for: key(2)) == nil)
    }

    @Test func aFailureOfOneTileAloneClearsItsHost() throws {
        for number in 0..<(CircuitBreaker.threshold - 1) { try fail(number, blamesHost: true) }
        try fail(9)
        for number in 10..<(10 + CircuitBreaker.threshold - 1) { try fail(number, blamesHost: true) }
        #expect(log.wait(forHost: "a") == nil)
    }

    @Test func retryAfterHoldsForTheTileAndTheHost() throws {
        try fail(1, retryAfter: .seconds(1000))
        let until = clock.manual.ticks + 1_000_000_000_000
        #expect(try log.wait(for: key(1))?.until == until)
        #expect(log.wait(forHost: "a")?.until == until)
        // Another tile of the same host, asked for before that.
        log.succeeded(try key(2), host: "a")
        #expect(log.wait(forHost: "a")?.until == until)
    }

    @Test func itStaysBoundedAndKeepsTheLongestWaits() throws {
        try fail(0, retryAfter: .seconds(3000))
        for number in 1..<50_000 { try fail(number) }
        #expect(try log.wait(for: key(0)) != nil)
        #expect(try log.wait(for: key(49_999)) != nil)
        let left = try (0..<50_000).count { try log.wait(for: key($0)) != nil }
        #expect(left <= 16_384 && left > 1_000)
        for number in 0..<5_000 { try fail(0, host: "host-\(number)", blamesHost: true) }
        #expect(log.wait(forHost: "host-4999") == nil)
    }

    @Test func aLongPauseIsRememberedHoweverManyOtherHostsFail() throws {
        try fail(0, retryAfter: .seconds(3000))
        for number in 0..<5_000 { try fail(number, host: "host-\(number)", retryAfter: .seconds(5)) }
        #expect(log.wait(forHost: "a") != nil)
        #expect(log.wait(forHost: "host-4999") != nil)
        let left = (0..<5_000).count { log.wait(forHost: "host-\($0)") != nil }
        #expect(left <= 1_024)
    }
}
