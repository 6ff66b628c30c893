import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct ReuseTests {
    struct Row: CustomTestStringConvertible {
        let control: String
        var asked: [String] = []
        let after: Int
        let expected: ReuseDecision
        let rule: String
        var kind = CacheKind.shared
        var testDescription: String { "\(rule): \(control), asked \(asked) after \(after)" }
    }

    static let rows = [
        Row(control: "max-age=60", after: 10, expected: .fresh(age: 10), rule: "9111 §4.2"),
        Row(
            control: "max-age=60", after: 60, expected: .revalidate(.stale, ifOriginFails: .ifUnreachable),
            rule: "9111 §4.2"),
        Row(
            control: "max-age=60, must-revalidate", after: 60, expected: .revalidate(.stale, ifOriginFails: .never),
            rule: "9111 §5.2.2.2"),
        Row(control: "max-age=60, must-revalidate", after: 59, expected: .fresh(age: 59), rule: "9111 §5.2.2.2 fresh"),
        Row(
            control: "max-age=60, proxy-revalidate", after: 60, expected: .revalidate(.stale, ifOriginFails: .never),
            rule: "9111 §5.2.2.8"),
        Row(
            control: "max-age=60, proxy-revalidate", after: 60,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "9111 §5.2.2.8", kind: .private),
        Row(
            control: "s-maxage=60", after: 60, expected: .revalidate(.stale, ifOriginFails: .never),
            rule: "9111 §5.2.2.10"),
        Row(
            control: "max-age=60, no-cache", after: 10, expected: .revalidate(.noCache, ifOriginFails: .never),
            rule: "9111 §5.2.2.4"),
        // RFC 5861
        Row(
            control: "max-age=60, stale-while-revalidate=30", after: 60, expected: .staleWhileRevalidate(age: 60),
            rule: "5861 §3"),
        Row(
            control: "max-age=60, stale-while-revalidate=30", after: 89, expected: .staleWhileRevalidate(age: 89),
            rule: "5861 §3"),
        Row(
            control: "max-age=60, stale-while-revalidate=30", after: 90,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "5861 §3 over"),
        Row(
            control: "max-age=60, stale-while-revalidate=30, must-revalidate", after: 60,
            expected: .revalidate(.stale, ifOriginFails: .never), rule: "9111 §5.2.2.2 wins"),
        Row(
            control: "max-age=60, stale-while-revalidate=30, no-cache", after: 60,
            expected: .revalidate(.noCache, ifOriginFails: .never), rule: "9111 §5.2.2.4 wins"),
        Row(
            control: "max-age=60, stale-if-error=30", after: 89, expected: .revalidate(.stale, ifOriginFails: .ifError),
            rule: "5861 §4"),
        Row(
            control: "max-age=60, stale-if-error=30", after: 90,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "5861 §4 over; 9111 §4.2.4 disconnected"
        ),
        Row(
            control: "max-age=60, stale-if-error=30, must-revalidate", after: 70,
            expected: .revalidate(.stale, ifOriginFails: .never), rule: "9111 §4.2.4 forbids"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: stale-if-error=30"], after: 70,
            expected: .revalidate(.stale, ifOriginFails: .ifError), rule: "5861 §4 in a request"),
        // Requests
        Row(
            control: "max-age=60", asked: ["Cache-Control: no-cache"], after: 10,
            expected: .revalidate(.request, ifOriginFails: .never), rule: "9111 §5.2.1.4"),
        Row(
            control: "max-age=60", asked: ["Pragma: no-cache"], after: 10,
            expected: .revalidate(.request, ifOriginFails: .never), rule: "9111 §5.4"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-age=0"], after: 10,
            expected: .revalidate(.request, ifOriginFails: .ifError), rule: "9111 §5.2.1.1"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-age=9"], after: 10,
            expected: .revalidate(.request, ifOriginFails: .ifError), rule: "9111 §5.2.1.1"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-age=10"], after: 10, expected: .fresh(age: 10),
            rule: "9111 §5.2.1.1 less than or equal"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: min-fresh=50"], after: 10, expected: .fresh(age: 10),
            rule: "9111 §5.2.1.3"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: min-fresh=51"], after: 10,
            expected: .revalidate(.request, ifOriginFails: .ifError), rule: "9111 §5.2.1.3"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-stale=10"], after: 70, expected: .stale(age: 70),
            rule: "9111 §5.2.1.2"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-stale=10"], after: 71,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "9111 §5.2.1.2"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-stale"], after: 100_000, expected: .stale(age: 100_000),
            rule: "9111 §5.2.1.2 any"),
        Row(
            control: "max-age=60, must-revalidate", asked: ["Cache-Control: max-stale"], after: 61,
            expected: .revalidate(.stale, ifOriginFails: .never), rule: "9111 §4.2.4"),
        Row(
            control: "max-age=60, s-maxage=60", asked: ["Cache-Control: max-stale"], after: 61,
            expected: .revalidate(.stale, ifOriginFails: .never), rule: "9111 §5.2.2.10"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-stale, max-age=65"], after: 66,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "9111 §5.2.1.1 and §5.2.1.2"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: max-stale, max-age=65"], after: 65,
            expected: .stale(age: 65), rule: "9111 §5.2.1.1 and §5.2.1.2"),
        Row(
            control: "max-age=60, stale-while-revalidate=30", asked: ["Cache-Control: max-age=100"], after: 70,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "9111 §5.2.1.1 nothing stale"),
        Row(
            control: "max-age=60, stale-while-revalidate=30", asked: ["Cache-Control: min-fresh=1"], after: 70,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "9111 §5.2.1.3 nothing stale"),
        Row(
            control: "max-age=60, stale-while-revalidate=30", asked: ["Cache-Control: no-cache"], after: 70,
            expected: .revalidate(.stale, ifOriginFails: .never), rule: "9111 §5.2.1.4"),
        Row(
            control: "max-age=60, stale-while-revalidate=30", asked: ["Cache-Control: max-stale=50"], after: 70,
            expected: .staleWhileRevalidate(age: 70), rule: "5861 §3 refreshes too"),
        // only-if-cached
        Row(
            control: "max-age=60", asked: ["Cache-Control: only-if-cached"], after: 10, expected: .fresh(age: 10),
            rule: "9111 §5.2.1.7"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: only-if-cached"], after: 60, expected: .gatewayTimeout,
            rule: "9111 §5.2.1.7"),
        Row(
            control: "max-age=60", asked: ["Cache-Control: only-if-cached, max-stale"], after: 60,
            expected: .stale(age: 60), rule: "9111 §5.2.1.7"),
        Row(
            control: "no-cache", asked: ["Cache-Control: only-if-cached"], after: 0, expected: .gatewayTimeout,
            rule: "9111 §5.2.1.7"),
        // immutable
        Row(
            control: "max-age=60, immutable", asked: ["Cache-Control: max-age=0"], after: 10, expected: .fresh(age: 10),
            rule: "8246 §2 reload"),
        Row(
            control: "max-age=60, immutable", asked: ["Cache-Control: no-cache"], after: 10,
            expected: .revalidate(.request, ifOriginFails: .never), rule: "8246 §2 forced reload"),
        Row(
            control: "max-age=60, immutable", asked: ["Cache-Control: max-age=0"], after: 60,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "8246 §2 not when stale"),
        Row(
            control: "max-age=60, immutable", asked: ["Cache-Control: max-age=5"], after: 10,
            expected: .revalidate(.request, ifOriginFails: .ifError), rule: "8246 §2 not any max-age"),
        // Clock
        Row(
            control: "max-age=600", after: -61, expected: .revalidate(.stale, ifOriginFails: .ifUnreachable),
            rule: "stored in the future"),
        Row(
            control: "max-age=600, stale-while-revalidate=9999", asked: ["Cache-Control: max-stale"], after: -61,
            expected: .revalidate(.stale, ifOriginFails: .ifUnreachable), rule: "stored in the future"),
    ]

    @Test(arguments: rows)
    func aStoredResponseIsReusedOrNot(row: Row) {
        let stored = CachePolicy(kind: row.kind).atNoon("Cache-Control: " + row.control).stored
        let asking = RequestCacheControl(fields(row.asked))
        #expect(stored.decision(asking: asking, at: noon.plus(row.after)) == row.expected)
    }

    @Test(
        arguments: [
            ("max-age=60, stale-if-error=30", 70, [500, 502, 503, 504], true),
            ("max-age=60, stale-if-error=30", 95, [], true), ("max-age=60", 70, [], true),
            ("max-age=60, must-revalidate", 70, [], false), ("no-cache", 0, [], false),
            ("max-age=60", 10, [500, 502, 503, 504], true),
        ] as [(String, Int, [Int], Bool)])
    func aFailingOriginLeavesWhatIsStored(control: String, after: Int, statuses: [Int], unreachable: Bool) {
        let stored = CachePolicy.shared.atNoon("Cache-Control: " + control).stored
        for status in [400, 401, 403, 404, 429, 500, 501, 502, 503, 504, 505] {
            let may = stored.mayServe(after: .status(status), at: noon.plus(after))
            #expect(may == statuses.contains(status), "5861 §4 names 500, 502, 503, 504; got \(status)")
        }
        #expect(stored.mayServe(after: .unreachable, at: noon.plus(after)) == unreachable)
    }

    @Test func theLatestMatchingVariantIsChosen() {
        func stored(_ vary: String, _ selecting: String, _ date: String, _ at: Int = 0) -> StoredResponse {
            StoredResponse(
                status: .ok, fields: fields(vary, "Date: Sat, 21 Nov 2026 \(date) GMT"),
                freshness: StoredFreshness(storedAt: noon.plus(at), expires: noon.plus(60)),
                selectingFields: fields(selecting))
        }
        let all = [
            stored("Vary: Foo", "Foo: 1", "10:00:00"), stored("Vary: Foo", "Foo: 2", "11:00:00"),
            stored("X: none", "Foo: 9", "09:00:00"), stored("Vary: *", "Foo: 1", "11:30:00"),
            stored("Vary: Foo", "Foo: 2", "11:00:00", 5),
        ]
        let policy = CachePolicy.shared
        #expect(policy.selection(from: all, for: fields("Foo: 1")) == 0, "9111 §4.1")
        #expect(policy.selection(from: all, for: fields("Foo: 2")) == 4, "the later stored of equal dates")
        #expect(policy.selection(from: all, for: fields("Foo: 3")) == 2, "no Vary matches all")
        #expect(policy.selection(from: [all[0], all[3]], for: fields("Foo: 3")) == nil)
        #expect(policy.selection(from: [], for: fields("Foo: 3")) == nil)
    }

    @Test func theAgeOfAReusedResponseIsMadeAnew() {
        let stored = StoredResponse(
            status: .ok, fields: fields("ETag: a"), freshness: StoredFreshness(storedAt: noon, expires: noon))
        #expect(stored.response(age: 12) == response(200, "ETag: a", "Age: 12"), "9111 §5.1")
        #expect(stored.response(age: -3) == response(200, "ETag: a", "Age: 0"))
    }
}
