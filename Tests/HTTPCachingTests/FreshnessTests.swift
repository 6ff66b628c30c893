import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct FreshnessTests {
    struct Row: CustomTestStringConvertible {
        var kind = CacheKind.shared
        var status = 200
        let lines: [String]
        let lifetime: Int
        let source: Freshness.Source
        let rule: String
        var testDescription: String { "\(rule): \(kind) \(status) \(lines)" }
    }

    static let year = 31_536_000
    /// Noon, a minute before, an hour before, an hour after.
    static let now = "Date: Sat, 21 Nov 2026 12:00:00 GMT"
    static let hourAgo = "Sat, 21 Nov 2026 11:00:00 GMT"
    static let inAnHour = "Sat, 21 Nov 2026 13:00:00 GMT"

    static let rows = [
        Row(lines: ["Cache-Control: max-age=60"], lifetime: 60, source: .maxAge, rule: "9111 §4.2.1"),
        Row(lines: ["Cache-Control: max-age=60, s-maxage=5"], lifetime: 5, source: .sharedMaxAge, rule: "9111 §4.2.1"),
        Row(lines: ["Cache-Control: s-maxage=50, max-age=6"], lifetime: 50, source: .sharedMaxAge, rule: "9111 §4.2.1"),
        Row(
            kind: .private, lines: ["Cache-Control: max-age=60, s-maxage=5"], lifetime: 60, source: .maxAge,
            rule: "9111 §5.2.2.10 for shared caches"),
        Row(
            lines: [now, "Expires: \(inAnHour)"], lifetime: 3600, source: .expires, rule: "9111 §4.2.1 Expires - Date"),
        Row(
            lines: ["Date: \(hourAgo)", "Expires: \(inAnHour)"], lifetime: 7200, source: .expires,
            rule: "9111 §4.2.1 Expires - Date, not - now"),
        Row(lines: ["Expires: \(inAnHour)"], lifetime: 3600, source: .expires, rule: "9110 §6.6.1 Date missing"),
        Row(
            lines: ["Date: yesterday", "Expires: \(inAnHour)"], lifetime: 3600, source: .expires,
            rule: "9110 §6.6.1 Date invalid"),
        Row(lines: [now, "Expires: \(hourAgo)"], lifetime: 0, source: .expires, rule: "9111 §5.3 past"),
        Row(lines: [now, "Expires: 0"], lifetime: 0, source: .expires, rule: "9111 §5.3 Expires: 0"),
        Row(
            lines: [now, "Expires: Fri, 01 Jan 2100 00:00:00 UTC"], lifetime: 0, source: .expires,
            rule: "9111 §5.3 another form"),
        Row(lines: [now, "Expires: "], lifetime: 0, source: .expires, rule: "9111 §5.3 empty"),
        Row(
            lines: [now, "Expires: \(inAnHour)", "Expires: 0"], lifetime: 3600, source: .expires,
            rule: "9111 §4.2.1 the first counts"),
        Row(
            lines: [now, "Expires: 0", "Expires: \(inAnHour)"], lifetime: 0, source: .expires,
            rule: "9111 §4.2.1 the first counts"),
        Row(
            lines: [now, "Expires: \(hourAgo)", "Cache-Control: max-age=60"], lifetime: 60, source: .maxAge,
            rule: "9111 §5.3 max-age wins"),
        Row(
            lines: [now, "Expires: \(inAnHour)", "Cache-Control: max-age=0"], lifetime: 0, source: .maxAge,
            rule: "9111 §5.3 max-age wins"),
        Row(
            lines: [now, "Expires: \(inAnHour)", "Cache-Control: max-age=x"], lifetime: 0, source: .maxAge,
            rule: "9111 §4.2.1 invalid is stale"),
        Row(
            lines: [now, "Expires: \(inAnHour)", "Cache-Control: public"], lifetime: 3600, source: .expires,
            rule: "9111 §5.3 no max-age"),
        Row(lines: ["Cache-Control: max-age=99999999999"], lifetime: year, source: .maxAge, rule: "a year at most"),
        Row(
            lines: [now, "Expires: Fri, 31 Dec 9999 23:59:59 GMT"], lifetime: year, source: .expires,
            rule: "a year at most"),
        Row(
            lines: ["CDN-Cache-Control: max-age=5", "Cache-Control: max-age=60", "Expires: 0"], lifetime: 5,
            source: .maxAge, rule: "9213 §2.2"),
        Row(
            lines: [now, "CDN-Cache-Control: none", "Cache-Control: max-age=60", "Expires: \(inAnHour)"], lifetime: 0,
            source: .none, rule: "9213 §2.2 hides both"),
        Row(
            lines: ["CDN-Cache-Control: &", "Cache-Control: max-age=60"], lifetime: 60, source: .maxAge,
            rule: "9213 §2.1 malformed"),
        Row(
            kind: .private, lines: ["CDN-Cache-Control: max-age=5", "Cache-Control: max-age=60"], lifetime: 60,
            source: .maxAge, rule: "9213 §2.2 not on its list"),
        Row(lines: [now, "Last-Modified: \(hourAgo)"], lifetime: 0, source: .none, rule: "9111 §4.2.2 only if asked"),
        Row(lines: [], lifetime: 0, source: .none, rule: "nothing said"),
    ]

    @Test(arguments: rows)
    func aLifetimeIsCalculated(row: Row) {
        let head = HTTPResponse(status: .init(code: row.status), headerFields: fields(row.lines))
        let found = CachePolicy(kind: row.kind).freshness(of: head, requestedAt: noon, receivedAt: noon)
        #expect(found.lifetime == row.lifetime)
        #expect(found.source == row.source)
    }

    @Test(
        arguments: [
            // status, lines, tenth of an hour, rule 9111 §4.2.2, 9110 §15.1
            (200, [], 360), (203, [], 360), (404, [], 360), (410, [], 360), (501, [], 360), (302, [], 0), (500, [], 0),
            (302, ["Cache-Control: public"], 360), (200, ["Cache-Control: max-age=5"], 5), (200, ["Expires: 0"], 0),
            (200, ["Cache-Control: max-age=x"], 0), (200, ["CDN-Cache-Control: ext"], 360),
        ] as [(Int, [String], Int)])
    func aLifetimeIsGuessedIfAsked(status: Int, lines: [String], lifetime: Int) {
        let all = [Self.now, "Last-Modified: \(Self.hourAgo)"] + lines
        let head = HTTPResponse(status: .init(code: status), headerFields: fields(all))
        let policy = CachePolicy(kind: .shared, usesHeuristic: true)
        let found = policy.freshness(of: head, requestedAt: noon, receivedAt: noon)
        #expect(found.lifetime == lifetime)
        #expect((found.source == .heuristic) == (lifetime == 360))
    }

    @Test func aGuessHasALimit() {
        let policy = CachePolicy(kind: .shared, usesHeuristic: true, heuristicLimit: 1000)
        let old = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"
        #expect(policy.atNoon(old).lifetime == 1000)
        #expect(policy.atNoon("Last-Modified: \(Self.inAnHour)").source == .none, "modified in the future")
        #expect(policy.atNoon("Last-Modified: yesterday").source == .none)
    }

    @Test(
        arguments: [
            ([], true), (["ETag: a"], true), (["Last-Modified: \(hourAgo)"], true), (["Age: 5"], true),
            (["Cache-Control:"], false), (["Cache-Control: public"], false), (["Expires: 0"], false),
            (["Pragma: no-cache"], false), (["CDN-Cache-Control: ext"], false), (["CDN-Cache-Control: &"], false),
        ] as [([String], Bool)])
    func theDefaultLifetimeIsForA200ThatSaysNothing(lines: [String], applies: Bool) {
        let policy = CachePolicy(kind: .shared, defaultLifetime: 604_800)
        func found(_ status: Int) -> Freshness {
            let head = HTTPResponse(status: .init(code: status), headerFields: fields(lines))
            return policy.freshness(of: head, requestedAt: noon, receivedAt: noon)
        }
        #expect((found(200).source == .defaultLifetime) == applies)
        #expect(found(404).source != .defaultLifetime)
        if applies { #expect(found(200).stored.expires == noon.plus(604_800), "it counts from receipt") }
    }

    @Test(
        arguments: [
            // what a minimum of 100 makes of it, unforced and forced
            ("Cache-Control: max-age=5", 100, 100), ("Cache-Control: max-age=500", 500, 500), ("X: none", 100, 100),
            ("Expires: 0", 100, 100), ("Cache-Control: no-store, max-age=5", 5, 100),
            ("Cache-Control: no-cache, max-age=5", 5, 100), ("Cache-Control: must-revalidate, max-age=5", 5, 100),
            ("Cache-Control: private, max-age=5", 5, 100), ("Cache-Control: proxy-revalidate, max-age=5", 5, 100),
            ("Cache-Control: s-maxage=5", 5, 100), (#"Cache-Control: no-cache="a", max-age=5"#, 100, 100),
        ] as [(String, Int, Int)])
    func aMinimumLifetimeYieldsToWhatForbidsReuse(line: String, timid: Int, forced: Int) {
        #expect(CachePolicy(kind: .shared, minimumLifetime: 100).atNoon(line).lifetime == timid)
        let found = CachePolicy(kind: .shared, minimumLifetime: 100, overridesOrigin: true).atNoon(line)
        #expect(found.lifetime == forced)
        #expect(!found.stored.noCache && !found.stored.mustRevalidate)
        #expect(found.stored.isFresh(at: noon.plus(forced - 1)))
    }

    @Test func aMinimumLifetimeIsForA200AndCountsFromReceipt() {
        let policy = CachePolicy(kind: .private, minimumLifetime: 100)
        let notFound = response(404, "Cache-Control: max-age=5")
        #expect(policy.freshness(of: notFound, requestedAt: noon, receivedAt: noon).lifetime == 5)
        #expect(policy.atNoon("Cache-Control: max-age=5", "Age: 90").stored.expires == noon.plus(100))
        #expect(policy.atNoon("Cache-Control: private, max-age=5").lifetime == 100, "private is no obstacle here")
    }

    @Test func aClockFarInThePastDoesNotSpoilTheOwnersLifetime() {
        let policy = CachePolicy(kind: .shared, defaultLifetime: 600)
        #expect(policy.atNoon("Date: Thu, 01 Jan 1970 00:00:00 GMT").stored.expires == noon.plus(600))
    }

    @Test(
        arguments: [
            // kind, line, mustRevalidate, noCache: 9111 §5.2.2.2, §5.2.2.4, §5.2.2.8, §5.2.2.10
            (CacheKind.shared, "must-revalidate", true, false), (.private, "must-revalidate", true, false),
            (.shared, "proxy-revalidate", true, false), (.private, "proxy-revalidate", false, false),
            (.shared, "s-maxage=5", true, false), (.private, "s-maxage=5", false, false),
            (.shared, "no-cache", false, true), (.private, "no-cache", false, true),
            (.shared, "max-age=5", false, false),
        ] as [(CacheKind, String, Bool, Bool)])
    func whatForbidsStaleUseIsKept(kind: CacheKind, line: String, mustRevalidate: Bool, noCache: Bool) {
        let stored = CachePolicy(kind: kind).atNoon("Cache-Control: " + line).stored
        #expect(stored.mustRevalidate == mustRevalidate)
        #expect(stored.noCache == noCache)
    }

    @Test func theNumbersOfRFC5861And8246AreKept() {
        let line = "Cache-Control: max-age=5, stale-while-revalidate=6, stale-if-error=7, immutable"
        let stored = CachePolicy.shared.atNoon(line).stored
        #expect(stored.staleWhileRevalidate == 6)
        #expect(stored.staleIfError == 7)
        #expect(stored.immutable)
        #expect(CachePolicy.shared.atNoon("Cache-Control: stale-if-error=99999999999").stored.staleIfError == Self.year)
    }

    @Test(
        arguments: [
            // 9111 §5.1
            ("0", 0), ("7200", 7200), (" 7200 ", 7200), ("007", 7), ("7200,0", 7200), ("0, 7200", 0),
            ("99999999999999999999", 2_147_483_648),
        ] as [(String, Int)])
    func anAgeIsRead(text: String, age: Int) { #expect(Age.value(in: fields("Age: " + text)) == age) }

    @Test(arguments: ["", "abc", "-7200", "7200.0", "7200;a=b", "\"5\"", ",5", "5 5"])
    func anInvalidAgeIsIgnored(text: String) { #expect(Age.value(in: fields("Age: " + text)) == nil) }

    @Test func theFirstOfSeveralAgesCounts() {
        #expect(Age.value(in: fields("Age: 5", "Age: 7200")) == 5)
        #expect(Age.value(in: fields("Date: x")) == nil)
    }

    @Test(
        arguments: [
            // age, Date relative to noon, request relative to noon, corrected_initial_age: 9111 §4.2.3
            (nil, nil, 0, 0), (nil, -30, 0, 30), (nil, 30, 0, 0), (50, nil, 0, 50), (50, -30, 0, 50), (20, -30, 0, 30),
            (50, nil, -7, 57), (nil, nil, -7, 7), (20, -30, -20, 40), (nil, nil, 7, 0),
            (Int.max, nil, 0, 2_147_483_648), (Int.min, nil, 0, 0),
        ] as [(Int?, Int?, Int, Int)])
    func theInitialAgeIsCorrected(age: Int?, date: Int?, requested: Int, expected: Int) {
        let found = Age.initial(
            age: age, date: date.map(noon.plus), requestedAt: noon.plus(requested), receivedAt: noon)
        #expect(found == expected)
    }

    @Test func theAgeGrowsWhileStored() {
        let stored = CachePolicy.shared.atNoon("Age: 30", "Cache-Control: max-age=60").stored
        #expect(stored.age(at: noon) == 30)
        #expect(stored.age(at: noon.plus(5)) == 35)
        #expect(stored.age(at: noon.plus(-5)) == 30, "a clock set back")
        #expect(stored.age(at: HTTPDate(seconds: .max)) == 2_147_483_648)
        #expect(stored.expires == noon.plus(30))
    }

    @Test func whatCameTooOldIsStaleAtOnce() {
        let stored = CachePolicy.shared.atNoon("Age: 7200", "Cache-Control: max-age=3600").stored
        #expect(!stored.isFresh(at: noon))
        #expect(stored.staleness(at: noon) == 3600)
    }

    @Test func freshnessEndsAtItsExpiry() {
        let stored = CachePolicy.shared.atNoon("Cache-Control: max-age=60").stored
        #expect(stored.isFresh(at: noon.plus(59)))
        #expect(!stored.isFresh(at: noon.plus(60)), "9111 §4.2: lifetime > age")
    }

    @Test func whatWasStoredInTheFutureIsStale() {
        let stored = CachePolicy.shared.atNoon("Cache-Control: max-age=60").stored
        #expect(stored.isFresh(at: noon.plus(-60)))
        #expect(!stored.isFresh(at: noon.plus(-61)))
        #expect(stored.staleness(at: noon.plus(-61)) == .max)
    }
}
