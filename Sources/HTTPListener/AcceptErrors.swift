import Logging
import NIOConcurrencyHelpers
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Lets a listening socket rest for a while when a connection cannot be accepted, mostly for want of a file descriptor.
///
/// The connection stays in the system's queue, and the socket would be reported as ready without end. Those that are open
/// go on being served meanwhile. NIO's own `AcceptBackoffHandler` holds back the next read only: the one that has just
/// failed is still pending, and it is tried again at once.
final class AcceptPause: ChannelInboundHandler {
    typealias InboundIn = any Channel

    private let errors: AcceptErrors
    private var isResting = false

    init(_ errors: AcceptErrors) { self.errors = errors }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? IOError else {
            context.fireErrorCaught(error)
            return
        }
        guard let pause = errors.pause(after: error), !isResting else { return }
        isResting = true
        let channel = context.channel
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        // A socket that has been closed meanwhile takes no options and needs none.
        try? channel.syncOptions?.setOption(.autoRead, value: false)
        context.eventLoop.scheduleTask(in: pause) {
            bound.value.isResting = false
            // As above.
            try? channel.syncOptions?.setOption(.autoRead, value: true)
        }
    }
}

/// What is known of connections that could not be accepted.
final class AcceptErrors: Sendable {
    private struct State {
        var count = 0
        var quietUntil = NIODeadline.uptimeNanoseconds(0)
    }

    private let logger: Logger
    private let onFailure: (@Sendable () -> Void)?
    private let state = NIOLockedValueBox(State())

    /// How long nothing is accepted after a failure.
    static let pause = TimeAmount.milliseconds(100)
    /// How long nothing more is said of it.
    private static let silence = TimeAmount.seconds(10)

    init(logger: Logger, onFailure: (@Sendable () -> Void)? = nil) {
        self.logger = logger
        self.onFailure = onFailure
    }

    /// How often it has happened.
    var count: Int { state.withLockedValue { $0.count } }

    /// Counts an error and says how long to rest after it; `nil` if there is no need.
    func pause(after error: IOError) -> TimeAmount? {
        // The client went away before its turn: that is no shortage of anything.
        if error.errnoCode == ECONNABORTED { return nil }
        let now = NIODeadline.now()
        let speaks = state.withLockedValue { state in
            state.count += 1
            guard state.quietUntil <= now else { return false }
            state.quietUntil = now + Self.silence
            return true
        }
        onFailure?()
        if speaks { logger.error("cannot accept connections", metadata: ["error": "\(error)"]) }
        return Self.pause
    }
}
