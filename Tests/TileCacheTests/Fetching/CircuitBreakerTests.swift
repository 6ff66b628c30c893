import Testing
import TileStoreTesting

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct CircuitBreakerTests {
    private let backoff = Backoff(first: .seconds(2), longest: .seconds(60))
    private let second: UInt64 = 1_000_000_000

    private func opened(at now: UInt64) -> CircuitBreaker {
        var breaker = CircuitBreaker()
        for _ in 0..<CircuitBreaker.threshold { breaker.failed(at: now, backoff: backoff, random: 0) }
        return breaker
    }

    @Test func fourFailuresInARowLetEverythingThrough() {
        var breaker = CircuitBreaker()
        for _ in 0..<(CircuitBreaker.threshold - 1) { breaker.failed(at: 0, backoff: backoff, random: 0) }
        #expect(breaker.ask(at: 0) == .go)
        #expect(!breaker.isUnblemished)
        breaker.succeeded()
        #expect(breaker.isUnblemished)
        for _ in 0..<(CircuitBreaker.threshold - 1) { breaker.failed(at: 0, backoff: backoff, random: 0) }
        #expect(breaker.ask(at: 0) == .go, "a success starts the count anew")
    }

    @Test func itOpensThenLetsOneProbeThrough() {
        var breaker = opened(at: 10 * second)
        // Half of two seconds, the random part being nothing.
        #expect(breaker.ask(at: 10 * second) == .wait(until: 11 * second))
        #expect(breaker.ask(at: 11 * second - 1) == .wait(until: 11 * second))
        #expect(breaker.ask(at: 11 * second) == .probe)
        #expect(breaker.ask(at: 11 * second) == .wait(until: 11 * second + CircuitBreaker.probeRecheck))
        breaker.succeeded()
        #expect(breaker.ask(at: 11 * second) == .go)
    }

    @Test func aFailedProbeOpensItForTwiceAsLong() {
        var breaker = opened(at: 0)
        #expect(breaker.ask(at: second) == .probe)
        breaker.failed(at: second, backoff: backoff, random: 0)
        #expect(breaker.ask(at: second) == .wait(until: 3 * second))
    }

    @Test func aProbeThatWasGivenUpLetsTheNextOneTry() {
        var breaker = opened(at: 0)
        #expect(breaker.ask(at: second) == .probe)
        breaker.abandoned(at: second)
        #expect(breaker.ask(at: second) == .probe)
    }

    @Test func aProbeThatTellsNothingIsGivenUpAfterAMinute() {
        var breaker = opened(at: 0)
        #expect(breaker.ask(at: second) == .probe)
        #expect(breaker.ask(at: second + CircuitBreaker.probeTimeout) == .probe)
    }

    @Test func retryAfterOpensItAtOnceAndNeverShortensAWait() {
        var breaker = CircuitBreaker()
        breaker.failed(at: 0, backoff: backoff, random: 0, pause: 30 * second)
        #expect(breaker.ask(at: 0) == .wait(until: 30 * second))
        breaker.failed(at: 0, backoff: backoff, random: 0, pause: 10 * second)
        #expect(breaker.ask(at: 0) == .wait(until: 30 * second))
        // Requests that were under way before it asked: neither their failures nor their success end its pause.
        for _ in 0..<(2 * CircuitBreaker.threshold) { breaker.failed(at: 0, backoff: backoff, random: 0) }
        #expect(breaker.ask(at: 0) == .wait(until: 30 * second))
        breaker.succeeded()
        #expect(breaker.ask(at: 0) == .wait(until: 30 * second))
        #expect(breaker.ask(at: 30 * second) == .probe)
        breaker.succeeded()
        #expect(breaker.isUnblemished)
    }

    /// At any time one probe at most is out whose outcome is not known and that is younger than a minute.
    @Test(arguments: 0..<4)
    func neverMoreThanOneProbeIsOut(part: Int) {
        for seed in Seeds.share(part, of: 4, count: 400) {
            var random = SplitMix64(seed: seed)
            var breaker = CircuitBreaker()
            var now: UInt64 = 0
            var probe: UInt64?
            for _ in 0..<200 {
                now += UInt64(random.below(20)) * second / 4
                switch random.below(5) {
                case 0, 1:
                    switch breaker.ask(at: now) {
                    case .probe:
                        let free = probe.map { now >= $0 + CircuitBreaker.probeTimeout } ?? true
                        #expect(free, "seed \(seed): two probes at once")
                        probe = now
                    case .wait(let until): #expect(until > now, "seed \(seed)")
                    case .go: break
                    }
                case 2, 3:
                    breaker.failed(
                        at: now, backoff: backoff, random: random.next(),
                        pause: random.oneIn(8) ? now + UInt64(random.below(90)) * second : nil)
                    probe = nil
                default:
                    if random.oneIn(2) { breaker.succeeded() } else { breaker.abandoned(at: now) }
                    probe = nil
                }
            }
        }
    }
}
