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
        case .askQuestion: "tile?"
        case .prepare: "prepare"
        case .checkTerms(let host): "terms of \(host)?"
        case .askOrigin(let host): "\(host)?"
        case .takeSlot(let host): "slot of \(host)"
        case .giveSlot: "give slot"
        case .askLeave(let host): "leave of \(host)?"
        case .abandonProbe(let host, _): "abandon probe of \(host)"
        case .send(let request, let first):
            "send \(request.path ?? "")" + (request.headerFields[.ifNoneMatch].map { " if not \($0)" } ?? "")
                + (first.map { " from \($0)" } ?? "")
        case .check: "check"
        case .reportClock: "report clock"
        case .store(_, let isAbsence): isAbsence ? "store absence" : "store"
        case .update: "update"
        case .forgetHeld: "forget held"
        case .judge(let host, .answered, let isSettled, _): "\(host) is there" + (isSettled ? ", tile too" : "")
        case .judge(let host, .failed(let setback), _, _): "\(host) failed: \(setback.blame)"
        case .pause(let pause): "pause \(pause.components.seconds) s"
        case .end(let end): "end: " + end.word
        }
    }
}

extension TileFill.End {
    var word: String {
        switch self {
        case .found: "found"
        case .brought(_, let isAbsence, let keeping): (isAbsence ? "absent " : "tile ") + "\(keeping)"
        case .confirmed: "confirmed"
        case .failed(.waiting): "waiting"
        case .failed(.hook): "hook"
        case .failed(.forbidden): "forbidden"
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

    private static func fill(stored tag: String? = nil, isAbsence: Bool = false, isKept: Bool = true) -> TileFill {
        let stored = tag.map {
            TileMetadata(
                response: ResponseFields(), etag: $0, storedAt: Timestamp(now), expires: Timestamp(now))
        }
        return TileFill(
            use, stored: stored, isAbsence: isAbsence, isKept: isKept, harmless: [.ifNoneMatch])
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

    /// Which of a source's hosts has failed is for the transport to know that has them; another source's are another matter.
    @Test func whereHostsStandForOneAnotherTheyAreJudgedTogether() {
        let fill = TileFill(
            Self.use, stored: nil, isAbsence: false, isKept: true, harmless: [], group: "group")
        #expect(
            run(fill, sent + [answer(503)]) == [
                "tile?", "prepare", "terms of a?", "group?", "slot of a", "leave of group?", "send /1",
                "group failed: error, give slot, tile?",
            ])
        let elsewhere = run(fill, sent + [answer(302, [.location: "https://b/2"]), .terms(isAllowed: true)])
        #expect(elsewhere.last == "b?", "where a redirect leads is no part of it")
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

    @Test func whoIsCancelledGivesBackWhatItHas() {
        #expect(
            run(Array(sent.dropLast()) + [.leave(.probe(7)), .cancelled, answer(200)]).suffix(2)
                == ["abandon probe of a, give slot, end: cancelled", ""])
        #expect(run(Array(sent.dropLast(3)) + [.cancelled]).last == "end: cancelled")
    }

    // MARK: Any order

    /// An event that may follow an action, by chance.
    private static func reply(to action: TileFill.Action, _ random: inout SplitMix64) -> Event? {
        let wait = OriginHealth.Wait(until: UInt64(random.below(9)) * 1_000_000_000, failure: .status(503))
        switch action {
        case .lookAgain: return .looked(isEnough: random.oneIn(8))
        case .askQuestion: return .question(random.oneIn(3) ? wait : nil, attempts: 1 + random.below(3))
        case .prepare: return random.oneIn(10) ? .hookFailed : .prepared(request)
        case .checkTerms: return .terms(isAllowed: !random.oneIn(10))
        case .askOrigin: return .origin(random.oneIn(10) ? wait : nil)
        case .takeSlot: return .slot
        case .askLeave:
            return .leave(random.pick([.ask, .ask, .probe(7), .wait(.unreachable, until: 5)]))
        case .send:
            let setback = OriginSetback(random.pick([.silent, .none]), .unreachable)
            if random.oneIn(6) { return .noAnswer(setback, mayPass: random.oneIn(2)) }
            var fields: HTTPFields = [.cacheControl: random.pick(["max-age=60", "no-store", "no-cache"])]
            fields[.location] = random.pick(["https://b/2", "/3", "ftp://c", "https://a/4"])
            if random.oneIn(4) { fields[.eTag] = random.pick(["\"1\"", "\"2\""]) }
            if random.oneIn(6) { fields[.contentLength] = "7" }
            let status = random.pick([200, 200, 203, 204, 206, 301, 302, 304, 304, 404, 410, 403, 429, 500, 503])
            return .answer(
                HTTPResponse(status: .init(code: status), headerFields: fields), bytes: random.pick([0, 5, 2000]),
                requestedAt: now)
        case .check: return .checked(objection: random.oneIn(4) ? "a page" : nil)
        case .store, .update: return .stored
        case .pause: return .paused
        case .giveSlot, .abandonProbe, .reportClock, .forgetHeld, .judge, .end: return nil
        }
    }

    /// What is wrong with one run; `nil` if nothing is.
    private static func violation(_ seed: UInt64) -> String? {
        var random = SplitMix64(seed: seed)
        var fill = fill(
            stored: random.oneIn(2) ? "\"1\"" : nil, isAbsence: random.oneIn(4), isKept: !random.oneIn(4))
        var event: Event? = .begin(looksAgain: random.oneIn(2))
        var (slots, probes, sends, unjudged, ends, checked) = (0, 0, 0, 0, 0, false)
        for _ in 0..<1000 {
            guard var next = event else { break }
            if random.oneIn(40) { next = .cancelled }
            if case .leave(.probe) = next { probes += 1 }
            if case .checked(nil) = next { checked = true }
            if case .slot = next { slots += 1 }
            event = nil
            for action in fill.on(next, at: now, ticks: 0) {
                if event != nil { return "an action after one that has an answer" }
                if ends > 0 { return "an action after the end" }
                switch action {
                case .takeSlot: if slots > 0 { return "two slots" }
                case .giveSlot: slots -= 1
                case .abandonProbe: probes -= 1
                case .send:
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
        // Three attempts, of each one request, its redirects, and once more each without conditions.
        if sends > 3 * 2 * (Redirect.most + 1) { return "\(sends) requests" }
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
