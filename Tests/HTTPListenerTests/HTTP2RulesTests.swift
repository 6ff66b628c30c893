import HTTPTypes
import HTTPWire
import NIOCore
import NIOEmbedded
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener

/// The rules of RFC 9113, by its sections: what breaks them reaches nobody.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct HTTP2RulesTests {
    /// What a client sends that breaks the rules for the whole connection, and the code of the GOAWAY that answers it.
    struct BrokenConnection: CustomTestStringConvertible {
        let section: String
        let codes: Set<Int>
        let send: @Sendable (HTTP2Client) throws -> Void
        var testDescription: String { section }

        init(_ section: String, _ codes: Set<Int>, _ send: @escaping @Sendable (HTTP2Client) throws -> Void) {
            (self.section, self.codes, self.send) = (section, codes, send)
        }
    }

    // The codes of RFC 9113 §7.
    private static let (protocolError, flowControl, closed, frameSize) = (1, 3, 5, 6)
    private static let (refused, compression, calm) = (7, 9, 11)

    static let brokenConnections = [
        BrokenConnection("§4.2 a frame that is too large", [frameSize]) {
            $0.send(bytes: HTTP2Client.frame(0, flags: 0, stream: 1, [], length: 16385))
        },
        BrokenConnection("§4.3 fields that cannot be decompressed", [compression]) {
            $0.send(.headers, flags: 5, stream: 1, [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF])
        },
        BrokenConnection("RFC 7541 §2.3.3 an index beyond the tables", [compression]) {
            $0.send(.headers, flags: 5, stream: 1, [0xFE])
        },
        BrokenConnection("RFC 7541 §4.1 a name of nothing", [protocolError, compression]) {
            try $0.request(1, HTTP2Client.get() + [("", "1")])
        },
        BrokenConnection("RFC 7541 §6.3 a table larger than was agreed on", [compression]) {
            $0.send(.headers, flags: 5, stream: 1, [0x3F, 0xE1, 0xFF, 0x03])
        },
        BrokenConnection("§5.1 a body for a stream that nobody began", [protocolError]) {
            $0.send(.data, flags: 1, stream: 1, [65])
        },
        BrokenConnection("§5.1.1 a stream with a number of the server's", [protocolError]) { try $0.request(2) },
        BrokenConnection("§5.1.1 a stream with a number that was passed", [protocolError, closed]) {
            try $0.request(5)
            try $0.request(3)
        },
        // The library ends the connection, where a stream alone could be refused.
        BrokenConnection("§5.1.2 a stream too many", [protocolError, refused]) { client in
            for i in 0...100 { try client.request(2 * i + 1, HTTP2Client.get("/a", "PUT"), isEnd: false) }
        },
        BrokenConnection("§6.1 a body for no stream", [protocolError]) { $0.send(.data, stream: 0, [65]) },
        BrokenConnection("§6.1 more padding than there is frame", [protocolError]) {
            try $0.request(1, isEnd: false)
            $0.send(.data, flags: 8, stream: 1, [200, 65])
        },
        BrokenConnection("§6.2 fields for no stream", [protocolError]) { try $0.request(0) },
        BrokenConnection("§6.4 a reset for no stream", [protocolError]) { $0.send(.rstStream, [0, 0, 0, 8]) },
        BrokenConnection("§6.4 a reset of an idle stream", [protocolError]) {
            $0.send(.rstStream, stream: 9, [0, 0, 0, 8])
        },
        BrokenConnection("§6.4 a reset of another length", [frameSize]) {
            try $0.request(1, isEnd: false)
            $0.send(.rstStream, stream: 1, [0, 0, 8])
        },
        BrokenConnection("§6.5 settings of half a setting", [frameSize]) { $0.send(.settings, [0, 1, 0]) },
        BrokenConnection("§6.5 settings for a stream", [protocolError]) { $0.send(.settings, stream: 1) },
        BrokenConnection("§6.5 an acknowledgement with settings", [frameSize]) {
            $0.send(.settings, flags: 1, [0, 1, 0, 0, 0, 0])
        },
        BrokenConnection("§6.5.2 a push that is neither on nor off", [protocolError]) { $0.setting(2, 2) },
        BrokenConnection("§6.5.2 a window that is too large", [flowControl]) { $0.setting(4, 0x8000_0000) },
        BrokenConnection("§6.5.2 frames that are too small", [protocolError]) { $0.setting(5, 16383) },
        BrokenConnection("§6.6 a promise by a client", [protocolError]) {
            try $0.request(1, isEnd: false)
            $0.send(.pushPromise, flags: 4, stream: 1, [0, 0, 0, 2])
        },
        BrokenConnection("§6.7 a ping of another length", [frameSize]) { $0.send(.ping, [1, 2, 3]) },
        BrokenConnection("§6.7 a ping for a stream", [protocolError]) {
            $0.send(.ping, stream: 1, [0, 0, 0, 0, 0, 0, 0, 0])
        },
        BrokenConnection("§6.8 a goodbye for a stream", [protocolError]) {
            $0.send(.goAway, stream: 1, [0, 0, 0, 0, 0, 0, 0, 0])
        },
        BrokenConnection("§6.9 a window opened by nothing", [protocolError]) { $0.open(0, by: 0) },
        BrokenConnection("§6.9.1 a window opened too far", [flowControl]) { $0.open(0, by: 0x7FFF_FFFF) },
        BrokenConnection("§6.10 a continuation of nothing", [protocolError]) {
            $0.send(.continuation, flags: 4, stream: 1, try $0.encode(HTTP2Client.get()))
        },
        BrokenConnection("§6.10 another frame in the midst of fields", [protocolError]) {
            $0.send(.headers, flags: 1, stream: 1, try $0.encode(HTTP2Client.get()))
            $0.send(.ping, [0, 0, 0, 0, 0, 0, 0, 0])
        },
        BrokenConnection("§10.5.1 fields without end", [protocolError, calm]) { client in
            client.send(.headers, flags: 1, stream: 1, try client.encode(HTTP2Client.get()))
            for _ in 0..<10 { client.send(.continuation, stream: 1, try client.encode([("x", "y")])) }
        },
        BrokenConnection("§10.5.1 fields that are far too large", [protocolError, compression, calm]) { client in
            let many = (0..<60).map { ("x-\($0)", String(repeating: "v", count: 2000)) }
            client.send(.headers, flags: 1, stream: 1, [])
            let block = try client.encode(HTTP2Client.get() + many)
            for start in stride(from: 0, to: block.count, by: 16384) {
                client.send(.continuation, stream: 1, Array(block[start..<min(block.count, start + 16384)]))
            }
        },
        BrokenConnection("§10.5 requests taken back at once, hundreds of them", [calm]) { client in
            for i in 0..<500 {
                try client.request(2 * i + 1, isEnd: false)
                client.send(.rstStream, stream: 2 * i + 1, [0, 0, 0, 8])
            }
        },
        BrokenConnection("§10.5 pings without end", [calm]) { client in
            for _ in 0..<400 { client.send(.ping, [0, 0, 0, 0, 0, 0, 0, 0]) }
        },
        BrokenConnection("§10.5 settings without end", [calm]) { client in
            for _ in 0..<400 { client.send(.settings) }
        },
        BrokenConnection("§10.5 windows opened without end", [calm]) { client in
            for _ in 0..<5000 { client.open(0, by: 1) }
        },
        BrokenConnection("§10.5 empty pieces of a body without end", [calm]) { client in
            try client.request(1, HTTP2Client.get("/a", "POST"), isEnd: false)
            for _ in 0..<20 { client.send(.data, stream: 1, []) }
        },
        BrokenConnection("§10.5 malformed requests without end", [calm]) { client in
            for i in 0..<300 { try client.request(2 * i + 1, HTTP2Client.get() + [("X-Upper", "1")]) }
        },
    ]

    @Test(arguments: brokenConnections)
    func whatBreaksAConnectionEndsIt(broken: BrokenConnection) throws {
        let reached = Notes<String>()
        let client = try HTTP2Client(respond: { exchange in
            reached.add(exchange.head.path)
            TestResponder.echo(exchange)
        })
        try broken.send(client)
        let goodbye = try client.frames().last { $0.type == .goAway }
        #expect(goodbye.map { broken.codes.contains($0.code) } ?? false, "\(String(describing: goodbye))")
        client.channel.embeddedEventLoop.run()
        #expect(!client.channel.isActive)
        #expect(client.loop.count == 0)
    }

    @Test
    func whatIsNoPrefaceEndsTheConnection() throws {
        for text in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
            let client = try HTTP2Client(speaks: false)
            client.send(bytes: Array(text.utf8))
            #expect(try client.frames().contains { $0.type == .goAway })
            #expect(!client.channel.isActive)
        }
    }

    // MARK: Malformed requests

    private static let get = HTTP2Client.get()

    /// Fields of requests that are malformed (RFC 9113 §8.1.1).
    static let malformed: [(section: String, fields: [(String, String)])] = [
        ("§8.2.1 a name in capitals", get + [("X-A", "1")]),
        ("§8.2.1 a name with a blank", get + [("x a", "1")]),
        ("§8.2.1 a name with a colon", get + [("x:a", "1")]),
        ("§8.2.1 a value with a line's end", get + [("x", "1\r\nhost: b")]),
        ("§8.2.1 a value with a feed", get + [("x", "1\nhost: b")]),
        ("§8.2.1 a value with a NUL", get + [("x", "1\0")]),
        ("§8.2.1 a value that begins with a blank", get + [("x", " 1")]),
        ("§8.2.1 a value that ends with a tab", get + [("x", "1\t")]),
        ("§8.2.2 a field of the connection", get + [("connection", "close")]),
        ("§8.2.2 a field that keeps alive", get + [("keep-alive", "timeout=5")]),
        ("§8.2.2 a field of a proxy's connection", get + [("proxy-connection", "close")]),
        ("§8.2.2 a transfer coding", get + [("transfer-encoding", "chunked")]),
        ("§8.2.2 another protocol", get + [("upgrade", "websocket")]),
        ("§8.2.2 other codings than trailers", get + [("te", "gzip")]),
        ("§8.3 a pseudo-field behind others", [("x", "1")] + get),
        ("§8.3 an unknown pseudo-field", get + [(":x", "1")]),
        ("§8.3 a pseudo-field of responses", get + [(":status", "200")]),
        ("§8.3 a pseudo-field twice", [(":path", "/b")] + get),
        ("§8.3 two methods", [(":method", "POST")] + get),
        ("§8.3 two schemes", [(":scheme", "http")] + get),
        ("§8.3 two authorities", [(":authority", "a")] + get),
        ("§8.3 a pseudo-field between others", get.dropLast() + [("x", "1"), (":authority", "a")]),
        ("§8.5 another protocol", get + [(":protocol", "websocket")]),
        ("§8.3.1 no method", Array(get.dropFirst())),
        ("§8.3.1 no scheme", [get[0], get[2], get[3]]),
        ("§8.3.1 no path", [get[0], get[1], get[3]]),
        ("§8.3.1 an empty path", [get[0], get[1], (":path", ""), get[3]]),
        ("§8.3.1 a path that is a URL", [get[0], get[1], (":path", "http://b/"), get[3]]),
        ("§8.3.1 a path with a blank", [get[0], get[1], (":path", "/a HTTP/1.1"), get[3]]),
        ("§8.3.1 a path with a line's end", [get[0], get[1], (":path", "/\r\nx: y"), get[3]]),
        ("§8.3.1 a method with a blank", [(":method", "GET /b")] + get.dropFirst()),
        ("§8.3.1 two hosts", get + [("host", "b")]),
        ("§8.1.1 a length, and no body", get + [("content-length", "5")]),
        ("§8.1.1 two lengths", get + [("content-length", "0"), ("content-length", "1")]),
    ]

    @Test(arguments: malformed.indices)
    func whatIsMalformedReachesNobodyAndTheConnectionStays(index: Int) throws {
        let (section, fields) = Self.malformed[index]
        let reached = Notes<String>()
        let client = try HTTP2Client(
            answer: { head, _, _ in
                reached.add(head.path)
                return nil
            })
        try client.request(1, fields)
        let frames = try client.frames(of: 1)
        #expect(frames.map(\.type) == [.rstStream] && frames.first?.code == Self.protocolError, "\(section)")
        #expect(reached.all.isEmpty, "\(section)")
        #expect(try client.ask(3).status == 200, "\(section)")
    }

    static let refusals: [(fields: [(String, String)], status: Int)] = {
        let many: [(String, String)] = (0..<130).map { ("x\($0)", "1") }
        let long: [(String, String)] = [("x", String(repeating: "a", count: 33000))]
        let user: [(String, String)] = [get[0], get[1], get[2], (":authority", "u@h")]
        var refusals: [(fields: [(String, String)], status: Int)] = []
        refusals.append((HTTP2Client.get("/" + String(repeating: "a", count: 9000)), 414))
        refusals.append((get + long, 431))
        refusals.append((get + many, 431))
        for path in ["/%2e%2e/a", "//a", "/a#b"] { refusals.append((HTTP2Client.get(path), 400)) }
        refusals.append((Array(get.dropLast()), 400))
        refusals.append((user, 400))
        refusals.append(([(":method", "CONNECT"), (":authority", "example.com:443")], 405))
        refusals.append((HTTP2Client.get("/a", "TRACE"), 405))
        refusals.append((get + [("expect", "tea")], 417))
        refusals.append((HTTP2Client.get("*", "OPTIONS"), 204))
        return refusals
    }()

    /// What HTTP/1.1 answers with a status is answered with it here too.
    @Test(arguments: refusals.indices)
    func whatIsRefusedInHTTP11IsRefusedHere(index: Int) throws {
        let (fields, expected) = Self.refusals[index]
        let client = try HTTP2Client()
        #expect(try client.ask(1, fields).status == expected)
        #expect(try client.ask(3).status == 200)
    }

    @Test
    func theServerSaysItsLimitsFirst() throws {
        let client = try HTTP2Client()
        let first = try #require(try client.frames().first)
        #expect(first.type == .settings)
        let settings = stride(from: 0, to: first.payload.count, by: 6).map { at in
            first.payload[(at + 2)..<(at + 6)].reduce(0) { $0 << 8 | Int($1) }
        }
        #expect(settings == [100, 32768 + 32 * 128, 65536])
    }

    @Test
    func unknownFramesAndSettingsAreIgnored() throws {
        let client = try HTTP2Client()
        client.send(bytes: HTTP2Client.frame(0x77, flags: 255, stream: 1, [1, 2, 3]))
        client.setting(0x99, 5)
        client.send(.priority, stream: 1, [0, 0, 0, 0, 16])
        #expect(try client.ask(1) == (200, "/a "))
    }
}
