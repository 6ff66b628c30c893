import HTTPTypes
import HTTPWire
import NIOCore
import NIOEmbedded
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener

/// Requests and answers in HTTP/2.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct HTTP2Tests {
    @Test
    func aRequestIsTheValueThatItIsInHTTP11() throws {
        let heads = Notes<RequestHead>()
        let client = try HTTP2Client(answer: { head, _, _ in
            heads.add(head)
            return nil
        })
        let fields = [
            ("cookie", "a=1"), ("accept-encoding", "gzip"), ("cookie", "b=2"), ("if-none-match", "\"x\""),
            ("te", "trailers"),
        ]
        try client.request(1, HTTP2Client.get("/a/b?c=d", "HEAD") + fields)
        let head = try #require(heads.all.first)
        #expect(head.version == .http2 && head.isHTTP11 && head.isSecure && head.keepAlive && head.method == .head)
        #expect((head.path, head.query, head.target, head.host) == ("/a/b", "c=d", "/a/b?c=d", "a"))
        #expect(head.fields.first(.cookie) == "a=1; b=2" && head.fields.first(.acceptEncoding) == "gzip")
        #expect(head.body == .none && !head.isPlainRead)
        #expect(head.withTargetBytes { String(decoding: $0, as: UTF8.self) } == "/a/b?c=d")
    }

    @Test
    func anAnswerMadeReadyIsSentAsFieldsAndBody() throws {
        let client = try HTTP2Client(answer: { head, answering, output in
            output.writeStaticString("HTTP/1.1 200 OK\r\nDate: now\r\nContent-Type: image/png\r\nContent-Length: 5\r\n")
            answering.writeConnection(into: &output)
            output.writeStaticString("\r\nhello")
            return Answered(status: 200, bodyBytes: 5, cache: .hit)
        })
        for stream in [1, 3, 5] {
            try client.request(stream)
            let frames = try client.frames(of: stream)
            #expect(frames.map(\.type) == [.headers, .data])
            #expect(
                frames[0].fields == [":status: 200", "date: now", "content-type: image/png", "content-length: 5"])
            #expect(frames[1].payload == Array("hello".utf8) && frames[1].isEnd)
        }
    }

    @Test
    func anAnswerWithoutABodyEndsWithItsFields() throws {
        let client = try HTTP2Client(respond: {
            $0.reply(HTTPResponse(status: .notModified, headerFields: [.eTag: "\"x\"", .connection: "close"]))
        })
        try client.request(1)
        let frames = try client.frames(of: 1)
        #expect(frames.map(\.type) == [.headers] && frames[0].isEnd)
        #expect(frames[0].fields == [":status: 304", "etag: \"x\"", "date: Thu, 01 Jan 1970 00:00:00 GMT"])
    }

    @Test
    func interimAnswersAndTrailersHaveTheirPlaces() throws {
        let client = try HTTP2Client(respond: { exchange in
            exchange.sendInterim(HTTPResponse(status: .init(code: 103), headerFields: [.contentLanguage: "en"]))
            exchange.send(HTTPResponse(status: .ok), length: nil)
            exchange.send(ByteBuffer(string: "hello"))
            exchange.finish(trailers: [.contentLanguage: "de"])
        })
        try client.request(1)
        let frames = try client.frames(of: 1)
        #expect(frames.map(\.type) == [.headers, .headers, .data, .headers])
        #expect(frames.map(\.isEnd) == [false, false, false, true])
        #expect(frames[0].fields == [":status: 103", "content-language: en"])
        #expect(frames[3].fields == ["content-language: de"])
    }

    @Test
    func streamsDoNotWaitForEachOther() throws {
        let held = Notes<Exchange>()
        let client = try HTTP2Client(respond: { exchange in
            if exchange.head.path == "/slow" { held.add(exchange) } else { TestResponder.echo(exchange) }
        })
        try client.request(1, HTTP2Client.get("/slow"))
        #expect(try client.ask(3) == (200, "/a "))
        held.all[0].reply(200, "slow")
        #expect(try client.frames(of: 1).filter { $0.type == .data }.first?.payload == Array("slow\n".utf8))
    }

    // MARK: Bodies

    @Test
    func aBodyComesWithContinueAndTrailers() throws {
        let got = Notes<HTTPFields?>()
        let client = try HTTP2Client(respond: { exchange in
            exchange.nextBodyPart { part in
                guard case .bytes(let bytes) = part else { return }
                exchange.nextBodyPart { part in
                    guard case .end(let trailers) = part else { return }
                    got.add(trailers)
                    exchange.reply(200, String(buffer: bytes))
                }
            }
        })
        try client.request(1, HTTP2Client.get("/a", "POST") + [("expect", "100-continue")], isEnd: false)
        #expect(try client.frames(of: 1).first?.fields == [":status: 100"])
        // With padding, which is for nobody.
        client.send(.data, flags: 8, stream: 1, [3] + Array("abc".utf8) + [0, 0, 0])
        client.send(.headers, flags: 5, stream: 1, try client.encode([("x-sum", "9")]))
        let frames = try client.frames(of: 1)
        #expect(frames.filter { $0.type == .data }.first?.payload == Array("abc\n".utf8))
        #expect(got.all.first??.first?.value == "9")
    }

    @Test
    func aBodyIsHeldBackUntilItIsAskedFor() throws {
        let held = Notes<Exchange>()
        let client = try HTTP2Client(respond: { held.add($0) })
        try client.request(1, HTTP2Client.get("/a", "PUT"), isEnd: false)
        for _ in 0..<4 { client.send(.data, stream: 1, [UInt8](repeating: 65, count: 16384)) }
        #expect(try client.frames().filter { $0.type == .windowUpdate && $0.stream == 1 }.isEmpty)
        let received = Notes<Int>()
        held.all[0].nextBodyPart { part in if case .bytes(let bytes) = part { received.add(bytes.readableBytes) } }
        #expect(received.all == [65536])
        #expect(try client.frames().filter { $0.type == .windowUpdate && $0.stream == 1 }.count == 1)
        client.send(.data, stream: 1, [UInt8](repeating: 65, count: 16384))
        #expect(client.channel.isActive)
    }

    @Test
    func moreThanTheWindowHoldsEndsTheConnectionOrTheStream() throws {
        let client = try HTTP2Client(respond: { _ in })
        try client.request(1, HTTP2Client.get("/a", "PUT"), isEnd: false)
        for _ in 0..<5 { client.send(.data, stream: 1, [UInt8](repeating: 65, count: 16384)) }
        #expect(try client.frames().contains { $0.code == 3 && ($0.type == .rstStream || $0.type == .goAway) })
    }

    @Test
    func bodiesThatNobodyWantsDoNotCloseTheWindowOfAll() throws {
        let client = try HTTP2Client(respond: { $0.reply(200, "no") })
        for i in 0..<40 {
            let stream = 2 * i + 1
            try client.request(stream, HTTP2Client.get("/a", "PUT"), isEnd: false)
            client.send(.data, stream: stream, [UInt8](repeating: 65, count: 16384))
        }
        let frames = try client.frames()
        #expect(frames.filter { $0.type == .headers && $0.status == 200 }.count == 40)
        // Taken back with no complaint (RFC 9113 §8.1).
        #expect(frames.filter { $0.type == .rstStream }.map(\.code) == [Int](repeating: 0, count: 40))
        #expect(try client.ask(101) == (200, "no\n"))
    }

    @Test(arguments: [4, 6])
    func aBodyOfAnotherLengthThanWasSaidFails(bytes: Int) throws {
        let parts = Notes<String>()
        let client = try HTTP2Client(respond: { Self.read($0, parts) })
        try client.request(1, HTTP2Client.get("/a", "PUT") + [("content-length", "5")], isEnd: false)
        client.send(.data, flags: 1, stream: 1, [UInt8](repeating: 65, count: bytes))
        #expect(try client.frames(of: 1).map(\.type) == [.rstStream])
        #expect(parts.all.last == "failed")
    }

    private static func read(_ exchange: Exchange, _ parts: Notes<String>) {
        exchange.nextBodyPart { part in
            switch part {
            case .bytes:
                parts.add("bytes")
                read(exchange, parts)
            case .end: parts.add("end")
            case .failed: parts.add("failed")
            }
        }
    }

    @Test
    func aBodyThatIsTooLargeOrTooSlowIsAnswered() throws {
        let limits = impatient { ($0.bodyBytes, $0.bodyStall) = (10, .seconds(30)) }
        let client = try HTTP2Client(limits: limits)
        #expect(try client.ask(1, HTTP2Client.get() + [("content-length", "11")]).status == nil)
        try client.request(3, HTTP2Client.get("/a", "PUT") + [("content-length", "11")], isEnd: false)
        #expect(try client.frames(of: 3).first?.status == 413)
        try client.request(5, HTTP2Client.get("/a", "PUT"), isEnd: false)
        client.send(.data, stream: 5, [UInt8](repeating: 65, count: 11))
        #expect(try client.frames(of: 5).first?.status == 413)
        try client.request(7, HTTP2Client.get("/a", "PUT"), isEnd: false)
        client.connection?.check(at: .now() + .seconds(31))
        #expect(try client.frames(of: 7).first?.status == 408)
    }

    // MARK: Clients that do not read

    @Test
    func aClientWhoseWindowIsClosedIsSentNoMore() throws {
        let client = try HTTP2Client(respond: { TestResponder.pour($0, 10_000_000) })
        for stream in [1, 3, 5] { try client.request(stream) }
        let sent = try client.frames().filter { $0.type == .data }.reduce(0) { $0 + $1.payload.count }
        #expect(sent == 65535)
        let bound = ServerLimits().bufferedBytes
        #expect(client.connection.map { $0.pending <= 3 * bound } ?? false)
        var total = sent
        // Each opening brings as much as it allows.
        for _ in 0..<10 {
            client.open(1, by: 100_000)
            client.open(0, by: 100_000)
            total += try client.frames().filter { $0.type == .data }.reduce(0) { $0 + $1.payload.count }
        }
        #expect(total == 65535 + 1_000_000)
        #expect(client.connection.map { $0.pending <= 3 * bound } ?? false)
    }

    @Test
    func hitsForAClientWhoseWindowIsClosedAreBounded() throws {
        let size = 100 << 10
        let client = try HTTP2Client(
            answer: { _, answering, output in
                guard answering.hasRoom(for: size + 100) else { return nil }
                output.writeStatusLine(200)
                output.writeField("Content-Length: ", size)
                output.writeStaticString("\r\n")
                output.writeRepeatingByte(120, count: size)
                return Answered(status: 200, bodyBytes: size)
            }, respond: { TestResponder.pour($0, size) })
        for i in 0..<100 { try client.request(2 * i + 1) }
        let limits = ServerLimits()
        #expect(client.connection.map { $0.pending <= limits.bufferedBytes + 100 * limits.waitingBytes } ?? false)
        client.setting(4, 1 << 20)
        client.open(0, by: 100 * size)
        let bytes = try client.frames().filter { $0.type == .data }.reduce(0) { $0 + $1.payload.count }
        #expect(bytes == 100 * size)
    }

    /// A connection counts bytes; a frame of one byte takes hundreds.
    @Test
    func partsOfOneByteAreBoundedInNumber() throws {
        let count = Notes<Int>()
        let client = try HTTP2Client(respond: { exchange in
            exchange.send(HTTPResponse(status: .ok), length: nil)
            while exchange.isWritable, count.all.count < 10_000 {
                exchange.send(ByteBuffer(string: "x"))
                count.add(1)
            }
        })
        client.setting(4, 0)
        try client.request(1)
        #expect(count.all.count == SmallWrites.most)
    }

    @Test
    func aClientThatTakesNothingLosesTheStream() throws {
        let gone = Notes<Bool>()
        let client = try HTTP2Client(respond: { exchange in
            exchange.whenGone = { gone.add(true) }
            TestResponder.pour(exchange, 1_000_000)
        })
        client.setting(4, 0)
        try client.request(1)
        client.connection?.check(at: .now())
        client.connection?.check(at: .now() + .seconds(61))
        #expect(try client.frames(of: 1).last?.type == .rstStream)
        #expect(gone.all == [true])
        #expect(client.channel.isActive)
    }

    @Test
    func aRequestThatIsTakenBackIsToldSo() throws {
        let (gone, statuses) = (Notes<Bool>(), Statuses())
        let client = try HTTP2Client(
            observer: statuses,
            respond: { exchange in
                exchange.whenGone = { gone.add(true) }
                exchange.send(HTTPResponse(status: .ok), length: 10)
            })
        try client.request(1)
        client.send(.rstStream, stream: 1, [0, 0, 0, 8])
        #expect(gone.all == [true] && statuses.answered.all == [200])
    }

    // MARK: The end

    @Test
    func aServerThatGoesDownAnswersWhatIsUnderWay() throws {
        let held = Notes<Exchange>()
        let client = try HTTP2Client(respond: { held.add($0) })
        try client.request(1)
        _ = client.loop.drain(on: client.channel.eventLoop)
        var frames = try client.frames()
        #expect(frames.last { $0.type == .goAway }?.lastStream == 0x7FFF_FFFF)
        // One that was on its way already.
        try client.request(3)
        client.send(.ping, flags: 1, [0, 0, 0, 0, 0, 0, 0, 0])
        #expect(try client.frames().last { $0.type == .goAway }?.lastStream == 3)
        try client.request(5)
        #expect(held.all.count == 2)
        for exchange in held.all { exchange.reply(200, "bye") }
        frames = try client.frames()
        #expect(frames.filter { $0.type == .data }.map(\.stream).contains(1))
        #expect(frames.filter { $0.type == .data }.map(\.stream).contains(3))
        client.channel.embeddedEventLoop.run()
        #expect(!client.channel.isActive && client.loop.count == 0)
    }

    @Test
    func aServerThatGoesDownDoesNotWaitForAClientThatAnswersNoPing() throws {
        let client = try HTTP2Client()
        _ = client.loop.drain(on: client.channel.eventLoop)
        client.channel.embeddedEventLoop.run()
        #expect(client.channel.isActive)
        client.connection?.check(at: .now() + .seconds(2))
        client.channel.embeddedEventLoop.run()
        #expect(!client.channel.isActive)
    }

    @Test
    func whatWasWrittenGoesOutBeforeTheConnectionIsClosed() throws {
        let dam = Dam()
        let client = try HTTP2Client(dam: dam)
        try client.request(1)
        _ = client.loop.drain(on: client.channel.eventLoop)
        client.connection?.check(at: .now() + .seconds(2))
        client.channel.embeddedEventLoop.run()
        #expect(client.channel.isActive && dam.waiting > 0)
        dam.open()
        #expect(!client.channel.isActive)
    }

    @Test
    func anIdleConnectionIsClosedWithAGoodbyeAndPingsDoNotKeepItOpen() throws {
        let client = try HTTP2Client()
        #expect(try client.ask(1).status == 200)
        client.send(.ping, [0, 0, 0, 0, 0, 0, 0, 0])
        client.connection?.check(at: .now() + .seconds(70))
        client.channel.embeddedEventLoop.run()
        #expect(client.channel.isActive)
        client.connection?.check(at: .now() + .seconds(76))
        let goodbye = try client.frames().last { $0.type == .goAway }
        #expect(goodbye?.code == 0 && goodbye?.lastStream == 1)
        client.channel.embeddedEventLoop.run()
        #expect(!client.channel.isActive)
    }

    @Test
    func whatIsRefusedAndWhatIsAnsweredIsTold() throws {
        let statuses = Statuses()
        let client = try HTTP2Client(observer: statuses)
        #expect(try client.ask(1).status == 200)
        #expect(try client.ask(3, HTTP2Client.get("//a")).status == 400)
        try client.request(5, HTTP2Client.get() + [("connection", "close")])
        #expect(statuses.answered.all == [200] && statuses.refused.all == [400, 400])
    }

    private final class Statuses: ExchangeObserver {
        let answered = Notes<Int>()
        let refused = Notes<Int>()
        let wantsAnswered = true

        func finished(
            _ request: RequestHead, from client: SocketAddress?, _ answered: Answered, took: TimeAmount
        ) { self.answered.add(answered.status) }

        func refused(status: Int, from client: SocketAddress?) { refused.add(status) }
    }
}
