import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import TileCacheTesting

/// A client that speaks TLS: it says what was agreed on, and collects what comes until the end.
final class TLSClient: Sendable {
    private let channel: any Channel
    private let received = NIOLockedValueBox(ByteBuffer())
    private let group: any EventLoopGroup

    /// How a connection ended.
    enum End: Equatable {
        /// With TLS's goodbye.
        case orderly
        /// Without.
        case cut
    }

    private final class Collector: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        let received: NIOLockedValueBox<ByteBuffer>
        let agreed: EventLoopPromise<String?>
        let ended: EventLoopPromise<End>
        let isCut = NIOLockedValueBox(false)

        init(
            _ received: NIOLockedValueBox<ByteBuffer>, _ agreed: EventLoopPromise<String?>,
            _ ended: EventLoopPromise<End>
        ) { (self.received, self.agreed, self.ended) = (received, agreed, ended) }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .some(.handshakeCompleted(let name)) = event as? TLSUserEvent { agreed.succeed(name) }
        }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            var bytes = unwrapInboundIn(data)
            received.withLockedValue { _ = $0.writeBuffer(&bytes) }
        }
        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            isCut.withLockedValue { $0 = true }
            agreed.fail(error)
            context.close(promise: nil)
        }
        func channelInactive(context: ChannelHandlerContext) {
            agreed.fail(ChannelError.eof)
            ended.succeed(isCut.withLockedValue { $0 } ? .cut : .orderly)
        }
    }

    /// Sends some bytes before everything else.
    private final class Preface: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer
        private let bytes: [UInt8]

        init(_ bytes: [UInt8]) { self.bytes = bytes }

        func channelActive(context: ChannelHandlerContext) {
            context.write(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
            context.fireChannelActive()
        }
    }

    private let ended: EventLoopFuture<End>
    /// The protocol that was agreed on.
    let applicationProtocol: String?

    /// Connects and agrees on encryption; trusts the certificate and nothing else.
    convenience init(
        port: Int, trusting certificate: TestCertificate, protocols: [String] = [],
        from oldest: TLSVersion = .tlsv12, to newest: TLSVersion = .tlsv13, header: [UInt8] = []
    ) async throws {
        try await self.init(
            trusting: certificate, name: nil, protocols: protocols, from: oldest, to: newest, header: header
        ) { $0.connect(host: "127.0.0.1", port: port) }
    }

    /// The same by a Unix socket.
    convenience init(path: String, trusting certificate: TestCertificate, protocols: [String] = []) async throws {
        try await self.init(
            trusting: certificate, name: "localhost", protocols: protocols, from: .tlsv12, to: .tlsv13, header: []
        ) { $0.connect(unixDomainSocketPath: path) }
    }

    /// - Parameters:
    ///   - name: For whom the certificate has to be; `nil` for the address that it connects to.
    ///   - header: What is sent before TLS begins.
    private init(
        trusting certificate: TestCertificate, name: String?, protocols: [String], from oldest: TLSVersion,
        to newest: TLSVersion,
        header: [UInt8], connect: (ClientBootstrap) -> EventLoopFuture<any Channel>
    ) async throws {
        var settings = TLSConfiguration.makeClientConfiguration()
        settings.trustRoots = .file(certificate.path)
        settings.applicationProtocols = protocols
        (settings.minimumTLSVersion, settings.maximumTLSVersion) = (oldest, newest)
        let context = try NIOSSLContext(configuration: settings)
        group = MultiThreadedEventLoopGroup.singleton
        let loop = group.next()
        let agreed = loop.makePromise(of: String?.self)
        let end = loop.makePromise(of: End.self)
        ended = end.futureResult
        let received = received
        let bootstrap = ClientBootstrap(group: loop)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        Preface(header), NIOSSLClientHandler(context: context, serverHostname: name),
                        Collector(received, agreed, end),
                    ])
                }
            }
        channel = try await connect(bootstrap).get()
        applicationProtocol = try await agreed.futureResult.get()
    }

    func send(_ text: String) { channel.writeAndFlush(ByteBuffer(string: text), promise: nil) }

    /// What has come so far.
    var text: String { received.withLockedValue { String(buffer: $0) } }

    /// Waits for a text, or for the end.
    func text(through mark: String) async -> String {
        while channel.isActive, !text.contains(mark) { await Task.yield() }
        return text
    }

    /// Waits for the end.
    func end() async throws -> End { try await ended.get() }

    func close() { channel.close(promise: nil) }
}
