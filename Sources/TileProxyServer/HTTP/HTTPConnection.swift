import HTTPTypes
import NIOCore

/// One client's connection: bytes in, requests one after another, bytes out.
///
/// While a request is under way nothing more is read than its body asks for, so a flood of pipelined requests waits in
/// the client's own buffers. What is answered at once from one read goes out in one write.
final class HTTPConnection: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        /// Between requests, or in a request's head.
        case head
        /// A request is under way.
        case exchange(Exchange)
        /// Everything is said; what still comes is thrown away until the client closes.
        case lingering
        case closed
    }

    /// The body of the request that is under way.
    private enum Incoming {
        case none
        case length(Int64)
        case chunked(ChunkedDecoder)
        case failed
    }

    let loop: LoopConnections
    private let responder: any Responder
    private var context: ChannelHandlerContext?
    private var phase = Phase.head
    private var incoming = Incoming.none
    private var received: Int64 = 0
    private var bodyDemand: ((Exchange.BodyPart) -> Void)?
    private var awaitsContinue = false
    private var parser: RequestParser
    private var input: ByteBuffer?
    private var keepAlive = true
    private var inputEnded = false
    private var isProcessing = false
    private var wantsFlush = false
    private var flushIsScheduled = false
    private var readIsPending = false
    private var writableCallbacks: [() -> Void] = []
    private var stalledSince: NIODeadline?
    private(set) var deadline: NIODeadline
    private var headBegan: NIODeadline?
    /// The connection cannot go on after this response.
    var mustClose = false

    init(loop: LoopConnections, responder: any Responder) {
        self.loop = loop
        self.responder = responder
        parser = RequestParser(limits: loop.limits)
        deadline = .now() + loop.limits.head
    }

    private var limits: ServerLimits { loop.limits }
    var isWritable: Bool { context?.channel.isWritable ?? false }
    var willKeepAlive: Bool { keepAlive && !mustClose && !loop.isDraining && !inputEnded }

    // MARK: Channel events

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        loop.add(self)
    }

    func handlerRemoved(context: ChannelHandlerContext) { closed() }

    func channelInactive(context: ChannelHandlerContext) {
        closed()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent {
            inputEnded = true
            switch phase {
            case .exchange:
                if isBodyIncomplete { failBody() }
            case .head: finishConnection()
            case .lingering: context.close(promise: nil)
            case .closed: break
            }
        }
        context.fireUserInboundEventTriggered(event)
    }

    func read(context: ChannelHandlerContext) {
        if wantsInput { context.read() } else { readIsPending = true }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        if case .lingering = phase { return }
        if var kept = input, kept.readableBytes > 0 {
            input = nil
            kept.writeBuffer(&bytes)
            input = kept
        } else {
            input = bytes
        }
        process()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable {
            stalledSince = nil
            let callbacks = writableCallbacks
            writableCallbacks = []
            for callback in callbacks { callback() }
            process()
        } else {
            stalledSince = .now()
        }
        context.fireChannelWritabilityChanged()
    }

    /// Whether more input is of use now.
    private var wantsInput: Bool {
        switch phase {
        case .head: (input?.readableBytes ?? 0) <= limits.headBytes + 65536 && isWritable
        case .exchange: bodyDemand != nil && isBodyIncomplete
        case .lingering: true
        case .closed: false
        }
    }

    private func resumeReading() {
        guard readIsPending, wantsInput, let context else { return }
        readIsPending = false
        context.read()
    }

    // MARK: Requests

    /// Goes on with what is there: heads, bodies, answers, until something is missing.
    private func process() {
        guard !isProcessing, let context else { return }
        isProcessing = true
        var output = ByteBuffer()
        loop: while true {
            switch phase {
            case .head:
                guard context.channel.isWritable, !inputEnded || input != nil else { break loop }
                guard step(context, &output) else { break loop }
            case .exchange:
                guard bodyDemand != nil, deliverBody() else { break loop }
            case .lingering, .closed: break loop
            }
        }
        isProcessing = false
        if output.readableBytes > 0 { write(output) }
        flushIfNeeded()
        settleDeadline()
        resumeReading()
        if inputEnded, case .head = phase { finishConnection() }
    }

    /// Takes one request from the input; `false` if there is none yet or nothing can follow it.
    private func step(_ context: ChannelHandlerContext, _ output: inout ByteBuffer) -> Bool {
        guard var bytes = input, bytes.readableBytes > 0 else { return false }
        input = nil
        let head: RequestHead
        do throws(Violation) {
            let next = try parser.next(&bytes) { loop.isOurs($0, context.channel) }
            if bytes.readableBytes > 0 { input = bytes }
            guard let next else {
                if headBegan == nil, parser.isUnderWay { headBegan = .now() }
                return false
            }
            head = next
        } catch {
            refuse(error, &output)
            return false
        }
        headBegan = nil
        keepAlive = head.keepAlive
        let startedAt = NIODeadline.now()
        if head.body == .none {
            let answering = Answering(time: loop.time, keepAlive: willKeepAlive, isHTTP11: head.isHTTP11)
            if output.capacity == 0 { output = context.channel.allocator.buffer(capacity: 8192) }
            if let answered = responder.answer(head, answering, into: &output) {
                loop.observer?.finished(
                    head, from: context.channel.remoteAddress, answered, took: .now() - startedAt)
                if !answering.keepAlive {
                    write(output)
                    output = ByteBuffer()
                    finishConnection()
                    return false
                }
                // Enough for one write; the rest of a pipelined flood goes after it.
                if output.readableBytes > 256 << 10 {
                    write(output)
                    flushIfNeeded()
                    output = ByteBuffer()
                }
                return true
            }
        }
        if output.readableBytes > 0 {
            write(output)
            output = ByteBuffer()
        }
        begin(head, context, startedAt)
        return true
    }

    private func begin(_ head: RequestHead, _ context: ChannelHandlerContext, _ startedAt: NIODeadline) {
        received = 0
        switch head.body {
        case .none: incoming = .none
        case .length(let length): incoming = .length(length)
        case .chunked:
            incoming = .chunked(ChunkedDecoder(fieldLimit: limits.fieldCount, trailerBytes: limits.headBytes))
        }
        awaitsContinue = head.body != .none && head.isHTTP11 && head.fields.has("100-continue", in: .expect)
        let exchange = Exchange(
            head: head, eventLoop: context.eventLoop, client: context.channel.remoteAddress, time: loop.time,
            startedAt: startedAt, connection: self)
        phase = .exchange(exchange)
        if head.fields.contains(.expect), !head.fields.has("100-continue", in: .expect) {
            exchange.reply(417, "This expectation cannot be met.")
            return
        }
        responder.respond(exchange)
    }

    /// The exchange has sent all of its response.
    func exchangeFinished() {
        guard case .exchange(let exchange) = phase else { return }
        wantsFlush = true
        report(exchange)
        bodyDemand = nil
        // A body that nobody wanted: what is left of it cannot be told from the next request without reading it.
        let hasRest = isBodyIncomplete
        incoming = .none
        phase = .head
        if hasRest || !willKeepAlive {
            finishConnection(drains: hasRest)
        } else if !isProcessing {
            process()
        }
    }

    private func report(_ exchange: Exchange) {
        loop.observer?.finished(
            exchange.head, from: exchange.client,
            Answered(status: exchange.status, bodyBytes: exchange.sentBytes, cache: exchange.cacheResult),
            took: .now() - exchange.startedAt)
    }

    private func refuse(_ violation: Violation, _ output: inout ByteBuffer) {
        loop.observer?.refused(status: violation.status, from: context?.channel.remoteAddress)
        output.writeImmutableBuffer(refusal(violation))
        write(output)
        output = ByteBuffer()
        finishConnection(drains: true)
    }

    private func refusal(_ violation: Violation) -> ByteBuffer {
        let words = "\(violation.reason)\n"
        var buffer = ByteBuffer()
        buffer.writeStatusLine(violation.status)
        loop.time.writeDate(into: &buffer)
        buffer.writeStaticString("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n")
        if violation.status == 405 {
            buffer.writeStaticString("Allow: GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE\r\n")
        }
        buffer.writeField("Content-Length: ", words.utf8.count)
        buffer.writeStaticString("\r\n")
        buffer.writeString(words)
        return buffer
    }

    // MARK: The request's body

    private var isBodyIncomplete: Bool {
        switch incoming {
        case .none, .failed: false
        case .length, .chunked: true
        }
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
        deadline = .now() + limits.bodyStall
        process()
    }

    /// Hands on a part of the body; `false` if none is there.
    private func deliverBody() -> Bool {
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
            let grace = NIODeadline.now() + limits.bodyStall
            let earned = deadline + .milliseconds(Int64(slice.readableBytes) * 1000 / Int64(max(1, limits.bodyRate)))
            deadline = min(grace, earned)
        }
        let demand = bodyDemand
        bodyDemand = nil
        demand?(part)
        return true
    }

    /// The body will not come to its end.
    private func failBody(_ violation: Violation? = nil) {
        incoming = .failed
        guard case .exchange(let exchange) = phase else { return }
        let demand = bodyDemand
        bodyDemand = nil
        keepAlive = false
        if !exchange.hasStarted, let violation {
            write(refusal(violation))
            exchange.clientIsGone()
            demand?(.failed)
            report(exchange)
            phase = .head
            finishConnection(drains: true)
        } else {
            exchange.clientIsGone()
            demand?(.failed)
            abort()
        }
    }

    // MARK: Output

    func buffer(_ capacity: Int) -> ByteBuffer {
        context?.channel.allocator.buffer(capacity: capacity) ?? ByteBuffer()
    }

    func send(_ bytes: ByteBuffer, flush: Bool) {
        write(bytes)
        guard !isProcessing else { return }
        if flush { flushIfNeeded() } else { flushSoon() }
    }

    /// Flushes at the end of the loop's turn, so that a head goes out with its body if that is there, and else without.
    private func flushSoon() {
        guard !flushIsScheduled, let context else { return }
        flushIsScheduled = true
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        context.eventLoop.execute {
            bound.value.flushIsScheduled = false
            bound.value.flushIfNeeded()
        }
    }

    private func write(_ bytes: ByteBuffer) {
        context?.write(wrapOutboundOut(bytes), promise: nil)
        wantsFlush = true
    }

    private func flushIfNeeded() {
        guard wantsFlush else { return }
        wantsFlush = false
        context?.flush()
    }

    func notifyWhenWritable(_ body: @escaping () -> Void) {
        if isWritable { body() } else { writableCallbacks.append(body) }
    }

    // MARK: The end

    /// Closes after what is written has gone out.
    ///
    /// If the client may still be sending, only our half is closed at first: else its unread bytes would make the system
    /// reset the connection and take our answer back.
    private func finishConnection(drains: Bool = false) {
        flushIfNeeded()
        guard let context else { return }
        input = nil
        guard drains, !inputEnded else {
            phase = .closed
            deadline = .now() + limits.writeStall
            // Whatever is still in flight goes out first: close waits for the writes before it.
            let channel = context.channel
            context.writeAndFlush(wrapOutboundOut(ByteBuffer())).whenComplete { _ in channel.close(promise: nil) }
            return
        }
        phase = .lingering
        deadline = .now() + .seconds(2)
        context.close(mode: .output, promise: nil)
        resumeReading()
    }

    /// Closes at once, so that the client sees that the response is not complete.
    func abort() {
        if case .exchange(let exchange) = phase { report(exchange) }
        phase = .closed
        flushIfNeeded()
        context?.close(promise: nil)
    }

    private func closed() {
        loop.remove(self)
        if case .exchange(let exchange) = phase {
            phase = .closed
            let demand = bodyDemand
            bodyDemand = nil
            exchange.clientIsGone()
            demand?(.failed)
            report(exchange)
        }
        phase = .closed
        writableCallbacks = []
        input = nil
        context = nil
    }

    /// The server is going down: idle connections close now, busy ones after their answer.
    func drain() {
        if case .head = phase, (input?.readableBytes ?? 0) == 0 { finishConnection() }
    }

    /// Closes whatever is under way.
    func kill() { context?.close(promise: nil) }

    // MARK: Time

    private func settleDeadline() {
        guard case .head = phase else { return }
        deadline = headBegan.map { $0 + limits.head } ?? .now() + limits.idle
    }

    /// Acts on what has taken too long.
    func check(at now: NIODeadline) {
        if let stalledSince, stalledSince + limits.writeStall <= now {
            context?.close(promise: nil)
            return
        }
        switch phase {
        case .head where deadline <= now:
            if headBegan != nil {
                var output = ByteBuffer()
                refuse(Violation(408, "the request took too long"), &output)
            } else {
                context?.close(promise: nil)
            }
        case .exchange where bodyDemand != nil && isBodyIncomplete && deadline <= now:
            failBody(Violation(408, "the request's body took too long"))
        case .lingering where deadline <= now, .closed where deadline <= now: context?.close(promise: nil)
        default: break
        }
    }
}
