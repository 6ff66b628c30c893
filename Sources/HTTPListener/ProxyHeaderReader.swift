import Logging
import NIOCore

/// A connection that has to begin with a PROXY header; what speaks on it afterwards takes its place.
///
/// A peer that is not trusted is closed before anything is read. What goes wrong is closed without an answer: whoever speaks
/// the protocol does not expect one, and with TLS it could not be read.
final class ProxyHeaderReader: ChannelInboundHandler, RemovableChannelHandler, ClientConnection {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private let loop: LoopConnections
    private let isTrusted: @Sendable (SocketAddress) -> Bool
    private let logger: Logger
    private let makeNext: (_ client: SocketAddress?) throws -> [any ChannelHandler]
    private let deadline: NIODeadline
    private var input = ByteBuffer()
    private var isOver = false
    private var context: ChannelHandlerContext?

    /// - Parameter makeNext: Makes what comes after, for the client that the header names; `nil` if that is the peer.
    init(
        loop: LoopConnections, isTrusted: @escaping @Sendable (SocketAddress) -> Bool, logger: Logger,
        makeNext: @escaping (_ client: SocketAddress?) throws -> [any ChannelHandler]
    ) {
        self.loop = loop
        self.isTrusted = isTrusted
        self.logger = logger
        self.makeNext = makeNext
        deadline = .now() + loop.limits.head
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        loop.add(self)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        loop.remove(self)
    }

    func channelActive(context: ChannelHandlerContext) {
        if let peer = context.channel.remoteAddress {
            if !isTrusted(peer) { refuse(403, "the peer is not a trusted proxy") }
        } else {
            // It has gone away already, as health checks do.
            kill()
        }
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        var bytes = unwrapInboundIn(data)
        input.writeBuffer(&bytes)
        let read = input.withUnsafeReadableBytes { bytes in
            Result { () throws(ProxyHeader.Malformed) -> ProxyHeader? in try ProxyHeader.read(bytes) }
        }
        switch read {
        case .success(nil): break
        case .success(.some(let header)): goOn(header, context)
        case .failure(let problem): refuse(400, problem.description)
        }
    }

    private func goOn(_ header: ProxyHeader, _ context: ChannelHandlerContext) {
        isOver = true
        input.moveReaderIndex(forwardBy: header.length)
        let rest = input
        input = ByteBuffer()
        let pipeline = context.pipeline.syncOperations
        do {
            // The next one is there before this one goes: a server that goes down must not miss the connection between.
            try pipeline.addHandlers(makeNext(header.client))
            if rest.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(rest)) }
            pipeline.removeHandler(self, promise: nil)
        } catch { context.close(promise: nil) }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { ended() }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { ended() }

    func channelInactive(context: ChannelHandlerContext) {
        ended()
        context.fireChannelInactive()
    }

    /// No more will come.
    ///
    /// Without a single byte it was only a look whether somebody listens.
    private func ended() {
        guard !isOver else { return }
        if input.readableBytes > 0 { refuse(400, "the connection ended within it") } else { kill() }
    }

    private func refuse(_ status: Int, _ reason: String) {
        guard !isOver, let context else { return }
        let peer = context.channel.remoteAddress
        loop.refusals?.refused(status: status, from: peer)
        logger.debug(
            "a connection was closed for want of a PROXY header",
            metadata: ["peer": "\(peer.clientName)", "reason": "\(reason)"])
        kill()
    }

    // MARK: Time

    var buffered: BufferedBytes { BufferedBytes(input: input.storageCapacity, output: 0, isStalled: false) }

    func check(at now: NIODeadline) {
        guard deadline <= now, !isOver else { return }
        if input.readableBytes > 0 { refuse(408, "it took too long") } else { kill() }
    }

    func drain() { kill() }

    func kill() {
        isOver = true
        input = ByteBuffer()
        context?.close(promise: nil)
    }
}
