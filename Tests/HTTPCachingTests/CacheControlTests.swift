import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct CacheControlTests {
    struct Row: CustomTestStringConvertible {
        let lines: [String]
        let rule: String
        let expected: @Sendable (inout CacheControl) -> Void
        var testDescription: String { "\(rule): \(lines)" }
        init(_ lines: String..., rule: String, expected: @escaping @Sendable (inout CacheControl) -> Void) {
            (self.lines, self.rule, self.expected) = (lines, rule, expected)
        }
    }

    static let rows = [
        Row("max-age=60", rule: "9111 §5.2.2.1") { $0.maxAge = 60 },
        Row("MAX-age=60, No-StOrE", rule: "9111 §5.2 names in any case") { ($0.maxAge, $0.noStore) = (60, true) },
        Row("max-age=60,no-transform", rule: "no blank") { ($0.maxAge, $0.noTransform) = (60, true) },
        Row(" , ,max-age=60 ,\t", rule: "9110 §5.6.1.2 empty members") { $0.maxAge = 60 },
        Row("public", "max-age=60", rule: "9110 §5.3 several lines") { ($0.public, $0.maxAge) = (true, 60) },
        Row(#"max-age="60""#, rule: "9111 §5.2 quoted form") { $0.maxAge = 60 },
        Row("max-age=0060", rule: "leading zeros") { $0.maxAge = 60 },
        Row("max-age=2147483647", rule: "9111 §1.2.2 just fits") { $0.maxAge = 2_147_483_647 },
        Row("max-age=99999999999999999999999", rule: "9111 §1.2.2 too large") { $0.maxAge = 2_147_483_648 },
        Row("max-age=-1", rule: "9111 §4.2.1 negative is stale") { $0.maxAge = 0 },
        Row("max-age=60.5", rule: "9111 §4.2.1 fraction is stale") { $0.maxAge = 0 },
        Row("max-age=60.0", rule: "9111 §4.2.1 fraction is stale") { $0.maxAge = 0 },
        Row("max-age=60a", rule: "9111 §4.2.1 no number is stale") { $0.maxAge = 0 },
        Row("max-age='60'", rule: "single quotes are none") { $0.maxAge = 0 },
        Row("max-age=", rule: "nothing is no number") { $0.maxAge = 0 },
        Row("max-age", rule: "nothing is no number") { $0.maxAge = 0 },
        Row("max-age =60", rule: "9110 §5.6.6 no blank before =") { $0.maxAge = 0 },
        Row("max-age= 60", rule: "9110 §5.6.6 no blank after =") { $0.maxAge = 0 },
        Row("max-age=60, max-age=1", rule: "9111 §4.2.1 the first counts") { $0.maxAge = 60 },
        Row("max-age=1", "max-age=60", rule: "9111 §4.2.1 the first counts, over lines") { $0.maxAge = 1 },
        Row("max-age=x, max-age=60", rule: "9111 §4.2.1 the first counts, invalid") { $0.maxAge = 0 },
        Row("s-maxage=5, max-age=6", rule: "9111 §5.2.2.10") { ($0.sharedMaxAge, $0.maxAge) = (5, 6) },
        Row("s-max-age=5", rule: "a common misspelling is unknown") {
            $0.extensions = [.init(name: "s-max-age", value: "5")]
        },
        Row(#"ext="max-age=60", max-age=1"#, rule: "9110 §5.6.4 quotes hide") {
            ($0.maxAge, $0.extensions) = (1, [.init(name: "ext", value: "max-age=60")])
        },
        Row(#"ext="a, no-store, b", public"#, rule: "9110 §5.6.4 quotes hide commas") {
            ($0.public, $0.extensions) = (true, [.init(name: "ext", value: "a, no-store, b")])
        },
        Row(#"ext="a\", no-store", public"#, rule: "9110 §5.6.4 escapes") {
            ($0.public, $0.extensions) = (true, [.init(name: "ext", value: #"a", no-store"#)])
        },
        Row(#"ext="a, no-store"#, rule: "an open quote hides nothing") {
            ($0.noStore, $0.extensions) = (true, [.init(name: "ext", value: "\"a")])
        },
        Row("ext, ext2=v", rule: "9111 §5.2.3 extensions") {
            $0.extensions = [.init(name: "ext"), .init(name: "ext2", value: "v")]
        },
        Row("=, \"no-store\", ;", rule: "what begins with no name is nothing") { _ in },
        Row("no-store=yes", rule: "9111 §5.2 an argument that is not allowed is ignored") { $0.noStore = true },
        Row("no-store;max-age=60", rule: "semicolons part nothing") { $0.noStore = true },
        Row("no-cache", rule: "9111 §5.2.2.4") { $0.noCache = .response },
        Row(#"no-cache="a, B""#, rule: "9111 §5.2.2.4 fields") { $0.noCache = .fields(names("a", "b")) },
        Row("no-cache=a", rule: "9111 §5.2.2.4 token form") { $0.noCache = .fields(names("a")) },
        Row(#"no-cache="a", no-cache="b""#, rule: "both lists") { $0.noCache = .fields(names("a", "b")) },
        Row(#"no-cache="a", no-cache"#, rule: "9111 §4.2.1 most restrictive") { $0.noCache = .response },
        Row(#"no-cache, no-cache="a""#, rule: "9111 §4.2.1 most restrictive") { $0.noCache = .response },
        Row(#"no-cache="""#, rule: "an empty list is none") { $0.noCache = .response },
        Row(#"no-cache="a, b c""#, rule: "an unreadable list is none") { $0.noCache = .response },
        Row("no-cache =a", rule: "a malformed list is none") { $0.noCache = .response },
        Row(#"private="set-cookie""#, rule: "9111 §5.2.2.7 fields") { $0.private = .fields([.setCookie]) },
        Row("private", rule: "9111 §5.2.2.7") { $0.private = .response },
        Row("must-revalidate, proxy-revalidate", rule: "9111 §5.2.2.2, §5.2.2.8") {
            ($0.mustRevalidate, $0.proxyRevalidate) = (true, true)
        },
        Row("must-understand", rule: "9111 §5.2.2.3") { $0.mustUnderstand = true },
        Row("immutable", rule: "8246 §2") { $0.immutable = true },
        Row("stale-while-revalidate=5, stale-if-error=6", rule: "5861 §3, §4") {
            ($0.staleWhileRevalidate, $0.staleIfError) = (5, 6)
        },
        Row("stale-while-revalidate=x, stale-if-error", rule: "5861: invalid grants nothing") {
            ($0.staleWhileRevalidate, $0.staleIfError) = (0, 0)
        },
    ]

    static func names(_ names: String...) -> [HTTPField.Name] { names.compactMap { HTTPField.Name($0) } }

    @Test(arguments: rows)
    func aResponseIsRead(row: Row) {
        var expected = CacheControl()
        row.expected(&expected)
        #expect(CacheControl(fields(row.lines.map { "Cache-Control: " + $0 })) == expected)
    }

    @Test func noFieldIsNotAnEmptyOne() {
        #expect(CacheControl(fields("Expires: 0")) == nil)
        #expect(CacheControl(fields("Cache-Control:")) == CacheControl())
    }

    @Test func extensionsAreBounded() {
        let line = (0..<1000).map { "e\($0)" }.joined(separator: ",")
        #expect(CacheControl(line).extensions.count == 32)
    }

    struct RequestRow: CustomTestStringConvertible {
        let lines: [String]
        let rule: String
        let expected: @Sendable (inout RequestCacheControl) -> Void
        var testDescription: String { "\(rule): \(lines)" }
        init(_ lines: String..., rule: String, expected: @escaping @Sendable (inout RequestCacheControl) -> Void) {
            (self.lines, self.rule, self.expected) = (lines, rule, expected)
        }
    }

    static let requestRows = [
        RequestRow("Cache-Control: max-age=5", rule: "9111 §5.2.1.1") { $0.maxAge = 5 },
        RequestRow("Cache-Control: max-age=x", rule: "9111 §5.2.1.1 invalid is 0") { $0.maxAge = 0 },
        RequestRow("Cache-Control: max-stale=5", rule: "9111 §5.2.1.2") { $0.maxStale = 5 },
        RequestRow("Cache-Control: max-stale", rule: "9111 §5.2.1.2 any age") { $0.maxStale = .max },
        RequestRow("Cache-Control: max-stale=x", rule: "invalid grants nothing") { _ in },
        RequestRow("Cache-Control: min-fresh=5", rule: "9111 §5.2.1.3") { $0.minFresh = 5 },
        RequestRow("Cache-Control: No-Cache", rule: "9111 §5.2.1.4") { $0.noCache = true },
        RequestRow("Cache-Control: no-store", rule: "9111 §5.2.1.5") { $0.noStore = true },
        RequestRow("Cache-Control: no-transform", rule: "9111 §5.2.1.6") { $0.noTransform = true },
        RequestRow("Cache-Control: only-if-cached", rule: "9111 §5.2.1.7") { $0.onlyIfCached = true },
        RequestRow("Cache-Control: stale-if-error=9", rule: "5861 §4") { $0.staleIfError = 9 },
        RequestRow("Pragma: no-cache", rule: "9111 §5.4") { $0.noCache = true },
        RequestRow("Pragma: a, NO-CACHE", rule: "9111 §5.4 in any case") { $0.noCache = true },
        RequestRow("Pragma: no-cache", "Cache-Control: max-age=5", rule: "9111 §5.4 Cache-Control wins") {
            $0.maxAge = 5
        },
        RequestRow("Pragma: foo", rule: "9111 §5.4 nothing else") { _ in },
        RequestRow("Accept: */*", rule: "nothing") { _ in },
    ]

    @Test(arguments: requestRows)
    func aRequestIsRead(row: RequestRow) {
        var expected = RequestCacheControl.none
        row.expected(&expected)
        #expect(RequestCacheControl(fields(row.lines)) == expected)
    }

    struct TargetedRow: CustomTestStringConvertible {
        let lines: [String]
        let rule: String
        let expected: (@Sendable (inout CacheControl) -> Void)?
        var testDescription: String { "\(rule): \(lines)" }
        init(_ lines: String..., rule: String, expected: (@Sendable (inout CacheControl) -> Void)?) {
            (self.lines, self.rule, self.expected) = (lines, rule, expected)
        }
    }

    static let targetedRows = [
        TargetedRow("max-age=60", rule: "9213 §2.1") { $0.maxAge = 60 },
        TargetedRow("  max-age=60 ,\tno-store", rule: "8941 §4.2.2 blanks") { ($0.maxAge, $0.noStore) = (60, true) },
        TargetedRow("max-age=60", "no-store", rule: "8941 §4.2 several lines") { ($0.maxAge, $0.noStore) = (60, true) },
        TargetedRow("max-age=60;a;b=2;c=\"x\", public;q", rule: "9213 §2.1 parameters ignored") {
            ($0.maxAge, $0.public) = (60, true)
        },
        TargetedRow("max-age=1, max-age=60", rule: "8941 §3.2 the last counts") { $0.maxAge = 60 },
        TargetedRow("max-age=-5", rule: "negative is 0") { $0.maxAge = 0 },
        TargetedRow("max-age=99999999999", rule: "9111 §1.2.2") { $0.maxAge = 2_147_483_648 },
        TargetedRow("max-age=60.0", rule: "9213 §2.1 decimals are not consumed") { _ in },
        TargetedRow("max-age=\"60\"", rule: "9213 §2.1 strings are not consumed") { _ in },
        TargetedRow("max-age", rule: "9213 §2.1 true is no number") { _ in },
        TargetedRow("no-store=?0, no-cache", rule: "8941 §3.3.6 false is not there") { $0.noCache = .response },
        TargetedRow("private=\"a, b\"", rule: "9111 §5.2.2.7 as a string") { $0.private = .fields(names("a", "b")) },
        TargetedRow("no-cache=(\"a\" b;x)", rule: "as an inner list") { $0.noCache = .fields(names("a", "b")) },
        TargetedRow("no-cache=5", rule: "a strange value restricts") { $0.noCache = .response },
        TargetedRow("none", rule: "9213 §3.1 not empty") { $0.extensions = [.init(name: "none")] },
        TargetedRow("a=:YWI=:, b=@5, c=%\"f%c3%bc\", d=t/k:1, e=?1, no-store", rule: "9651 §3.3 all types") {
            $0.noStore = true
            $0.extensions = ["a", "b", "c", "d", "e"].map { .init(name: $0) }
        },
        TargetedRow("", rule: "9213 §2.2 empty is ignored", expected: nil),
        TargetedRow("MaX-aGe=60", rule: "8941 §3.1.2 keys are lower case", expected: nil),
        TargetedRow("max-age=60, &&&&&", rule: "9213 §2.1 malformed is ignored", expected: nil),
        TargetedRow("max-age=60,", rule: "8941 §4.2.2 no comma at the end", expected: nil),
        TargetedRow("max-age=60 no-store", rule: "8941 §4.2.2 comma missing", expected: nil),
        TargetedRow("max-age =60", rule: "8941 §4.2.2 blank before =", expected: nil),
        TargetedRow("max-age= 60", rule: "8941 §4.2.2 blank after =", expected: nil),
        TargetedRow("max-age=1234567890123456", rule: "8941 §3.3.1 16 digits", expected: nil),
        TargetedRow("max-age=1.2345", rule: "8941 §3.3.2 four decimals", expected: nil),
        TargetedRow("a=\"x", rule: "8941 §4.2.5 open string", expected: nil),
        TargetedRow("a=\"\\x\"", rule: "8941 §4.2.5 escapes", expected: nil),
        TargetedRow("a=(\"x\"", rule: "8941 §4.2.1.2 open list", expected: nil),
        TargetedRow("a=?2", rule: "8941 §4.2.8", expected: nil),
        TargetedRow("a=:?:", rule: "8941 §4.2.7", expected: nil),
        TargetedRow("a=:YWI:, b=:Y+I/:", rule: "9651 §4.2.7 padding may be missing") {
            $0.extensions = ["a", "b"].map { .init(name: $0) }
        },
        TargetedRow("a=:Y:", rule: "9651 §4.2.7 one digit is no byte", expected: nil),
        TargetedRow("a=:YW=I:", rule: "9651 §4.2.7 padding before the end", expected: nil),
        TargetedRow("a=:====:", rule: "9651 §4.2.7 nothing but padding", expected: nil),
        TargetedRow("a=%\"%c3\"", rule: "9651 §4.2.10 no UTF-8", expected: nil),
        TargetedRow("a=%\"%ff\"", rule: "9651 §4.2.10 no UTF-8", expected: nil),
    ]

    @Test(arguments: targetedRows)
    func aTargetedFieldIsRead(row: TargetedRow) {
        let read = CacheControl(targeted: .cdnCacheControl, in: fields(row.lines.map { "CDN-Cache-Control: " + $0 }))
        let expected = row.expected.map { change in
            var value = CacheControl()
            change(&value)
            return value
        }
        #expect(read == expected)
    }

    @Test func theFirstValidTargetedFieldDecides() throws {
        let mine = try #require(HTTPField.Name("Tile-Cache-Control"))
        let policy = CachePolicy(kind: .shared, targetedFields: [mine, .cdnCacheControl])
        let all = ["Tile-Cache-Control: max-age=1", "CDN-Cache-Control: max-age=2", "Cache-Control: max-age=3"]
        #expect(policy.directives(of: fields(all)).cacheControl.maxAge == 1)
        #expect(policy.directives(of: fields(all)).targetedField == mine)
        #expect(policy.directives(of: fields(["Tile-Cache-Control: &"] + all.dropFirst())).cacheControl.maxAge == 2)
        #expect(policy.directives(of: fields(["Tile-Cache-Control:", all[2]])).cacheControl.maxAge == 3)
        #expect(!policy.directives(of: fields("Expires: 0")).isPresent)
        #expect(CachePolicy.private.directives(of: fields(all)).cacheControl.maxAge == 3, "9213 §2.2: not on its list")
    }
}
