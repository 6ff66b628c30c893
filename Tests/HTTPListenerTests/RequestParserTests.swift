import HTTPTypes
import HTTPWire
import NIOCore
import Testing
import TileStoreTesting

@testable import HTTPListener

@Suite(.timeLimit(.minutes(60)))
struct RequestParserTests {
    private func parse(_ text: [UInt8], limits: ServerLimits = ServerLimits()) throws(Violation) -> RequestHead? {
        var parser = RequestParser(limits: limits)
        var input = ByteBuffer(bytes: text)
        return try parser.next(&input) { String(decoding: $0, as: UTF8.self) == "here.test" }
    }

    private func status(_ text: String, limits: ServerLimits = ServerLimits()) -> Int {
        do throws(Violation) { return try parse(Array(text.utf8), limits: limits) == nil ? 0 : 200 } catch {
            return error.status
        }
    }

    /// What is sent, and the status that it is refused with: RFC 9112 unless said otherwise.
    static let refused: [(String, Int)] = [
        // §2.2, §5: lines, names, values
        ("GET / HTTP/1.1\nHost: a\n\n", 400), ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400), ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        // §5.2: obsolete folding
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n", 400),
        // §3: the request line
        ("GET /\r\n\r\n", 400), ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505), ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.x\r\nHost: a\r\n\r\n", 505), ("GET / HTTp/1.1\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.12\r\nHost: a\r\n\r\n", 400), ("GET / HTTP/1.2\r\n\r\n", 400),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 505), ("\u{16}\u{3}\u{1}\r\n\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET / x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        // §3.2: Host and the forms of a target
        ("GET / HTTP/1.1\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET http://there.test/ HTTP/1.1\r\nHost: there.test\r\n\r\n", 421),
        ("GET http://here.test@there.test/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405), ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ftp://here.test/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        // §6: smuggling
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n", 400),
        // The body's bound
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000000\r\n\r\n", 413),
    ]

    @Test(arguments: refused)
    func whatCouldBeReadInTwoWaysIsRefused(text: String, expected: Int) { #expect(status(text) == expected) }

    @Test(arguments: [
        "[[::x:99]:80:90", "[::1", "::1", "[::1]80", "[::1]:x", "[]", "[]:80", "[1.2.3.4]", "[::1]]", "a:b", "a:80:90",
        "a:99999", ":80", "[fe80::1%eth0]", "[v1.a]", "[::ffff:1.2.3.4.5]", "a[b]", "[12345::]",
    ])
    func aHostThatIsNoneIsRefused(host: String) {
        #expect(status("GET / HTTP/1.1\r\nHost: \(host)\r\n\r\n") == 400)
        #expect(status("GET http://\(host)/ HTTP/1.1\r\nHost: a\r\n\r\n") == 400)
    }

    @Test(arguments: [
        "a", "a.b-c_d~e:8080", "127.0.0.1", "127.0.0.1:0", "a:", "a.", "[::1]", "[::1]:80", "[::FFFF:1.2.3.4]:65535",
        "[2001:db8:1:2:3:4:5:6]",
    ])
    func aHostIsTakenAsItIs(host: String) throws {
        let head = try #require(try parse(Array("GET / HTTP/1.1\r\nHost: \(host)\r\n\r\n".utf8)))
        #expect(head.host == host)
    }

    /// RFC 9112 §3.2.2.
    @Test
    func theHostOfAWholeURLCountsAndNotTheField() throws {
        let text = "GET http://here.test/a?b HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        let head = try #require(try parse(Array(text.utf8)))
        #expect(head.host == "here.test" && head.target == "/a?b")
    }

    /// RFC 9110 §2.5, §6.2.
    @Test(arguments: ["HTTP/1.1", "HTTP/1.2", "HTTP/1.9"])
    func aHigherMinorVersionIsReadAsTheHighestKnown(version: String) throws {
        let text = "POST / \(version)\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        let head = try #require(try parse(Array(text.utf8)))
        #expect(head.isHTTP11 && head.keepAlive && head.body == .chunked)
    }

    /// Paths that are refused, and why they are dangerous: RFC 3986 §5.2.4, §6.2, §7.3.
    @Test(arguments: [
        "/..", "/../a", "/a/..", "/a/../b", "/./a", "/a/.", "/%2e%2e/a", "/%2E./a", "/.%2e", "/a/%2e%2e%2fb",
        "/a/..%2f..%2fetc", "/a/..%5c..%5cetc", "/a\\b", "/a/..;x=1/b", "/%00", "/a%00b", "/a%0", "/a%", "/a%zz",
        "/%c0%ae%c0%ae/", "/%c0%af", "/%e0%80%af", "/%f0%80%80%af", "//there.test/a", "/a\u{7f}", "/a#b", "/\u{e9}",
    ])
    func aTrickyPathIsRefused(path: String) {
        #expect(status("GET \(path) HTTP/1.1\r\nHost: a\r\n\r\n") == 400)
    }

    @Test(arguments: [
        "/", "/a", "/a//b", "/a/b.c", "/.well-known/x", "/...", "/a..b", "/%41", "/%C3%A9", "/a%2fb", "/a?b=/../c",
        "/a?", "/a;b=1", "/~a/(b),c!$&'*+=:@", "/%E9", "/a?x=\\y", "/..a/b", "/fonts/Open%20Sans/0-255.pbf",
    ])
    func anOrdinaryPathIsTakenVerbatim(path: String) throws {
        let head = try #require(try parse(Array("GET \(path) HTTP/1.1\r\nHost: a\r\n\r\n".utf8)))
        #expect(head.target == path)
    }

    @Test
    func sizesAreBounded() {
        var limits = ServerLimits()
        limits.headBytes = 1000
        limits.targetBytes = 100
        limits.fieldCount = 4
        let long = String(repeating: "a", count: 2000)
        #expect(status("GET /\(long) HTTP/1.1\r\nHost: a\r\n\r\n", limits: limits) == 414)
        #expect(status("GET /\(long)", limits: limits) == 414)
        #expect(status("GET / HTTP/1.1\r\nHost: a\r\nX: \(long)\r\n\r\n", limits: limits) == 431)
        #expect(status("GET / HTTP/1.1\r\nHost: a\r\nX: \(long)", limits: limits) == 431)
        #expect(status("GET / HTTP/1.1\r\nHost: a\r\nA:1\r\nB:1\r\nC:1\r\nD:1\r\n\r\n", limits: limits) == 431)
    }

    /// What becomes of a head of so many bytes that comes in pieces of a size: 200, 0 if it is never complete, or the refusal.
    private func status(ofHead bytes: Int, inTarget: Bool, piece: Int) -> Int {
        var limits = ServerLimits()
        limits.headBytes = 300
        limits.targetBytes = 1000
        let (start, end) =
            inTarget ? ("GET /", " HTTP/1.1\r\nHost: a\r\n\r\n") : ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n\r\n")
        let text = start + String(repeating: "a", count: bytes - start.utf8.count - end.utf8.count) + end
        var rest = Array(text.utf8)[...]
        var parser = RequestParser(limits: limits)
        var input = ByteBuffer()
        while true {
            do throws(Violation) {
                if try parser.next(&input, isOurs: { _ in true }) != nil { return 200 }
            } catch { return error.status }
            guard !rest.isEmpty else { return 0 }
            input.writeBytes(rest.prefix(piece))
            rest = rest.dropFirst(piece)
        }
    }

    @Test(arguments: [1, 7, Int.max])
    func aHeadMayHaveAsManyBytesAsItsLimitAndNoMore(piece: Int) {
        for (bytes, expected) in [(299, 200), (300, 200), (301, 431), (600, 431)] {
            #expect(status(ofHead: bytes, inTarget: false, piece: piece) == expected, "\(bytes) in a field")
            #expect(status(ofHead: bytes, inTarget: true, piece: piece) == expected, "\(bytes) in the target")
        }
    }

    @Test
    func aHeadIsReadAlikeHoweverItIsCut() throws {
        let text = Array(
            "\r\nPOST /a/b?c=d HTTP/1.1\r\nHost: here.test\r\nX-A:  b \t\r\nTransfer-Encoding: chunked\r\nx-a: é\r\n\r\nrest"
                .utf8)
        for cut in 0..<text.count {
            var parser = RequestParser(limits: ServerLimits())
            var input = ByteBuffer(bytes: text[..<cut])
            var head = try parser.next(&input) { _ in true }
            input.writeBytes(text[cut...])
            if head == nil { head = try parser.next(&input) { _ in true } }
            let found = try #require(head)
            #expect(found.methodText == "POST" && found.target == "/a/b?c=d" && found.body == .chunked)
            #expect(found.fields.all.map(\.value) == ["here.test", "b", "chunked", "é"])
            #expect(input.readableBytes == 4)
        }
    }

    @Test(arguments: [
        ("HTTP/1.1", "", true), ("HTTP/1.1", "Connection: close\r\n", false),
        ("HTTP/1.1", "Connection: a, CLOSE\r\n", false), ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: keep-alive\r\n", true),
    ])
    func theConnectionStaysOpenAsTheClientWants(version: String, field: String, expected: Bool) throws {
        let head = try parse(Array("GET / \(version)\r\nHost: a\r\n\(field)\r\n".utf8))
        #expect(head?.keepAlive == expected)
    }

    @Test
    func noBytesCrashTheParsers() {
        let pieces = [
            "GET ", "/", "HTTP/1.1", "\r\n", "\n", "\r", ":", " ", "Host", "a", "Content-Length", "5", "chunked", "\0",
            "%",
            "%2e", "..", "?", "#", "é", "Transfer-Encoding", ";", "0", "ffffffffffffffff", "HTTP/1.1 200 OK\r\n",
        ]
        for seed in UInt64(1)...300 {
            var random = SplitMix64(seed: seed)
            var text: [UInt8] = []
            for _ in 0..<Int.random(in: 1...40, using: &random) {
                text += Array(pieces[Int.random(in: 0..<pieces.count, using: &random)].utf8)
            }
            _ = try? parse(text)
            var chunks = ChunkedDecoder(fieldLimit: 8, trailerBytes: 1000)
            var input = ByteBuffer(bytes: text)
            loop: while let event = try? chunks.next(&input) {
                switch event {
                case .bytes: continue
                case .end, .needsMore: break loop
                }
            }
        }
    }
}
