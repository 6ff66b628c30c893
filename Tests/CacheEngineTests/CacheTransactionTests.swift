import HTTPCaching
import HTTPTypes
import Testing
import TileStore

@testable import CacheEngine

/// What a transaction does, event by event.
@Suite(.timeLimit(.minutes(60)))
struct CacheTransactionTests {
    private typealias Event = CacheTransaction.Event

    /// The words of what is done after each event.
    private func run(
        _ request: CacheRequest, use: CacheUse = MachineLab.use, _ events: [Event]
    ) -> [String] {
        var transaction = CacheTransaction(request, use)
        return events.map { event in
            transaction.on(event, at: MachineLab.now).map(\.word).joined(separator: ", ")
        }
    }

    @Test
    func whatIsFreshIsAnsweredAndMadeReady() throws {
        let found = Event.looked(.found(try MachineLab.stored("max-age=1000")))
        #expect(
            run(try MachineLab.request(), [.begin, .looked(.mustWait), found, .begin, found])
                == ["look", "look and wait", "answer hit, make ready, done", "", ""])
    }

    @Test
    func aMissLeadsAFillOnceNothingIsBeingWritten() throws {
        #expect(
            run(
                try MachineLab.request(),
                [
                    .begin, .looked(.miss), .written(waited: true), .looked(.miss), .leads,
                    .told(.head(MachineLab.answer(200), length: 5, CacheStatus(cache: "test"))), .told(.ended),
                ])
                == ["look", "await writes", "look", "fetch shared uri-miss", "", "relay 200", "done"])
    }

    @Test
    func whoMayNotWaitAsksByItself() throws {
        let range = try MachineLab.request(.get, [.range: "bytes=0-1"])
        let miss: [Event] = [.begin, .looked(.miss), .written(waited: false)]
        #expect(run(range, miss).last == "fetch closed uri-miss")
        #expect(run(try MachineLab.request(.head), miss).last == "fetch unlisted uri-miss")
        #expect(run(try MachineLab.request(.post, hasBody: true), [.begin]) == ["fetch unlisted method"])
        let only = try MachineLab.request(.get, [.cacheControl: "only-if-cached"])
        #expect(run(only, miss).last == "refuse 504, done")
    }

    @Test
    func aFollowerTakesWhatWasStoredAndElseAsksAloneWithoutJoiningAgain() throws {
        let follow: [Event] = [.begin, .looked(.miss), .written(waited: false), .follows]
        let request = try MachineLab.request()
        let fresh = Event.looked(.found(try MachineLab.stored("max-age=1000")))
        #expect(
            run(request, follow + [.heard(.stored), fresh]).suffix(3) == [
                "start patience", "look", "answer miss, done",
            ])
        #expect(run(request, follow + [.heard(.alone)]).last == "fetch unlisted uri-miss")
        #expect(run(request, follow + [.heard(.again), .looked(.miss)]).last == "fetch shared uri-miss")
        let held = HeldAnswer(try MachineLab.stored("max-age=1000"), vary: [], for: request.fields)
        #expect(run(request, follow + [.heard(.held(held))]).last == "answer miss, done")
        let other = HeldAnswer(try MachineLab.stored("max-age=1000"), vary: [.accept], for: [.accept: "other"])
        #expect(run(request, follow + [.heard(.held(other))]).last == "fetch unlisted uri-miss")
    }

    @Test
    func aFollowerTakesTheFailureForItsOwnAndServesStaleWhereItMay() throws {
        let request = try MachineLab.request()
        let miss: [Event] = [.begin, .looked(.miss), .written(waited: false), .follows]
        #expect(run(request, use: MachineLab.oneAsker, miss + [.heard(.failed(.closed))]).last == "refuse 502, done")
        let leftAlone = miss + [.heard(.failed(.leftAlone(.unreachable)))]
        #expect(run(request, use: MachineLab.oneAsker, leftAlone).last == "refuse 503, done")
        // An answer that asks for a pause is no silence, after which anything stale would do (RFC 5861 §4).
        let stale: [Event] = [
            .begin, .looked(.found(try MachineLab.stored("max-age=1"))), .written(waited: false), .leave(.ask),
            .follows,
        ]
        for (failure, expected) in [
            (OriginFailure.status(429), "refuse 503, done"), (.unreachable, "answer stale (origin-unreachable), done"),
        ] {
            #expect(
                run(request, use: MachineLab.oneAsker, stale + [.heard(.failed(.leftAlone(failure)))]).last == expected)
        }
        func follow(_ control: String) throws -> [Event] {
            let stored = Event.looked(.found(try MachineLab.stored(control)))
            return [.begin, stored, .written(waited: false), .leave(.ask), .follows]
        }
        #expect(
            run(request, use: MachineLab.oneAsker, try follow("max-age=1") + [.heard(.failed(.closed))]).last
                == "answer stale (origin-unreachable), done")
        let strict = try MachineLab.stored("max-age=1, must-revalidate")
        #expect(
            run(
                request, use: MachineLab.oneAsker,
                [.begin, .looked(.found(strict)), .written(waited: false), .follows, .heard(.failed(.closed))]
            ).last == "refuse 504, done")
    }

    @Test
    func anAnswerThatMustBeConfirmedIsTakenByEqualRequestsOnly() throws {
        let miss: [Event] = [.begin, .looked(.miss), .written(waited: false), .follows]
        let candidate = try MachineLab.stored("no-cache")
        func heard(_ fields: HTTPFields) -> [Event] {
            miss + [.heard(.held(HeldAnswer(candidate, vary: [], for: fields, isForEqualRequests: true)))]
        }
        let request = try MachineLab.request(.get, [.authorization: "a"])
        #expect(run(request, use: MachineLab.oneAsker, heard([.authorization: "a"])).last == "answer miss, done")
        #expect(run(request, use: MachineLab.oneAsker, heard([.authorization: "b"])).last == "fetch unlisted uri-miss")
        // One that could not be stored is judged as a stored one.
        let held = HeldAnswer(candidate, vary: [], for: request.fields)
        #expect(run(request, use: MachineLab.oneAsker, miss + [.heard(.held(held))]).last != "answer miss, done")
    }

    /// What a reload brings is being written, and the old one may be served stale.
    @Test
    func whatMayBeServedWhileItIsRefreshedWaitsForWhatIsBeingWritten() throws {
        let request = try MachineLab.request()
        let old = Event.looked(.found(try MachineLab.stored("max-age=1, stale-while-revalidate=1000")))
        let new = Event.looked(.found(try MachineLab.stored("max-age=1000")))
        #expect(
            run(request, [.begin, old, .written(waited: true), new])
                == ["look", "await writes", "look", "answer hit, make ready, done"])
        #expect(run(request, [.begin, old, .written(waited: false)]).last == "answer stale, refresh, done")
    }

    @Test
    func anErrorOfTheOriginsAnswersTheWholeHerdFromWhatIsStored() throws {
        let tolerant = Event.looked(.found(try MachineLab.stored("max-age=1, stale-if-error=1000")))
        let begin: [Event] = [.begin, tolerant, .written(waited: false), .leave(.ask), .follows]
        #expect(
            run(try MachineLab.request(), begin + [.heard(.error(status: 500))]).last
                == "answer stale (stale-if-error), done")
        let miss: [Event] = [.begin, .looked(.miss), .written(waited: false), .follows]
        #expect(run(try MachineLab.request(), miss + [.heard(.error(status: 500))]).last == "fetch unlisted uri-miss")
    }

    @Test
    func onlyIfCachedNeverReachesTheOrigin() throws {
        let request = try MachineLab.request(.get, [.cacheControl: "only-if-cached"], hasBody: true)
        #expect(run(request, [.begin]) == ["refuse 504, done"])
    }

    @Test
    func whoHasFollowedTwiceFollowsNoMore() throws {
        let stale = Event.looked(.found(try MachineLab.stored("max-age=1")))
        #expect(
            run(
                try MachineLab.request(),
                [
                    .begin, stale, .written(waited: false), .leave(.ask), .follows, .heard(.stored), stale,
                    .leave(.ask), .follows, .heard(.stored), stale, .leave(.ask),
                ]
            ).last == "fetch closed stale")
    }

    @Test
    func patienceEndsTheWaitAndNothingElse() throws {
        let request = try MachineLab.request()
        let follow: [Event] = [.begin, .looked(.miss), .written(waited: false), .follows]
        #expect(
            run(request, follow + [.patienceOver, .heard(.stored)]).suffix(2) == [
                "leave fill, fetch unlisted uri-miss", "",
            ])
        #expect(
            run(request, follow + [.heard(.again), .patienceOver, .looked(.miss)]).suffix(2)
                == ["", "fetch closed uri-miss"])
    }

    @Test
    func anOriginThatFailedIsLeftAloneByThoseWhoCanDoWithout() throws {
        let stale = Event.looked(.found(try MachineLab.stored("max-age=1, stale-if-error=1000")))
        let request = try MachineLab.request()
        let begin: [Event] = [.begin, stale, .written(waited: false)]
        #expect(
            run(request, begin + [.leave(.wait(.unreachable, until: 0))]).suffix(2)
                == ["ask leave", "answer stale (origin-unreachable), done"])
        #expect(
            run(request, begin + [.leave(.wait(.status(503), until: 0))]).last == "answer stale (stale-if-error), done")
        #expect(run(request, begin + [.leave(.probe(7))]).last == "fetch shared stale as probe")
        // Whoever follows another's question needs no leave of its own.
        #expect(run(request, begin + [.leave(.probe(7)), .follows]).last == "abandon probe, start patience")
        let strict = Event.looked(.found(try MachineLab.stored("max-age=1, must-revalidate")))
        #expect(run(request, [.begin, strict, .written(waited: false)]).last == "fetch shared stale")
    }

    @Test
    func aFailureIsAnsweredFromWhatIsStoredOrByItsOwnStatus() throws {
        let stale = Event.looked(.found(try MachineLab.stored("max-age=1")))
        let strict = Event.looked(.found(try MachineLab.stored("max-age=1, must-revalidate")))
        let request = try MachineLab.request()
        func after(_ found: Event, _ trouble: OriginTrouble) -> String? {
            run(request, [.begin, found, .written(waited: false), .leave(.ask), .leads, .told(.failed(trouble))]).last
        }
        #expect(after(stale, .closed) == "answer stale (origin-unreachable), done")
        for (trouble, status) in [
            (OriginTrouble.closed, 502), (.unreachable("x"), 502), (.malformed("x"), 502), (.timeout, 504),
            (.connectTimeout, 504), (.overloaded, 503), (.clientTooSlow, 408), (.clientMayBeGone, 503),
        ] {
            #expect(
                run(request, [.begin, .looked(.miss), .written(waited: false), .leads, .told(.failed(trouble))]).last
                    == "refuse \(status), done")
        }
        // What must be revalidated is not unreachable but could not be validated (RFC 9111 §5.2.2.2).
        #expect(
            run(request, [.begin, strict, .written(waited: false), .leads, .told(.failed(.closed))]).last
                == "refuse 504, done")
    }

    @Test
    func anAnswerThatBreaksOffIsBrokenOff() throws {
        let begin: [Event] = [.begin, .looked(.miss), .written(waited: false), .leads]
        let head = Event.told(.head(MachineLab.answer(200), length: 5, CacheStatus(cache: "test")))
        #expect(run(try MachineLab.request(), begin + [head, .told(.failed(.closed))]).last == "abort, done")
    }

    @Test
    func whoIsGoneIsAnsweredNothing() throws {
        let request = try MachineLab.request()
        let fresh = Event.looked(.found(try MachineLab.stored("max-age=1000")))
        #expect(run(request, [.begin, .clientGone, fresh]) == ["look", "done", ""])
        let follow: [Event] = [.begin, .looked(.miss), .written(waited: false), .follows]
        #expect(run(request, follow + [.clientGone, .heard(.stored)]).suffix(2) == ["leave fill, done", ""])
        let stale = Event.looked(.found(try MachineLab.stored("max-age=1")))
        #expect(
            run(request, [.begin, stale, .written(waited: false), .leave(.probe(7)), .clientGone]).last
                == "abandon probe, done")
    }
}
