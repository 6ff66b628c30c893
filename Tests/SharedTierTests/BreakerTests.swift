import Testing
import TileStoreTesting

@testable import SharedTier

@Suite struct BreakerTests {
    private let second: UInt64 = 1_000_000_000

    @Test func itOpensAfterFailuresInARowAndClosesByOneProbe() {
        var breaker = Breaker()
        for _ in 0..<Breaker.mostFailures - 1 { breaker.failed(isProbe: false, at: 0) }
        #expect(breaker.leave(at: 0) == .ask && !breaker.isOpen)
        breaker.failed(isProbe: false, at: 0)
        #expect(breaker.leave(at: second - 1) == .leaveAlone && breaker.isOpen)
        #expect(breaker.leave(at: second) == .probe)
        #expect(breaker.leave(at: 100 * second) == .leaveAlone)
        breaker.failed(isProbe: true, at: second)
        #expect(breaker.leave(at: 3 * second - 1) == .leaveAlone)
        #expect(breaker.leave(at: 3 * second) == .probe)
        breaker.succeeded(isProbe: true)
        #expect(breaker.leave(at: 3 * second) == .ask && !breaker.isOpen)
    }

    /// Four of five looks waited for their whole time, for ever, as each fifth was answered.
    @Test func aBucketOfWhichAPartHangsWasNotLeftAlone() {
        var breaker = Breaker()
        var asked = 0
        while !breaker.isOpen, asked < 100 {
            if asked % 5 == 4 { breaker.succeeded(isProbe: false) } else { breaker.failed(isProbe: false, at: 0) }
            asked += 1
        }
        #expect(asked == 7)
        // One failure in four is no reason yet.
        breaker = Breaker()
        for number in 0..<10_000 {
            if number % 4 == 0 { breaker.failed(isProbe: false, at: 0) } else { breaker.succeeded(isProbe: false) }
        }
        #expect(!breaker.isOpen)
    }

    @Test func whatWasAskedBeforeSaysNothingOfTheProbe() {
        var breaker = Breaker()
        for _ in 0..<Breaker.mostFailures { breaker.failed(isProbe: false, at: 0) }
        breaker.succeeded(isProbe: false)
        #expect(breaker.isOpen)
        #expect(breaker.leave(at: second) == .probe)
        breaker.succeeded(isProbe: false)
        breaker.failed(isProbe: false, at: second)
        #expect(breaker.leave(at: second) == .leaveAlone)
        breaker.abandoned(at: second)
        #expect(breaker.leave(at: second) == .probe)
    }

    /// However it is used: there is at most one probe, and it rests no longer than it may.
    @Test(arguments: Seeds.list(100))
    func thereIsOneProbe(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var breaker = Breaker()
        var (now, probes) = (UInt64(0), 0)
        for _ in 0..<500 {
            now += UInt64(random.below(Int(second)))
            switch random.below(4) {
            case 0:
                if breaker.leave(at: now) == .probe { probes += 1 }
            case 1:
                let isProbe = probes > 0 && random.oneIn(2)
                breaker.failed(isProbe: isProbe, at: now)
                if isProbe { probes -= 1 }
            case 2:
                let isProbe = probes > 0 && random.oneIn(2)
                breaker.succeeded(isProbe: isProbe)
                if isProbe { probes -= 1 }
            default:
                if probes > 0 {
                    breaker.abandoned(at: now)
                    probes -= 1
                }
            }
            #expect((0...1).contains(probes))
            if breaker.isOpen, probes == 0 {
                var later = breaker
                #expect(later.leave(at: now + Breaker.rests.upperBound) == .probe)
            }
        }
    }
}
