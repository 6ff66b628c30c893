import HTTPTypes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import OriginClient

/// What an origin may do with a connection, and what the one who asked is told: over http and over https.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct BehaviourTests {
    /// One behaviour of an origin.
    struct Row: Sendable, CustomTestStringConvertible {
        var name: String
        var method = "GET"
        var steps: [RawStep]
        /// What is said of it; see ``ClientUnderTest/ask(_:_:method:body:_:)``.
        var expected: String
        /// The same over https, where it differs.
        var securely: String?
        /// Whether the connection serves the next request.
        var isKept = false

        init(
            _ name: String, method: String = "GET", _ expected: String, securely: String? = nil, kept: Bool = false,
            _ steps: RawStep...
        ) {
            (self.name, self.method, self.steps, self.expected) = (name, method, steps, expected)
            (self.securely, isKept) = (securely, kept)
        }

        var testDescription: String { name }
    }

    /// What stands for a gate in the table: it opens once something of the body has come.
    private static let seen = RawStep.text("\u{1}seen")

    static let rows: [Row] = [
        // Ends that are as they should be.
        Row("a length", "200 5 hello end", kept: true, .text("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello")),
        Row("no body", "200 0 end", kept: true, .text("HTTP/1.1 200 OK\nContent-Length: 0\n\n")),
        Row(
            "chunks", "200 - hello end", kept: true,
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhe\n3\nllo\n0\n\n")),
        Row(
            "trailers", "200 - hello X-T=yes end", kept: true,
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\nX-T: yes\nSet-Cookie: a=b\n\n")),
        Row(
            "a head and a body in single bytes", "200 5 hello end", kept: true,
            .text("HTTP/1.1 200 O"), .text("K\nContent-"), .text("Length: 5\n"), .text("\nh"), .text("ello")),
        Row(
            "bare line feeds", "200 5 hello end", kept: true,
            .bytes(Array("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello".utf8))),
        Row(
            "the last answer", "200 5 hello end",
            .text("HTTP/1.1 200 OK\nConnection: close\nContent-Length: 5\n\nhello")),
        Row("HTTP/1.0", "200 5 hello end", .text("HTTP/1.0 200 OK\nContent-Length: 5\n\nhello")),
        // Bodies that end with the connection.
        Row("an orderly end", "200 - whole end", .text("HTTP/1.1 200 OK\n\nwhole"), .close),
        Row(
            "an end without close_notify", "200 - half end", securely: "200 - half closed",
            .text("HTTP/1.1 200 OK\n\nhalf"), .cut),
        Row("a reset", "200 - half closed", .text("HTTP/1.1 200 OK\n\nhalf"), seen, .reset),
        // Bodies that break off.
        Row(
            "a length, an orderly end before it", "200 10 half closed",
            .text("HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf"), .close),
        Row(
            "a length, an end without close_notify before it", "200 10 half closed",
            .text("HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf"), .cut),
        Row(
            "a length, a reset before it", "200 10 half closed",
            .text("HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf"), seen, .reset),
        Row(
            "a length, an end without close_notify after it", "200 5 hello end",
            .text("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"), .cut),
        Row(
            "chunks, an orderly end in one", "200 - half closed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n8\nhalf"), .close),
        Row(
            "chunks, an orderly end before the last", "200 - half closed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nhalf\n"), .close),
        Row(
            "chunks, an orderly end in the trailers", "200 - half closed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nhalf\n0\nX: y\n"), .close),
        Row(
            "chunks, an end without close_notify", "200 - half closed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n8\nhalf"), .cut),
        Row(
            "chunks, a reset", "200 - half closed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n8\nhalf"), seen, .reset),
        Row("an orderly end in the head", "closed", .text("HTTP/1.1 200 OK\nContent-"), .close),
        Row("nothing but an end", "closed", .close),
        // Bodies that are longer than was said.
        Row("a length that is too short", "200 3 hel end", .text("HTTP/1.1 200 OK\nContent-Length: 3\n\nhello")),
        Row(
            "something after the last chunk", "200 - hello end",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\nHTTP/1.1 200 OK\n\n")),
        // Bodies where there is none.
        Row("HEAD", method: "HEAD", "200 5 end", kept: true, .text("HTTP/1.1 200 OK\nContent-Length: 5\n\n")),
        Row(
            "HEAD of chunks", method: "HEAD", "200 - end", kept: true,
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n")),
        Row("HEAD with a body", method: "HEAD", "200 5 end", .text("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello")),
        Row("204", "204 - end", kept: true, .text("HTTP/1.1 204 No Content\n\n")),
        Row("204 with a length of 0", "204 - end", kept: true, .text("HTTP/1.1 204 No Content\nContent-Length: 0\n\n")),
        Row("204 with a body", "204 - end", .text("HTTP/1.1 204 No Content\nContent-Length: 5\n\nhello")),
        Row("204 that promises a body", "204 - end", .text("HTTP/1.1 204 No Content\nContent-Length: 5\n\n")),
        Row("204 that promises chunks", "204 - end", .text("HTTP/1.1 204 No Content\nTransfer-Encoding: chunked\n\n")),
        Row("304 with a length", "304 5 end", kept: true, .text("HTTP/1.1 304 Not Modified\nContent-Length: 5\n\n")),
        Row("304 with a body", "304 5 end", .text("HTTP/1.1 304 Not Modified\nContent-Length: 5\n\nhello")),
        // What cannot be read in one way.
        Row(
            "a chunk size that is none", "200 - half malformed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nhalf\nxx\n")),
        Row(
            "a chunk longer than its size", "200 - half malformed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nhalfand\n0\n\n")),
        Row(
            "a chunk size without end", "200 - malformed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5;" + String(repeating: "a", count: 300))),
        Row(
            "a huge chunk", "200 - malformed",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nffffffffffffffff\n")),
        Row("two lengths", "malformed", .text("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\nab")),
        Row(
            "chunks and a length", "200 - hello end",
            .text("HTTP/1.1 200 OK\nContent-Length: 1\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n")),
        Row("another transfer coding", "malformed", .text("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\nhello")),
        Row("no HTTP", "malformed", .text("hello\n\n")),
        // 1xx.
        Row(
            "100 and 103", "100 103 200 5 hello end", kept: true,
            .text("HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early Hints\nLink: </a>\n\n"),
            .text("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello")),
        Row(
            "64 interim responses", String(repeating: "103 ", count: 64) + "200 5 hello end", kept: true,
            .text(String(repeating: "HTTP/1.1 103 Early Hints\nLink: </a>\n\n", count: 64)),
            .text("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello")),
        Row(
            "too many interim responses", String(repeating: "103 ", count: 64) + "headTooLarge",
            .text(String(repeating: "HTTP/1.1 103 Early Hints\nLink: </a>\n\n", count: 65))),
        Row(
            "interim responses that are larger than a head may be", "103 103 103 headTooLarge",
            .text(
                String(
                    repeating: "HTTP/1.1 103 Early Hints\nX: " + String(repeating: "a", count: 40_000) + "\n\n",
                    count: 4)
            )),
        Row("only interim responses", "103 closed", .text("HTTP/1.1 103 Early Hints\n\n"), .close),
        Row("101", "malformed", .text("HTTP/1.1 101 Switching Protocols\n\n")),
        // Heads without end.
        Row("an endless status line", "headTooLarge", .endless([UInt8](repeating: 97, count: 8192))),
        Row(
            "an endless field", "headTooLarge", .text("HTTP/1.1 200 OK\nX: "),
            .endless([UInt8](repeating: 97, count: 8192))),
        Row(
            "endless fields", "headTooLarge", .text("HTTP/1.1 200 OK\n"),
            .endless(Array(String(repeating: "X: y\r\n", count: 100).utf8))),
        Row(
            "endless trailers", "200 - headTooLarge",
            .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n0\n"),
            .endless(Array(String(repeating: "X: y\r\n", count: 100).utf8))),
    ]

    @Test(arguments: rows, [false, true])
    func whatAnOriginDoesIsToldAsItIs(row: Row, isSecure: Bool) async throws {
        let gate = Gate()
        let steps = row.steps.map { step in
            if case .bytes(let bytes) = step, bytes.first == 1 { RawStep.wait(gate) } else { step }
        }
        try await withOrigin(
            isSecure: isSecure,
            answer: { request in
                request.path == "/next" ? LocalAnswer(.ok, text: "next") : .raw(steps)
            }
        ) { origin, client async throws in
            let answer = try await client.ask(
                origin.url, method: row.method, Script(whenBytes: { _ in gate.open() }))
            #expect(answer == (isSecure ? row.securely ?? row.expected : row.expected))
            #expect(try await client.ask(origin.url, "/next") == "200 4 next end")
            #expect(origin.connectionsMade == (row.isKept ? 1 : 2))
        }
    }

    // MARK: Time

    @Test(arguments: [false, true])
    func aHeadThatDripsInDoesNotMakeItsTimeLonger(isSecure: Bool) async throws {
        try await withOrigin(
            isSecure: isSecure, limits: { $0.head = .milliseconds(200) },
            answer: { _ in
                .raw([.text("HTTP/1.1 200 OK\n"), .drip(UInt8(ascii: "X"), every: .milliseconds(5))])
            }
        ) { origin, client async throws in
            #expect(try await client.ask(origin.url) == "timeout")
        }
    }

    @Test(arguments: [false, true])
    func aBodyThatPausesForTooLongIsGivenUp(isSecure: Bool) async throws {
        try await withOrigin(
            isSecure: isSecure, limits: { $0.bodyStall = .milliseconds(100) },
            answer: { _ in
                .raw([.text("HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf"), .hang])
            }
        ) { origin, client async throws in
            #expect(try await client.ask(origin.url) == "200 10 half timeout")
        }
    }

    // MARK: Kept connections

    /// The connection ends just as a request goes out on it: nothing says whether the origin has acted on it.
    @Test(arguments: [RawStep.close, .cut, .reset], [false, true])
    func aKeptConnectionThatEndsAsARequestGoesOutIsReplacedWhereThatDoesNoHarm(
        end: RawStep, isSecure: Bool
    ) async throws {
        for (method, body, expected, count) in [
            ("GET", UpstreamRequest.Body.none, "200 4 next end", 2), ("PUT", .length(0), "closed", 1),
            ("POST", .none, "closed", 1),
        ] {
            let attempts = Counter()
            try await withOrigin(
                isSecure: isSecure,
                answer: { request in
                    guard request.path == "/next", attempts.next() == 1 else { return LocalAnswer(.ok, text: "next") }
                    return .raw([end])
                }
            ) { origin, client async throws in
                #expect(try await client.ask(origin.url) == "200 4 next end")
                let answer = try await client.ask(origin.url, "/next", method: method, body: body)
                #expect(answer == expected, "\(method)")
                #expect(origin.counts["/next"] == count, "\(method)")
            }
        }
    }

    @Test(arguments: [false, true])
    func bytesThatComeAfterAnAnswerAreNotTakenForTheNextOne(isSecure: Bool) async throws {
        let gate = Gate()
        try await withOrigin(
            isSecure: isSecure,
            answer: { request in
                guard request.path != "/next" else { return LocalAnswer(.ok, text: "next") }
                let evil = RawStep.text("HTTP/1.1 200 OK\nContent-Length: 4\n\nevil")
                return .raw([.text("HTTP/1.1 304 Not Modified\n\n"), .wait(gate), evil])
            }
        ) { origin, client async throws in
            #expect(try await client.ask(origin.url) == "304 - end")
            gate.open()
            await origin.connectionsClosed()
            #expect(try await client.ask(origin.url, "/next") == "200 4 next end")
            #expect(origin.connectionsMade == 2)
        }
    }

    /// They lie in the socket when the next request is about to go out: one that has waited for the connection, or one that
    /// comes in the same turn of the loop.
    @Test(arguments: [false, true], [false, true])
    func bytesThatAreThereWhenTheNextQuestionGoesOutAreNotTakenForItsAnswer(
        nextHasWaited: Bool, isSecure: Bool
    ) async throws {
        let (gate, next) = (Gate(), NIOLockedValueBox<EventLoopFuture<String>?>(nil))
        try await withOrigin(
            isSecure: isSecure, limits: { $0.connections = 1 },
            answer: { request in
                guard request.path != "/next" else { return LocalAnswer(.ok, text: "next") }
                let evil = RawStep.text("HTTP/1.1 200 OK\nContent-Length: 4\n\nevil")
                return .raw([.text("HTTP/1.1 304 Not Modified\n\n"), .wait(gate), evil])
            }
        ) { origin, client async throws in
            let url = origin.url
            let ask: @Sendable () -> Void = { next.withLockedValue { $0 = client.begin(url, "/next", method: "POST") } }
            let script = Script(
                whenReady: { _ in if nextHasWaited { ask() } },
                whenHead: { call in
                    gate.open()
                    // The loop stands still meanwhile, so that nothing is read.
                    while let connection = call.connection, !connection.hasUnreadInput {}
                    if !nextHasWaited { ask() }
                })
            #expect(try await client.ask(url, "/", script) == "304 - end")
            #expect(try await next.withLockedValue { $0 }?.get() == "200 4 next end")
            #expect(origin.connectionsMade == 2)
        }
    }

    // MARK: Uploads

    @Test(arguments: [false, true])
    func anAnswerThatComesBeforeTheUploadsEndIsAnAnswer(isSecure: Bool) async throws {
        try await withOrigin(
            isSecure: isSecure, answersHeads: true,
            answer: { request in
                request.path == "/next"
                    ? LocalAnswer(.ok, text: "next") : LocalAnswer(.contentTooLarge, text: "too much")
            }
        ) { origin, client async throws in
            for body in [UpstreamRequest.Body.length(1_000_000), .chunked] {
                let answer = try await client.ask(
                    origin.url, method: "POST", body: body,
                    Script(whenReady: { $0.send(ByteBuffer(string: "the beginning")) }))
                #expect(answer == "413 8 too much end")
                // Where the upload has not come to its end, the next request would be taken for more of it.
                #expect(try await client.ask(origin.url, "/next") == "200 4 next end")
            }
            #expect(origin.connectionsMade == 3)
        }
    }

    @Test(arguments: [RawStep.close, .cut, .reset, .hang], [false, true])
    func anAnswerThatIsWholeIsAnAnswerThoughTheConnectionBreaksUnderTheUpload(
        end: RawStep, isSecure: Bool
    ) async throws {
        try await withOrigin(
            isSecure: isSecure, answersHeads: true,
            answer: { _ in
                .raw([.text("HTTP/1.1 413 Content Too Large\nContent-Length: 8\n\ntoo much"), end])
            }
        ) { origin, client async throws in
            let script = Script(whenReady: { Self.pour($0, 200) })
            let answer = try await client.ask(origin.url, method: "POST", body: .chunked, script)
            #expect(answer == "413 8 too much end")
        }
    }

    /// Sends so many parts of 64 KiB as fast as the origin takes them, and no end.
    private static func pour(_ call: UpstreamCall, _ parts: Int) {
        guard parts > 0 else { return }
        call.send(ByteBuffer(repeating: 120, count: 64 << 10))
        call.whenWritable { pour(call, parts - 1) }
    }

    @Test(arguments: [false, true])
    func anAnswerThatBeginsBeforeTheUploadsEndAndEndsAfterItKeepsTheConnection(isSecure: Bool) async throws {
        let gate = Gate()
        try await withOrigin(
            isSecure: isSecure, answersHeads: true,
            answer: { request in
                guard request.path != "/next" else { return LocalAnswer(.ok, text: "next") }
                return .raw([.text("HTTP/1.1 200 OK\nContent-Length: 5\n\nhe"), .wait(gate), .text("llo")])
            }
        ) { origin, client async throws in
            let script = Script(
                whenReady: { $0.send(ByteBuffer(string: "first ")) },
                whenHead: { call in
                    call.send(ByteBuffer(string: "second"))
                    call.finish(trailers: nil)
                },
                whenBytes: { _ in gate.open() })
            #expect(try await client.ask(origin.url, method: "POST", body: .length(12), script) == "200 5 hello end")
            #expect(try await client.ask(origin.url, "/next") == "200 4 next end")
            #expect(origin.connectionsMade == 1 && origin.bytesReceived == 12)
        }
    }
}

/// Counts from 1.
private final class Counter: Sendable {
    private let count = NIOLockedValueBox(0)

    func next() -> Int {
        count.withLockedValue { count in
            count += 1
            return count
        }
    }
}
