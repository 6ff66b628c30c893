import HTTPCaching
package import HTTPTypes
import HTTPWire
package import NIOCore

/// One request and its answer, for a responder that takes its time.
///
/// Belongs to its connection's event loop; every call must be made there. Calls after the client is gone do nothing.
package final class Exchange: @unchecked Sendable {
    // Sendable so that it can be carried through other threads back to its loop; nothing here is touched off the loop.

    /// A part of the request's body.
    package enum BodyPart {
        case bytes(ByteBuffer)
        /// The body is complete; its trailers, if there were any.
        case end(HTTPFields?)
        /// The rest will not come: the client is gone or has broken the rules.
        case failed
    }

    /// The request's head.
    package let head: RequestHead
    /// The loop on which everything happens.
    package let eventLoop: any EventLoop
    /// The client's address.
    package let client: SocketAddress?
    /// The loop's time.
    package let time: LoopTime
    /// What the cache did, for the log.
    package var cacheResult = Answered.CacheResult.none
    /// Called once if the client goes away, or breaks the rules, before the response is complete.
    package var whenGone: (() -> Void)?

    /// Called once the client has ended its side: it is gone, or has nothing more to say and waits.
    package var whenClientHasEnded: (() -> Void)? {
        didSet { if hasClientEnded { whenClientHasEnded?() } }
    }
    @exclusivity(unchecked) private var hasClientEnded = false

    weak var connection: HTTPConnection?
    let startedAt: NIODeadline
    @exclusivity(unchecked) private(set) var response = ResponseState.notStarted
    @exclusivity(unchecked) private(set) var status = 0
    @exclusivity(unchecked) private(set) var sentBytes = 0

    /// How far the response has got.
    enum ResponseState: Equatable {
        case notStarted
        /// The head is out; the body is framed like this.
        case body(Framing)
        case finished
        case gone
    }

    /// How a response's body is delimited.
    enum Framing: Equatable {
        case none
        case length(Int64)
        case chunked
        case untilClose
    }

    init(
        head: RequestHead, eventLoop: any EventLoop, client: SocketAddress?, time: LoopTime, startedAt: NIODeadline,
        connection: HTTPConnection
    ) {
        self.head = head
        self.eventLoop = eventLoop
        self.client = client
        self.time = time
        self.startedAt = startedAt
        self.connection = connection
    }

    /// Whether the client still waits for something.
    package var isOpen: Bool { response != .finished && response != .gone }
    /// Whether the response's head has been sent.
    package var hasStarted: Bool { response != .notStarted }
    /// Whether more can be sent without piling it up.
    package var isWritable: Bool { connection?.isWritable ?? false }

    /// Asks for the next part of the request's body; until it is asked for, the client is kept waiting.
    ///
    /// A client that waits for `100 Continue` gets it with the first call.
    package func nextBodyPart(_ body: @escaping (BodyPart) -> Void) {
        eventLoop.preconditionInEventLoop()
        guard let connection, isOpen else {
            body(.failed)
            return
        }
        connection.demand(body)
    }

    /// Calls the body once more can be sent, or never if the client goes away.
    package func whenWritable(_ body: @escaping () -> Void) { connection?.notifyWhenWritable(body) }

    /// Sends a 1xx response; nothing to HTTP/1.0 clients, who know none.
    package func sendInterim(_ response: HTTPResponse) {
        guard self.response == .notStarted, head.isHTTP11, (102...199).contains(response.status.code),
            let connection
        else { return }
        var buffer = connection.buffer(256)
        buffer.writeStatusLine(response.status.code, reason: response.status.reasonPhrase)
        for field in response.headerFields where !isFraming(field.name) { buffer.writeField(field) }
        buffer.writeStaticString("\r\n")
        connection.send(buffer, flush: true)
    }

    /// Sends the response's head.
    ///
    /// `Date`, `Connection`, `Content-Length` and `Transfer-Encoding` are for the server to write; a `Date` that is
    /// there stays.
    ///
    /// - Parameter length: The body's length, if it is known. To HEAD and in a 304 it is what a GET would have given;
    ///   nothing is written without it.
    package func send(_ response: HTTPResponse, length: Int64?) {
        guard self.response == .notStarted, let connection else { return }
        status = response.status.code
        let isEmpty = head.method == .head || isBodiless(status)
        let framing: Framing =
            isEmpty ? .none : length.map { .length($0) } ?? (head.isHTTP11 ? .chunked : .untilClose)
        if framing == .untilClose { (connection.mustClose, connection.isCloseDelimited) = (true, true) }
        var buffer = connection.buffer(1024)
        buffer.writeStatusLine(status, reason: response.status.reasonPhrase)
        if !response.headerFields.contains(.date) { time.writeDate(into: &buffer) }
        for field in response.headerFields where !isFraming(field.name) { buffer.writeField(field) }
        if let length, status >= 200, status != 204 { buffer.writeField("Content-Length: ", Int(clamping: length)) }
        if framing == .chunked { buffer.writeStaticString("Transfer-Encoding: chunked\r\n") }
        buffer.writeConnection(keepAlive: connection.willKeepAlive, isHTTP11: head.isHTTP11)
        buffer.writeStaticString("\r\n")
        self.response = .body(framing)
        connection.send(buffer, flush: false)
    }

    /// Sends a part of the response's body; dropped where the response has none.
    package func send(_ bytes: ByteBuffer) {
        guard case .body(let framing) = response, framing != .none, bytes.readableBytes > 0, let connection else {
            return
        }
        sentBytes += bytes.readableBytes
        guard framing == .chunked else {
            connection.send(part: bytes)
            return
        }
        guard bytes.readableBytes >= SmallWrites.size else {
            var chunk = connection.buffer(bytes.readableBytes + 16)
            chunk.writeChunk(bytes)
            connection.send(part: chunk)
            return
        }
        var line = connection.buffer(24)
        line.writeChunkSize(bytes.readableBytes)
        connection.send(line, flush: false)
        connection.send(bytes, flush: false)
        var end = connection.buffer(2)
        end.writeStaticString("\r\n")
        connection.send(end, flush: true)
    }

    /// Ends the response; trailers go out where the framing has a place for them.
    package func finish(trailers: HTTPFields? = nil) {
        guard case .body(let framing) = response, let connection else { return }
        if case .length(let length) = framing, Int64(sentBytes) != length {
            abort()
            return
        }
        if framing == .chunked {
            var buffer = connection.buffer(64)
            buffer.writeStaticString("0\r\n")
            if let trailers { for field in trailers where !isFraming(field.name) { buffer.writeField(field) } }
            buffer.writeStaticString("\r\n")
            connection.send(buffer, flush: false)
        }
        response = .finished
        whenGone = nil
        connection.exchangeFinished()
    }

    /// Breaks the response off so that the client sees it is not complete.
    package func abort() {
        guard isOpen else { return }
        response = .gone
        whenGone = nil
        connection?.abort()
    }

    /// Sends a whole response with a body in memory.
    package func reply(_ response: HTTPResponse, body: ByteBuffer = ByteBuffer()) {
        let length: Int64? = isBodiless(response.status.code) ? nil : Int64(body.readableBytes)
        send(response, length: length)
        send(body)
        finish()
    }

    /// Answers with a few words, for errors of the proxy's own.
    package func reply(_ status: Int, _ words: String, fields: HTTPFields = HTTPFields()) {
        var response = HTTPResponse(status: .init(code: status), headerFields: fields)
        response.headerFields[.contentType] = "text/plain; charset=utf-8"
        response.headerFields[.cacheControl] = "no-store"
        reply(response, body: ByteBuffer(string: words + "\n"))
    }

    /// The client is gone.
    func clientIsGone() {
        guard isOpen else { return }
        response = .gone
        let notify = whenGone
        whenGone = nil
        notify?()
    }

    /// The client has ended its side, which a client does that goes away, too.
    func clientHasEnded() {
        guard isOpen, !hasClientEnded else { return }
        hasClientEnded = true
        whenClientHasEnded?()
    }

    private func isFraming(_ name: HTTPField.Name) -> Bool {
        let name = name.canonicalName
        // Most names have another length than these.
        return switch name.utf8.count {
        case 10: name == "connection" || name == "keep-alive"
        case 14: name == "content-length"
        case 17: name == "transfer-encoding"
        default: false
        }
    }
}
