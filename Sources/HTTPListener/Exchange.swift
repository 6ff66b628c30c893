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

    weak var link: (any ExchangeLink)?
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
        link: any ExchangeLink
    ) {
        self.head = head
        self.eventLoop = eventLoop
        self.client = client
        self.time = time
        self.startedAt = startedAt
        self.link = link
    }

    /// Whether the client still waits for something.
    package var isOpen: Bool { response != .finished && response != .gone }
    /// Whether the response's head has been sent.
    package var hasStarted: Bool { response != .notStarted }
    /// Whether more can be sent without piling it up.
    package var isWritable: Bool { link?.isWritable ?? false }

    /// Asks for the next part of the request's body; until it is asked for, the client is kept waiting.
    ///
    /// A client that waits for `100 Continue` gets it with the first call.
    package func nextBodyPart(_ body: @escaping (BodyPart) -> Void) {
        eventLoop.preconditionInEventLoop()
        guard let link, isOpen else {
            body(.failed)
            return
        }
        link.demand(body)
    }

    /// Calls the body once more can be sent, or never if the client goes away.
    package func whenWritable(_ body: @escaping () -> Void) { link?.notifyWhenWritable(body) }

    /// Sends a 1xx response; nothing to HTTP/1.0 clients, who know none.
    package func sendInterim(_ response: HTTPResponse) {
        guard self.response == .notStarted, head.isHTTP11, (102...199).contains(response.status.code) else { return }
        link?.sendInterim(response)
    }

    /// Sends the response's head.
    ///
    /// `Date`, `Connection`, `Content-Length` and `Transfer-Encoding` are for the server to write; a `Date` that is
    /// there stays.
    ///
    /// - Parameter length: The body's length, if it is known. To HEAD and in a 304 it is what a GET would have given;
    ///   nothing is written without it.
    package func send(_ response: HTTPResponse, length: Int64?) {
        guard self.response == .notStarted, let link else { return }
        status = response.status.code
        let isEmpty = head.method == .head || isBodiless(status)
        self.response = .body(link.sendHead(response, length: length, isEmpty: isEmpty, to: head))
    }

    /// Sends a part of the response's body; dropped where the response has none.
    package func send(_ bytes: ByteBuffer) {
        guard case .body(let framing) = response, framing != .none, bytes.readableBytes > 0, let link else { return }
        sentBytes += bytes.readableBytes
        link.sendPart(bytes, framing)
    }

    /// Ends the response; trailers go out where the framing has a place for them.
    package func finish(trailers: HTTPFields? = nil) {
        guard case .body(let framing) = response, let link else { return }
        if case .length(let length) = framing, Int64(sentBytes) != length {
            abort()
            return
        }
        link.sendEnd(trailers, framing)
        response = .finished
        whenGone = nil
        link.exchangeFinished()
    }

    /// Breaks the response off so that the client sees it is not complete.
    package func abort() {
        guard isOpen else { return }
        response = .gone
        whenGone = nil
        link?.abort()
    }

    /// Sends a whole response with a body in memory.
    package func reply(_ response: HTTPResponse, body: ByteBuffer = ByteBuffer()) {
        if self.response == .notStarted { link?.wantsNoMoreBody() }
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
}
