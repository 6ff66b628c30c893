import Testing
import TileStoreTesting

@testable import SharedTier

@Suite struct WriteQueueTests {
    private func queue(_ change: (inout WriteQueue<Int>.Limits) -> Void = { _ in }) -> WriteQueue<Int> {
        var limits = WriteQueue<Int>.Limits()
        change(&limits)
        return WriteQueue(limits)
    }

    @Test func aNewerWriteTakesThePlaceOfOneThatWaits() throws {
        var queue = queue { $0.underWay = 1 }
        queue.add(1, name: "a", bytes: 10, at: 0)
        let next = queue.next(at: 0)
        let first = try #require(next)
        queue.add(2, name: "a", bytes: 10, at: 0)
        queue.add(3, name: "a", bytes: 20, at: 0)
        #expect(queue.bytes == 30 && queue.count == 2 && queue.dropped == 0)
        // Not beside the one that is under way, which could come later.
        #expect(queue.next(at: 0) == nil)
        queue.done(first.name)
        #expect(queue.next(at: 0)?.write == 3)
    }

    @Test func aRemovalDropsWhatWaits() {
        var queue = queue()
        queue.add(1, name: "a", bytes: 10, at: 0)
        queue.remove("a")
        #expect(queue.isEmpty && queue.bytes == 0 && queue.next(at: 0) == nil && queue.dropped == 0)
    }

    @Test func whatDoesNotFitOrWaitsTooLongIsDroppedAndCounted() {
        var queue = queue {
            $0.number = 2
            $0.bytes = 100
        }
        queue.add(1, name: "a", bytes: 101, at: 0)
        queue.add(2, name: "b", bytes: 100, at: 0)
        queue.add(3, name: "c", bytes: 1, at: 0)
        #expect(queue.dropped == 2 && queue.bytes == 100)
        #expect(queue.next(at: 30_000_000_001) == nil)
        #expect(queue.dropped == 3 && queue.isEmpty && queue.bytes == 0)
        for number in 0..<3 { queue.add(number, name: "\(number)", bytes: 1, at: 0) }
        #expect(queue.dropped == 4 && queue.count == 2)
        queue.clear()
        #expect(queue.dropped == 6 && queue.isEmpty && queue.bytes == 0)
    }

    private enum Step {
        case add(String, Int), remove(String), next, done, wait, clear
    }

    /// Against a model that keeps a plain list.
    @Test(arguments: Seeds.list(200))
    func itDoesWhatItsModelDoes(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let script = (0..<300).map { _ -> Step in
            let name = random.pick(["a", "b", "c", "d", "e", "f"])
            return switch random.below(12) {
            case 0...4: .add(name, random.below(40))
            case 5: .remove(name)
            case 6...8: .next
            case 9: .done
            case 10: .wait
            default: random.oneIn(20) ? .clear : .done
            }
        }
        if let what = disagreement(script) {
            let shortest = shrink(script) { disagreement($0) != nil }
            Issue.record("\(disagreement(shortest) ?? what) after \(shortest)")
        }
    }

    private func disagreement(_ script: [Step]) -> String? {
        var queue = queue {
            ($0.number, $0.bytes, $0.underWay, $0.age) = (4, 100, 2, 10)
        }
        var waiting: [(name: String, write: Int, bytes: Int, since: UInt64, from: UInt64)] = []
        var underWay: [(name: String, bytes: Int)] = []
        var (now, dropped, order) = (UInt64(0), 0, UInt64(0))
        for (number, step) in script.enumerated() {
            switch step {
            case .add(let name, let bytes):
                queue.add(number, name: name, bytes: bytes, at: now)
                waiting.removeAll { $0.name == name }
                let all = waiting.reduce(0) { $0 + $1.bytes } + underWay.reduce(0) { $0 + $1.bytes }
                if waiting.count + underWay.count < 4, all + bytes <= 100 {
                    order += 1
                    waiting.append((name, number, bytes, now, order))
                } else {
                    dropped += 1
                }
            case .remove(let name):
                queue.remove(name)
                waiting.removeAll { $0.name == name }
            case .next:
                let job = queue.next(at: now)
                var expected: Int?
                while expected == nil, underWay.count < 2 {
                    let free = waiting.filter { item in !underWay.contains { $0.name == item.name } }
                    guard let first = free.min(by: { $0.from < $1.from }) else { break }
                    waiting.removeAll { $0.name == first.name }
                    if now - first.since > 10 {
                        dropped += 1
                    } else {
                        underWay.append((first.name, first.bytes))
                        expected = first.write
                    }
                }
                if job?.write != expected {
                    return "the next is \(String(describing: job)), not \(String(describing: expected))"
                }
            case .done:
                guard !underWay.isEmpty else { continue }
                let name = underWay.removeFirst().name
                queue.done(name)
                // Who waited for it stands at the end of the line.
                if let index = waiting.firstIndex(where: { $0.name == name }) {
                    order += 1
                    waiting[index].from = order
                }
            case .wait: now += 4
            case .clear:
                queue.clear()
                dropped += waiting.count
                waiting = []
            }
            let bytes = waiting.reduce(0) { $0 + $1.bytes } + underWay.reduce(0) { $0 + $1.bytes }
            guard queue.bytes == bytes, queue.count == waiting.count + underWay.count, queue.dropped == dropped else {
                return "\(queue.bytes) B, \(queue.count), \(queue.dropped) dropped; the model has \(bytes), "
                    + "\(waiting.count + underWay.count), \(dropped)"
            }
        }
        return nil
    }
}
