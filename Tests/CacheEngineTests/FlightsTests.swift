import Testing
import TileStore

@testable import CacheEngine

/// Who leads, who follows, and who is told.
@Suite(.timeLimit(.minutes(60)))
struct FlightsTests {
    private typealias Work = Flights<Int, Int>

    /// What was heard, in order.
    private final class Heard: Sendable {
        private let state = Locked<[String]>([])
        var words: [String] { state.withLock { $0 } }
        func note(_ word: String) { state.withLock { $0.append(word) } }
    }

    @Test func whoFollowsFromTheBeginningHasToSeeToTheWorkIfThereIsNone() throws {
        let (flights, heard) = (Work(), Heard())
        let joinedFirst = flights.follow(1, .prefetch, nil) { heard.note("first \($0)") }
        let first = try #require(joinedFirst)
        let ticket = try #require(first.leads)
        let joinedSecond = flights.follow(1, .visible, FetchTerms(attempts: 3)) { heard.note("second \($0)") }
        let second = try #require(joinedSecond)
        #expect(second.leads == nil && flights.followers(of: 1) == 2)
        #expect(ticket.urgency.priority == .visible && ticket.urgency.terms.attempts == 3, "it rises with them")
        flights.land(ticket, 7)
        #expect(heard.words == ["first 7", "second 7"] && flights.count == 0)
        flights.leave(first.seat)
        #expect(heard.words.count == 2)
    }

    /// Who comes when the answer is there already must not get it, and must not make those forgotten who wait for it.
    @Test func aFlightThatIsShutGoesOnForItsFollowersAndTakesNobodyElse() throws {
        let (flights, heard) = (Work(), Heard())
        guard case .leads(.some(let ticket)) = flights.join(1, hear: { _ in }),
            case .follows = flights.join(1, hear: { heard.note("told \($0)") })
        else {
            Issue.record("nobody leads, or nobody follows")
            return
        }
        flights.shut(ticket)
        guard case .leads(nil) = flights.join(1, hear: { _ in heard.note("late") }) else {
            Issue.record("joined")
            return
        }
        #expect(flights.start(1, isOpen: true) == nil && flights.keep(1, .refresh) == nil)
        let other = flights.follow(1, .visible, nil) { heard.note("other \($0)") }
        #expect(other?.leads == nil)
        flights.land(ticket, 7)
        #expect(heard.words == ["told 7", "other 7"] && flights.count == 0)
    }

    @Test func theLastToLeaveDesertsItUnlessItIsKept() throws {
        let (flights, heard) = (Work(), Heard())
        let joined = flights.follow(1, .visible, nil) { _ in heard.note("told") }
        let place = try #require(joined)
        let ticket = try #require(place.leads)
        let goesOn = flights.leaderLeft(ticket) { heard.note("deserted") }
        #expect(goesOn)
        flights.leave(place.seat)
        #expect(heard.words == ["deserted"])
        // Nobody joins what is being given up.
        let joinedNext = flights.follow(1, .visible, nil) { _ in heard.note("told") }
        let next = try #require(joinedNext)
        let other = try #require(next.leads)
        flights.land(ticket, 1)
        #expect(flights.followers(of: 1) == 1)
        let started = flights.keep(1, .refresh)
        #expect(started == nil, "there is one")
        let otherGoesOn = flights.leaderLeft(other) { heard.note("deserted") }
        #expect(otherGoesOn)
        flights.leave(next.seat)
        #expect(heard.words == ["deserted"] && flights.count == 1)
        flights.land(other, 2)
        #expect(heard.words == ["deserted"] && flights.count == 0)
    }

    @Test func allAreSentAwayByItsEndAndNothingIsStartedAnyMore() throws {
        let (flights, heard) = (Work(), Heard())
        let joined = flights.follow(1, .visible, nil) { heard.note("told \($0)") }
        let place = try #require(joined)
        let ticket = try #require(place.leads)
        let goesOn = flights.leaderLeft(ticket) { heard.note("deserted") }
        #expect(goesOn)
        let kept = try #require(flights.keep(2, .refresh))
        let keptGoesOn = flights.leaderLeft(kept) { heard.note("deserted") }
        #expect(keptGoesOn)
        flights.close(9)
        #expect(heard.words.sorted() == ["deserted", "deserted", "told 9"])
        let late = flights.follow(1, .visible, nil) { _ in }
        #expect(late == nil)
        let again = flights.keep(2, .refresh)
        #expect(again == nil && flights.isClosed)
        #expect(flights.count == 0)
        let isThere = flights.leaderLeft(kept) {}
        #expect(!isThere)
    }
}
