import Testing
import TileStoreTesting

@testable import TileCache

/// Which tasks a background session is given, and who gets which answer.
struct BackgroundExchangesTests {
    private typealias Exchanges = BackgroundExchanges<Int>

    private func actions(_ exchanges: inout Exchanges, _ event: Exchanges.Event) -> [String] {
        exchanges.on(event).map(Self.words)
    }

    private static func words(_ action: Exchanges.Action) -> String {
        switch action {
        case .start(let name, let waiter): "start \(name) for \(waiter)"
        case .cancel(let name): "cancel \(name)"
        case .answer(let waiter, let answer): "\(waiter) gets \(answer)"
        case .giveUp(let waiter): "\(waiter) leaves"
        case .rested(let number): "\(number) rested"
        }
    }

    private func listed(_ names: String...) -> Exchanges {
        var exchanges = Exchanges()
        _ = exchanges.on(.listed(names))
        return exchanges
    }

    @Test func nothingIsBegunBeforeTheTasksAreKnown() {
        var exchanges = Exchanges()
        #expect(actions(&exchanges, .wanted(1, "a")) == [])
        #expect(actions(&exchanges, .wanted(2, "b")) == [])
        #expect(actions(&exchanges, .wanted(3, "c")) == [])
        #expect(actions(&exchanges, .unwanted(3)) == ["3 leaves"])
        #expect(actions(&exchanges, .listed(["a"])) == ["start b for 2"])
        #expect(actions(&exchanges, .ended("a", 7, bytes: 1)) == ["1 gets 7"])
        #expect(actions(&exchanges, .ended("b", 8, bytes: 1)) == ["2 gets 8"])
    }

    @Test func anAnswerThatCameBeforeIsTakenOnce() {
        var exchanges = listed("a")
        #expect(actions(&exchanges, .ended("a", 7, bytes: 1)) == [])
        #expect(actions(&exchanges, .wanted(1, "a")) == ["1 gets 7"])
        #expect(actions(&exchanges, .wanted(2, "a")) == ["start a for 2"])
    }

    /// A thousand answers of 64 MB each were kept in memory.
    @Test func whatNobodyAsksForTakesNoMoreMemoryThanThat() {
        var exchanges = listed("a", "b", "c", "d")
        let half = Exchanges.mostKeptBytes / 2
        for (name, bytes) in [("a", half), ("b", half), ("c", 1), ("d", 2 * half + 1)] {
            #expect(actions(&exchanges, .ended(name, 7, bytes: bytes)) == [])
        }
        #expect(actions(&exchanges, .wanted(1, "a")) == ["start a for 1"])
        #expect(actions(&exchanges, .wanted(2, "b")) == ["2 gets 7"])
        #expect(actions(&exchanges, .wanted(3, "c")) == ["3 gets 7"])
        // One that is too large by itself is not kept.
        #expect(actions(&exchanges, .wanted(4, "d")) == ["start d for 4"])
    }

    @Test func aFailureThatCameBeforeIsTriedAgain() {
        var exchanges = listed("a")
        #expect(actions(&exchanges, .ended("a", 7, bytes: nil)) == [])
        #expect(actions(&exchanges, .wanted(1, "a")) == ["start a for 1"])
    }

    /// The list was made before the end was told: whoever asked would have waited for ever.
    @Test func aTaskThatEndsBeforeItIsListedIsNoTaskAnyMore() {
        var exchanges = Exchanges()
        _ = exchanges.on(.ended("a", 7, bytes: 1))
        _ = exchanges.on(.ended("b", 8, bytes: nil))
        _ = exchanges.on(.listed(["a", "b"]))
        #expect(actions(&exchanges, .wanted(1, "a")) == ["1 gets 7"])
        #expect(actions(&exchanges, .wanted(2, "b")) == ["start b for 2"])
    }

    @Test func theLastOneWhoLeavesEndsTheTask() {
        var exchanges = listed()
        _ = exchanges.on(.wanted(1, "a"))
        #expect(actions(&exchanges, .wanted(2, "a")) == [])
        #expect(actions(&exchanges, .unwanted(1)) == ["1 leaves"])
        #expect(actions(&exchanges, .unwanted(1)) == [])
        #expect(actions(&exchanges, .unwanted(2)) == ["2 leaves", "cancel a"])
        #expect(actions(&exchanges, .ended("a", 7, bytes: nil)) == [])
    }

    @Test func whatNobodyWaitsForIsEndedWithTheDownload() {
        var exchanges = listed("a", "b", "c")
        _ = exchanges.on(.wanted(1, "a"))
        _ = exchanges.on(.ended("c", 9, bytes: 1))
        #expect(actions(&exchanges, .over) == ["cancel b"])
        #expect(actions(&exchanges, .wanted(2, "c")) == ["start c for 2"])
        #expect(exchanges.taskCount == 2)
    }

    @Test func itRestsWhenAllWasToldAndAllWait() {
        var exchanges = Exchanges()
        _ = exchanges.on(.workBegan(2))
        #expect(actions(&exchanges, .rest(9)) == [])
        _ = exchanges.on(.wanted(1, "a"))
        #expect(actions(&exchanges, .eventsDelivered) == [])
        #expect(actions(&exchanges, .listed(["a"])) == [])
        #expect(actions(&exchanges, .ended("a", 7, bytes: 1)) == ["1 gets 7"])
        // It stores what it got, and asks for the next.
        #expect(actions(&exchanges, .workEnded(1)) == [])
        #expect(actions(&exchanges, .wanted(2, "b")) == ["start b for 2", "9 rested"])
        // Only for what was told this time.
        #expect(actions(&exchanges, .rest(10)) == [])
        #expect(actions(&exchanges, .restUnwanted(10)) == [])
        #expect(actions(&exchanges, .eventsDelivered) == [])
    }

    @Test func onlySoMuchIsKept() {
        var exchanges = listed()
        for number in 0...Exchanges.mostKept { _ = exchanges.on(.ended("\(number)", number, bytes: 1)) }
        #expect(actions(&exchanges, .wanted(1, "0")) == ["start 0 for 1"])
        #expect(actions(&exchanges, .wanted(2, "1")) == ["2 gets 1"])
    }

    /// In any order: each gets one answer or leaves once, no task is begun twice or before the list, and each who wants
    /// to know when it rests is told.
    @Test(arguments: 0..<200 as Range<UInt64>)
    func everyoneIsAnsweredOnce(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var exchanges = Exchanges()
        let names = (0..<6).map { "n\($0)" }
        var system = Set(names.filter { _ in Bool.random(using: &random) })
        let before = system
        var isListed = false
        var waiting: [UInt64: String] = [:]
        var (last, working) = (UInt64(0), 0)
        var isResting = false

        func carryOut(_ event: Exchanges.Event) {
            for action in exchanges.on(event) {
                switch action {
                case .start(let name, let waiter):
                    #expect(isListed && waiting[waiter] == name && system.insert(name).inserted, "seed \(seed)")
                case .cancel(let name): #expect(system.remove(name) != nil, "seed \(seed)")
                case .answer(let waiter, let answer):
                    #expect(waiting.removeValue(forKey: waiter) == "n\(answer)", "seed \(seed)")
                    working += 1
                case .giveUp(let waiter):
                    #expect(waiting.removeValue(forKey: waiter) != nil, "seed \(seed)")
                    working += 1
                case .rested:
                    #expect(isResting && isListed && working == 0, "seed \(seed)")
                    isResting = false
                }
            }
        }
        func list() {
            // The list is of the moment when the session was opened, or of any later one.
            let names = Bool.random(using: &random) ? before : system
            isListed = true
            carryOut(.listed(names.sorted()))
        }
        func endTask(_ name: String) {
            system.remove(name)
            carryOut(.ended(name, Int(name.dropFirst()) ?? -1, bytes: Bool.random(using: &random) ? 1 : nil))
        }

        for _ in 0..<200 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0 where !isListed: list()
            case 1...3:
                if working == 0 {
                    working += 1
                    carryOut(.workBegan(1))
                }
                guard let name = names.randomElement(using: &random) else { continue }
                last += 1
                working -= 1
                waiting[last] = name
                carryOut(.wanted(last, name))
            case 4...6: if let name = system.sorted().randomElement(using: &random) { endTask(name) }
            case 7: if let number = waiting.keys.sorted().randomElement(using: &random) { carryOut(.unwanted(number)) }
            case 8 where working > 0:
                working -= 1
                carryOut(.workEnded(1))
            case 9 where !isResting:
                isResting = true
                carryOut(.rest(99))
            default: break
            }
            #expect(exchanges.workers == working, "seed \(seed)")
        }
        if !isListed { list() }
        for name in system.sorted() { endTask(name) }
        #expect(waiting.isEmpty, "seed \(seed)")
        carryOut(.eventsDelivered)
        let left = working
        working = 0
        carryOut(.workEnded(left))
        #expect(!isResting, "seed \(seed)")
    }
}
