import HTTPTypes
import HTTPWire
import NIOCore
import NIOHPACK
import NIOHTTP2
import NIOSSL

/// One client's connection in HTTP/2: frames in, each stream a request and its answer, frames out.
///
/// The frames are read, checked and put in order by swift-nio-http2. Requests become the heads that those of HTTP/1.1 are,
/// and take the same way through responder, limits, log and figures.
final class HTTP2Connection: ChannelDuplexHandler, ClientConnection {
    typealias InboundIn = HTTP2Frame
    typealias OutboundIn = HTTP2Frame
    typealias OutboundOut = HTTP2Frame

    let loop: LoopConnections
    private let responder: any Responder
    private let edge: TLSEdge
    /// The client for whom a server in front has connected, if it has said so.
    private let statedClient: SocketAddress?
    private let output: WriteGathering
    private var context: ChannelHandlerContext?
    private var streams: [HTTP2StreamID: HTTP2Stream] = [:]
    /// Bytes of all streams that are held back because the client, or its windows, take no more.
    private(set) var pending = 0
    /// Bytes of bodies that have come and nobody has asked for.
    private var held = 0
    /// Bytes that the client may still send.
    private var inputWindow = 65535
    /// Streams whose exchanges wait to send more.
    private var waiting: [HTTP2Stream] = []
    /// Streams that are to be reset once the end of their response has gone out.
    private var resettable: [HTTP2StreamID] = []
    private var lastStream = HTTP2StreamID.rootStream
    private var isReading = false
    private var needsFlush = false
    private var laterIsScheduled = false
    private var readIsPending = false
    private var inputEnded = false
    private var phase = Phase.open
    /// When the wait for the next request ends: it begins with the connection, and anew when the last stream has ended.
    private var idleUntil: NIODeadline
    /// When the connection is closed though the client still keeps it open.
    private var closesAt = NIODeadline.distantFuture
    /// Updates of windows beyond those that answer what was sent.
    private var idleWindowUpdates = 0
    private var malformedRequests = 0

    private enum Phase {
        case open
        /// The client knows that it should go; requests that are on their way are still answered, until then.
        case leaving(NIODeadline)
        /// No new requests; those that are there are answered.
        case draining
        case closing
    }

    private init(
        loop: LoopConnections, responder: any Responder, edge: TLSEdge, client: SocketAddress?, output: WriteGathering
    ) {
        self.loop = loop
        self.responder = responder
        self.edge = edge
        statedClient = client
        self.output = output
        idleUntil = .now() + loop.limits.head
    }

    /// Who sends the requests.
    private var client: SocketAddress? { statedClient ?? context?.channel.remoteAddress }

    /// What a connection's pipeline is made of, from the socket's side.
    ///
    /// - Parameter client: The client, if it is not the peer.
    static func handlers(
        loop: LoopConnections, responder: any Responder, edge: TLSEdge, client: SocketAddress? = nil
    ) -> [any ChannelHandler] {
        let output = WriteGathering()
        let connection = HTTP2Connection(
            loop: loop, responder: responder, edge: edge, client: client, output: output)
        let limits = loop.limits
        var settings = NIOHTTP2Handler.ConnectionConfiguration()
        settings.initialSettings = [
            HTTP2Setting(parameter: .maxConcurrentStreams, value: limits.streams),
            // Each field counts for 32 bytes more than it has. What is a little too large is answered with 431.
            HTTP2Setting(parameter: .maxHeaderListSize, value: limits.headBytes + 32 * limits.fieldCount),
            HTTP2Setting(parameter: .initialWindowSize, value: limits.streamWindow),
        ]
        // `HTTP2Request` looks at them.
        settings.headerBlockValidation = .disabled
        settings.maximumSequentialEmptyDataFrames = 8
        settings.maximumBufferedControlFrames = 1024
        settings.controlFrameRateLimit.maximumCount = limits.controlFrames
        settings.controlFrameRateLimit.windowLength = limits.controlFramesWindow
        var streams = NIOHTTP2Handler.StreamConfiguration()
        streams.streamResetFrameRateLimit.maximumCount = limits.resets
        streams.streamResetFrameRateLimit.windowLength = limits.resetsWindow
        let frames = NIOHTTP2Handler(
            mode: .server, frameDelegate: connection, connectionConfiguration: settings, streamConfiguration: streams)
        return [output, FittedReads(), frames, connection]
    }

    // MARK: Channel events

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        loop.add(self)
        // The handlers around it may not be there yet.
        later()
    }

    func handlerRemoved(context: ChannelHandlerContext) { closed() }

    func channelInactive(context: ChannelHandlerContext) {
        closed()
        context.fireChannelInactive()
    }

    private func closed() {
        guard context != nil else { return }
        loop.remove(self)
        phase = .closing
        for stream in streams.values { _ = stream.closed(isReset: true) }
        streams = [:]
        waiting = []
        context = nil
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        // The end of input follows.
        case NIOSSLError.uncleanShutdown: break
        case is IOError, is ChannelError, is NIOSSLError, is BoringSSLError: edge.close()
        default:
            // A connection error ends the connection; a stream error has ended its stream.
            loop.refusals?.refused(status: 400, from: client)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let event = event as? NIOHTTP2WindowUpdatedEvent {
            guard event.streamID == .rootStream, let window = event.inboundWindowSize else { return }
            inputWindow = window
            openWindow()
        } else if let event = event as? StreamClosedEvent {
            streamClosed(event)
        } else if case .some(.inputClosed) = event as? ChannelEvent {
            inputEnded = true
            for stream in streams.values { stream.exchange?.clientHasEnded() }
            closeIfDone()
        }
    }

    func read(context: ChannelHandlerContext) {
        if wantsInput { context.read() } else { readIsPending = true }
    }

    /// Whether more input is of use now: what answers it must not pile up for a client that does not read.
    private var wantsInput: Bool {
        if case .closing = phase { return true }
        return context?.channel.isWritable ?? false
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { later() }
        context.fireChannelWritabilityChanged()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if case .closing = phase { return }
        isReading = true
        let frame = unwrapInboundIn(data)
        switch frame.payload {
        case .headers(let headers): receive(headers, frame.streamID)
        case .data(let data): receive(data, frame.streamID)
        case .windowUpdate: countWindowUpdate()
        case .ping(_, ack: true):
            if case .leaving = phase { sayLast() }
        case .goAway:
            // The client begins no more streams.
            phase = .draining
            closeIfDone()
        default: break
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        isReading = false
        flushIfNeeded()
        context.fireChannelReadComplete()
    }

    // MARK: Requests

    private func receive(_ headers: HTTP2Frame.FramePayload.Headers, _ id: HTTP2StreamID) {
        if let stream = streams[id] {
            guard let trailers = HTTP2Request.trailers(headers.headers, limits: loop.limits) else {
                malformed(stream)
                return
            }
            stream.receive(trailers: trailers)
            return
        }
        guard let context, id > lastStream else { return }
        lastStream = id
        let stream = HTTP2Stream(id, of: self, inputEnded: headers.endStream)
        streams[id] = stream
        let head: RequestHead
        do throws(HTTP2Request.Refusal) {
            head = try HTTP2Request.head(
                headers.headers, hasBody: !headers.endStream, limits: loop.limits,
                allocator: context.channel.allocator)
        } catch {
            switch error {
            case .malformed: malformed(stream)
            case .violation(let violation):
                loop.refusals?.refused(status: violation.status, from: client)
                refuse(violation, on: stream)
            }
            return
        }
        answer(head, stream, context)
    }

    private func malformed(_ stream: HTTP2Stream) {
        loop.refusals?.refused(status: 400, from: client)
        malformedRequests += 1
        stream.reset(.protocolError)
        // No client sends more than a few by mistake.
        if malformedRequests > loop.limits.malformedRequests { sayGoodbye(.enhanceYourCalm) }
    }

    /// Answers a message that is no request for a responder.
    func refuse(_ violation: Violation, on stream: HTTP2Stream) {
        stream.send(ready: loop.refusal(violation))
        flushSoon()
        answered(stream)
    }

    private func answer(_ head: RequestHead, _ stream: HTTP2Stream, _ context: ChannelHandlerContext) {
        let startedAt = NIODeadline.now()
        let client = client
        if head.body == .none {
            let answering = Answering(
                time: loop.time, keepAlive: true, isHTTP11: true,
                room: loop.limits.bufferedBytes - loop.limits.waitingBytes - pending, connection: nil)
            var output = loop.takeScratch(context.channel.allocator)
            if let answered = responder.answer(head, answering, into: &output) {
                loop.observer?.finished(head, from: client, answered, took: .now() - startedAt)
                stream.send(ready: output)
                loop.giveBack(&output)
                self.answered(stream)
                return
            }
            loop.giveBack(&output)
        }
        let exchange = Exchange(
            head: head, eventLoop: context.eventLoop, client: client, time: loop.time, startedAt: startedAt,
            link: stream)
        let awaitsContinue = head.fields.has("100-continue", in: .expect)
        stream.begin(exchange, awaitsContinue: awaitsContinue)
        if head.fields.contains(.expect), !awaitsContinue {
            exchange.reply(417, "This expectation cannot be met.")
            return
        }
        if inputEnded { exchange.clientHasEnded() }
        responder.respond(exchange)
    }

    private func receive(_ data: HTTP2Frame.FramePayload.Data, _ id: HTTP2StreamID) {
        guard case .byteBuffer(let bytes) = data.data else { return }
        streams[id]?.receive(bytes, isLast: data.endStream)
    }

    /// A window that is opened again and again, where nothing was sent, is work for nothing.
    private func countWindowUpdate() {
        idleWindowUpdates += 1
        guard idleWindowUpdates > loop.limits.windowUpdates else { return }
        loop.refusals?.refused(status: 400, from: client)
        sayGoodbye(.enhanceYourCalm)
    }

    // MARK: Streams

    /// A stream's exchange is over, all of its response written.
    func answered(_ stream: HTTP2Stream) {
        if stream.isClosed {
            streams[stream.id] = nil
            settle()
        } else {
            resetIfAnswered(stream)
        }
    }

    /// What still comes of a request's body once its response has gone out is of no use (RFC 9113 §8.1).
    private func resetIfAnswered(_ stream: HTTP2Stream) {
        guard stream.exchange == nil, stream.endWentOut, stream.isOpenForInput else { return }
        resettable.append(stream.id)
        later()
    }

    private func streamClosed(_ event: StreamClosedEvent) {
        guard let stream = streams[event.streamID] else { return }
        pending -= stream.pending
        if !stream.closed(isReset: event.reason != nil) { streams[event.streamID] = nil }
        if stream.pending > 0 { later() }
        settle()
    }

    private func settle() {
        guard streams.isEmpty else { return }
        idleUntil = .now() + loop.limits.idle
        closeIfDone()
    }

    func awaitWritable(_ stream: HTTP2Stream) { waiting.append(stream) }

    /// A client that takes less than it must loses the stream; one that takes nothing at all, the connection.
    func clientReadsTooSlowly(_ stream: HTTP2Stream) {
        guard context?.channel.isWritable ?? false else {
            edge.close()
            return
        }
        stream.reset(.cancel)
    }

    // MARK: Output

    func write(_ payload: HTTP2Frame.FramePayload, on id: HTTP2StreamID) {
        guard let context else { return }
        context.write(wrapOutboundOut(HTTP2Frame(streamID: id, payload: payload)), promise: nil)
        needsFlush = true
    }

    func write(_ headers: HTTP2Frame.FramePayload.Headers, on id: HTTP2StreamID) { write(.headers(headers), on: id) }

    /// Sends a part of a response's body, which counts as held back until ``wroteFrame(_:)`` says otherwise.
    func write(_ bytes: ByteBuffer, isLast: Bool, on stream: HTTP2Stream) {
        pending += bytes.readableBytes
        write(.data(.init(data: .byteBuffer(bytes), endStream: isLast)), on: stream.id)
    }

    func reset(_ id: HTTP2StreamID, _ code: NIOHTTP2.HTTP2ErrorCode) {
        write(.rstStream(code), on: id)
        flushSoon()
    }

    /// Bytes of a body wait to be asked for.
    func hold(_ bytes: Int) { held += bytes }

    /// Bytes of a body wait no longer.
    func release(_ bytes: Int) {
        held -= bytes
        openWindow()
    }

    /// Lets the client send more, once it is worth a frame; what is held does not count, and what was thrown away does.
    private func openWindow() {
        let more = loop.limits.bufferedBytes - held - inputWindow
        guard more >= loop.limits.bufferedBytes / 2 else { return }
        if case .closing = phase { return }
        // The event that this brings says so again.
        inputWindow += more
        openWindow(of: .rootStream, by: more)
    }

    func openWindow(of id: HTTP2StreamID, by bytes: Int) {
        write(.windowUpdate(windowSizeIncrement: bytes), on: id)
        flushSoon()
    }

    private func flushIfNeeded() {
        guard needsFlush, let context else { return }
        needsFlush = false
        context.flush()
    }

    /// Flushes once what is being done is done: at the end of what was read, or of the loop's turn.
    func flushSoon() { if needsFlush, !isReading { later() } }

    /// Does at the end of the loop's turn what must not be done in the midst of a frame.
    private func later() {
        guard !laterIsScheduled, let context else { return }
        laterIsScheduled = true
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        context.eventLoop.execute { bound.value.doLater() }
    }

    private func doLater() {
        laterIsScheduled = false
        let (ready, ended) = (waiting, resettable)
        (waiting, resettable) = ([], [])
        for stream in ready where !stream.isClosed {
            if stream.isWritable { stream.becameWritable() } else { waiting.append(stream) }
        }
        for id in ended where streams[id]?.isOpenForInput ?? false { reset(id, .noError) }
        openWindow()
        flushIfNeeded()
        guard readIsPending, wantsInput, let context else { return }
        readIsPending = false
        context.read()
    }

    // MARK: The end

    func drain() {
        guard case .open = phase else { return }
        // Requests that are on their way get a chance (RFC 9113 §6.8).
        phase = .leaving(.now() + LoopConnections.drainGrace)
        output.announceEnd()
        write(.ping(HTTP2PingData(withInteger: 0), ack: false), on: .rootStream)
        flushSoon()
    }

    /// From here on the client's requests are not looked at.
    private func sayLast() {
        phase = .draining
        write(.goAway(lastStreamID: lastStream, errorCode: .noError, opaqueData: nil), on: .rootStream)
        flushSoon()
        closeIfDone()
    }

    private func closeIfDone() {
        guard streams.isEmpty else { return }
        if case .draining = phase { close() } else if inputEnded { close() }
    }

    private func sayGoodbye(_ code: NIOHTTP2.HTTP2ErrorCode) {
        write(.goAway(lastStreamID: lastStream, errorCode: code, opaqueData: nil), on: .rootStream)
        close()
    }

    private func close() {
        guard let context else { return }
        if case .closing = phase { return }
        phase = .closing
        closesAt = .now() + loop.limits.writeStall
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        // Not in the midst of a frame.
        context.eventLoop.execute {
            bound.value.flushIfNeeded()
            bound.value.output.closeAfterWrites()
            bound.value.doLater()
        }
    }

    func kill() { edge.close() }

    // MARK: Time

    var buffered: BufferedBytes {
        // Where the channel cannot tell, nothing waits.
        let output = (try? context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
        return BufferedBytes(input: 0, output: output + pending, isStalled: pending > 0)
    }

    func check(at now: NIODeadline) {
        switch phase {
        case .closing:
            if closesAt <= now { edge.close() }
            return
        case .leaving(let end) where end <= now: sayLast()
        default: break
        }
        for stream in Array(streams.values) { stream.check(at: now) }
        if streams.isEmpty, idleUntil <= now { sayGoodbye(.noError) }
    }
}

extension HTTP2Connection: NIOHTTP2FrameDelegate {
    /// A frame is on its way to the socket; nothing may be written from here.
    func wroteFrame(_ frame: HTTP2Frame) {
        switch frame.payload {
        case .data(let data):
            idleWindowUpdates = max(0, idleWindowUpdates - 2)
            guard let stream = streams[frame.streamID] else { return }
            stream.wentOut(data.data.readableBytes, isEnd: data.endStream)
            pending -= data.data.readableBytes
            resetIfAnswered(stream)
            if !waiting.isEmpty { later() }
        case .headers(let headers) where headers.endStream:
            guard let stream = streams[frame.streamID] else { return }
            stream.wentOut(0, isEnd: true)
            resetIfAnswered(stream)
        case .goAway(_, let code, _) where code != .noError:
            // The rules were broken: what follows is of no use.
            close()
        default: break
        }
    }
}
