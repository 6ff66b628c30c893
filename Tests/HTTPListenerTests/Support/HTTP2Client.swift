import HTTPCaching
import NIOCore
import NIOEmbedded
import NIOHPACK
import TileCacheTesting

@testable import HTTPListener

/// A connection of HTTP/2 without a socket, and a client that sends frames made by hand.
final class HTTP2Client {
    let channel = EmbeddedChannel()
    let loop: LoopConnections
    private(set) var connection: HTTP2Connection?
    private var encoder = HPACKEncoder(allocator: ByteBufferAllocator())
    private var decoder = HPACKDecoder(allocator: ByteBufferAllocator())
    private var received = ByteBuffer()

    /// A frame as it came.
    struct Frame: Equatable {
        var type: Kind
        var flags: UInt8
        var stream: Int
        var payload: [UInt8]
        /// What HEADERS say, as `name: value`.
        var fields: [String] = []

        var isEnd: Bool { flags & 1 == 1 }
        /// The code of RST_STREAM and GOAWAY.
        var code: Int {
            let bytes = type == .goAway ? payload.dropFirst(4).prefix(4) : payload.prefix(4)
            return bytes.reduce(0) { $0 << 8 | Int($1) }
        }
        /// The last stream that GOAWAY names.
        var lastStream: Int { payload.prefix(4).reduce(0) { $0 << 8 | Int($1) } & 0x7FFF_FFFF }
        var status: Int? { fields.first.flatMap { Int($0.dropFirst(9)) } }
    }

    enum Kind: UInt8 {
        case data, headers, priority, rstStream, settings, pushPromise, ping, goAway, windowUpdate, continuation
    }

    init(
        limits: ServerLimits = ServerLimits(), observer: (any ExchangeObserver)? = nil, speaks: Bool = true,
        dam: Dam? = nil,
        answer: @escaping TestResponder.Answer = { _, _, _ in nil },
        respond: @escaping TestResponder.Respond = TestResponder.echo
    ) throws {
        loop = LoopConnections(
            limits: limits, time: LoopTime { HTTPDate(seconds: 0) }, hostNames: [], observer: observer)
        let edge = TLSEdge()
        let handlers = HTTP2Connection.handlers(
            loop: loop, responder: TestResponder(answer: answer, respond: respond), edge: edge)
        connection = handlers.last as? HTTP2Connection
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        if let dam { try channel.pipeline.syncOperations.addHandler(dam) }
        try channel.pipeline.syncOperations.addHandlers([edge] + handlers)
        if speaks {
            send(bytes: Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8))
            send(.settings)
            send(.settings, flags: 1)
        }
    }

    // MARK: Sending

    func send(bytes: [UInt8]) {
        // Errors are told to the connection.
        _ = try? channel.writeInbound(ByteBuffer(bytes: bytes))
        channel.embeddedEventLoop.run()
    }

    static func frame(_ type: UInt8, flags: UInt8, stream: Int, _ payload: [UInt8], length: Int? = nil) -> [UInt8] {
        let length = length ?? payload.count
        let id = UInt32(stream)
        return [UInt8(length >> 16 & 255), UInt8(length >> 8 & 255), UInt8(length & 255), type, flags]
            + (0..<4).map { UInt8(truncatingIfNeeded: id >> (24 - 8 * UInt32($0))) } + payload
    }

    func send(_ type: Kind, flags: UInt8 = 0, stream: Int = 0, _ payload: [UInt8] = []) {
        send(bytes: Self.frame(type.rawValue, flags: flags, stream: stream, payload))
    }

    /// Fields as bytes; nothing is checked.
    func encode(_ fields: [(String, String)]) throws -> [UInt8] {
        var buffer = ByteBuffer()
        try encoder.encode(headers: HPACKHeaders(fields), to: &buffer)
        return Array(buffer.readableBytesView)
    }

    /// What a request for a path needs.
    static func get(_ path: String = "/a", _ method: String = "GET") -> [(String, String)] {
        [(":method", method), (":scheme", "https"), (":path", path), (":authority", "a")]
    }

    func request(_ stream: Int, _ fields: [(String, String)] = get(), isEnd: Bool = true) throws {
        let block = try encode(fields)
        let most = 16384
        send(
            .headers, flags: (isEnd ? 1 : 0) | (block.count <= most ? 4 : 0), stream: stream, Array(block.prefix(most)))
        for start in stride(from: most, to: block.count, by: most) {
            let end = min(block.count, start + most)
            send(.continuation, flags: end == block.count ? 4 : 0, stream: stream, Array(block[start..<end]))
        }
    }

    /// Opens a window.
    func open(_ stream: Int, by bytes: Int) {
        send(.windowUpdate, stream: stream, (0..<4).map { UInt8(truncatingIfNeeded: bytes >> (24 - 8 * $0)) })
    }

    func setting(_ id: Int, _ value: Int) {
        send(
            .settings,
            [UInt8(id >> 8), UInt8(id & 255)] + (0..<4).map { UInt8(truncatingIfNeeded: value >> (24 - 8 * $0)) })
    }

    // MARK: Receiving

    /// All frames that have come since the last time.
    func frames() throws -> [Frame] {
        channel.embeddedEventLoop.run()
        while var part = try channel.readOutbound(as: ByteBuffer.self) { received.writeBuffer(&part) }
        var frames: [Frame] = []
        while received.readableBytes >= 9, let head = received.getBytes(at: received.readerIndex, length: 9) {
            let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
            guard received.readableBytes >= 9 + length, let type = Kind(rawValue: head[3]) else { break }
            received.moveReaderIndex(forwardBy: 9)
            let payload = received.readBytes(length: length) ?? []
            var frame = Frame(
                type: type, flags: head[4], stream: head[5...].reduce(0) { $0 << 8 | Int($1) }, payload: payload)
            if type == .headers {
                var block = ByteBuffer(bytes: payload)
                frame.fields = try decoder.decodeHeaders(from: &block).map { "\($0.name): \($0.value)" }
            }
            frames.append(frame)
        }
        return frames
    }

    /// The frames of a stream.
    func frames(of stream: Int) throws -> [Frame] { try frames().filter { $0.stream == stream } }

    /// A request on a stream of its own, and its answer: status and body.
    func ask(_ stream: Int, _ fields: [(String, String)] = get()) throws -> (status: Int?, text: String) {
        try request(stream, fields)
        let frames = try frames(of: stream)
        let body = frames.filter { $0.type == .data }.flatMap(\.payload)
        return (frames.first { $0.type == .headers }?.status, String(decoding: body, as: UTF8.self))
    }
}
