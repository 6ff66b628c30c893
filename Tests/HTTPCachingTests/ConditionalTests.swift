import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct ConditionalTests {
    static let modified = "Fri, 20 Nov 2026 12:00:00 GMT"
    static let date = "Sat, 21 Nov 2026 12:00:00 GMT"

    static func validators(_ lines: String...) -> Validators { Validators(fields(lines), now: noon) }

    // MARK: Asking the origin (RFC 9111 §4.3.1)

    @Test func aStoredTagAndTimeAreAskedAbout() {
        let stored = Self.validators("ETag: W/\"a\"", "Last-Modified: \(Self.modified)")
        let made = ConditionalRequest(revalidating: [stored], for: request(.get, "Accept: x"))
        let wanted = fields("Accept: x", "If-None-Match: W/\"a\"", "If-Modified-Since: \(Self.modified)")
        #expect(made.request.headerFields == wanted)
        #expect(made.isConditional)
    }

    @Test func anOddTagIsSentAsItCame() {
        let made = ConditionalRequest(revalidating: [Self.validators("ETag: abc")], for: request())
        #expect(made.request.headerFields == fields("If-None-Match: abc"))
    }

    @Test func theTagsOfAllVariantsAreAskedAbout() {
        let stored = [
            Self.validators("ETag: \"a\"", "Last-Modified: \(Self.modified)"),
            Self.validators("Last-Modified: \(Self.modified)"),
            Self.validators("ETag: \"b\""), Self.validators("ETag: \"a\""),
        ]
        let made = ConditionalRequest(revalidating: stored, for: request())
        #expect(made.request.headerFields == fields("If-None-Match: \"a\", \"b\""), "one time cannot speak for several")
        let answer = HTTPResponse(status: .notModified, headerFields: fields("ETag: \"b\""))
        #expect(made.outcome(of: answer, now: noon) == .confirmed([2]), "indices are those of the stored responses")
        let both = HTTPResponse(status: .notModified, headerFields: fields("ETag: \"a\""))
        #expect(made.outcome(of: both, now: noon) == .confirmed([0, 3]))
    }

    @Test func withoutValidatorsTheRequestIsUnconditional() {
        let made = ConditionalRequest(revalidating: [Self.validators("Date: \(Self.date)")], for: request())
        #expect(!made.isConditional)
        #expect(made.request.headerFields == fields())
        let dated = ConditionalRequest(
            revalidating: [Self.validators("Date: \(Self.date)")], for: request(), usesDate: true)
        #expect(dated.request.headerFields == fields("If-Modified-Since: \(Self.date)"), "9110 §13.1.3")
        #expect(!ConditionalRequest(revalidating: [], for: request()).isConditional)
    }

    @Test func aTagThatIsNotUTF8IsSentBackByteByByte() {
        let tag: [UInt8] = [0x22, 0x61, 0xFC, 0x22]
        let stored = Validators(HTTPFields([HTTPField(name: .eTag, value: tag)]), now: noon)
        let made = ConditionalRequest(revalidating: [stored], for: request())
        let sent = made.request.headerFields.first { $0.name == .ifNoneMatch }
        #expect(sent?.withUnsafeBytesOfValue { Array($0) } == tag)
    }

    @Test func theClientsOwnConditionsAreKeptApart() {
        let asked = request(
            .get, "If-None-Match: \"z\"", "If-Modified-Since: x", "If-Match: *", "If-Unmodified-Since: y",
            "If-Range: \"r\"", "Range: bytes=0-1", "Accept: x")
        let made = ConditionalRequest(revalidating: [Self.validators("ETag: \"a\"")], for: asked)
        #expect(made.request.headerFields == fields("Accept: x", "If-None-Match: \"a\""))
        #expect(made.client == ClientPreconditions(asked.headerFields))
        #expect(made.client.range == "bytes=0-1")
        #expect(made.client.ifRange?.value == "\"r\"")
        #expect(!made.client.isEmpty)
        #expect(ClientPreconditions(fields("Accept: x")).isEmpty)
    }

    // MARK: Answering a client (RFC 9110 §13.2.2)

    struct Row: CustomTestStringConvertible {
        let asked: [String]
        var stored = ["ETag: \"a\"", "Last-Modified: \(modified)", "Date: \(date)"]
        var method = HTTPRequest.Method.get
        var status = 200
        var role = ClientPreconditions.Role.origin
        let expected: ClientPreconditions.Outcome
        let rule: String
        var testDescription: String { "\(rule): \(method) \(asked) on \(status) \(stored)" }
    }

    static let before = "Fri, 20 Nov 2026 11:59:59 GMT"

    static let rows = [
        Row(asked: [], expected: .proceed, rule: "no condition"),
        Row(asked: ["If-None-Match: \"a\""], expected: .notModified, rule: "9110 §13.1.2"),
        Row(asked: ["If-None-Match: W/\"a\""], expected: .notModified, rule: "9110 §13.1.2 weak comparison"),
        Row(asked: ["If-None-Match: \"b\", \"a\""], expected: .notModified, rule: "9110 §13.1.2 list"),
        Row(asked: ["If-None-Match: \"b\"", "If-None-Match: \"a\""], expected: .notModified, rule: "9110 §5.3 lines"),
        Row(asked: ["If-None-Match: \"b\""], expected: .proceed, rule: "9110 §13.1.2"),
        Row(asked: ["If-None-Match: *"], expected: .notModified, rule: "9110 §13.1.2 *"),
        Row(asked: ["If-None-Match: \"a\""], method: .head, expected: .notModified, rule: "9110 §13.1.2 HEAD"),
        Row(asked: ["If-None-Match: \"a\""], method: .put, expected: .failed, rule: "9110 §13.1.2 others"),
        Row(asked: ["If-None-Match: \"a\""], stored: [], expected: .proceed, rule: "9110 §13.1.2 no tag"),
        Row(asked: ["If-Modified-Since: \(modified)"], expected: .notModified, rule: "9110 §13.1.3 equal"),
        Row(asked: ["If-Modified-Since: \(date)"], expected: .notModified, rule: "9110 §13.1.3 later"),
        Row(asked: ["If-Modified-Since: \(before)"], expected: .proceed, rule: "9110 §13.1.3 modified since"),
        Row(asked: ["If-Modified-Since: 5"], expected: .proceed, rule: "9110 §13.1.3 invalid is ignored"),
        Row(
            asked: ["If-Modified-Since: \(date)", "If-Modified-Since: \(date)"], expected: .proceed,
            rule: "9110 §13.1.3 twice is invalid"),
        Row(
            asked: ["If-Modified-Since: \(modified)"], method: .put, expected: .proceed, rule: "9110 §13.1.3 GET, HEAD"),
        Row(
            asked: ["If-None-Match: \"b\"", "If-Modified-Since: \(date)"], expected: .proceed,
            rule: "9110 §13.2.2 tag before time"),
        Row(
            asked: ["If-None-Match: \"a\"", "If-Modified-Since: \(before)"], expected: .notModified,
            rule: "9110 §13.2.2 tag before time"),
        Row(
            asked: ["If-Modified-Since: \(date)"], stored: ["Date: \(modified)"], role: .cache, expected: .notModified,
            rule: "9111 §4.3.2 Date for a missing Last-Modified"),
        Row(
            asked: ["If-Modified-Since: \(date)"], stored: ["Date: \(modified)"], expected: .proceed,
            rule: "9110 §13.1.3 an origin without Last-Modified"),
        Row(asked: ["If-Match: \"a\""], expected: .proceed, rule: "9110 §13.1.1"),
        Row(asked: ["If-Match: *"], expected: .proceed, rule: "9110 §13.1.1 *"),
        Row(asked: ["If-Match: \"b\""], expected: .failed, rule: "9110 §13.1.1"),
        Row(asked: ["If-Match: W/\"a\""], expected: .failed, rule: "9110 §13.1.1 strong comparison"),
        Row(asked: ["If-Unmodified-Since: \(modified)"], expected: .proceed, rule: "9110 §13.1.4"),
        Row(asked: ["If-Unmodified-Since: \(before)"], expected: .failed, rule: "9110 §13.1.4"),
        Row(asked: ["If-Unmodified-Since: x"], expected: .proceed, rule: "9110 §13.1.4 invalid is ignored"),
        Row(
            asked: ["If-Match: \"a\"", "If-Unmodified-Since: \(before)"], expected: .proceed,
            rule: "9110 §13.2.2 tag before time"),
        Row(
            asked: ["If-Match: \"b\"", "If-None-Match: \"a\""], expected: .failed,
            rule: "9110 §13.2.2 If-Match first"),
        Row(
            asked: ["If-Match: \"a\"", "If-None-Match: \"a\""], expected: .notModified,
            rule: "9110 §13.2.2 then If-None-Match"),
        Row(asked: ["If-Match: \"a\""], role: .cache, expected: .forward, rule: "9111 §4.3.2 not for a cache"),
        Row(
            asked: ["If-Unmodified-Since: \(date)"], role: .cache, expected: .forward,
            rule: "9111 §4.3.2 not for a cache"),
        Row(asked: ["If-None-Match: *"], status: 404, expected: .proceed, rule: "9110 §13.2.1 success only"),
        Row(asked: ["If-Match: \"b\""], status: 404, expected: .proceed, rule: "9110 §13.2.1 success only"),
    ]

    @Test(arguments: rows)
    func aClientsConditionsAreDecided(row: Row) {
        let found = ClientPreconditions(fields(row.asked)).outcome(
            for: Validators(fields(row.stored), now: noon), status: row.status, method: row.method, role: row.role,
            now: noon)
        #expect(found == row.expected)
    }

    @Test func a304CarriesWhatUpdatesAndNotWhatDescribesTheBytes() {
        let stored = StoredResponse(
            status: .ok,
            fields: fields(
                "ETag: \"a\"", "Last-Modified: x", "Date: d", "Cache-Control: c", "Expires: e", "Vary: v",
                "Content-Location: l", "Content-Type: t", "Content-Length: 5", "Content-Encoding: gzip",
                "Content-Security-Policy: p", "Accept-Ranges: bytes", "X-Own: o"),
            freshness: StoredFreshness(storedAt: noon, expires: noon))
        let wanted = fields(
            "ETag: \"a\"", "Date: d", "Cache-Control: c", "Expires: e", "Vary: v", "Content-Location: l",
            "Content-Security-Policy: p", "X-Own: o", "Age: 3")
        #expect(stored.notModified(age: 3) == HTTPResponse(status: .notModified, headerFields: wanted), "9110 §15.4.5")
        var untagged = stored
        untagged.fields[.eTag] = nil
        #expect(untagged.notModified(age: 0).headerFields[.lastModified] == "x")
    }

    // MARK: A 304 from the origin (RFC 9111 §4.3.4)

    struct Confirmation: CustomTestStringConvertible {
        let answer: [String]
        let asked: [[String]]
        let expected: NotModifiedOutcome
        let rule: String
        var testDescription: String { "\(rule): \(answer) for \(asked)" }
    }

    static let earlier = "Date: Fri, 20 Nov 2026 13:00:00 GMT"
    static let later = "Date: Fri, 20 Nov 2026 14:00:00 GMT"

    static let confirmations = [
        Confirmation(answer: ["ETag: \"a\""], asked: [["ETag: \"a\""]], expected: .confirmed([0]), rule: "strong"),
        Confirmation(
            answer: ["ETag: \"a\""], asked: [["ETag: \"b\""], ["ETag: \"a\""], ["ETag: \"a\""]],
            expected: .confirmed([1, 2]), rule: "strong: each that has it"),
        Confirmation(answer: ["ETag: \"b\""], asked: [["ETag: \"a\""]], expected: .unrelated, rule: "another tag"),
        Confirmation(
            answer: ["ETag: \"b\"", "Last-Modified: \(modified)"],
            asked: [["ETag: \"a\"", "Last-Modified: \(modified)"]], expected: .unrelated,
            rule: "another tag, whatever the time"),
        Confirmation(
            answer: ["ETag: W/\"a\""],
            asked: [["ETag: W/\"a\"", later], ["ETag: \"a\"", earlier], ["ETag: W/\"b\""]],
            expected: .confirmed([0]), rule: "weak: the most recent"),
        Confirmation(
            answer: ["ETag: W/\"a\""], asked: [["ETag: W/\"a\"", earlier], ["ETag: \"a\"", later]],
            expected: .confirmed([1]), rule: "weak: the most recent"),
        Confirmation(answer: ["ETag: W/\"b\""], asked: [["ETag: W/\"a\""]], expected: .unrelated, rule: "another weak"),
        Confirmation(
            answer: ["ETag: \"a\""], asked: [["ETag: W/\"a\""]], expected: .confirmed([0]),
            rule: "a sole response whose tag was weakened"),
        Confirmation(
            answer: ["ETag: \"a\""], asked: [["ETag: W/\"a\""], ["ETag: \"b\""]], expected: .unrelated,
            rule: "strong: not weakly, if there are several"),
        Confirmation(
            answer: ["Last-Modified: \(modified)"], asked: [["ETag: \"a\"", "Last-Modified: \(modified)"]],
            expected: .confirmed([0]), rule: "the time"),
        Confirmation(
            answer: ["Last-Modified: \(before)"], asked: [["Last-Modified: \(modified)"]], expected: .unrelated,
            rule: "another time"),
        Confirmation(
            answer: [], asked: [["ETag: \"a\""]], expected: .confirmed([0]), rule: "no validator, one response"),
        Confirmation(
            answer: [], asked: [["ETag: \"a\""], ["ETag: \"b\""]], expected: .unrelated, rule: "no validator, several"),
        Confirmation(answer: ["ETag: \"a\""], asked: [], expected: .unsolicited, rule: "unconditional"),
        Confirmation(
            answer: ["ETag: \"a\"", "Last-Modified: \(modified)"], asked: [["Last-Modified: \(modified)"]],
            expected: .confirmed([0]), rule: "a tag where there was none, the same time"),
    ]

    @Test(arguments: confirmations)
    func a304ConfirmsWhatItNames(row: Confirmation) {
        let asked = row.asked.map { Validators(fields($0), now: noon) }
        #expect(NotModifiedOutcome(fields(row.answer), asked: asked, now: noon) == row.expected)
    }

    static func stored(_ lines: String...) -> StoredResponse {
        StoredResponse(
            status: .ok, fields: fields(lines),
            freshness: StoredFreshness(storedAt: noon.plus(-100), expires: noon.plus(-40)))
    }

    static func freshen(
        _ stored: StoredResponse, _ update: [String], asked: [String] = [], policy: CachePolicy = .shared
    ) -> FreshenedResponse {
        let request = HTTPRequest(
            method: .get, scheme: nil, authority: nil, path: "/", headerFields: fields(asked))
        return policy.freshen(
            stored, with: HTTPResponse(status: .notModified, headerFields: fields(update)), to: request,
            requestedAt: noon, receivedAt: noon)
    }

    @Test func a304ReplacesFieldsByName() {
        let before = Self.stored("ETag: \"a\"", "X: 1", "X: 2", "Y: 3", "Content-Foo: 4", "Date: \(Self.modified)")
        let after = Self.freshen(before, ["X: 9", "Content-Foo: 5", "Z: 6", "Date: \(Self.date)"])
        let wanted = fields("ETag: \"a\"", "Y: 3", "X: 9", "Content-Foo: 5", "Z: 6", "Date: \(Self.date)")
        #expect(after.response.fields == wanted, "9111 §3.2")
        #expect(after.response.status == .ok)
    }

    @Test(arguments: ["Content-Length", "Content-Encoding", "Content-Type"])
    func a304NeverReplacesWhatTheBytesDependOn(name: String) {
        let before = Self.stored("\(name): a", "Date: \(Self.date)")
        #expect(Self.freshen(before, ["\(name): b", "Date: \(Self.date)"]).response.fields == before.fields)
        let without = Self.stored("Date: \(Self.date)")
        #expect(Self.freshen(without, ["\(name): b", "Date: \(Self.date)"]).response.fields == without.fields)
    }

    /// A field that only partial responses have a meaning for, and those are never stored (RFC 9111 §3.2).
    @Test func a304ReplacesAContentRangeThatMeansNothing() {
        let before = Self.stored("Content-Range: a", "Date: \(Self.date)")
        let after = Self.freshen(before, ["Content-Range: b", "Date: \(Self.date)"])
        #expect(after.response.fields[.contentRange] == "b")
    }

    @Test func a304DoesNotStoreFieldsOfTheConnection() {
        let before = Self.stored("Date: \(Self.date)", "X-Hop: 1")
        let after = Self.freshen(
            before, ["Connection: X-Hop", "X-Hop: 2", "Keep-Alive: 5", "Date: \(Self.date)", "Age: 4"])
        #expect(after.response.fields == before.fields, "9111 §3.1")
    }

    @Test func a304KeepsTheStoredTagAndAddsAMissingOne() {
        let date = "Date: \(Self.date)"
        let kept = Self.freshen(Self.stored("ETag: W/\"a\"", date), ["ETag: \"a\"", date])
        #expect(kept.response.fields[.eTag] == "W/\"a\"")
        #expect(Self.freshen(Self.stored(date), ["ETag: \"a\"", date]).response.fields[.eTag] == "\"a\"")
    }

    @Test func a304MakesFreshAgain() {
        let before = Self.stored("Cache-Control: max-age=60", "Date: \(Self.modified)", "ETag: \"a\"")
        let after = Self.freshen(before, ["Date: \(Self.date)"])
        #expect(after.response.freshness.expires == noon.plus(60))
        #expect(after.response.freshness.storedAt == noon)
        #expect(Self.freshen(before, ["Date: \(Self.date)", "Cache-Control: max-age=5"]).freshness.lifetime == 5)
        #expect(after.storability.isStorable)
    }

    @Test func a304WithoutDateIsAsNewAsItsReceipt() {
        // The stored Date is a day old: an age counted from it would make the response stale at once.
        let before = Self.stored("Cache-Control: max-age=60", "Date: \(Self.modified)")
        let after = Self.freshen(before, [])
        #expect(after.response.freshness.expires == noon.plus(60))
        #expect(after.response.fields[.date] == Self.date, "9110 §6.6.1")
    }

    @Test func theAgeOfA304CountsOnce() {
        let before = Self.stored("Cache-Control: max-age=60", "Date: \(Self.date)")
        let after = Self.freshen(before, ["Age: 20", "Date: \(Self.date)"])
        #expect(after.response.freshness.initialAge == 20)
        #expect(after.response.fields[.age] == nil)
    }

    @Test func a304MayForbidFurtherStoring() {
        let before = Self.stored("Cache-Control: max-age=60", "Date: \(Self.date)")
        #expect(Self.freshen(before, ["Cache-Control: no-store"]).storability == .doNotStore(.noStore))
        #expect(Self.freshen(before, ["Cache-Control: private"]).storability == .doNotStore(.private))
        #expect(Self.freshen(before, ["Cache-Control: private"], policy: .private).storability.isStorable)
        #expect(Self.freshen(before, ["Vary: *"]).storability == .doNotStore(.varyAny))
        #expect(Self.freshen(before, [], asked: ["Authorization: x"]).storability == .doNotStore(.authorization))
    }

    @Test func a304WithAnotherVaryIsChosenByThisRequest() {
        var before = Self.stored("Vary: A", "Date: \(Self.date)")
        before.selectingFields = fields("A: 1")
        let asked = ["A: 1", "B: 2"]
        #expect(Self.freshen(before, ["Vary: B"], asked: asked).response.selectingFields == fields("B: 2"))
        #expect(Self.freshen(before, [], asked: asked).response.selectingFields == fields("A: 1"))
    }

    // MARK: HEAD (RFC 9111 §4.3.5)

    @Test(
        arguments: [
            (200, [], HeadOutcome.update), (200, ["ETag: \"a\""], .update), (200, ["ETag: \"b\""], .invalidate),
            (200, ["ETag: W/\"a\""], .invalidate), (200, ["Last-Modified: \(modified)"], .update),
            (200, ["Last-Modified: \(before)"], .invalidate), (200, ["Content-Length: 10"], .update),
            (200, ["Content-Length: 11"], .invalidate), (200, ["Content-Length: x"], .invalidate),
            (200, ["ETag: \"a\"", "Content-Length: 11"], .invalidate), (404, ["ETag: \"b\""], .keep),
            (304, ["ETag: \"b\""], .keep),
        ] as [(Int, [String], HeadOutcome)])
    func aHeadUpdatesOrInvalidates(status: Int, lines: [String], expected: HeadOutcome) {
        let head = HTTPResponse(status: .init(code: status), headerFields: fields(lines))
        let stored = Self.stored("ETag: \"a\"", "Last-Modified: \(Self.modified)")
        #expect(HeadOutcome(head, stored: stored, length: 10, now: noon) == expected)
        var notFound = stored
        notFound.status = .notFound
        #expect(HeadOutcome(head, stored: notFound, length: 10, now: noon) == .keep)
    }
}
