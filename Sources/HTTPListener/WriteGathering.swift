import NIOCore

/// Puts small writes together before they are encrypted: each write would become a record of its own.
///
/// A frame's head has nine bytes, and a record's overhead is three times that.
final class WriteGathering: ChannelOutboundHandler {
    typealias OutboundIn = IOData
    typealias OutboundOut = ByteBuffer

    /// A record of TLS holds at most as much.
    private static let most = 16 << 10

    private var gathered = ByteBuffer()
    private var context: ChannelHandlerContext?

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    /// Tells the client that the server is going down, and that its requests are still answered (RFC 9113 §6.8).
    ///
    /// Written past the library, which refuses new streams after any GOAWAY, this one included.
    func announceEnd() {
        guard let context else { return }
        // GOAWAY, eight bytes: no stream is the last one, and there is no error.
        let frame: [UInt8] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]
        write(context: context, data: NIOAny(IOData.byteBuffer(ByteBuffer(bytes: frame))), promise: nil)
    }

    /// Closes once everything that was written has gone out: encryption's own goodbye has a time limit, and a client may read slowly.
    func closeAfterWrites() {
        guard let context else { return }
        pass(context)
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.writeAndFlush(wrapOutboundOut(ByteBuffer())).whenComplete { _ in bound.value.close(promise: nil) }
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard case .byteBuffer(var bytes) = unwrapOutboundIn(data) else {
            promise?.fail(ChannelError.operationUnsupported)
            return
        }
        if gathered.readableBytes + bytes.readableBytes > Self.most { pass(context) }
        guard promise == nil, bytes.readableBytes < Self.most else {
            pass(context)
            context.write(wrapOutboundOut(bytes), promise: promise)
            return
        }
        if gathered.capacity == 0 { gathered = context.channel.allocator.buffer(capacity: 4096) }
        gathered.writeBuffer(&bytes)
    }

    func flush(context: ChannelHandlerContext) {
        pass(context)
        context.flush()
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        pass(context)
        context.close(mode: mode, promise: promise)
    }

    private func pass(_ context: ChannelHandlerContext) {
        guard gathered.readableBytes > 0 else { return }
        let bytes = gathered
        gathered = ByteBuffer()
        context.write(wrapOutboundOut(bytes), promise: nil)
    }
}
