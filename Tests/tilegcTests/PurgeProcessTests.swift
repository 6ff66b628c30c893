import Foundation
import HTTPTypes
import Testing
import TileCacheTesting
import TileStoreTesting

/// A running `tileproxy` that is told to purge, and `tilegc` beside it.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct PurgeProcessTests {
    private let scratch: Scratch

    init() throws { scratch = try Scratch() }

    /// The port that a proxy says it listens on.
    private func port(of child: Child) throws -> Int {
        while !child.hasEnded(within: 1) {
            for line in child.said.split(separator: "\n") where line.hasSuffix("listening") {
                let address = try #require(line.split(separator: " ").first { $0.hasPrefix("address=") })
                return try #require(address.split(separator: ":").last.flatMap { Int($0) })
            }
        }
        throw TestFailure("tileproxy ended: \(child.said)")
    }

    /// Status and body.
    private func send(_ port: Int, _ text: String) throws -> (head: String, body: String) {
        let wire = try Wire(port: port)
        wire.send(text)
        let head = try #require(wire.take(through: "\r\n\r\n"))
        return (head, String(decoding: wire.takeAll(), as: UTF8.self))
    }

    private func get(_ port: Int, _ path: String) throws -> (head: String, body: String) {
        try send(port, "GET \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    }

    private func purge(_ port: Int, _ body: String, _ token: String) throws -> (head: String, body: String) {
        try send(
            port,
            "POST /_tileproxy/purge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer \(token)\r\n"
                + "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
    }

    @Test func aPurgeReachesTilesAndUpstreamsAlsoWhereAnUpstreamHasTheRoot() async throws {
        let fields: HTTPFields = [.cacheControl: "max-age=3600"]
        let site = TileSite(zooms: 0...2, fields: fields)
        let origin = try await LocalOrigin.start { request in
            request.path.hasPrefix("/_tileproxy")
                ? LocalAnswer(.ok, [:], body: Array("origin".utf8)) : site.answer(request)
        }
        try scratch.write(Data("a-token-of-a-file\nmore\n".utf8), to: "token")
        try scratch.write(
            Data(
                """
                cache: \(scratch("cache"))
                listen: 127.0.0.1:0
                threads: 2
                purge: {token: FILE:\(scratch("token"))}
                accessLog: {path: \(scratch("access.log"))}
                sources:
                  s: {template: "\(origin.url)/{z}/{x}/{y}.png"}
                upstreams: ["root:/=\(origin.url)"]
                """.utf8), to: "tileproxy.yaml")
        let child = try Child(["serve", "--config", scratch("tileproxy.yaml")], of: Child.tileproxy)
        let port = try port(of: child)
        for path in ["/tiles/s/1/0/0.png", "/tiles/s/2/1/1.png", "/1/1/1.png"] {
            for _ in 0..<4 { #expect(try get(port, path).head.contains(" 200 ")) }
        }
        #expect(origin.requests.count == 3)
        #expect(try purge(port, #"{"source":"s"}"#, "another").head.hasPrefix("HTTP/1.1 401 "))
        #expect(try purge(port, #"{"source":"s","tiles":["2/1/1"]}"#, "a-token-of-a-file").body == "{\"expired\":1}\n")
        #expect(try get(port, "/tiles/s/2/1/1.png").head.contains("fwd-status=304"))
        #expect(try get(port, "/tiles/s/1/0/0.png").head.contains("tileproxy; hit"))
        #expect(try purge(port, #"{"source":"root"}"#, "a-token-of-a-file").body == "{\"expired\":1}\n")
        #expect(try get(port, "/1/1/1.png").head.contains("fwd=stale"))
        #expect(origin.requests.count == 5 && !origin.requests.contains { $0.path.hasPrefix("/_tileproxy") })
        // A list that another process goes by shows at once as well.
        try writeFile(Data("1/0/0\n2/1/1\n".utf8), to: scratch("list"))
        let listed = try succeed("expire", scratch("cache"), "--source", "s", "--list", scratch("list"), "--json")
        #expect(listed.text == "{\"expired\":2,\"unknown\":0}\n")
        var left = 60_000
        while try !get(port, "/tiles/s/1/0/0.png").head.contains("fwd-status=304"), left > 0 { left -= 1 }
        #expect(left > 0)
        child.send(SIGTERM)
        let outcome = try child.wait()
        #expect(outcome.status == 0)
        let log = try String(contentsOfFile: scratch("access.log"), encoding: .utf8)
        #expect(log.contains("POST /_tileproxy/purge") && !(log + outcome.messages).contains("a-token-of-a-file"))
        #expect(outcome.messages.contains("purged"))
    }
}
