package import NIOCore

/// Holds a channel's writes back until it is opened, as a peer does that does not read.
package final class Dam: ChannelOutboundHandler {
    package typealias OutboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    private var held: [EventLoopPromise<Void>?] = []

    package init() {}

    /// How many writes are held back.
    package var waiting: Int { held.count }

    /// Lets go of what is held back, which then counts as written.
    package func open() {
        let written = held
        held = []
        for promise in written { promise?.succeed() }
    }

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        held.append(promise)
    }
}
