import HTTPWire
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// How a connection ends, and when.
extension HTTPConnection {
    /// Closes after what is written has gone out.
    ///
    /// If the client may still be sending, only our half is closed at first: else its unread bytes would make the system
    /// reset the connection and take our answer back. A client that has asked to close sends nothing more (RFC 9112
    /// §9.6).
    ///
    /// - Parameter drains: Whether the client may still be sending.
    func finishConnection(drains: Bool) {
        flushIfNeeded()
        guard let context else { return }
        input = nil
        guard drains, !inputEnded else {
            phase = .closed
            deadline = .now() + limits.writeStall
            // Whatever is still in flight goes out first: close waits for the writes before it.
            let channel = context.channel
            let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
            context.writeAndFlush(wrapOutboundOut(ByteBuffer())).whenComplete { result in
                if case .success = result { bound.value.isCloseDelimited = false }
                channel.close(promise: nil)
            }
            resumeReading()
            return
        }
        phase = .lingering
        // For the client to take what has not gone out yet; what it may linger for begins after that.
        deadline = .now() + limits.writeStall
        context.close(mode: .output, promise: nil)
        resumeReading()
    }

    /// Our half is closed, and all that was written has gone out.
    func outputEnded() {
        isCloseDelimited = false
        guard case .lingering = phase else { return }
        guard !inputEnded else {
            context?.close(promise: nil)
            return
        }
        lingersUntil = .now() + limits.lingerMost
        deadline = .now() + limits.linger
    }

    /// The client still sends what nobody wants: it may still be reading, too.
    func lingerOn() {
        guard let lingersUntil else { return }
        deadline = min(.now() + limits.linger, lingersUntil)
    }

    /// Closes at once, so that the client sees that the response is not complete.
    func abort() {
        if case .exchange(let exchange) = phase { loop.report(exchange) }
        phase = .closed
        flushIfNeeded()
        closeIncomplete()
    }

    /// Closes though not everything is out.
    ///
    /// To a client that takes the end of the connection for the end of the body (RFC 9112 §6.3), an orderly end says that
    /// it has all of it. Only a reset says otherwise, or an end of TLS without its goodbye.
    func closeIncomplete() {
        guard let context else { return }
        if let tls {
            tls.close()
            return
        }
        if isCloseDelimited {
            _ = (context.channel as? any SocketOptionProvider)?.setSoLinger(linger(l_onoff: 1, l_linger: 0))
        }
        context.close(promise: nil)
    }

    func closed() {
        loop.remove(self)
        if case .exchange(let exchange) = phase {
            phase = .closed
            let demand = bodyDemand
            bodyDemand = nil
            exchange.clientIsGone()
            demand?(.failed)
            loop.report(exchange)
        }
        phase = .closed
        writableCallbacks = []
        input = nil
        context = nil
    }

    /// The server is going down: idle connections close now, busy ones after their answer.
    ///
    /// A head that is not complete yet gets ``LoopConnections/drainGrace`` for its rest.
    func drain() {
        guard case .head = phase else { return }
        if (input?.readableBytes ?? 0) == 0 { finishConnection(drains: !isWritable) } else { settleDeadline() }
    }

    /// Closes whatever is under way.
    func kill() { closeIncomplete() }

    // MARK: Time

    func settleDeadline() {
        guard case .head = phase else { return }
        if let headBegan {
            deadline = min(headBegan + limits.head, loop.headsEnd ?? .distantFuture)
        } else {
            if hasAnswered { (hasAnswered, idleUntil) = (false, .now() + limits.idle) }
            deadline = idleUntil
        }
    }

    /// Acts on what has taken too long.
    func check(at now: NIODeadline) {
        accountForReader(at: now)
        if readPatience.isOver {
            closeIncomplete()
            return
        }
        switch phase {
        case .head where deadline <= now:
            if loop.isDraining {
                // Nothing was promised to a request that is not there yet. Answers to those before it still go out.
                finishConnection(drains: true)
            } else if headBegan != nil {
                var output = ByteBuffer()
                refuse(Violation(408, "the request took too long"), &output)
            } else {
                context?.close(promise: nil)
            }
        case .exchange where bodyDemand != nil && isBodyIncomplete && deadline <= now:
            failBody(Violation(408, "the request's body took too long"))
        case .lingering where deadline <= now, .closed where deadline <= now: closeIncomplete()
        default: break
        }
    }
}
