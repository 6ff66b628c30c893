import NIOCore

/// Hands on what was read in a buffer of its own size.
///
/// The TLS library reads into one buffer of 32 KiB a connection, and makes another one whenever somebody still holds it; and who reads
/// frames holds what it was given last until more comes. So each connection had two of them, and each read made a new one.
final class FittedReads: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    /// What is larger is part of a body, which is worth its buffer.
    private static let most = 8 << 10

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        guard bytes.readableBytes <= Self.most else { return context.fireChannelRead(data) }
        var fitted = context.channel.allocator.buffer(capacity: bytes.readableBytes)
        fitted.writeBuffer(&bytes)
        context.fireChannelRead(wrapInboundOut(fitted))
    }
}
