import HTTPWire
import NIOCore

// A request's body on its way to the responder.
extension HTTPConnection {
    var isBodyIncomplete: Bool {
        switch incoming {
        case .none, .failed: false
        case .length, .chunked: true
        }
    }

    /// Whether the client has ended its side before the end of the body.
    var bodyCannotComplete: Bool {
        guard inputEnded, case .length(let left) = incoming else { return false }
        return Int64(input?.readableBytes ?? 0) < left
    }

    /// The responder wants a part of the body.
    func demand(_ body: @escaping (Exchange.BodyPart) -> Void) {
        bodyDemand = body
        if awaitsContinue, isBodyIncomplete, (input?.readableBytes ?? 0) == 0, context != nil {
            var buffer = buffer(32)
            buffer.writeStaticString("HTTP/1.1 100 Continue\r\n\r\n")
            send(buffer, flush: true)
        }
        awaitsContinue = false
        demandedAt = .now()
        deadline = demandedAt + bodyPatience.left
        process()
    }

    /// Hands on a part of the body; `false` if none is there.
    func deliverBody() -> Bool {
        var bytes = input ?? ByteBuffer()
        input = nil
        defer { if bytes.readableBytes > 0 { input = bytes } }
        let part: Exchange.BodyPart
        switch incoming {
        case .none: part = .end(nil)
        case .failed: part = .failed
        case .length(let left):
            let size = Int(clamping: min(left, Int64(bytes.readableBytes)))
            guard size > 0, let slice = bytes.readSlice(length: size) else {
                if inputEnded { failBody() }
                return false
            }
            incoming = left == Int64(size) ? .none : .length(left - Int64(size))
            part = .bytes(slice)
        case .chunked(var decoder):
            do throws(Violation) {
                let event = try decoder.next(&bytes)
                incoming = .chunked(decoder)
                switch event {
                case .needsMore:
                    if inputEnded { failBody() }
                    return false
                case .bytes(let slice): part = .bytes(slice)
                case .end(let trailers):
                    incoming = .none
                    part = .end(trailers?.all)
                }
            } catch {
                failBody(error)
                return false
            }
        }
        if case .bytes(let slice) = part {
            received += Int64(slice.readableBytes)
            if received > limits.bodyBytes {
                failBody(Violation(413, "the body is too large"))
                return false
            }
            // Only the time that the client was waited for counts, not that of an origin that takes it slowly.
            bodyPatience.spend(.now() - demandedAt, for: slice.readableBytes)
        }
        let demand = bodyDemand
        bodyDemand = nil
        demand?(part)
        return true
    }

    /// The body will not come to its end.
    func failBody(_ violation: Violation? = nil) {
        incoming = .failed
        guard case .exchange(let exchange) = phase else { return }
        let demand = bodyDemand
        bodyDemand = nil
        keepAlive = false
        if !exchange.hasStarted, let violation {
            write(loop.refusal(violation))
            exchange.clientIsGone()
            demand?(.failed)
            loop.report(exchange, status: violation.status)
            phase = .head
            finishConnection(drains: true)
        } else {
            exchange.clientIsGone()
            demand?(.failed)
            abort()
        }
    }
}
