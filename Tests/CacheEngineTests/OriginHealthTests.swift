import HTTPCaching
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine

/// When an origin, or a question to it, is left alone.
@Suite(.timeLimit(.minutes(60)))
struct OriginHealthTests {
    private let second: UInt64 = 1_000_000_000
    private let tiles = OriginRules.tiles(Backoff(first: .seconds(2), longest: .seconds(60)))

    // MARK: One origin

    /// So many different questions without an answer.
    private func fail(
        _ state: inout OriginState, _ questions: Range<Int>, at now: UInt64 = 0, pause: Duration? = nil,
        random: UInt64 = 0, probe: UInt64? = nil
    ) {
        for question in questions {
            state.failed(
                question, OriginSetback(.silent, .unreachable, retryAfter: pause), at: now, sentAt: nil, probe: probe,
                random: random, tiles)
        }
    }

    private func opened(at now: UInt64) -> OriginState {
        var state = OriginState()
        fail(&state, 0..<tiles.silences, at: now)
        return state
    }

    private func leave(_ state: inout OriginState, at now: UInt64) -> OriginHealth.Leave {
        state.leave(at: now, number: 1)
    }

    @Test func fourFailuresInARowLetEverythingThrough() {
        var state = OriginState()
        fail(&state, 0..<4)
        #expect(leave(&state, at: 0) == .ask)
        #expect(!state.isUnblemished)
        state.answered(at: 0, sentAt: nil)
        #expect(state.isUnblemished)
        fail(&state, 0..<4)
        #expect(leave(&state, at: 0) == .ask, "an answer starts the count anew")
        for _ in 0..<10 { fail(&state, 3..<4) }
        #expect(leave(&state, at: 0) == .ask, "one question that fails again and again leaves the others alone")
    }

    /// What was refused before anything was sent is no answer and no failure of the origin's.
    @Test func whatWasNotAskedSaysNothing() {
        func refuse(_ state: inout OriginState, at now: UInt64) {
            let setback = OriginSetback(.unasked, .unreachable)
            state.failed(99, setback, at: now, sentAt: nil, probe: 1, random: 0, tiles)
        }
        var state = OriginState()
        for _ in 0..<10 { refuse(&state, at: 0) }
        #expect(leave(&state, at: 0) == .ask)
        fail(&state, 0..<4)
        refuse(&state, at: 0)
        fail(&state, 4..<5)
        #expect(leave(&state, at: 0) != .ask, "it does not end the count of failures either")
        #expect(leave(&state, at: 60 * second) == .probe(1))
        refuse(&state, at: 60 * second)
        #expect(leave(&state, at: 60 * second) == .probe(1), "the next one tries")
    }

    @Test func itIsLeftAloneThenTriedWithOneProbe() {
        var state = opened(at: 10 * second)
        // Half of two seconds, the random part being nothing.
        #expect(leave(&state, at: 10 * second) == .wait(.unreachable, until: 11 * second))
        #expect(leave(&state, at: 11 * second - 1) == .wait(.unreachable, until: 11 * second))
        #expect(leave(&state, at: 11 * second) == .probe(1))
        #expect(leave(&state, at: 11 * second) == .wait(.unreachable, until: 11 * second + OriginState.recheck))
        state.answered(at: 11 * second, sentAt: nil)
        #expect(leave(&state, at: 11 * second) == .ask)
    }

    @Test func aFailedProbeLeavesItAloneForTwiceAsLong() {
        var state = opened(at: 0)
        #expect(leave(&state, at: second) == .probe(1))
        fail(&state, 9..<10, at: second, probe: 1)
        #expect(leave(&state, at: second) == .wait(.unreachable, until: 3 * second))
    }

    @Test func aProbeThatWasGivenUpLetsTheNextOneTry() {
        var state = opened(at: 0)
        #expect(leave(&state, at: second) == .probe(1))
        state.abandoned(1, at: second)
        #expect(leave(&state, at: second) == .probe(1))
        #expect(leave(&state, at: second + OriginState.patience) == .probe(1), "or has told nothing for a minute")
    }

    @Test func retryAfterHoldsAtOnceAndNeverShortensAWait() {
        var state = OriginState()
        fail(&state, 0..<1, pause: .seconds(30))
        #expect(leave(&state, at: 0) == .wait(.unreachable, until: 30 * second))
        fail(&state, 1..<2, pause: .seconds(10))
        #expect(leave(&state, at: 0) == .wait(.unreachable, until: 30 * second))
        // Requests that were under way before it asked: neither their failures nor their success end its pause.
        fail(&state, 0..<(2 * tiles.silences))
        #expect(leave(&state, at: 0) == .wait(.unreachable, until: 30 * second))
        state.answered(at: 0, sentAt: nil)
        #expect(leave(&state, at: 0) == .wait(.unreachable, until: 30 * second))
        var other = state
        other.answered(at: 2 * second, sentAt: second)
        #expect(other.isUnblemished, "one that was sent after it asked shows that it is back")
        #expect(leave(&state, at: 30 * second) == .probe(1))
        state.answered(at: 30 * second, sentAt: nil)
        #expect(state.isUnblemished)
    }

    @Test func failuresOfRequestsThatWereUnderWayCountOnce() {
        var (one, many) = (opened(at: 0), opened(at: 0))
        fail(&many, 0..<100)
        #expect(leave(&one, at: 0) == leave(&many, at: 0))
        one.abandoned(1, at: second)
        many.abandoned(1, at: second)
        fail(&one, 1..<2, at: second)
        fail(&many, 1..<2, at: second)
        #expect(leave(&one, at: second) == leave(&many, at: second))
    }

    /// A connection that cannot be made is about the origin, whatever was asked; a proxy's rule too.
    @Test func severalQuestionsInARowAreOrOneConnectionThatCannotBeMade() {
        var (dropped, refused, mixed) = (OriginState(), OriginState(), OriginState())
        func failed(_ state: inout OriginState, _ question: Int, _ blame: OriginSetback.Blame, _ why: OriginFailure) {
            state.failed(question, OriginSetback(blame, why), at: 0, sentAt: nil, random: 0, .clients)
        }
        for question in 1...3 {
            #expect(leave(&dropped, at: 0) == .ask)
            failed(&dropped, question, .silent, .status(503))
            failed(&mixed, question, .silent, .unreachable)
            if question == 2 { mixed.answered(at: 0, sentAt: nil) }
        }
        failed(&refused, 1, .unconnected, .unreachable)
        #expect(leave(&dropped, at: 0) == .wait(.status(503), until: second / 2))
        #expect(leave(&refused, at: 0) == .wait(.unreachable, until: second / 2))
        #expect(leave(&mixed, at: 0) == .ask, "an answer in between clears it")
        refused.answered(at: 0, sentAt: nil)
        #expect(refused.isUnblemished)
    }

    /// A phone that was offline twice: what failed the first time has not succeeded since, but its host has.
    @Test func theSameQuestionsLeaveItAloneInTheNextOutageToo() {
        var state = opened(at: 0)
        state.answered(at: second, sentAt: nil)
        #expect(leave(&state, at: second) == .ask)
        fail(&state, 0..<tiles.silences, at: 100 * second)
        #expect(leave(&state, at: 100 * second) == .wait(.unreachable, until: 101 * second))
    }

    /// At any time one probe at most is out whose outcome is not known and that is younger than a minute, whatever becomes of
    /// other requests and of probes that are late.
    @Test(arguments: 0..<4)
    func neverMoreThanOneProbeIsOut(part: Int) {
        for seed in Seeds.share(part, of: 4, count: 400) {
            var random = SplitMix64(seed: seed)
            var state = OriginState()
            var now: UInt64 = 0
            var (last, late): (UInt64, [UInt64]) = (0, [])
            var out: (number: UInt64, since: UInt64)?
            for _ in 0..<200 {
                now += UInt64(random.below(20)) * second / 4
                // The one that is out, one that is known not to be any more, or a request that was no probe.
                let probe = random.pick([out?.number, out?.number, late.isEmpty ? nil : random.pick(late), nil])
                let isOut = probe != nil && probe == out?.number
                switch random.below(5) {
                case 0, 1:
                    switch state.leave(at: now, number: last + 1) {
                    case .probe(let number):
                        last += 1
                        let free = out.map { now >= $0.since + OriginState.patience } ?? true
                        #expect(number == last && free, "seed \(seed): two probes at once")
                        if let out { late.append(out.number) }
                        out = (number, now)
                    case .wait(_, let until): #expect(until > now, "seed \(seed)")
                    case .ask: break
                    }
                    continue
                case 2, 3:
                    let blame = random.pick([
                        OriginSetback.Blame.silent, .overloaded, .error, .unconnected, .none, .unasked,
                    ])
                    let pause = random.oneIn(8) ? Duration.seconds(Int64(random.below(90))) : nil
                    state.failed(
                        random.below(40), OriginSetback(blame, .unreachable, retryAfter: pause), at: now,
                        sentAt: random.oneIn(2) ? now : nil, probe: probe, random: random.next(), tiles)
                    // Anybody's answer counts, and what it asks for.
                    let isAnswer = blame == .none || blame == .error || blame == .overloaded
                    guard isOut || isAnswer || pause != nil else { continue }
                default:
                    guard random.oneIn(2) else {
                        if let probe { state.abandoned(probe, at: now) }
                        guard isOut else { continue }
                        break
                    }
                    state.answered(at: now, sentAt: nil)
                }
                if let out { late.append(out.number) }
                out = nil
            }
        }
    }

    /// One that is late, or was told to wait, must not free the place of another: two would try at once.
    @Test func aProbeThatIsGivenUpLateDoesNotFreeThePlaceOfAnother() throws {
        let lab = Lab(tiles)
        for number in 0..<tiles.silences { lab.fail(number, "a", .silent) }
        lab.clock.advance(seconds: 1)
        let first = try #require(lab.health.leave(for: "a").probe)
        // It tells nothing for a minute, and another one tries.
        lab.clock.advance(seconds: 60)
        let second = try #require(lab.health.leave(for: "a").probe)
        #expect(first != second)
        lab.health.abandoned("a", probe: first)
        #expect(lab.health.leave(for: "a").probe == nil)
        lab.health.abandoned("a", probe: second)
        #expect(lab.health.leave(for: "a").probe != nil)
    }

    /// The leave was for a question that had failed, while its origin was well.
    @Test func aProbeOfAQuestionDoesNotFreeThatOfItsOrigin() throws {
        let lab = Lab(tiles)
        lab.fail(1)
        lab.clock.advance(seconds: 10)
        let question = try #require(lab.health.leave(for: "a", 1).probe)
        for number in 10..<(10 + tiles.silences) { lab.fail(number, "a", .silent) }
        lab.clock.advance(seconds: 1)
        let origin = try #require(lab.health.leave(for: "a", 2).probe)
        lab.health.abandoned("a", 1, probe: question)
        #expect(lab.health.leave(for: "a", 3).probe == nil)
        lab.health.abandoned("a", 2, probe: origin)
        #expect(lab.health.leave(for: "a", 3).probe != nil)
    }

    /// It was refused before it was sent, or was sent long before the probe, by one who asks whatever is known.
    @Test(arguments: [OriginSetback.Blame.unasked, .silent, .unconnected])
    func theFailureOfAnotherRequestDoesNotDecideForTheProbe(_ blame: OriginSetback.Blame) throws {
        let lab = Lab(tiles)
        let sentAt = lab.clock.ticks
        for number in 0..<tiles.silences { lab.fail(number, "a", .silent) }
        lab.clock.advance(seconds: 1)
        let probe = try #require(lab.health.leave(for: "a").probe)
        lab.fail(9, "a", blame, sentAt: sentAt)
        #expect(lab.health.wait(forOrigin: "a")?.until == lab.clock.ticks + OriginState.recheck)
        lab.clock.advance(seconds: 30)
        #expect(lab.health.leave(for: "a").probe == nil, "two try at once")
        lab.fail(10, "a", .silent, sentAt: lab.clock.ticks, probe: probe)
        // Half of four seconds: the second time in a row, not the third.
        #expect(lab.health.wait(forOrigin: "a")?.until == lab.clock.ticks + 2 * second)
    }

    /// The same for a single question.
    @Test func theFailureOfAnotherRequestDoesNotEndTheProbeOfAQuestion() throws {
        let lab = Lab(tiles)
        lab.fail(1)
        lab.clock.advance(seconds: 10)
        let probe = try #require(lab.health.leave(for: "a", 1).probe)
        lab.fail(1, "a", .unconnected)
        lab.health.answered("a")
        #expect(lab.health.leave(for: "a", 1).probe == nil)
        lab.fail(1, "a", .unconnected, probe: probe)
        lab.health.answered("a")
        #expect(lab.health.leave(for: "a", 1).probe != nil)
    }

    // MARK: All origins and questions

    private final class Lab: Sendable {
        let clock = ManualClock()
        let health: OriginHealth

        init(_ rules: OriginRules, seed: UInt64? = nil) {
            let clock = self.clock
            let random = seed.map { Locked(SplitMix64(seed: $0)) }
            health = OriginHealth(
                rules, ticks: { clock.ticks }, random: { random?.withLock { $0.next() } ?? 0 })
        }

        func fail(
            _ question: Int, _ origin: String = "a", _ blame: OriginSetback.Blame = .none, retryAfter: Duration? = nil,
            sentAt: UInt64? = nil, probe: UInt64? = nil, _ failure: OriginFailure = .status(500)
        ) {
            health.judge(
                origin, question, .failed(OriginSetback(blame, failure, retryAfter: retryAfter)), sentAt: sentAt,
                probe: probe)
        }
    }

    @Test func aQuestionIsLeftAloneForLongerEachTime() throws {
        let lab = Lab(tiles)
        lab.fail(1)
        let first = try #require(lab.health.wait(for: 1))
        #expect(first.failure == .status(500))
        #expect(first.until == lab.clock.ticks + second)
        #expect(lab.health.wait(for: 2) == nil)
        lab.clock.advance(seconds: 2)
        #expect(lab.health.wait(for: 1) == nil)
        for _ in 0..<20 { lab.fail(1) }
        #expect(lab.health.wait(for: 1)?.until == lab.clock.ticks + 30 * second)
        // Those that were under way when it was left alone say nothing new.
        for _ in 0..<20 { lab.fail(2, sentAt: lab.clock.ticks) }
        #expect(lab.health.wait(for: 2)?.until == lab.clock.ticks + second)
    }

    @Test func anAnswerForgetsTheQuestionAndItsOrigin() {
        let lab = Lab(tiles)
        for number in 0..<tiles.silences { lab.fail(number, "a", .silent) }
        #expect(lab.health.wait(forOrigin: "a") != nil)
        #expect(lab.health.wait(forOrigin: "b") == nil)
        lab.health.answered("a", 1)
        #expect(lab.health.wait(forOrigin: "a") == nil)
        #expect(lab.health.wait(for: 1) == nil)
        #expect(lab.health.wait(for: 2) != nil)
        lab.health.forget()
        #expect(lab.health.wait(for: 2) == nil)
    }

    @Test func aFailureOfOneQuestionAloneClearsItsOrigin() {
        let lab = Lab(tiles)
        for number in 0..<(tiles.silences - 1) { lab.fail(number, "a", .silent) }
        lab.fail(9)
        for number in 10..<(10 + tiles.silences - 1) { lab.fail(number, "a", .silent) }
        #expect(lab.health.wait(forOrigin: "a") == nil)
    }

    @Test func retryAfterHoldsForTheQuestionAndTheOrigin() {
        let lab = Lab(tiles)
        lab.fail(1, retryAfter: .seconds(1000))
        let until = lab.clock.ticks + 1000 * second
        #expect(lab.health.wait(for: 1)?.until == until)
        #expect(lab.health.wait(forOrigin: "a")?.until == until)
        // Another question to the same origin, asked before that.
        lab.health.answered("a", 2)
        #expect(lab.health.wait(forOrigin: "a")?.until == until)
    }

    @Test func oneQuestionThatTheOriginDropsIsNotItsDeath() throws {
        let lab = Lab(.clients)
        for _ in 0..<10 {
            lab.clock.advance(seconds: 100)
            lab.fail(1, "a", .silent, sentAt: lab.clock.ticks)
        }
        guard case .wait(.status(500), _) = lab.health.leave(for: "a", 1) else {
            Issue.record("it is asked again at once")
            return
        }
        #expect(lab.health.leave(for: "a", 2) == .ask)
        lab.clock.advance(seconds: 100)
        let probe = try #require(lab.health.leave(for: "a", 1).probe)
        guard case .wait = lab.health.leave(for: "a", 1) else {
            Issue.record("two try at once")
            return
        }
        lab.health.abandoned("a", 1, probe: probe)
        #expect(lab.health.leave(for: "a", 1).probe != nil)
    }

    /// One that was sent before another was answered, and timed out after it, is about its question.
    @Test func aQuestionThatTimesOutWhileOthersAreAnsweredDoesNotBlameTheOrigin() {
        let lab = Lab(.clients)
        let sentAt = lab.clock.ticks
        lab.clock.advance(seconds: 1)
        lab.health.answered("a", 9, sentAt: sentAt)
        lab.clock.advance(seconds: 1)
        lab.fail(1, "a", .unconnected, sentAt: sentAt)
        for question in 2...6 { lab.fail(question, "a", .silent, sentAt: sentAt) }
        #expect(lab.health.leave(for: "a", 9) == .ask)
        lab.fail(7, "a", .unconnected, sentAt: lab.clock.ticks)
        #expect(lab.health.leave(for: "a", 9) != .ask)
    }

    @Test func whenTheNetworkIsBackOnlyWhatGaveNoAnswerIsForgotten() {
        let lab = Lab(tiles)
        lab.fail(1, "away", .unconnected, .unreachable)
        lab.fail(2, "away", .silent, .unreachable)
        lab.fail(3, "asks", retryAfter: .seconds(100))
        lab.fail(4, "failing", .error)
        // It asked for a pause, and was away too when it was asked all the same.
        lab.fail(5, "both", retryAfter: .seconds(100))
        lab.fail(6, "both", .unconnected, .unreachable)
        #expect(lab.health.wait(forOrigin: "away") != nil && lab.health.wait(for: 2) != nil)
        lab.health.forgetUnreachable()
        #expect(lab.health.wait(forOrigin: "away") == nil && lab.health.wait(for: 2) == nil)
        #expect(lab.health.leave(for: "away") == .ask)
        #expect(lab.health.wait(forOrigin: "asks")?.until == lab.clock.ticks + 100 * second)
        #expect(lab.health.wait(for: 3)?.until == lab.clock.ticks + 100 * second)
        #expect(lab.health.wait(for: 4) != nil)
        #expect(lab.health.wait(forOrigin: "both")?.until == lab.clock.ticks + 100 * second)
    }

    /// One that was sent before the network was back failed for want of it.
    @Test func whatWasSentBeforeTheNetworkWasBackSaysNothingWhenItFails() throws {
        let lab = Lab(tiles)
        lab.fail(1, "a", .unconnected, .unreachable)
        lab.clock.advance(seconds: 100)
        let probe = try #require(lab.health.leave(for: "a").probe)
        let sentAt = lab.clock.ticks
        lab.clock.advance(seconds: 1)
        lab.health.forgetUnreachable()
        lab.clock.advance(seconds: 1)
        lab.fail(1, "a", .unconnected, sentAt: sentAt, probe: probe, .unreachable)
        #expect(lab.health.leave(for: "a") == .ask)
        lab.fail(1, "a", .unconnected, sentAt: lab.clock.ticks, .unreachable)
        #expect(lab.health.leave(for: "a") != .ask)
    }

    @Test func itStaysBoundedAndKeepsTheLongestWaits() {
        let lab = Lab(tiles, seed: 1)
        lab.fail(0, retryAfter: .seconds(3000))
        for number in 1..<50_000 { lab.fail(number) }
        #expect(lab.health.wait(for: 0) != nil)
        #expect(lab.health.wait(for: 49_999) != nil)
        let left = (0..<50_000).count { lab.health.wait(for: $0) != nil }
        #expect(left <= OriginHealth.mostQuestions && left > 1_000)
        for number in 0..<5_000 { lab.fail(0, "host-\(number)", .silent) }
        #expect(lab.health.wait(forOrigin: "host-4999") == nil)
        #expect(lab.health.counts.origins <= OriginHealth.mostOrigins)
    }

    @Test func aLongPauseIsRememberedHoweverManyOtherOriginsFail() {
        let lab = Lab(tiles, seed: 1)
        lab.fail(0, retryAfter: .seconds(3000))
        for number in 0..<5_000 { lab.fail(number, "host-\(number)", retryAfter: .seconds(5)) }
        #expect(lab.health.wait(forOrigin: "a") != nil)
        #expect(lab.health.wait(forOrigin: "host-4999") != nil)
        let left = (0..<5_000).count { lab.health.wait(forOrigin: "host-\($0)") != nil }
        #expect(left <= OriginHealth.mostOrigins)
    }
}
