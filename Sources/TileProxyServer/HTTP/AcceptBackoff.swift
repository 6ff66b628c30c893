import NIOCore

/// Lets a listening socket rest for a while after the system had no descriptor or memory left for a connection.
///
/// Without it the loop would spin on a connection that it cannot accept; the server itself goes on.
final class AcceptBackoff: ChannelDuplexHandler {
    typealias InboundIn = Channel
    typealias OutboundIn = Channel

    private let pause: TimeAmount
    private var isResting = false
    private var readIsPending = false

    init(pause: TimeAmount = .milliseconds(100)) { self.pause = pause }

    func read(context: ChannelHandlerContext) {
        if isResting { readIsPending = true } else { context.read() }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard error is IOError else {
            context.fireErrorCaught(error)
            return
        }
        guard !isResting else { return }
        isResting = true
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: pause) {
            let (handler, context) = bound.value
            handler.isResting = false
            if handler.readIsPending {
                handler.readIsPending = false
                context.read()
            }
        }
    }
}
