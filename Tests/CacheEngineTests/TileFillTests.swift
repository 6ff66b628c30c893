import HTTPCaching
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine

extension TileFill.Action {
    var word: String {
        switch self {
        case .lookAgain: "look again"
        case .askShared: "shared?"
        case .storeShared(_, let isAbsence): isAbsence ? "store shared absence" : "store shared"
        case .askQuestion: "tile?"
        case .prepare: "prepare"
        case .checkTerms(let host): "terms of \(host)?"
        case .askOrigin(let host): "\(host)?"
        case .takeSlot(let host): "slot of \(host)"
        case .giveSlot: "give slot"
        case .askLeave(let host): "leave of \(host)?"
        case .abandonProbe(let host, _): "abandon probe of \(host)"
        case .orderHosts(let own): "order hosts after \(own.name)"
        case .judgeHost(let host, .answered, let probe): host.name + " is well" + (probe == nil ? "" : " again")
        case .judgeHost(let host, .failed(let setback), let probe):
            host.name + " rests"
                + (setback.retryAfter.map { " \($0.components.seconds) s" } ?? "") + (probe == nil ? "" : " again")
        case .abandonHostProbe(let host, _): "abandon probe of \(host.name)"
        case .countFailover: "next"
        case .askRest(let hosts): "rest of \(hosts.count)?"
        case .send(let request, let first, let share): Self.words(request, first, share)
        case .check: "check"
        case .reportClock: "report clock"
        case .store(_, let isAbsence): isAbsence ? "store absence" : "store"
        case .update: "update"
        case .forgetHeld: "forget held"
        case .drop: "drop"
        case .judge(let host, .answered, let isSettled, _): "\(host) is there" + (isSettled ? ", tile too" : "")
        case .judge(let host, .failed(let setback), _, _): "\(host) failed: \(setback.blame)"
        case .pause(let pause): "pause \(pause.components.seconds) s"
        case .end(let end): "end: " + end.word
        }
    }

    private static func words(_ request: HTTPRequest, _ first: String?, _ share: Int?) -> String {
        var words = "send \(request.path ?? "")"
        if let tag = request.headerFields[.ifNoneMatch] { words += " if not \(tag)" }
        if let first { words += " from \(first)" }
        if let share { words += " in 1/\(share)" }
        return words
    }
}

extension TileFill.End {
    var word: String {
        switch self {
        case .found: "found"
        case .brought(_, let isAbsence, let keeping): (isAbsence ? "absent " : "tile ") + "\(keeping)"
        case .confirmed: "confirmed"
        case .shared(_, let isAbsence): isAbsence ? "shared absence" : "shared"
        case .failed(.waiting): "waiting"
        case .failed(.hook): "hook"
        case .failed(.forbidden): "forbidden"
        case .failed(.noRoom): "no room"
        case .failed(.noAnswer): "no answer"
        case .failed(.status(let status, _, _)): "status \(status)"
        case .failed(.unusable(let objection, _, _)): "unusable \(objection)"
        case .cancelled: "cancelled"
        }
    }
}

/// What a fill of tiles does, event by event, and in any order.
@Suite(.timeLimit(.minutes(60)))
struct TileFillTests {
    private typealias Event = TileFill.Event

    private static let now = HTTPDate(seconds: 1_700_000_000)
    private static let request = HTTPRequest(
        method: .get, scheme: "https", authority: "A", path: "/1", headerFields: [.authorization: "x"])
    private static let use = CacheUse(
        tiles: .shared, absent: 3600, staleOnError: 0, storedBodyBytes: 1000, name: "test")

    private static func fill(
        stored tag: String? = nil, isAbsence: Bool = false, isKept: Bool = true, group: String? = nil,
        asksShared: Bool = false
    ) -> TileFill {
        let stored = tag.map {
            TileMetadata(
                response: ResponseFields(), etag: $0, storedAt: Timestamp(now), expires: Timestamp(now))
        }
        return TileFill(
            use, stored: stored, isAbsence: isAbsence, isKept: isKept, harmless: [.ifNoneMatch], group: group,
            asksShared: asksShared)
    }

    private func run(_ events: [Event]) -> [String] { run(Self.fill(), events) }

    private func run(_ fill: TileFill, _ events: [Event]) -> [String] {
        var fill = fill
        return events.map { event in
            fill.on(event, at: Self.now, ticks: 0).map(\.word).joined(separator: ", ")
        }
    }

    /// What happens before the first request is sent.
    private let sent: [Event] = [
        .begin(looksAgain: false), .question(nil, attempts: 1), .prepared(request), .terms(isAllowed: true),
        .origin(nil),
        .slot, .leave(.ask),
    ]

    private func answer(_ status: Int, _ fields: HTTPFields = [:], bytes: Int = 5) -> Event {
        .answer(HTTPResponse(status: .init(code: status), headerFields: fields), bytes: bytes, requestedAt: Self.now)
    }

    /// The tier that a fleet shares is asked before the origin, and whatever becomes of that the origin is there.
    @Test func othersAreAskedFirst() {
        func fill(isKept: Bool = true) -> TileFill { Self.fill(isKept: isKept, asksShared: true) }
        let tile = TileMetadata(
            response: ResponseFields(), storedAt: Timestamp(Self.now), expires: Timestamp(Self.now))
        let looks: [Event] = [.begin(looksAgain: true), .looked(isEnough: false)]
        #expect(
            run(fill(), looks + [.shared(tile, isAbsence: false), .stored])
                == ["look again", "shared?", "store shared", "end: shared"])
        #expect(
            run(fill(), [.begin(looksAgain: false), .shared(tile, isAbsence: true), .stored])
                == ["shared?", "store shared absence", "end: shared absence"])
        #expect(
            run(fill(), looks + [.notShared, .question(nil, attempts: 1)])
                == ["look again", "shared?", "tile?", "prepare"])
        #expect(run(fill(), looks + [.deserted(mayGoOn: true)]).last == "end: cancelled")
        #expect(run(fill(), looks + [.cancelled]).last == "end: cancelled")
        // What is here already is stored for those who come later.
        #expect(
            run(fill(), looks + [.shared(tile, isAbsence: false), .deserted(mayGoOn: false), .stored]).last
                == "end: shared")
        // An answer that is not to be kept is nobody else's either.
        #expect(run(fill(isKept: false), [.begin(looksAgain: false)]) == ["tile?"])
    }

    @Test func aTileIsStoredOnceItHasBeenChecked() {
        #expect(
            run(
                [.begin(looksAgain: true), .looked(isEnough: false)] + Array(sent.dropFirst()) + [
                    answer(200), .checked(objection: nil), .stored,
                ]) == [
                    "look again", "tile?", "prepare", "terms of a?", "a?", "slot of a", "leave of a?", "send /1",
                    "check",
                    "store", "a is there, tile too, give slot, end: tile kept",
                ])
        #expect(run([.begin(looksAgain: true), .looked(isEnough: true)]).last == "end: found")
        #expect(
            run(sent + [answer(200), .checked(objection: "a page")]).last
                == "a failed: none, give slot, end: unusable body")
    }

    /// A part of a file is asked for by its version; what is another version is nobody's fault the first time.
    @Test func aPartOfAFileIsOfOneVersion() {
        let version = FileVersion(tag: "\"v\"", lastModified: nil, length: 50)
        func asked(_ file: FileQuestion) -> [Event] {
            sent.map { if case .prepared(let request, _) = $0 { .prepared(request, file: file) } else { $0 } }
        }
        func part(_ tag: String, bytes: Int = 5) -> Event {
            answer(206, [.contentRange: "bytes 10-14/50", .eTag: tag], bytes: bytes)
        }
        let first = asked(FileQuestion(10..<15, of: version, mark: "m", isRepeated: false))
        #expect(
            run(first + [part("\"v\""), .checked(objection: nil), .stored]).suffix(3)
                == ["check", "store", "a is there, tile too, give slot, end: tile kept"])
        #expect(run(first + [part("\"w\"")]).last == "a is there, give slot, end: unusable otherVersion")
        #expect(run(first + [answer(412)]).last == "a is there, give slot, end: unusable otherVersion")
        #expect(run(first + [part("\"v\"", bytes: 4)]).last == "a failed: none, give slot, tile?")
        #expect(run(first + [answer(404)]).last == "a failed: none, give slot, end: status 404", "no absence")
        let again = asked(FileQuestion(10..<15, of: version, mark: "m", isRepeated: true))
        #expect(run(again + [part("\"w\"")]).last == "a failed: none, give slot, end: unusable otherVersion")
        // What is stored is of another version: no condition, and no 304 that could be about it.
        #expect(run(Self.fill(stored: "\"v\""), first)[6] == "send /1")
        #expect(
            run(Self.fill(stored: "\"v\""), first + [answer(304)]).last
                == "a failed: none, give slot, end: unusable notModified")
        // The beginning of the file is asked about like any other resource.
        #expect(run(Self.fill(stored: "\"v\""), asked(FileQuestion(first: 5)))[6] == "send /1 if not \"v\"")
        // What is known without a request, and what cannot be had.
        let prepared: [Event] = [.begin(looksAgain: false), .question(nil, attempts: 1)]
        #expect(run(prepared + [.looked(isEnough: true)]).last == "end: found")
        #expect(run(prepared + [.unprepared(.noRoom)]).last == "end: no room")
    }

    /// Two servers on one machine, and one server in many spellings.
    @Test(arguments: [
        ("https", "h", "h"), ("http", "h", "h:80"), ("https", "H:443", "h"), ("http", "h:0080", "h:80"),
        ("http", "h:443", "h"), ("https", "h:8443", "h:8443"), ("https", "h.", "h"),
        ("https", "[::1]:8443", "[::1]:8443"),
        ("https", "[::1]", "[::1]"), ("https", "u:p@h:443", "h"), ("https", "h:", "h"),
    ])
    func aServerHasOneName(scheme: String, authority: String, name: String) {
        #expect(HTTPRequest(method: .get, scheme: scheme, authority: authority, path: "/").originName == name)
    }

    // MARK: Hosts that stand for one another

    private static let mirrored = TileFill(
        use, stored: nil, isAbsence: false, isKept: true, harmless: [], group: "group")
    private static let hosts = [
        OriginHost(scheme: "https", authority: "a"), OriginHost(scheme: "http", authority: "b:81"),
        OriginHost(scheme: "https", authority: "c"),
    ]
    /// What happens before the request is sent to the first of them, and to a next one.
    private let sentToFirst: [Event] = [
        .begin(looksAgain: false), .question(nil, attempts: 1), .prepared(request), .hosts(hosts, probe: nil),
        .terms(isAllowed: true), .origin(nil), .slot, .leave(.ask),
    ]
    private let sentToNext: [Event] = [.terms(isAllowed: true), .slot]

    @Test func aHostThatFailsIsFollowedByTheNextAndEachHasItsShareOfTheTime() {
        let none = Event.noAnswer(TileFill.NoAnswer(OriginSetback(.silent, .unreachable), mayPass: true))
        #expect(
            run(
                Self.mirrored,
                sentToFirst + [none] + sentToNext + [answer(503, [.retryAfter: "9"])] + sentToNext + [
                    answer(200), .checked(objection: nil), .stored,
                ]
            ).dropFirst(2) == [
                "order hosts after a", "terms of a?", "group?", "slot of a", "leave of group?", "send /1 in 1/3",
                "a rests, give slot, next, terms of b:81?", "slot of b:81", "send /1 in 1/2",
                "b rests 9 s, give slot, next, terms of c?", "slot of c", "send /1 in 1/1",
                "c is well, check", "store", "group is there, tile too, give slot, end: tile kept",
            ])
    }

    /// An error page with its `Retry-After` says more than a connection that was refused after it.
    ///
    /// Together they can be asked again when the first of them has rested.
    @Test func whereAllHostsFailAnAnswerSaysMoreThanNone() {
        let none = Event.noAnswer(TileFill.NoAnswer(OriginSetback(.silent, .unreachable), mayPass: true))
        let failing = sentToFirst + [answer(429, [.retryAfter: "60"])] + sentToNext + [none] + sentToNext + [none]
        #expect(run(Self.mirrored, failing).last == "c rests, rest of 3?")
        #expect(
            run(Self.mirrored, failing + [.rest(.seconds(2)), .question(nil, attempts: 1)]).suffix(2)
                == ["group failed: overloaded, give slot, tile?", "end: status 429"])
        let silent = sentToFirst + [none] + sentToNext + [none] + sentToNext + [none]
        #expect(run(Self.mirrored, silent).last == "c rests, group failed: silent, give slot, tile?")
        var fill = Self.mirrored
        let waits = (failing + [.rest(.zero)]).flatMap { fill.on($0, at: Self.now, ticks: 0) }
        let judged = waits.compactMap { action -> Duration? in
            if case .judge(_, .failed(let setback), _, _) = action { setback.retryAfter } else { nil }
        }
        #expect(judged == [.seconds(1)], "never at once")
    }

    @Test func whereNoTimeIsLeftTheOthersAreNotAskedAndNotBlamed() {
        let none = Event.noAnswer(TileFill.NoAnswer(OriginSetback(.silent, .unreachable), mayPass: true))
        let late = Event.noAnswer(
            TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: true, isTimeout: true))
        #expect(
            run(Self.mirrored, sentToFirst + [none] + sentToNext + [late]).last
                == "group failed: silent, give slot, tile?")
        // One that is not asked for another reason is passed over, and not blamed.
        let full = Event.noAnswer(TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: true))
        #expect(run(Self.mirrored, sentToFirst + [full]).last == "give slot, next, terms of b:81?")
    }

    /// A redirect is part of the answer of the host that gave it: it is followed from there, and is nobody's mirror.
    @Test func aRedirectOfAMirrorIsFollowedFromTheMirror() {
        let toB = sentToFirst + [answer(503)] + sentToNext
        #expect(run(Self.mirrored, toB + [answer(302, [.location: "http://b:81/2"])]).last == "b is well, send /2")
        #expect(run(Self.mirrored, toB + [answer(302, [.location: "3"])]).last == "b is well, send /3")
        let away = run(
            Self.mirrored,
            toB + [
                answer(302, [.location: "https://d/2"]), .terms(isAllowed: true), .origin(nil), .slot, .leave(.ask),
                answer(503),
            ])
        #expect(
            away.suffix(6) == [
                "b is well, group is there, give slot, terms of d?", "d?", "slot of d", "leave of d?",
                "send /2 from b:81", "d failed: error, give slot, tile?",
            ])
        var fill = Self.mirrored
        let events = toB + [answer(302, [.location: "http://b:81/2"])]
        let sent = events.flatMap { fill.on($0, at: Self.now, ticks: 0) }.compactMap { action -> String? in
            if case .send(let request, _, _) = action { request.headerFields[.authorization] } else { nil }
        }
        #expect(sent == ["x", "x", "x"], "to itself it keeps what the source sends")
    }

    @Test func whatIsNotWholeOrTooMuchIsNotChecked() {
        let length: HTTPFields = [.contentLength: "6"]
        #expect(run(sent + [answer(200, length)]).last == "a failed: none, give slot, tile?")
        #expect(
            run(sent + [answer(200, length), .question(nil, attempts: 2)]).last == "end: unusable incomplete")
        #expect(run(sent + [answer(200, bytes: 1001)]).last == "a failed: none, give slot, end: unusable body")
    }

    @Test func absencesAreRememberedAndWhatMayNotBeStoredIsOnlyGiven() {
        for status in [204, 404, 410] {
            #expect(
                run(sent + [answer(status), .stored]).suffix(2)
                    == ["store absence", "a is there, tile too, give slot, end: absent kept"])
        }
        #expect(
            run(sent + [answer(200, [.cacheControl: "no-store"]), .checked(objection: nil)]).last
                == "forget held, a is there, tile too, give slot, end: tile forbidden(host: \"a\")")
        // What it was asked about must not come back when the origin is away.
        #expect(
            run(Self.fill(stored: "\"1\""), sent + [answer(410, [.cacheControl: "no-store"]), .stored]).suffix(2)
                == ["forget held, drop", "a is there, tile too, give slot, end: absent forbidden(host: \"a\")"])
        #expect(
            run(Self.fill(isKept: false), sent + [answer(200), .checked(objection: nil)]).last
                == "a is there, tile too, give slot, end: tile notWanted")
    }

    @Test func aConfirmationBringsWhatIsStoredUpToDate() {
        let stored = Self.fill(stored: "\"1\"")
        #expect(
            run(stored, sent + [answer(304, [.eTag: "\"1\""]), .stored]).suffix(3)
                == ["send /1 if not \"1\"", "update", "a is there, tile too, give slot, end: confirmed"])
        // Of something else: only the whole tile helps.
        #expect(
            run(stored, sent + [answer(304, [.eTag: "\"2\""]), answer(304)]).suffix(2)
                == ["send /1", "a failed: none, give slot, end: unusable notModified"])
        // That a tile was absent is nothing to ask about; nor is what is not to be read.
        #expect(run(Self.fill(stored: "\"1\"", isAbsence: true), sent).last == "send /1")
        #expect(run(Self.fill(stored: "\"1\"", isKept: false), sent).last == "send /1")
    }

    @Test func aRedirectIsFollowedByTheOtherHostsOwnRules() {
        let elsewhere = answer(302, [.location: "https://b/2"])
        #expect(
            run(
                sent + [
                    elsewhere, .terms(isAllowed: true), .origin(nil), .slot, .leave(.ask), answer(200),
                    .checked(objection: nil), .stored,
                ]
            ).suffix(8) == [
                "a is there, give slot, terms of b?", "b?", "slot of b", "leave of b?", "send /2 from a", "check",
                "store", "b is there, tile too, give slot, end: tile kept",
            ])
        #expect(run(sent + [elsewhere, .terms(isAllowed: false)]).last == "end: forbidden")
        let wait = OriginHealth.Wait(until: 9, failure: .status(503))
        #expect(run(sent + [elsewhere, .terms(isAllowed: true), .origin(wait)]).last == "end: waiting")
        // On the same host it keeps its slot.
        #expect(run(sent + [answer(301, [.location: "/3"])]).last == "send /3")
        #expect(
            run(sent + [answer(301, [.location: "http://a/3"])]).last
                == "a failed: none, give slot, end: unusable redirect")
        let circle = Array(repeating: answer(301, [.location: "/1"]), count: Redirect.most + 1)
        #expect(run(sent + circle).last == "a failed: none, give slot, end: unusable redirect")
    }

    @Test func whatMayPassIsTriedAgainUnlessSomethingIsStored() {
        let second: UInt64 = 1_000_000_000
        let wait = OriginHealth.Wait(until: 2 * second, failure: .status(502))
        let retry: [Event] = [answer(502), .question(wait, attempts: 2), .paused]
        #expect(
            run(sent + retry).suffix(3) == ["a failed: error, give slot, tile?", "pause 2 s", "prepare"])
        #expect(run(sent + [answer(502), .question(wait, attempts: 1)]).last == "end: status 502")
        let long = OriginHealth.Wait(until: 6 * second, failure: .status(502))
        #expect(run(sent + [answer(502), .question(long, attempts: 2)]).last == "end: status 502")
        #expect(
            run(Self.fill(stored: "\"1\""), sent + [answer(502)]).last == "a failed: error, give slot, end: status 502")
        for status in [400, 401, 403, 405, 501] {
            #expect(run(sent + [answer(status)]).last?.hasSuffix("give slot, end: status \(status)") == true)
        }
        // The first failure is told, and not the back-off that it caused.
        let alone = OriginHealth.Wait(until: 9 * second, failure: .unreachable)
        #expect(
            run(sent + retry + [.prepared(Self.request), .terms(isAllowed: true), .origin(alone)]).last
                == "end: status 502")
    }

    @Test func aHostIsNamedWithoutThePasswordBeforeIt() {
        var request = Self.request
        request.authority = "user:password@Host.example:8443"
        #expect(request.hostAndPort == "host.example:8443")
    }

    @Test func nobodySendsToAHostThatFailedWhileItStoodInLine() {
        let leave = OriginHealth.Leave.wait(.unreachable, until: 9)
        #expect(run(Array(sent.dropLast()) + [.leave(leave)]).last == "give slot, end: waiting")
        #expect(
            run([.begin(looksAgain: false), .question(OriginHealth.Wait(until: 9, failure: .unreachable), attempts: 1)])
                .last == "end: waiting")
        #expect(run(Array(sent.prefix(2)) + [.hookFailed]).last == "end: hook")
    }

    /// It waited for as long as all those before it, and then had as long again.
    @Test func whoWaitsTooLongForASlotIsAnsweredAsIfTheHostWereSilent() {
        let inLine = Array(sent.prefix(5))
        #expect(run(inLine + [.noSlot, .slot]).suffix(3) == ["slot of a", "end: no answer", ""])
        #expect(run(Self.fill(stored: "\"1\""), inLine + [.noSlot]).last == "end: no answer")
        var fill = Self.fill()
        let ends = (inLine + [.noSlot]).flatMap { fill.on($0, at: Self.now, ticks: 0) }
        guard case .some(.end(.failed(.noAnswer(let none)))) = ends.last else {
            Issue.record("\(ends)")
            return
        }
        #expect(none.isTimeout && !none.mayPass && none.setback == OriginSetback(.unasked, .unreachable))
        // Another host has failed before: that is told, and judged.
        let next: [Event] = [answer(503), .terms(isAllowed: true), .noSlot]
        #expect(run(Self.mirrored, sentToFirst + next).last == "group failed: error, tile?")
        #expect(run(Self.mirrored, sentToFirst + next + [.question(nil, attempts: 1)]).last == "end: status 503")
        // A redirect has led to a host that has no slot.
        let away: [Event] = [answer(302, [.location: "https://b/2"]), .terms(isAllowed: true), .origin(nil), .noSlot]
        #expect(run(sent + away).suffix(2) == ["slot of b", "end: no answer"])
    }

    @Test func whoIsCancelledGivesBackWhatItHas() {
        #expect(
            run(Array(sent.dropLast()) + [.leave(.probe(7)), .cancelled, answer(200)]).suffix(2)
                == ["abandon probe of a, give slot, end: cancelled", ""])
        #expect(run(Array(sent.dropLast(3)) + [.cancelled]).last == "end: cancelled")
    }

    // MARK: Nobody waits

    /// Clients that leave a page of tiles must not have them fetched again for the next one.
    @Test func whatIsOnItsWayIsStoredThoughNobodyWaits() {
        let alone = sent + [.deserted(mayGoOn: true)]
        #expect(
            run(alone + [answer(200), .checked(objection: nil), .stored]).suffix(4)
                == ["", "check", "store", "a is there, tile too, give slot, end: tile kept"])
        #expect(run(sent + [.deserted(mayGoOn: false)]).last == "give slot, end: cancelled")
        // What has arrived is stored in any case.
        #expect(
            run(sent + [answer(200), .deserted(mayGoOn: false), .checked(objection: nil), .stored]).last
                == "a is there, tile too, give slot, end: tile kept")
        // What has not been asked for is not.
        for count in 1..<sent.count {
            let end = run(Array(sent.prefix(count)) + [.deserted(mayGoOn: true)]).last
            #expect(end?.hasSuffix("end: cancelled") == true, "\(count): \(end ?? "")")
        }
    }

    @Test func noRequestIsSentForNobody() {
        let alone: [Event] = sent + [.deserted(mayGoOn: true)]
        for place in ["/3", "https://b/2"] {
            #expect(
                run(alone + [answer(302, [.location: place])]).last == "a is there, give slot, end: cancelled")
        }
        #expect(run(alone + [answer(502)]).last == "a failed: error, give slot, end: status 502")
        let stored = Self.fill(stored: "\"1\"")
        #expect(
            run(stored, alone + [answer(304, [.eTag: "\"2\""])]).last == "a is there, give slot, end: cancelled")
        let none = Event.noAnswer(TileFill.NoAnswer(OriginSetback(.silent, .unreachable), mayPass: true))
        #expect(
            run(Self.mirrored, sentToFirst + [.deserted(mayGoOn: true), none]).last
                == "a rests, give slot, end: cancelled", "the others are not asked, and not blamed")
        // Somebody has come who waits for it.
        #expect(run(alone + [.wanted, answer(302, [.location: "/3"])]).last == "send /3")
    }

    /// One client that asked for five tiles and left after a second closed a slow host to everybody.
    @Test func thatAClientLeavesSaysNothingOfTheHost() {
        #expect(run(sent + [.deserted(mayGoOn: false)]).last == "give slot, end: cancelled")
        #expect(run(Self.mirrored, sentToFirst + [.deserted(mayGoOn: false)]).last == "give slot, end: cancelled")
    }

    /// Else a host that hangs would be asked first for ever, as long as no client waits for its time-out.
    @Test func aHostThatHasNotSentAByteToOneWithoutClientsIsSilent() {
        let alone: [Event] = [.deserted(mayGoOn: true)]
        #expect(run(sent + alone + [.overdue(isHeard: false)]).last == "a failed: silent, give slot, end: cancelled")
        #expect(run(sent + alone + [.overdue(isHeard: true)]).last == "give slot, end: cancelled")
        #expect(
            run(Self.mirrored, sentToFirst + alone + [.overdue(isHeard: false)]).last
                == "a rests, give slot, end: cancelled")
        #expect(run(sent + [.overdue(isHeard: false)]).last == "", "nobody has left")
    }

    @Test func whatComesOfTryingAHostIsTold() {
        var tried = sentToFirst
        tried[3] = .hosts(Self.hosts, probe: 8)
        #expect(run(Self.mirrored, tried + [answer(200)]).last == "a is well again, check")
        #expect(run(Self.mirrored, tried + [answer(503)]).last?.hasPrefix("a rests again, ") == true)
        #expect(run(Self.mirrored, tried + [.cancelled]).last == "abandon probe of a, give slot, end: cancelled")
        let full = Event.noAnswer(TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: true))
        #expect(run(Self.mirrored, tried + [full]).last == "abandon probe of a, give slot, next, terms of b:81?")
        let wait = OriginHealth.Wait(until: 9, failure: .unreachable)
        #expect(run(Self.mirrored, tried.prefix(5) + [.origin(wait)]).last == "abandon probe of a, end: waiting")
    }

    // MARK: Any order

    /// An event that may follow an action, by chance.
    private static func reply(to action: TileFill.Action, _ random: inout SplitMix64) -> Event? {
        let wait = OriginHealth.Wait(until: UInt64(random.below(9)) * 1_000_000_000, failure: .status(503))
        switch action {
        case .lookAgain: return .looked(isEnough: random.oneIn(8))
        case .askShared:
            let tile = TileMetadata(response: ResponseFields(), storedAt: Timestamp(now), expires: Timestamp(now))
            return random.oneIn(3) ? .shared(tile, isAbsence: random.oneIn(2)) : .notShared
        case .askQuestion: return .question(random.oneIn(3) ? wait : nil, attempts: 1 + random.below(3))
        case .prepare: return random.oneIn(10) ? .hookFailed : .prepared(request)
        case .checkTerms: return .terms(isAllowed: !random.oneIn(10))
        case .askOrigin: return .origin(random.oneIn(10) ? wait : nil)
        case .takeSlot: return random.oneIn(10) ? .noSlot : .slot
        case .orderHosts:
            return .hosts(
                Array(hosts.prefix(random.below(4))), probe: random.oneIn(3) ? 8 : nil)
        case .askRest: return .rest(.seconds(random.below(3)))
        case .askLeave:
            return .leave(random.pick([.ask, .ask, .probe(7), .wait(.unreachable, until: 5)]))
        case .send:
            let setback = OriginSetback(random.pick([.silent, .none, .unasked]), .unreachable)
            if random.oneIn(6) {
                return .noAnswer(
                    TileFill.NoAnswer(setback, mayPass: random.oneIn(2), isTimeout: random.oneIn(2)))
            }
            var fields: HTTPFields = [.cacheControl: random.pick(["max-age=60", "no-store", "no-cache"])]
            fields[.location] = random.pick(["https://b/2", "/3", "ftp://c", "https://a/4"])
            if random.oneIn(4) { fields[.eTag] = random.pick(["\"1\"", "\"2\""]) }
            if random.oneIn(6) { fields[.contentLength] = "7" }
            let status = random.pick([200, 200, 203, 204, 206, 301, 302, 304, 304, 404, 410, 403, 429, 500, 503])
            return .answer(
                HTTPResponse(status: .init(code: status), headerFields: fields), bytes: random.pick([0, 5, 2000]),
                requestedAt: now)
        case .check: return .checked(objection: random.oneIn(4) ? "a page" : nil)
        case .store, .storeShared, .update, .drop: return .stored
        case .pause: return .paused
        case .giveSlot, .abandonProbe, .reportClock, .forgetHeld, .judge, .judgeHost, .abandonHostProbe, .countFailover,
            .end:
            return nil
        }
    }

    /// What is wrong with one run; `nil` if nothing is.
    private static func violation(_ seed: UInt64) -> String? {
        var random = SplitMix64(seed: seed)
        let isMirrored = random.oneIn(2)
        var fill = fill(
            stored: random.oneIn(2) ? "\"1\"" : nil, isAbsence: random.oneIn(4), isKept: !random.oneIn(4),
            group: isMirrored ? "group" : nil, asksShared: random.oneIn(2))
        var event: Event? = .begin(looksAgain: random.oneIn(2))
        var (slots, probes, sends, unjudged, ends, checked) = (0, 0, 0, 0, 0, false)
        var (hostProbes, isAlone, ticks) = (0, false, UInt64(0))
        for _ in 0..<1000 {
            guard var next = event else { break }
            ticks += UInt64(random.below(3)) * 500_000_000
            // What is told besides comes before the answer that is waited for, which may find it over.
            if random.oneIn(12) {
                let isOut = fill.isOut
                let besides = random.pick([
                    Event.deserted(mayGoOn: isOut && random.oneIn(2)), .wanted,
                    .overdue(isHeard: random.oneIn(2)),
                ])
                if case .deserted = besides { isAlone = true }
                if case .wanted = besides { isAlone = false }
                for action in fill.on(besides, at: now, ticks: ticks) {
                    switch action {
                    case .giveSlot: slots -= 1
                    case .abandonProbe: probes -= 1
                    case .abandonHostProbe: hostProbes -= 1
                    case .judge: (unjudged, probes) = (0, 0)
                    case .judgeHost(_, _, let probe): if probe != nil { hostProbes -= 1 }
                    case .end: ends += 1
                    default: return "something is begun for nobody"
                    }
                }
                if fill.isOver { break }
            }
            if random.oneIn(40) { next = .cancelled }
            if case .leave(.probe) = next { probes += 1 }
            if case .hosts(let hosts, .some) = next, !hosts.isEmpty { hostProbes += 1 }
            if case .checked(nil, _) = next { checked = true }
            if case .slot = next { slots += 1 }
            event = nil
            for action in fill.on(next, at: now, ticks: ticks) {
                if event != nil { return "an action after one that has an answer" }
                if ends > 0 { return "an action after the end" }
                switch action {
                case .takeSlot: if slots > 0 { return "two slots" }
                case .giveSlot: slots -= 1
                case .abandonProbe: probes -= 1
                case .abandonHostProbe: hostProbes -= 1
                case .judgeHost(_, _, let probe): if probe != nil { hostProbes -= 1 }
                case .send:
                    if isAlone { return "a request for nobody" }
                    sends += 1
                    unjudged = 1
                    checked = false
                    if slots != 1 { return "a request without a slot" }
                case .judge:
                    if unjudged != 1 { return "judged twice" }
                    (unjudged, probes) = (0, 0)
                case .store(let record, let isAbsence):
                    if !record.isStorable { return "what must not be stored is stored" }
                    if !isAbsence, !checked { return "what was not checked is stored" }
                case .end: ends += 1
                default: break
                }
                event = reply(to: action, &random)
            }
        }
        if ends != 1 || !fill.isOver { return "it ended \(ends) times" }
        if slots != 0 { return "\(slots) slots are left" }
        if probes != 0 { return "a probe is left" }
        if hostProbes != 0 { return "a probe of a host is left" }
        // Three attempts, of each one request, its redirects, and once more each without conditions; a mirror more.
        if sends > 3 * (2 * (Redirect.most + 1) + (isMirrored ? 4 : 0)) { return "\(sends) requests" }
        return nil
    }

    @Test(arguments: 0..<4)
    func inAnyOrderEverythingIsGivenBackAndItEndsOnce(part: Int) {
        for seed in Seeds.share(part, of: 4, count: 20_000) {
            guard let violation = Self.violation(seed) else { continue }
            Issue.record("seed \(seed): \(violation)")
            return
        }
    }
}
