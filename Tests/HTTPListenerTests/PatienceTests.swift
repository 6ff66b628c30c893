import NIOCore
import Testing

@testable import HTTPListener

@Suite(.timeLimit(.minutes(60)))
struct PatienceTests {
    @Test
    func pausesUseUpPatienceAndBytesGiveItBack() {
        var patience = Patience(.seconds(30), rate: 512)
        patience.spend(.seconds(29), for: 0)
        #expect(!patience.isOver)
        patience.spend(.seconds(0), for: 512 * 4)
        #expect(patience.left == .seconds(5))
        patience.spend(.seconds(1), for: .max)
        #expect(patience.left == .seconds(30), "never more than it began with")
        for _ in 0..<2 { patience.spend(.seconds(12), for: 1) }
        #expect(!patience.isOver)
        patience.spend(.seconds(12), for: 1)
        #expect(patience.isOver, "a byte every 12 s is too slow")
    }
}
