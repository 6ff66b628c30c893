import NIOCore
import NIOHTTP1
import NIOSSL
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// One connection to a local origin: reads requests, and writes answers as bytes of its own making.
///
/// There is no encoder in the pipeline: bytes that are ready go out as they are, and a server that breaks the rules needs to
/// be able to.
final class OriginConnection: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = ByteBuffer

    private let shared: OriginShared
    private var context: ChannelHandlerContext?
    private var arriving: HTTPRequestHead?
    private var waiting = CircularBuffer<HTTPRequestHead>()
    private var current: HTTPRequestHead?
    private var endless: ByteBuffer?

    init(shared: OriginShared) { self.shared = shared }

    // MARK: Requests

    func channelActive(context: ChannelHandlerContext) {
        self.context = context
        shared.log.withLock { log in
            log.connections += 1
            log.connectionsMade += 1
        }
        if !shared.opened(context.channel) { context.close(promise: nil) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.context = nil
        shared.closed(context.channel)
        let abandoned = (current == nil ? 0 : 1) + waiting.count
        current = nil
        waiting.removeAll()
        shared.log.withLock { log in
            log.connections -= 1
            log.inProgress -= abandoned
            log.changed()
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            if shared.answersHeads { accept(head) } else { arriving = head }
        case .body(let part): shared.log.withLock { $0.bytesReceived += part.readableBytes }
        case .end:
            guard let head = arriving else { return }
            arriving = nil
            accept(head)
        }
    }

    private func accept(_ head: HTTPRequestHead) {
        record(head)
        if current == nil { serve(head) } else { waiting.append(head) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // What came is no HTTP. A plain server that is sent a TLS hello does the same.
        context.close(promise: nil)
    }

    private func record(_ head: HTTPRequestHead) {
        shared.log.withLock { log in
            log.inProgress += 1
            log.maxConcurrent = max(log.maxConcurrent, log.inProgress)
            guard shared.remembers else { return }
            log.requests.append(OriginRequest(head: head))
            log.counts[head.uri, default: 0] += 1
            log.changed()
        }
    }

    // MARK: Answers

    private func serve(_ head: HTTPRequestHead) {
        current = head
        let answer = shared.answer(OriginRequest(head: head))
        guard let gate = answer.gate else { return send(answer) }
        after(gate) { $0.send(answer) }
    }

    private func send(_ answer: LocalAnswer) {
        guard let context, let current else { return }
        switch answer.content {
        case .prepared(let prepared):
            write(prepared.bytes(isHead: current.method == .HEAD), context)
            finished()
        case .plain(let response, let body):
            var bytes = context.channel.allocator.buffer(capacity: 256 + body.readableBytes)
            bytes.writeHead(response, bodyLength: body.readableBytes)
            if current.method != .HEAD { bytes.writeImmutableBuffer(body) }
            write(bytes, context)
            finished()
        case .raw(let steps):
            run(steps[...])
        }
    }

    private func write(_ bytes: ByteBuffer, _ context: ChannelHandlerContext) {
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
    }

    private func finished() {
        guard let context, let head = current else { return }
        current = nil
        shared.log.withLock { log in
            log.inProgress -= 1
            log.changed()
        }
        if !head.isKeepAlive {
            context.close(promise: nil)
        } else if let next = waiting.popFirst() {
            serve(next)
        }
    }

    // MARK: Scripts

    private func run(_ steps: ArraySlice<RawStep>) {
        guard let context else { return }
        guard let step = steps.first else { return finished() }
        let rest = steps.dropFirst()
        switch step {
        case .bytes(let bytes):
            send(ByteBuffer(bytes: bytes), context) { $0.run(rest) }
        case .endless(let part):
            endless = ByteBuffer(bytes: part)
            pump()
        case .drip(let byte, let interval):
            drip(byte, interval)
        case .wait(let gate):
            after(gate) { $0.run(rest) }
        case .close:
            context.close(promise: nil)
        case .cut:
            belowTLS(context).close(promise: nil)
        case .reset:
            // Without lingering, the system drops what is unsent and breaks the connection off.
            (context.channel as? any SocketOptionProvider)?
                .setSoLinger(linger(l_onoff: 1, l_linger: 0)).assumeIsolated().whenComplete { _ in
                    self.belowTLS(context).close(promise: nil)
                }
        case .hang:
            break
        }
    }

    /// Where a connection is closed without a close_notify.
    private func belowTLS(_ context: ChannelHandlerContext) -> ChannelHandlerContext {
        (try? context.pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self)) ?? context
    }

    /// Writes, and goes on once the system has the bytes.
    private func send(
        _ bytes: ByteBuffer, _ context: ChannelHandlerContext, then next: @escaping (OriginConnection) -> Void
    ) {
        let count = bytes.readableBytes
        context.writeAndFlush(wrapOutboundOut(bytes)).assumeIsolated().whenSuccess {
            self.shared.log.withLock { $0.bytesSent += count }
            next(self)
        }
    }

    /// Only what the system has taken is followed by more: the client's reading sets the pace.
    private func pump() {
        guard let context, let part = endless else { return }
        send(part, context) { connection in
            // With a pause: the client may live on the same event loop, and that would else never come to read.
            context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(1)) { connection.pump() }
        }
    }

    private func drip(_ byte: UInt8, _ interval: TimeAmount) {
        guard let context else { return }
        send(ByteBuffer(bytes: [byte]), context) { connection in
            context.eventLoop.assumeIsolated().scheduleTask(in: interval) { connection.drip(byte, interval) }
        }
    }

    private func after(_ gate: Gate, _ action: @escaping @Sendable (OriginConnection) -> Void) {
        guard let eventLoop = context?.eventLoop else { return }
        let bound = NIOLoopBound(self, eventLoop: eventLoop)
        gate.whenOpen { eventLoop.execute { action(bound.value) } }
    }
}
