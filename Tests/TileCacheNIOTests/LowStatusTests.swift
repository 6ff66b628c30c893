import HTTPTypes
import NIOCore
import NIOPosix
import NIOSSL
import Testing
import TileCache
import TileCacheNIO
import TileCacheTesting

/// A status below 100 ended the process: over HTTP/1.1 see ``HostileServer``, over HTTP/2 here.
@Suite(.timeLimit(.minutes(60)))
struct LowStatusTests {
    @Test(arguments: ["000", "099"], [false, true])
    func aStatusBelow100OverHTTP2IsAnErrorAndDoesNotEndTheProcess(status: String, hasBody: Bool) async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let tls = try certificate.serverContext(protocols: ["h2"])
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        NIOSSLServerHandler(context: tls), RawHTTP2Server(status: status, hasBody: hasBody),
                    ])
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(server.localAddress?.port)
        var configuration = AsyncHTTPClientTransport.Configuration()
        configuration.certificateAuthorities = certificate.path
        let transport = AsyncHTTPClientTransport(configuration: configuration)
        let head = HTTPRequest(method: .get, scheme: "https", authority: "127.0.0.1:\(port)", path: "/")
        let result = await transport.outcome(head)
        #expect(result.code == .malformed, "\(result)")
        // The connection is not to blame, and carries the next request.
        #expect(await transport.outcome(head).code == .malformed)
        await transport.shutdown()
        try await server.close()
    }
}

/// Speaks just so much HTTP/2 that it answers each request with a status of its choice.
private final class RawHTTP2Server: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let status: String
    private let hasBody: Bool
    private var received = ByteBuffer()
    private var hasGreeted = false

    init(status: String, hasBody: Bool) { (self.status, self.hasBody) = (status, hasBody) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var part = unwrapInboundIn(data)
        received.writeBuffer(&part)
        if !hasGreeted {
            // The client's preface (RFC 9113 section 3.4).
            guard received.readSlice(length: 24) != nil else { return }
            hasGreeted = true
            send(context, type: 4, flags: 0, stream: 0, [])
        }
        while let length = received.getBytes(at: received.readerIndex, length: 3).map({
            $0.reduce(0) { ($0 << 8) + Int($1) }
        }),
            received.readableBytes >= 9 + length, let header = received.readBytes(length: 9)
        {
            received.moveReaderIndex(forwardBy: length)
            switch header[3] {
            case 1: answer(context, stream: Array(header[5...]))
            case 4 where header[4] & 1 == 0: send(context, type: 4, flags: 1, stream: 0, [])
            default: break
            }
        }
    }

    private func answer(_ context: ChannelHandlerContext, stream: [UInt8]) {
        let stream = stream.reduce(0) { ($0 << 8) + Int($1) }
        // A literal field without indexing, whose name is entry 8 of the static table (RFC 7541): `:status`.
        let fields = [8, UInt8(status.utf8.count)] + Array(status.utf8)
        send(context, type: 1, flags: hasBody ? 4 : 5, stream: stream, fields)
        if hasBody { send(context, type: 0, flags: 1, stream: stream, Array("body".utf8)) }
    }

    private func send(_ context: ChannelHandlerContext, type: UInt8, flags: UInt8, stream: Int, _ payload: [UInt8]) {
        var frame = context.channel.allocator.buffer(capacity: 9 + payload.count)
        frame.writeInteger(UInt32(payload.count) << 8 | UInt32(type))
        frame.writeInteger(flags)
        frame.writeInteger(UInt32(stream))
        frame.writeBytes(payload)
        context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
    }
}
