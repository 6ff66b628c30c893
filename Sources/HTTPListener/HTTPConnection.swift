import HTTPWire
import NIOCore
import NIOSSL

/// One client's connection: bytes in, requests one after another, bytes out.
///
/// While a request is under way nothing more is read than its body asks for, so a flood of pipelined requests waits in
/// the client's own buffers. What is answered at once from one read goes out in one write.
final class HTTPConnection: ChannelDuplexHandler, ClientConnection {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    enum Phase {
        /// Between requests, or in a request's head.
        case head
        /// A request is under way.
        case exchange(Exchange)
        /// Everything is said; what still comes is thrown away until the client closes.
        case lingering
        case closed
    }

    /// The body of the request that is under way.
    enum Incoming {
        case none
        case length(Int64)
        case chunked(ChunkedDecoder)
        case failed
    }

    let loop: LoopConnections
    private let responder: any Responder
    /// What lies between it and the socket if the connection is encrypted.
    let tls: TLSEdge?
    /// The client for whom a server in front has connected, if it has said so.
    private let statedClient: SocketAddress?
    // Used on its event loop only; what is marked is read or replaced whole, and never held while other code runs: no
    // run-time exclusivity checks.
    @exclusivity(unchecked) var context: ChannelHandlerContext?
    @exclusivity(unchecked) var phase = Phase.head
    @exclusivity(unchecked) var incoming = Incoming.none
    @exclusivity(unchecked) var received: Int64 = 0
    @exclusivity(unchecked) var bodyDemand: ((Exchange.BodyPart) -> Void)?
    @exclusivity(unchecked) var awaitsContinue = false
    private var parser: RequestParser
    @exclusivity(unchecked) var input: ByteBuffer?
    @exclusivity(unchecked) var keepAlive = true
    @exclusivity(unchecked) var inputEnded = false
    @exclusivity(unchecked) var isProcessing = false
    @exclusivity(unchecked) var wantsFlush = false
    @exclusivity(unchecked) var flushIsScheduled = false
    @exclusivity(unchecked) var readIsPending = false
    var writableCallbacks: [() -> Void] = []
    var smallWrites = SmallWrites()
    /// Since when the client has not taken what is sent to it; moved on as the time is accounted for.
    @exclusivity(unchecked) var stalledSince: NIODeadline?
    /// For more of the request's body.
    var bodyPatience: Patience
    var demandedAt = NIODeadline.uptimeNanoseconds(0)
    /// For a client that does not read.
    var readPatience: Patience
    /// Bytes handed to the channel, and how many of them had gone out when that was last looked at.
    @exclusivity(unchecked) var writtenBytes = 0
    @exclusivity(unchecked) var drainedBytes = 0
    @exclusivity(unchecked) var deadline: NIODeadline
    @exclusivity(unchecked) var headBegan: NIODeadline?
    /// When the wait for the next request ends.
    ///
    /// It begins with the connection, and anew with each answer. Nothing that comes between requests moves it.
    @exclusivity(unchecked) var idleUntil: NIODeadline
    /// Whether an answer has gone out since ``idleUntil`` was set.
    @exclusivity(unchecked) var hasAnswered = false
    /// The connection cannot go on after this response.
    @exclusivity(unchecked) var mustClose = false
    /// Whether the end of the connection is what tells the client that the response is complete, and some of that is not
    /// out yet.
    @exclusivity(unchecked) var isCloseDelimited = false
    /// When the connection is closed though the client still sends, once the last answer has gone out.
    @exclusivity(unchecked) var lingersUntil: NIODeadline?

    /// - Parameter client: The client, if it is not the peer.
    init(loop: LoopConnections, responder: any Responder, tls: TLSEdge? = nil, client: SocketAddress? = nil) {
        self.loop = loop
        self.responder = responder
        self.tls = tls
        statedClient = client
        parser = RequestParser(limits: loop.limits, isSecure: tls != nil)
        bodyPatience = Patience(loop.limits.bodyStall, rate: loop.limits.bodyRate)
        readPatience = Patience(loop.limits.writeStall, rate: loop.limits.readRate)
        deadline = .now() + loop.limits.head
        idleUntil = deadline
    }

    var limits: ServerLimits { loop.limits }
    /// Who sends the requests.
    var client: SocketAddress? { statedClient ?? context?.channel.remoteAddress }
    var isWritable: Bool { (context?.channel.isWritable ?? false) && !smallWrites.isFull }
    var willKeepAlive: Bool { keepAlive && !mustClose && !loop.isDraining && !inputEnded }

    /// Whether the client may send more requests, for all that it has said.
    private var mayStillSend: Bool { keepAlive || (input?.readableBytes ?? 0) > 0 }

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

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The end of input follows, with or without TLS's goodbye: each message says where it ends.
        if case .some(.uncleanShutdown) = error as? NIOSSLError { return }
        closeIncomplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent {
            inputEnded = true
            switch phase {
            case .exchange(let exchange):
                // A body that may be there, and is only not handed on yet, is for `deliverBody` to judge.
                if bodyCannotComplete { failBody() } else if bodyDemand != nil { process() }
                exchange.clientHasEnded()
            case .head: finishConnection(drains: false)
            // What has not gone out yet goes out first.
            case .lingering: if lingersUntil != nil { context.close(promise: nil) }
            case .closed: break
            }
        }
        if case .some(.outputClosed) = event as? ChannelEvent { outputEnded() }
        context.fireUserInboundEventTriggered(event)
    }

    func read(context: ChannelHandlerContext) {
        if wantsInput { context.read() } else { readIsPending = true }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        switch phase {
        case .lingering:
            lingerOn()
            return
        case .closed: return
        case .head, .exchange: break
        }
        if var kept = input, kept.readableBytes > 0 {
            input = nil
            // Without this, the buffer would grow with all that ever came before its reader index.
            kept.discardReadBytes()
            kept.writeBuffer(&bytes)
            input = kept
        } else {
            input = bytes
        }
        process()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if isWritable {
            becameWritable()
        } else {
            if stalledSince == nil { stalledSince = .now() }
        }
        context.fireChannelWritabilityChanged()
    }

    /// Whether more input is of use now.
    var wantsInput: Bool {
        switch phase {
        case .head: (input?.readableBytes ?? 0) <= limits.headBytes && isWritable
        case .exchange: bodyDemand != nil && isBodyIncomplete
        case .lingering: true
        // The client's own goodbye is waited for.
        case .closed: tls != nil
        }
    }

    func resumeReading() {
        guard readIsPending, wantsInput, let context else { return }
        readIsPending = false
        context.read()
    }

    // MARK: Requests

    /// Goes on with what is there: heads, bodies, answers, until something is missing.
    func process() {
        guard !isProcessing, let context else { return }
        isProcessing = true
        var output = ByteBuffer()
        loop: while true {
            switch phase {
            case .head:
                guard isWritable, !inputEnded || input != nil else { break loop }
                guard step(context, &output) else { break loop }
            case .exchange:
                guard bodyDemand != nil, deliverBody() else { break loop }
            case .lingering, .closed: break loop
            }
        }
        isProcessing = false
        if output.readableBytes > 0 { write(output) }
        flushIfNeeded()
        loop.giveBack(&output)
        settleDeadline()
        resumeReading()
        if inputEnded, case .head = phase { finishConnection(drains: false) }
    }

    /// Takes one request from the input; `false` if there is none yet or nothing can follow it.
    private func step(_ context: ChannelHandlerContext, _ output: inout ByteBuffer) -> Bool {
        guard var bytes = input, bytes.readableBytes > 0 else { return false }
        if output.readableBytes > limits.pipelinedBytes {
            // The rest of a pipelined flood goes after it, as the client takes it.
            write(output)
            flushIfNeeded()
            loop.giveBack(&output)
            guard isWritable else { return false }
        }
        input = nil
        let head: RequestHead
        do throws(Violation) {
            let next = try parser.next(&bytes) { loop.isOurs($0, context.channel, isSecure: tls != nil) }
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
        hasAnswered = true
        keepAlive = head.keepAlive
        let startedAt = NIODeadline.now()
        if head.body == .none {
            let room =
                limits.bufferedBytes - limits.waitingBytes - output.readableBytes - (input?.storageCapacity ?? 0)
            let answering = Answering(
                time: loop.time, keepAlive: willKeepAlive, isHTTP11: head.isHTTP11, room: room, connection: self)
            if output.capacity == 0 { output = loop.takeScratch(context.channel.allocator) }
            if let answered = responder.answer(head, answering, into: &output) {
                loop.observer?.finished(
                    head, from: client, answered, took: .now() - startedAt)
                if !answering.keepAlive {
                    write(output)
                    output = ByteBuffer()
                    finishConnection(drains: mayStillSend)
                    return false
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
        bodyPatience.renew()
        switch head.body {
        case .none: incoming = .none
        case .length(let length): incoming = .length(length)
        case .chunked:
            incoming = .chunked(ChunkedDecoder(fieldLimit: limits.fieldCount, trailerBytes: limits.headBytes))
        }
        awaitsContinue = head.body != .none && head.isHTTP11 && head.fields.has("100-continue", in: .expect)
        let exchange = Exchange(
            head: head, eventLoop: context.eventLoop, client: client, time: loop.time,
            startedAt: startedAt, link: self)
        phase = .exchange(exchange)
        if head.fields.contains(.expect), !head.fields.has("100-continue", in: .expect) {
            exchange.reply(417, "This expectation cannot be met.")
            return
        }
        if inputEnded { exchange.clientHasEnded() }
        responder.respond(exchange)
    }

    /// The exchange has sent all of its response.
    func exchangeFinished() {
        guard case .exchange(let exchange) = phase else { return }
        wantsFlush = true
        loop.report(exchange)
        bodyDemand = nil
        // A body that nobody wanted: what is left of it cannot be told from the next request without reading it.
        let hasRest = isBodyIncomplete
        incoming = .none
        phase = .head
        if hasRest || !willKeepAlive {
            finishConnection(drains: hasRest || mayStillSend)
        } else if !isProcessing {
            process()
        }
    }
}
