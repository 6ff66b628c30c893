import HTTPCaching
import HTTPTypes
import HTTPWire
import NIOCore
import NIOEmbedded
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener

/// What a connection keeps in memory, whatever is sent on it and however slowly it is read.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct BufferTests {
    private static let bound = 256 << 10

    /// On a busy machine it takes a while until all clients wait.
    private static let patient = {
        var limits = ServerLimits()
        (limits.writeStall, limits.bodyStall, limits.head, limits.idle) = (.hours(1), .hours(1), .hours(1), .hours(1))
        return limits
    }()

    /// Waits until so many clients are sent no more before they read, and says what is buffered for each.
    private func buffered(_ server: HTTPServer, clients: Int) async throws -> [BufferedBytes] {
        while true {
            let all = try await server.buffered()
            if all.count == clients, all.allSatisfy(\.isStalled) { return all }
            await Task.yield()
        }
    }

    // MARK: Clients that do not read

    @Test(arguments: ["HTTP/1.1", "HTTP/1.0"])
    func aLargeBodyForAClientThatDoesNotReadIsHeldInPieces(version: String) async throws {
        try await withServer(
            limits: Self.patient,
            respond: { exchange in
                exchange.send(HTTPResponse(status: .ok), length: nil)
                Self.pour(exchange, piece: ByteBuffer(repeating: 120, count: 128 << 10))
            }
        ) { server async throws in
            let wires = try (0..<8).map { _ in try server.connectReadingLittle() }
            for wire in wires { wire.send("GET /a \(version)\r\nHost: a\r\n\r\n") }
            // The clients are there until then: a connection closes with its wire.
            defer { withExtendedLifetime(wires) {} }
            for one in try await buffered(server.server, clients: 8) { #expect(one.total <= Self.bound) }
        }
    }

    /// Sends a piece again and again, as fast as the client takes it.
    private static func pour(_ exchange: Exchange, piece: ByteBuffer) {
        while exchange.isOpen {
            guard exchange.isWritable else {
                exchange.whenWritable { pour(exchange, piece: piece) }
                return
            }
            exchange.send(piece)
        }
    }

    /// Each answer is as large as one may be that is written whole; and more requests lie there than can be answered.
    @Test(arguments: [200, 100 << 10, 200 << 10, 256 << 10])
    func hitsForAClientThatSendsRequestsAndDoesNotReadAreBounded(size: Int) async throws {
        try await withServer(
            limits: Self.patient,
            answer: { _, answering, output in
                guard answering.hasRoom(for: size + 100) else { return nil }
                output.writeStatusLine(200)
                output.writeField("Content-Length: ", size)
                output.writeStaticString("\r\n")
                output.writeRepeatingByte(120, count: size)
                return Answered(status: 200, bodyBytes: size)
            }, respond: { TestResponder.pour($0, size, by: 120 << 10) }
        ) { server async throws in
            let wires = try (0..<2).map { _ in try server.connectReadingLittle() }
            let request = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
            // More than the system holds for a connection.
            let count = (12 << 20) / (size + request.utf8.count)
            for wire in wires { wire.sendInBackground(String(repeating: request, count: count)) }
            // The clients are there until then: a connection closes with its wire.
            defer { withExtendedLifetime(wires) {} }
            for one in try await buffered(server.server, clients: 2) { #expect(one.total <= Self.bound) }
        }
    }

    /// A channel counts bytes; a buffer of one byte takes hundreds.
    @Test
    func partsOfOneByteForAClientThatDoesNotReadAreBoundedInNumber() throws {
        let (_, channel, dam) = try embedded { exchange in
            exchange.send(HTTPResponse(status: .ok), length: nil)
            Self.pour(exchange, piece: ByteBuffer(string: "x"))
        }
        try channel.writeInbound(ByteBuffer(string: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
        for _ in 0..<3 {
            #expect((1...(2 * SmallWrites.most)).contains(dam.waiting))
            dam.open()
        }
    }

    // MARK: Clients that send

    /// Requests whose last bytes always come with the beginning of the next.
    @Test
    func whatHasBeenAnsweredIsNotKept() throws {
        let (connection, channel, dam) = try embedded { $0.reply(200, "hello") }
        let request = "GET / HTTP/1.1\r\nHost: a\r\nX: \(String(repeating: "a", count: 10_000))\r\n\r\n"
        try channel.writeInbound(ByteBuffer(string: "G"))
        for _ in 0..<200 {
            try channel.writeInbound(ByteBuffer(string: String(request.dropFirst()) + "G"))
            dam.open()
        }
        #expect(connection.input?.readableBytes == 1)
        #expect(connection.buffered.input <= 64 << 10)
    }

    /// Chunks whose last bytes always come with the beginning of the next.
    @Test
    func whatHasBeenHandedOnOfAnUploadIsNotKept() throws {
        let (connection, channel, _) = try embedded(TestResponder.swallow)
        try channel.writeInbound(
            ByteBuffer(string: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2"))
        for _ in 0..<400 {
            try channel.writeInbound(ByteBuffer(string: "710\r\n\(String(repeating: "a", count: 10_000))\r\n2"))
        }
        #expect(connection.input?.readableBytes == 1)
        #expect(connection.buffered.input <= 64 << 10)
    }

    /// A connection without a socket, and what holds its output back.
    private func embedded(
        _ respond: @escaping TestResponder.Respond
    ) throws -> (HTTPConnection, EmbeddedChannel, Dam) {
        let loop = LoopConnections(
            limits: ServerLimits(), time: LoopTime { HTTPDate(seconds: 0) }, hostNames: [], observer: nil)
        let responder = TestResponder(answer: { _, _, _ in nil }, respond: respond)
        let connection = HTTPConnection(loop: loop, responder: responder)
        let dam = Dam()
        let channel = EmbeddedChannel(handlers: [dam, connection])
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        return (connection, channel, dam)
    }
}
