import Logging
import NIOCore
import NIOTLS

/// A connection whose encryption is still being agreed on; what speaks on it afterwards takes its place.
final class TLSHandshake: ChannelInboundHandler, RemovableChannelHandler, ClientConnection {
    typealias InboundIn = ByteBuffer

    private let loop: LoopConnections
    private let edge: TLSEdge
    private let failures: HandshakeFailures
    private let client: SocketAddress?
    private let makeNext: (_ applicationProtocol: String?) throws -> [any ChannelHandler]
    private let deadline: NIODeadline
    private var isOver = false
    private var context: ChannelHandlerContext?

    /// - Parameters:
    ///   - client: The client, if it is not the peer.
    ///   - makeNext: Makes what comes after, for the protocol that was agreed on.
    init(
        loop: LoopConnections, edge: TLSEdge, failures: HandshakeFailures, client: SocketAddress? = nil,
        makeNext: @escaping (_ applicationProtocol: String?) throws -> [any ChannelHandler]
    ) {
        self.loop = loop
        self.edge = edge
        self.failures = failures
        self.client = client
        self.makeNext = makeNext
        deadline = .now() + loop.limits.handshake
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        loop.add(self)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        loop.remove(self)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .some(.handshakeCompleted(let applicationProtocol)) = event as? TLSUserEvent else {
            context.fireUserInboundEventTriggered(event)
            return
        }
        isOver = true
        let pipeline = context.pipeline.syncOperations
        do {
            // The next one is there before this one goes: a server that goes down must not miss the connection between.
            try pipeline.addHandlers(makeNext(applicationProtocol))
            pipeline.removeHandler(self, promise: nil)
        } catch { edge.close() }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { ended("\(error)") }

    func channelInactive(context: ChannelHandlerContext) {
        ended("the client went away")
        context.fireChannelInactive()
    }

    /// No more will come.
    ///
    /// Without a single byte it was only a look whether somebody listens, as of a health check.
    private func ended(_ reason: String) {
        if edge.hasHeard { return fail(reason) }
        isOver = true
        edge.close()
    }

    private func fail(_ reason: String) {
        guard !isOver else { return }
        isOver = true
        failures.report(reason, from: client ?? context?.channel.remoteAddress)
        edge.close()
    }

    // MARK: Time

    var buffered: BufferedBytes { BufferedBytes(input: 0, output: 0, isStalled: false) }

    func check(at now: NIODeadline) { if deadline <= now { fail("it took too long") } }

    func drain() { kill() }

    func kill() {
        isOver = true
        edge.close()
    }
}

/// Is told of TLS handshakes that came to nothing.
///
/// Scanners make many of them, so an operator sees their number, and their reasons only on request.
struct HandshakeFailures: Sendable {
    let logger: Logger
    let onFailure: (@Sendable () -> Void)?

    func report(_ reason: String, from client: SocketAddress?) {
        onFailure?()
        logger.debug(
            "a TLS handshake failed", metadata: ["client": "\(client.clientName)", "reason": "\(reason)"])
    }
}
