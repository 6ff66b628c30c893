import Testing
import TileStoreTesting

@testable import CacheEngine

/// Random orders of events against what must hold in any order.
@Suite(.timeLimit(.minutes(60)), .serialized)
struct EngineOrderTests {
    private static func script(_ seed: UInt64) -> [EngineStep] {
        var random = SplitMix64(seed: seed)
        let troubles: [OriginTrouble] = [
            .unreachable("x"), .connectTimeout, .timeout, .closed, .malformed("x"), .overloaded, .clientTooSlow,
            .clientMayBeGone, .cancelled,
        ]
        return (0..<(20 + random.below(100))).map { _ in
            switch random.below(20) {
            case 0...4:
                let wish = random.oneIn(2) ? .plain : random.pick(EngineStep.Wish.allCases)
                return .arrive(resource: random.below(2), wish)
            case 5...10: return .deliver(random.below(8))
            case 11...12: return .head(random.below(4), random.pick(EngineStep.Answer.allCases))
            case 13...14: return .end(random.below(4))
            case 15: return .fail(random.below(4), random.pick(troubles))
            case 16: return .leave(random.below(8))
            case 17: return random.oneIn(2) ? .patience(random.below(4)) : .tooMuch(random.below(4))
            case 18: return .wait(random.pick([0, 1, 2, 30, 100, 1000]))
            default: return .disk(isFull: random.oneIn(2))
            }
        }
    }

    private static func violations(_ script: [EngineStep], isOneAsker: Bool) -> [String] {
        let world = EngineWorld(isOneAsker: isOneAsker)
        world.run(script)
        return world.violations
    }

    @Test(arguments: 0..<4)
    func inAnyOrderEachClientGetsOneAnswerAndNothingIsLeft(part: Int) {
        for seed in Seeds.share(part, of: 4, count: 2000) {
            let script = Self.script(seed)
            for isOneAsker in [false, true] {
                func violations(_ script: [EngineStep]) -> [String] {
                    Self.violations(script, isOneAsker: isOneAsker)
                }
                guard !violations(script).isEmpty else { continue }
                let smallest = shrink(script) { !violations($0).isEmpty }
                Issue.record("seed \(seed), one asker: \(isOneAsker): \(violations(smallest)) after \(smallest)")
                return
            }
        }
    }
}
