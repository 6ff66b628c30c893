import HTTPTypes
import HTTPWire
import NIOCore
import NIOSSL
import NIOTLS

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A connection to an origin: one request at a time, its response handed on as it comes.
final class UpstreamConnection: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// How far the connection is from carrying requests.
    private enum Handshake {
        /// TLS is being agreed upon; the pool waits to be told how that ends.
        case pending(((Result<Void, any Error>) -> Void)?)
        case done
        case failed(any Error)
    }

    private let origin: Origin
    private let limits: UpstreamLimits
    private weak var pool: UpstreamPool?
    // Used on its event loop only; what is marked is read or replaced whole, and never held while other code runs: no
    // run-time exclusivity checks.
    @exclusivity(unchecked) private var context: ChannelHandlerContext?
    /// The channel's socket, looked up once: NIO finds it by a cast of some 13,000 instructions.
    private var socket: NIOBSDSocket.Handle?
    private var handshake: Handshake
    private var handshakeTimer: Scheduled<Void>?
    @exclusivity(unchecked) private var call: UpstreamCall?
    private var parser: ResponseParser?
    private var input = ByteBuffer()
    @exclusivity(unchecked) private var readIsPending = false
    @exclusivity(unchecked) private var isDelivering = false
    /// Nothing more will come.
    @exclusivity(unchecked) private var inputEnded = false
    /// The origin has ended its side in order: with a FIN, and over TLS with a close_notify before it.
    ///
    /// Only that completes a body whose end is the connection's (RFC 9112 §9.8). A reset, a write error and a FIN without
    /// close_notify do not.
    @exclusivity(unchecked) private var endedInOrder = false
    private var writableCallbacks: [() -> Void] = []
    private var smallWrites = SmallWrites()
    @exclusivity(unchecked) private var deadline = NIODeadline.distantFuture
    @exclusivity(unchecked) private(set) var usedBefore = false
    @exclusivity(unchecked) private var startedAt: NIODeadline?
    /// Since when it has been waiting for its own client.
    @exclusivity(unchecked) private(set) var heldSince: NIODeadline?

    init(origin: Origin, limits: UpstreamLimits, pool: UpstreamPool) {
        self.origin = origin
        self.limits = limits
        self.pool = pool
        handshake = origin.isSecure ? .pending(nil) : .done
    }

    // MARK: TLS

    /// Tells once whether requests may be sent; over TLS that is only after the handshake.
    ///
    /// What was written before would be kept in memory without any bound, an upload too.
    func whenEstablished(until end: NIODeadline, _ body: @escaping (Result<Void, any Error>) -> Void) {
        switch handshake {
        case .done: body(.success(()))
        case .failed(let error): body(.failure(error))
        case .pending:
            handshake = .pending(body)
            guard let context else { return }
            let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
            handshakeTimer = context.eventLoop.scheduleTask(deadline: end) {
                bound.value.endHandshake(.failure(UpstreamFailure.connectTimeout))
            }
        }
    }

    private func endHandshake(_ result: Result<Void, any Error>) {
        guard case .pending(let body) = handshake else { return }
        handshakeTimer?.cancel()
        handshakeTimer = nil
        switch result {
        case .success: handshake = .done
        case .failure(let error):
            handshake = .failed(error)
            closeNow()
        }
        body?(result)
    }

    var isActive: Bool { context?.channel.isActive ?? false && !inputEnded }

    /// Whether the next request may go out on it: it is open, and nothing has come that nobody asked for.
    var isReusable: Bool { isActive && !hasUnreadInput }

    /// Whether bytes, or the origin's end, lie in the socket unread.
    ///
    /// After an answer these are the rest of what the origin has sent too much of, such as a body after a 304. It would be
    /// taken for the head of the next answer. Over TLS nothing else is to be expected here either: session tickets come
    /// before the first answer.
    var hasUnreadInput: Bool {
        // A channel without a socket, as tests have, is asked nothing.
        guard let channel = context?.channel else { return false }
        // A closed channel's number may belong to somebody else by now. On its loop it closes at no other time than when
        // it ceases to be active.
        guard channel.isActive else { return true }
        if socket == nil {
            socket = try? channel.pipeline.syncOperations.withUnsafeTransportIfAvailable {
                (socket: NIOBSDSocket.Handle) in socket
            }
        }
        guard let socket else { return false }
        var state = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        return poll(&state, 1, 0) != 0
    }

    // MARK: Requests

    func start(_ call: UpstreamCall) {
        guard let context else {
            call.fail(.closed)
            return
        }
        self.call = call
        call.connection = self
        startedAt = .now()
        heldSince = nil
        call.usedKeptConnection = usedBefore
        usedBefore = true
        if call.mayBeUnwanted { pool?.unwantedChanged(self, true) }
        parser = ResponseParser(limits: limits, isHead: call.request.method == "HEAD")
        deadline = .now() + limits.head
        var buffer = context.channel.allocator.buffer(capacity: 1024)
        call.request.write(to: origin, into: &buffer)
        context.write(wrapOutboundOut(buffer), promise: nil)
        // Before the head is on its way: this is the time of the request.
        call.receiver?.upstreamIsReady(call)
        context.flush()
        readOn()
    }

    func send(_ bytes: ByteBuffer, chunked: Bool) {
        guard let context else { return }
        deadline = .now() + limits.head
        if bytes.readableBytes < SmallWrites.size {
            sendSmall(bytes, chunked: chunked, context)
        } else if chunked {
            var line = context.channel.allocator.buffer(capacity: 24)
            line.writeChunkSize(bytes.readableBytes)
            context.write(wrapOutboundOut(line), promise: nil)
            context.write(wrapOutboundOut(bytes), promise: nil)
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(staticString: "\r\n")), promise: nil)
        } else {
            context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        }
    }

    private func sendSmall(_ bytes: ByteBuffer, chunked: Bool, _ context: ChannelHandlerContext) {
        var part = bytes
        if chunked {
            part = context.channel.allocator.buffer(capacity: bytes.readableBytes + 16)
            part.writeChunk(bytes)
        }
        guard smallWrites.add(bytes.readableBytes) else {
            context.writeAndFlush(wrapOutboundOut(part), promise: nil)
            return
        }
        let written = context.eventLoop.makePromise(of: Void.self)
        written.futureResult.assumeIsolated().whenSuccess {
            self.smallWrites.wentOut()
            self.becameWritable()
        }
        context.writeAndFlush(wrapOutboundOut(part), promise: written)
    }

    func finishBody(chunked: Bool, trailers: HTTPFields?) {
        deadline = .now() + limits.head
        guard chunked, let context else { return }
        var buffer = context.channel.allocator.buffer(capacity: 64)
        buffer.writeStaticString("0\r\n")
        if let trailers { buffer.writeFields(trailers.forwardableTrailers) }
        buffer.writeStaticString("\r\n")
        context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    }

    func notifyWhenWritable(_ body: @escaping () -> Void) {
        if isWritable { body() } else { writableCallbacks.append(body) }
    }

    private var isWritable: Bool { (context?.channel.isWritable ?? false) && !smallWrites.isFull }

    private func becameWritable() {
        guard isWritable else { return }
        let callbacks = writableCallbacks
        writableCallbacks = []
        for callback in callbacks { callback() }
    }

    /// Bytes in its buffers: what has come and is not handed on, and what waits for the origin.
    var bufferedBytes: Int {
        // Where the channel cannot tell, nothing waits.
        let output = (try? context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
        return input.storageCapacity + output
    }

    /// Waits for a request, and for no longer than an unused connection is kept.
    func rest() { deadline = .now() + limits.idle }

    /// Reads on after a pause.
    func resume() {
        if call != nil { deadline = max(deadline, .now() + limits.bodyStall) }
        readOn()
    }

    private func readOn() {
        deliver()
        if readIsPending, wantsInput, let context {
            readIsPending = false
            context.read()
        }
    }

    /// The call waits for its own client, or does so no longer.
    func callWaitsForClient(_ waits: Bool) {
        heldSince = waits ? .now() : nil
        pool?.holdingChanged(self)
    }

    /// The call's client may be gone, or is known to be there.
    func callMayBeUnwanted(_ mayBe: Bool) {
        pool?.unwantedChanged(self, mayBe)
        if mayBe { pool?.openIfNeeded() }
    }

    /// Bytes a second that the client has moved, if the connection is held for it and has been in use for so long.
    func clientRate(at now: NIODeadline, after grace: TimeAmount) -> Double? {
        guard heldSince != nil, let call, let startedAt, startedAt + grace <= now else { return nil }
        return Double(call.movedBytes) / Double(max(1, (now - startedAt).nanoseconds))
    }

    /// Gives a client up, because others need the connection.
    func giveUpClient(_ failure: UpstreamFailure) {
        guard let call else { return }
        self.call = nil
        closeNow()
        call.fail(failure)
    }

    /// The one who asked is gone: the rest of the response is worth nothing, nor is the connection.
    func abandon() {
        call = nil
        closeNow()
    }

    /// Whether a byte of the response to its call has come.
    var isAnswering: Bool { call != nil && (parser?.hasBegun ?? false) }

    private var wantsInput: Bool { call.map { !$0.isPaused } ?? true }

    // MARK: Channel events

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { closed() }

    func channelInactive(context: ChannelHandlerContext) {
        closed()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        endHandshake(.failure(error))
        if !inputEnded {
            inputEnded = true
            deliver()
        }
        closeNow()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent, !inputEnded {
            (inputEnded, endedInOrder) = (true, true)
            // In a pause, what has come is handed on later, and the end after it.
            deliver()
            if call == nil { closeNow() }
        }
        if case .some(.handshakeCompleted) = event as? TLSUserEvent { endHandshake(.success(())) }
        context.fireUserInboundEventTriggered(event)
    }

    func read(context: ChannelHandlerContext) {
        if wantsInput { context.read() } else { readIsPending = true }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        guard call != nil else {
            // Nobody asked for anything: an origin that talks out of turn is not to be used again.
            closeNow()
            return
        }
        if input.readableBytes == 0 {
            input = bytes
        } else {
            // Without this, the buffer would grow with all that ever came before its reader index.
            input.discardReadBytes()
            input.writeBuffer(&bytes)
        }
        deliver()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        becameWritable()
    }

    // MARK: Responses

    /// Hands on what has come, until the receiver wants a pause.
    private func deliver() {
        guard !isDelivering else { return }
        isDelivering = true
        defer { isDelivering = false }
        while let call, !call.isPaused {
            do throws(Violation) {
                guard let event = try parser?.next(&input) else { return }
                if case .needsMore = event { break }
                handle(event, call)
            } catch {
                self.call = nil
                closeNow()
                call.fail(UpstreamFailure(error))
                return
            }
        }
        if inputEnded, let call, !call.isPaused { endOfInput(call) }
    }

    private func handle(_ event: ResponseParser.Event, _ call: UpstreamCall) {
        deadline = .now() + limits.bodyStall
        switch event {
        case .needsMore: break
        case .interim(let response): call.receiver?.upstreamSent(interim: response)
        case .head(let response, let length):
            call.mayBeUnwanted = false
            call.receiver?.upstreamSent(head: response, length: length)
        case .bytes(let bytes): call.received(bytes)
        case .end(let trailers): finish(call, trailers)
        }
    }

    private func finish(_ call: UpstreamCall, _ trailers: HTTPFields?) {
        self.call = nil
        rest()
        let mayGoOn =
            (parser?.isReusable ?? false) && call.requestIsComplete && input.readableBytes == 0 && isActive
        parser = nil
        if mayGoOn, let pool { pool.release(self) } else { closeNow() }
        call.end(trailers: trailers)
    }

    private func endOfInput(_ call: UpstreamCall) {
        if endedInOrder, case .end(let trailers) = parser?.ended() {
            finish(call, trailers)
            return
        }
        self.call = nil
        let hasBegun = parser?.hasBegun ?? false
        closeNow()
        if !hasBegun, call.usedKeptConnection, call.request.isRepeatable, !call.wasRepeated, let pool {
            call.wasRepeated = true
            pool.enqueue(call, fresh: true)
        } else {
            call.fail(.closed)
        }
    }

    private func closed() {
        guard context != nil else { return }
        inputEnded = true
        endHandshake(.failure(UpstreamFailure.unreachable("the connection was closed during the TLS handshake")))
        pool?.forget(self)
        context = nil
        writableCallbacks = []
        // In a pause, what has come is handed on later, and the end after it.
        deliver()
    }

    // MARK: Time

    /// Acts on what has taken too long.
    func check(at now: NIODeadline) {
        guard deadline <= now else { return }
        guard let call else {
            closeNow()
            return
        }
        // While the client still sends, only an origin that takes nothing is late.
        guard !call.isPaused, call.requestIsComplete || !writableCallbacks.isEmpty else { return }
        self.call = nil
        closeNow()
        call.fail(.timeout)
    }

    /// Closes a connection that is not in use.
    func close() { closeNow() }

    /// Closes at once.
    ///
    /// Over TLS the origin is sent a close_notify, and its own is not waited for: nothing that it could still say is of
    /// use, and the socket would stay open for seconds.
    private func closeNow() {
        guard let context else { return }
        let tls = try? context.pipeline.syncOperations.context(handlerType: NIOSSLClientHandler.self)
        context.close(promise: nil)
        tls?.close(promise: nil)
    }
}
