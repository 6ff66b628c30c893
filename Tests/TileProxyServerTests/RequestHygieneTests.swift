import Testing
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// What of a request goes on to an origin, and what must not.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct RequestHygieneTests {
    private static let cached = reply("200 OK", ["Cache-Control: max-age=60"], "hello")

    /// An origin that obeys one of them could be made to store one client's wish for all.
    @Test
    func fieldsThatOnlyATrustedFrontMaySetReachNoOrigin() async throws {
        let names = [
            "Forwarded", "X-Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Path", "X-Forwarded-Uri",
            "X-Forwarded-Protocol", "X-Forwarded-User", "X-Forwarded-By", "X-Forwarded-Client-Cert",
            "X-Forwarded-Email",
            "X-Forwarded-Anything", "X-Original-URI", "X-Original-URL", "X-Original-Host", "X-Rewrite-URL",
            "Front-End-Https", "X-Url-Scheme", "X-Scheme", "Remote-User", "X-Remote-User", "X-Host", "X-HTTP-Method",
            "X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Host-Override", "X-Real-IP", "Client-IP",
            "True-Client-IP", "X-Client-Cert", "X-SSL-Client-Verify", "SSL-Client-Cert", "Proxy", "X_Forwarded_Host",
            "Remote_User", "Content_Length", "a_b",
        ]
        let kept = ["X-Other", "X-Client-Version", "X-Requested-With", "Authorization", "Cookie", "Referer", "Prefer"]
        let origin = try ScriptedOrigin(always: Self.cached)
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask("GET", "/a", (names + kept).map { $0 + ": evil" }).status == 200)
            let fields = try #require(origin.requests.first).fields
            for name in names { #expect(fields[name.lowercased()] == nil, "\(name)") }
            for name in kept { #expect(fields[name.lowercased()] == "evil", "\(name)") }
        }
    }

    @Test
    func noTrailerBringsWhatTheHeadMayNot() async throws {
        let origin = try ScriptedOrigin(always: Self.cached)
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
            wire.send("X-Original-URI: /b\r\nX_Forwarded_Host: b\r\nRemote-User: b\r\nX-Kept: c\r\n\r\n")
            #expect(wire.answer()?.status == 200)
            #expect(origin.requests.first?.trailers == "X-Kept: c\r\n")
        }
    }

    /// RFC 9110 §7.6.1: however many there are.
    @Test
    func everyNameInConnectionIsHeeded() async throws {
        let names = (0..<100).map { "X-\($0)" }.joined(separator: ", ")
        let origin = try ScriptedOrigin(
            always: reply(
                "200 OK", ["Cache-Control: max-age=60", "Connection: \(names), X-Mine", "X-Mine: a"], "hello"))
        try await withProxy(origin) { proxy async throws in
            for _ in 0..<2 {
                let answer = try proxy.ask("GET", "/a", ["Connection: \(names), X-Mine", "X-Mine: a", "X-99: b"])
                #expect(answer.text == "hello" && answer["X-Mine"] == nil)
            }
            let fields = try #require(origin.requests.first).fields
            #expect(fields["x-mine"] == nil && fields["x-99"] == nil)
        }
    }

    /// To an origin, a target that begins with two slashes may be another host's.
    @Test
    func aPathThatBeginsWithTwoSlashesBehindAPrefixIsRefused() async throws {
        let origin = try ScriptedOrigin(always: Self.cached)
        try await withProxy(origin, routes: ["/fonts=ORIGIN", "/deep=ORIGIN/base"]) { proxy async throws in
            #expect(try proxy.ask("GET", "/fonts//evil").status == 400)
            #expect(try proxy.ask("GET", "/fonts//evil?a=b").status == 400)
            #expect(origin.count == 0)
            #expect(try proxy.ask("GET", "/fonts/a//b").status == 200)
            #expect(try proxy.ask("GET", "/deep//b").status == 200)
            #expect(origin.requests.map(\.target) == ["/a//b", "/base//b"])
        }
    }

    // MARK: The log

    @Test
    func anOriginThatGivesNoAnswerIsInTheLogOnce() async throws {
        let messages = Messages()
        let origin = try ScriptedOrigin(always: Self.cached)
        origin.stop()
        try await withProxy(origin, configure: { $0.logger = messages.logger }) { proxy async throws in
            for i in 0..<5 { #expect(try proxy.ask("GET", "/\(i)?key=secret").status == 502) }
            let lines = messages.warnings
            #expect(lines.count == 1 && lines.allSatisfy { $0.contains("no answer from upstream") })
            #expect(lines.allSatisfy { $0.contains("root") && !$0.contains("secret") })
        }
    }
}
