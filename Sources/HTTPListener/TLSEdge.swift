import NIOCore

/// Lies between a connection's encryption and its socket, for closing without TLS's words of goodbye.
///
/// With them a client would take an answer that is not complete for one that is, where the end of the connection marks the
/// end of the body. And a client that does not read would be waited for.
final class TLSEdge: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    /// Whether a byte has come from the client.
    private(set) var hasHeard = false
    private var context: ChannelHandlerContext?

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        hasHeard = true
        context.fireChannelRead(data)
    }

    /// Closes the socket at once.
    func close() { context?.close(promise: nil) }
}
