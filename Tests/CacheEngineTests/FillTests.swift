import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileStore

@testable import CacheEngine

/// What a fill does, event by event.
@Suite(.timeLimit(.minutes(60)))
struct FillTests {
    private typealias Event = Fill.Event

    private func run(
        _ request: CacheRequest, stored: Candidate? = nil, hasOwner: Bool = true, probe: UInt64? = nil,
        use: CacheUse = MachineLab.use, cause: CacheStatus.Forward = .stale, room: Int = .max, _ events: [Event]
    ) -> [String] {
        let cause: CacheStatus.Forward = stored == nil ? .uriMiss : cause
        var fill = Fill(
            request, Forwarding(request, stored, cause), use, MachineLab.scope, hasOwner: hasOwner,
            probe: probe)
        return events.map { event in
            var actions = fill.on(event, at: MachineLab.now)
            // What a driver answers at once.
            if case .makeRoom(let length) = actions.last {
                actions.removeLast()
                let room = length.map { Int($0) <= room ? Fill.Room.whole : .none } ?? .asFarAsItGoes
                actions += fill.on(.room(room), at: MachineLab.now)
            }
            return actions.map(\.word).joined(separator: ", ")
        }
    }

    private func head(_ status: Int, _ fields: HTTPFields = [:], length: Int64? = 5) -> Event {
        .head(MachineLab.answer(status, fields), length: length, requestedAt: MachineLab.now)
    }

    private let keep: HTTPFields = [.cacheControl: "max-age=60"]

    @Test
    func aCacheableAnswerIsHandedOnCollectedAndStored() throws {
        #expect(
            run(
                try MachineLab.request(),
                [
                    .begin(looksAgain: true), .looked(.miss), head(200, keep), .ended,
                    .stored(StoreJob.Outcome(), nil),
                ])
                == [
                    "look again", "ask", "origin is there, of use, owner: 200 stored, collect", "store", "end: stored",
                ])
    }

    /// A reload marks the former answer as stale first; who leaves meanwhile must not keep the origin's connection for ever.
    @Test(arguments: [false, true])
    func whatIsCollectedForNobodyIsForgottenAlsoIfTheyLeftWhileTheStoreWasChanged(others: Bool) throws {
        let request = try MachineLab.request(.get, [.cacheControl: "no-cache"])
        let left: [Event] = others ? [.ownerLeft(others: true), .deserted] : [.ownerLeft(others: false)]
        let done = run(
            request, stored: try MachineLab.stored("max-age=1000"), cause: .request,
            [.begin(looksAgain: false), head(200, keep)] + left + [.settled, .forgotten])
        #expect(done.suffix(2).first?.hasSuffix("collect, start forgetting") == true, "\(done)")
        #expect(done.last == "cancel, end: again")
    }

    @Test
    func theFlightBeforeMayHaveLanded() throws {
        let found = Lookup.found(try MachineLab.stored("max-age=1000"))
        #expect(
            run(try MachineLab.request(), [.begin(looksAgain: true), .looked(found), .failed(.closed)])
                == ["look again", "owner: found, end: stored", ""])
        // What is stale by then is no answer.
        let stale = Lookup.found(try MachineLab.stored("max-age=1"))
        #expect(run(try MachineLab.request(), [.begin(looksAgain: true), .looked(stale)]).last == "ask")
    }

    @Test
    func whatIsOfNoUseToOthersSendsThemAwayAtOnce() throws {
        #expect(
            run(try MachineLab.request(), [.begin(looksAgain: false), head(200, [.cacheControl: "no-store"]), .ended])
                == [
                    "ask", "origin is there, of no use, followers: alone, owner: 200, pass on",
                    "owner: ended, end: alone",
                ])
    }

    @Test
    func halfABodyIsNeverStored() throws {
        for trouble in [OriginTrouble.closed, .timeout, .malformed("x"), .clientTooSlow] {
            let words = run(
                try MachineLab.request(), [.begin(looksAgain: false), head(200, keep), .failed(trouble), .ended])
            #expect(words[2] == "report, owner: failed, end: alone")
            #expect(words[3] == "")
        }
    }

    @Test
    func aBodyThatIsTooLargeIsOnlyHandedOn() throws {
        let request = try MachineLab.request()
        #expect(
            run(request, [.begin(looksAgain: false), head(200, keep, length: 5000)]).last
                == "origin is there, of no use, followers: alone, owner: 200, pass on")
        #expect(
            run(request, [.begin(looksAgain: false), head(200, keep, length: nil), .tooMuch, .ended]).suffix(2)
                == ["of no use, followers: alone, pass on", "owner: ended, end: alone"])
        // With nobody to hand it to it is given up.
        #expect(
            run(request, hasOwner: false, [.begin(looksAgain: false), head(200, keep, length: nil), .tooMuch]).last
                == "of no use, followers: alone, cancel, end: alone")
    }

    /// The head goes out before the body has come: it says only what is certain.
    @Test
    func anAnswerWhoseRoomIsNotCertainDoesNotClaimToBeStored() throws {
        let request = try MachineLab.request()
        func word(_ length: Int64?, room: Int, hasOwner: Bool = true) -> String? {
            run(
                request, hasOwner: hasOwner, room: room,
                [.begin(looksAgain: false), head(200, keep, length: length)]
            ).last
        }
        #expect(word(5, room: 5) == "origin is there, of use, owner: 200 stored, collect")
        #expect(word(nil, room: 5) == "origin is there, of use, owner: 200, collect")
        #expect(word(5, room: 4) == "origin is there, of no use, followers: alone, owner: 200, pass on")
        #expect(word(5, room: 4, hasOwner: false)?.hasSuffix("owner: 200, cancel, end: alone") == true)
        // A body that is none needs no room, and its length is known.
        var fill = Fill(
            request, Forwarding(request, nil, .uriMiss), MachineLab.use, MachineLab.scope, hasOwner: true, probe: nil)
        let events = [.begin(looksAgain: false), head(204, keep, length: nil)]
        #expect(events.map { fill.on($0, at: MachineLab.now).last?.word } == ["ask", "room for 0"])
        #expect(fill.on(.ownerLeft(others: false), at: MachineLab.now).isEmpty)
        #expect(fill.on(.room(.whole), at: MachineLab.now).last?.word == "start forgetting")
    }

    /// What is stored was made later, and stays.
    @Test
    func anAnswerThatIsOlderThanWhatIsStoredDoesNotClaimToBeStored() throws {
        let stored = try MachineLab.stored("max-age=1")
        func answer(ago seconds: Int) -> Event {
            let date = MachineLab.now.adding(seconds: -seconds).description
            let fields: HTTPFields = [.cacheControl: "max-age=600", .date: date]
            return .head(
                HTTPResponse(status: .ok, headerFields: fields), length: 5, requestedAt: MachineLab.now)
        }
        func word(_ answer: Event) throws -> String? {
            run(try MachineLab.request(), stored: stored, [.begin(looksAgain: false), answer]).last
        }
        #expect(try word(answer(ago: 99))?.contains("200 stored") == true)
        #expect(try word(answer(ago: 101))?.contains("200 stored") == false)
    }

    @Test
    func aConfirmationBringsWhatIsStoredUpToDate() throws {
        let stored = try MachineLab.stored("max-age=1")
        let confirmed = head(304, [.eTag: "\"1\"", .cacheControl: "max-age=60"], length: nil)
        #expect(
            run(
                try MachineLab.request(), stored: stored,
                [.begin(looksAgain: false), confirmed, .updated(StoreJob.Outcome()), .ended])
                == ["ask if not \"1\"", "origin is there, drop, update", "of use, owner: confirmed, end: stored", ""])
        // On a full disk those who wait get it all the same.
        #expect(
            run(
                try MachineLab.request(), stored: stored,
                [.begin(looksAgain: false), confirmed, .updated(StoreJob.Outcome(isStored: false))]
            ).last == "of use, owner: confirmed, end: held")
    }

    @Test
    func aConfirmationOfSomethingElseIsAskedAboutOnceMore() throws {
        let stored = try MachineLab.stored("max-age=1")
        #expect(
            run(
                try MachineLab.request(), stored: stored,
                [.begin(looksAgain: false), head(304, [.eTag: "\"2\""], length: nil), head(200, keep)])
                == [
                    "ask if not \"1\"", "origin is there, cancel, ask",
                    "origin is there, of use, owner: 200 stored, collect",
                ])
        #expect(
            run(try MachineLab.request(), [.begin(looksAgain: false), head(304, length: nil)]).last
                == "origin is there, cancel, report, owner: failed, end: alone")
    }

    @Test
    func anErrorOfTheOriginsMayBeAnsweredFromWhatIsStored() throws {
        let tolerant = try MachineLab.stored("max-age=1, stale-if-error=1000")
        let strict = try MachineLab.stored("max-age=1, must-revalidate")
        for status in [500, 502, 503, 504] {
            let judged = status == 500 ? "origin is there" : "origin failed: status(\(status))"
            #expect(
                run(try MachineLab.request(), stored: tolerant, [.begin(looksAgain: false), head(status)]).last
                    == judged + ", drop, cancel, owner: use stale, \(status), end: error \(status)")
            #expect(
                run(try MachineLab.request(), stored: strict, [.begin(looksAgain: false), head(status)]).last
                    == judged + ", of no use, followers: alone, owner: \(status), pass on")
        }
        // What it asks for is heard, whatever else becomes of the answer.
        for status in [429, 503] {
            #expect(
                run(
                    try MachineLab.request(), stored: strict,
                    [.begin(looksAgain: false), head(status, [.retryAfter: "20"])]
                ).last?.hasPrefix("origin failed: status(\(status)), back in 20 s") == true)
        }
        // RFC 5861 §4 speaks of errors of the server, not of refusals.
        for status in [403, 429] {
            #expect(
                run(try MachineLab.request(), stored: tolerant, [.begin(looksAgain: false), head(status)]).last
                    == "origin is there, of no use, followers: alone, owner: \(status), pass on")
        }
    }

    @Test
    func aChangeIsSettledBeforeItsAnswerIsSeen() throws {
        #expect(
            run(
                try MachineLab.request(.post, hasBody: true),
                [.begin(looksAgain: false), head(200), .settled, .ended])
                == [
                    "ask", "origin is there, settle 1", "followers: alone, owner: 200, pass on",
                    "owner: ended, end: alone",
                ])
        // It is settled though the client has gone meanwhile.
        #expect(
            run(
                try MachineLab.request(.post, hasBody: true),
                [.begin(looksAgain: false), head(200), .ownerLeft(others: false), .settled]
            ).suffix(2) == ["", "followers: alone, owner: 200, cancel, end: alone"])
    }

    @Test
    func aFillGoesOnForThoseWhoWaitWhenItsOwnerLeaves() throws {
        let request = try MachineLab.request()
        #expect(
            run(
                request,
                [
                    .begin(looksAgain: false), .ownerLeft(others: true), head(200, keep), .ended,
                    .stored(StoreJob.Outcome(), nil),
                ]
            ).suffix(4) == ["", "origin is there, of use, owner: 200 stored, collect", "store", "end: stored"])
        #expect(run(request, [.begin(looksAgain: false), .ownerLeft(others: false)]).last == "cancel, end: again")
        #expect(
            run(request, [.begin(looksAgain: false), .ownerLeft(others: true), .deserted]).last == "cancel, end: again")
        // What is being collected is stored, whoever is there.
        #expect(
            run(request, [.begin(looksAgain: false), head(200, keep), .ownerLeft(others: false), .deserted, .ended])
                .suffix(3) == ["start forgetting", "start forgetting", "store"])
        // But not for ever.
        #expect(
            run(request, [.begin(looksAgain: false), head(200, keep), .ownerLeft(others: false), .forgotten, .ended])
                .suffix(2) == ["cancel, end: again", ""])
    }

    @Test
    func whatTheOriginHasWithdrawnGoesThoughItWasAskedAboutTwice() throws {
        #expect(
            run(
                try MachineLab.request(), stored: try MachineLab.stored("max-age=1"),
                [
                    .begin(looksAgain: false), head(304, [.eTag: "\"2\""], length: nil),
                    head(404, [.cacheControl: "no-store"]),
                ]
            ).last == "origin is there, settle 0")
    }

    @Test
    func anEntryThatWasRemovedMeanwhileAnswersNobodyElse() throws {
        let confirmed = head(304, [.eTag: "\"1\"", .cacheControl: "max-age=60"], length: nil)
        #expect(
            run(
                try MachineLab.request(), stored: try MachineLab.stored("max-age=1"),
                [
                    .begin(looksAgain: false), confirmed,
                    .updated(StoreJob.Outcome(isStored: false, isCurrent: false)),
                ]
            ).last == "owner: confirmed, end: again")
    }

    @Test
    func aChangeGoesOnThoughItsClientHasLeft() throws {
        #expect(
            run(
                try MachineLab.request(.post, hasBody: true),
                [.begin(looksAgain: false), .ownerLeft(others: false), head(200), .settled]
            ).suffix(3) == ["", "origin is there, settle 1", "followers: alone, owner: 200, cancel, end: alone"])
    }

    @Test
    func whatBecomesOfAQuestionIsToldOnce() throws {
        let request = try MachineLab.request()
        let stored = try MachineLab.stored("max-age=1")
        func words(_ events: [Event]) -> [String] { run(request, stored: stored, probe: 7, events) }
        #expect(
            words([.begin(looksAgain: false), .failed(.unreachable("x")), .failed(.closed)]).suffix(2)
                == ["origin failed: unreachable, no connection, report, owner: failed, end: alone", ""])
        #expect(
            words([.begin(looksAgain: false), .failed(.closed)]).last
                == "origin failed: unreachable, report, owner: failed, end: alone")
        #expect(
            words([.begin(looksAgain: false), .failed(.overloaded)]).last
                == "report, owner: failed, abandon probe, end: alone")
        #expect(
            words([.begin(looksAgain: false), .failed(.clientMayBeGone)]).last
                == "owner: failed, abandon probe, end: again")
        #expect(
            words([.begin(looksAgain: false), .ownerLeft(others: false)]).last == "cancel, abandon probe, end: again")
    }

    @Test
    func whatChangedMeanwhileIsNotStored() throws {
        #expect(
            run(try MachineLab.request(), [.begin(looksAgain: false), head(200, keep), .ended, .mayNotStore]).last
                == "end: alone")
    }

    @Test
    func aFullDiskDoesNotSendThoseWhoWaitToTheOrigin() throws {
        let body = HeldBody(Data("whole".utf8), 0, StagingBudget(limit: 10))
        #expect(
            run(
                try MachineLab.request(),
                [.begin(looksAgain: false), head(200, keep), .ended, .stored(StoreJob.Outcome(isStored: false), body)]
            ).last == "end: held")
    }

    // MARK: Where all who ask are one

    @Test
    func aFailureIsToldToAllWhoWaitWhereTheyAreOne() throws {
        let request = try MachineLab.request()
        let troubles: [(OriginTrouble, String)] = [
            (.unreachable("x"), "failed"), (.connectTimeout, "failed"), (.timeout, "failed"), (.closed, "failed"),
            (.malformed("x"), "failed"), (.overloaded, "failed"), (.leftAlone(.unreachable), "failed"),
            (.clientTooSlow, "alone"),
            (.cancelled, "alone"), (.clientMayBeGone, "again"),
        ]
        for (trouble, word) in troubles {
            let events: [Event] = [.begin(looksAgain: false), .failed(trouble)]
            let own = run(request, use: MachineLab.oneAsker, events).last
            #expect(own?.hasSuffix("end: \(word)") == true, "\(trouble)")
            let others = trouble == .clientMayBeGone ? "again" : "alone"
            #expect(run(request, events).last?.hasSuffix("end: \(others)") == true, "\(trouble)")
        }
        // Nobody has broken a host that is left alone just now.
        #expect(
            run(request, use: MachineLab.oneAsker, [.begin(looksAgain: false), .failed(.leftAlone(.unreachable))]).last
                == "owner: failed, end: failed")
    }

    @Test
    func anAnswerThatMustBeConfirmedIsForAllWhoWaitWhereTheyAreOne() throws {
        let request = try MachineLab.request()
        let body = HeldBody(Data("whole".utf8))
        let events: [Event] = [
            .begin(looksAgain: false), head(200, [.cacheControl: "no-cache", .eTag: "\"1\""]), .ended,
            .stored(StoreJob.Outcome(), body),
        ]
        #expect(
            run(request, use: MachineLab.oneAsker, events)
                == [
                    // Who asks from now on asks the server.
                    "ask", "origin is there, of use, owner: 200 stored, admit nobody, collect", "store",
                    "end: held for equals",
                ])
        #expect(run(request, events)[1].contains("followers: alone"))
        let confirmed: [Event] = [
            .begin(looksAgain: false), head(304, [.eTag: "\"1\"", .cacheControl: "no-cache"], length: nil),
            .updated(StoreJob.Outcome()),
        ]
        let stored = try MachineLab.stored("no-cache")
        #expect(
            run(request, stored: stored, use: MachineLab.oneAsker, confirmed).last
                == "of use, owner: confirmed, end: held for equals")
        #expect(run(request, stored: stored, confirmed).last == "of no use, owner: confirmed, end: alone")
        // What must not be stored is for no other request.
        #expect(
            run(
                request, use: MachineLab.oneAsker, [.begin(looksAgain: false), head(200, [.cacheControl: "no-store"])]
            ).last?.contains("followers: alone") == true)
    }

    // MARK: Reloads

    /// Else a client that has seen the end of the new one would get the old one for as long as the new one is being written.
    @Test
    func aReloadMakesTheFreshResponseStaleBeforeTheNewOneIsSeen() throws {
        let reload = try MachineLab.request(.get, [.cacheControl: "no-cache"])
        let answered: [Event] = [.begin(looksAgain: false), head(200, keep), .settled]
        let fresh = try MachineLab.stored("max-age=1000")
        #expect(
            run(reload, stored: fresh, cause: .request, answered).suffix(2)
                == ["origin is there, settle 0", "owner: 200 stored, collect"])
        var fill = Fill(
            reload, Forwarding(reload, fresh, .request), MachineLab.use, MachineLab.scope, hasOwner: true,
            probe: nil)
        _ = fill.on(.begin(looksAgain: false), at: MachineLab.now)
        let jobs = fill.on(head(200, keep), at: MachineLab.now).compactMap { action -> TileMetadata? in
            if case .settle(_, .refresh(_, let metadata)) = action { metadata } else { nil }
        }
        #expect(jobs.map { HTTPDate($0.expires) } == [MachineLab.now])
        // There is nothing to do for what is stale already, and what is not stored replaces nothing.
        let stale = try MachineLab.stored("max-age=1")
        #expect(
            run(reload, stored: stale, cause: .request, answered)[1] == "origin is there, owner: 200 stored, collect")
        let refused = head(404, [.cacheControl: "no-store"])
        #expect(
            run(reload, stored: fresh, cause: .request, [.begin(looksAgain: false), refused]).last?.contains("settle")
                == false)
    }
}
