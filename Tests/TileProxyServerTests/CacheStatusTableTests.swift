import Testing
import TileStoreTesting

@testable import TileProxyServer

/// What each answer says of how it came about (RFC 9211 §2): one row for each way.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct CacheStatusTableTests {
    typealias Step = CacheRow.Step

    private static let minute = ["Cache-Control: max-age=60"]
    private static let asked = ["Cache-Control: max-age=1", "ETag: \"a\""]

    private static func says(_ members: String) -> [String] { ["Cache-Status: tileproxy; " + members] }

    static let rows: [CacheRow] = [
        CacheRow(
            "stored, then a hit", Step(says: minute, sees: says("fwd=uri-miss; ttl=60; stored")),
            Step(after: 2, sees: says("hit; ttl=58")),
            Step(after: 1, asks: ["Range: bytes=0-0"], gets: 206, sees: says("hit; ttl=57")),
            Step(method: "HEAD", sees: says("hit; ttl=57"))),
        CacheRow("not stored", Step(sees: says("fwd=uri-miss"))),
        CacheRow(
            "a hit that is a 304", Step(says: asked),
            Step(asks: ["If-None-Match: *"], gets: 304, sees: says("hit; ttl=1"))),
        CacheRow(
            "another variant", Step(asks: ["A: 1"], says: minute + ["Vary: A"]),
            Step(asks: ["A: 2"], says: minute + ["Vary: A"], sees: says("fwd=vary-miss; ttl=60; stored"))),
        CacheRow(
            "stale and confirmed", Step(says: asked),
            Step(after: 3, confirms: minute, sees: says("fwd=stale; fwd-status=304; ttl=60; stored"))),
        CacheRow(
            "stale and replaced", Step(says: asked),
            Step(after: 3, says: minute, sees: says("fwd=stale; fwd-status=200; ttl=60; stored"))),
        CacheRow(
            "stale, and the new one not stored", Step(says: asked),
            Step(after: 3, says: ["Cache-Control: private"], sees: says("fwd=stale; fwd-status=200"))),
        CacheRow(
            "stale, and good enough", Step(says: asked),
            Step(after: 3, asks: ["Cache-Control: max-stale"], reaches: false, sees: says("hit; ttl=-2"))),
        CacheRow(
            "stale while it is refreshed", Step(says: ["Cache-Control: max-age=1, stale-while-revalidate=60"]),
            Step(after: 3, sees: says("hit; ttl=-2"))),
        CacheRow(
            "stale instead of an error", Step(says: ["Cache-Control: max-age=1, stale-if-error=60"]),
            Step(after: 3, status: "503 No", sees: says("fwd=stale; fwd-status=503; ttl=-2; detail=stale-if-error"))),
        CacheRow(
            "the client's own wish", Step(says: minute + ["ETag: \"a\""]),
            Step(
                asks: ["Cache-Control: no-cache"], confirms: minute,
                sees: says("fwd=request; fwd-status=304; ttl=60; stored"))),
        CacheRow("a method", Step(method: "POST", sees: says("fwd=method"))),
        CacheRow(
            "what only the origin can judge", Step(says: asked), Step(asks: ["If-Match: *"], sees: says("fwd=bypass"))),
        CacheRow(
            "an upstream cache's word comes first",
            Step(
                says: minute + ["Cache-Status: far; hit"],
                sees: ["Cache-Status: far; hit", "Cache-Status: tileproxy; fwd=uri-miss; ttl=60; stored"])),
    ]

    @Test(arguments: rows) func anAnswerSaysHowItCameAbout(row: CacheRow) async throws {
        #expect(try await row.run() == [])
    }
}
