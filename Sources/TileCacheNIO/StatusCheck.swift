#if NIO
import NIOCore
import NIOHTTP1

/// Ends a connection, or a stream of HTTP/2, whose answer has a status below 100.
///
/// The decoders let such a status through. The client takes its head for an interim one, and then ends the process at the
/// body or the end that follows.
final class StatusCheck: ChannelInboundHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias InboundOut = HTTPClientResponsePart

    private var hasFailed = false

    /// Adds the check to a channel, behind what decodes its answers.
    static func add(
        to channel: any Channel,
        after decoder: @escaping @Sendable (ChannelPipeline.SynchronousOperations) throws -> any ChannelHandler
    ) -> EventLoopFuture<Void> {
        let add = { @Sendable in
            let pipeline = channel.pipeline.syncOperations
            try pipeline.addHandler(StatusCheck(), position: .after(decoder(pipeline)))
        }
        let loop = channel.eventLoop
        return loop.inEventLoop ? loop.makeCompletedFuture(withResultOf: add) : loop.submit(add)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasFailed else { return }
        if case .head(let head) = unwrapInboundIn(data), head.status.code < 100 {
            hasFailed = true
            context.fireErrorCaught(HTTPParserError.invalidStatus)
            context.close(promise: nil)
            return
        }
        context.fireChannelRead(data)
    }
}
#endif
