import HTTPTypes
import HTTPWire
import NIOCore
import NIOHPACK
import NIOHTTP2

/// One request of an HTTP/2 connection and its answer.
final class HTTP2Stream: ExchangeLink {
    let id: HTTP2StreamID
    private weak var connection: HTTP2Connection?
    private let limits: ServerLimits
    private(set) var exchange: Exchange?

    // The request's body.
    private var input = ByteBuffer()
    private var trailers: HTTPFields?
    private var inputEnded: Bool
    private var inputFailed = false
    private var received: Int64 = 0
    private var bodyDemand: ((Exchange.BodyPart) -> Void)?
    private var isDelivering = false
    private var awaitsContinue = false
    private var demandedAt = NIODeadline.uptimeNanoseconds(0)
    private var bodyPatience: Patience
    /// Bytes that were handed on and are not given back to the client's window yet.
    private var consumed = 0

    // The response.
    /// Bytes that the connection holds back because the client, or its window, takes no more.
    private(set) var pending = 0
    /// Small parts since nothing was held back.
    private var smallParts = 0
    private(set) var outputEnded = false
    /// Whether the end of the response is on its way.
    private(set) var endWentOut = false
    /// Whether the stream is closed: nothing can be sent on it any more.
    private(set) var isClosed = false
    private var writableCallbacks: [() -> Void] = []
    private var readPatience: Patience
    private var checkedAt: NIODeadline?
    private var drained = 0

    init(_ id: HTTP2StreamID, of connection: HTTP2Connection, inputEnded: Bool) {
        self.id = id
        self.connection = connection
        self.inputEnded = inputEnded
        limits = connection.loop.limits
        bodyPatience = Patience(limits.bodyStall, rate: limits.bodyRate)
        readPatience = Patience(limits.writeStall, rate: limits.readRate)
    }

    func begin(_ exchange: Exchange, awaitsContinue: Bool) {
        self.exchange = exchange
        self.awaitsContinue = awaitsContinue
    }

    /// Whether the request's body has not come to its end.
    var isOpenForInput: Bool { !inputEnded && !isClosed }
    /// Whether somebody waits to send more.
    var isAwaited: Bool { !writableCallbacks.isEmpty }

    // MARK: The request's body

    /// Takes a part of the body, if somebody may want it.
    func receive(_ bytes: ByteBuffer, isLast: Bool) {
        inputEnded = inputEnded || isLast
        var bytes = bytes
        guard let exchange, exchange.isOpen, !inputFailed else { return }
        connection?.hold(bytes.readableBytes)
        received += Int64(bytes.readableBytes)
        input.discardReadBytes()
        // Copied: a few bytes must not keep the whole of what was read with them.
        input.writeBuffer(&bytes)
        guard received <= limits.bodyBytes else {
            failBody(Violation(413, "the body is too large"))
            return
        }
        deliver()
    }

    func receive(trailers: HTTPFields) {
        self.trailers = trailers
        inputEnded = true
        deliver()
    }

    func demand(_ body: @escaping (Exchange.BodyPart) -> Void) {
        bodyDemand = body
        if awaitsContinue, !inputEnded, input.readableBytes == 0, !isClosed {
            connection?.write(.init(headers: [":status": "100"]), on: id)
            connection?.flushSoon()
        }
        awaitsContinue = false
        demandedAt = .now()
        deliver()
    }

    /// Hands on what is there of the body, as long as it is asked for.
    private func deliver() {
        guard !isDelivering else { return }
        isDelivering = true
        defer { isDelivering = false }
        while let demand = bodyDemand {
            let part: Exchange.BodyPart
            if inputFailed {
                part = .failed
            } else if exchange?.head.body == RequestHead.Body.none {
                part = .end(nil)
            } else if let bytes = input.readSlice(length: input.readableBytes), bytes.readableBytes > 0 {
                input = ByteBuffer()
                // Only the time that the client was waited for counts, not that of an origin that takes it slowly.
                bodyPatience.spend(.now() - demandedAt, for: bytes.readableBytes)
                consume(bytes.readableBytes)
                part = .bytes(bytes)
            } else if inputEnded {
                part = .end(trailers)
            } else {
                return
            }
            bodyDemand = nil
            demand(part)
        }
    }

    private func consume(_ bytes: Int) {
        connection?.release(bytes)
        consumed += bytes
        guard consumed >= limits.streamWindow / 2, isOpenForInput else { return }
        connection?.openWindow(of: id, by: consumed)
        consumed = 0
    }

    private func dropInput() {
        connection?.release(input.readableBytes)
        input = ByteBuffer()
    }

    /// The body will not come to its end.
    private func failBody(_ violation: Violation) {
        guard let exchange, let connection else { return }
        inputFailed = true
        let demand = bodyDemand
        bodyDemand = nil
        dropInput()
        let hasStarted = exchange.hasStarted
        exchange.clientIsGone()
        demand?(.failed)
        if hasStarted {
            abort()
        } else {
            connection.loop.report(exchange, status: violation.status)
            self.exchange = nil
            connection.refuse(violation, on: self)
        }
    }

    // MARK: The response

    var isWritable: Bool {
        guard let connection, !isClosed else { return false }
        return pending < limits.waitingBytes && smallParts < SmallWrites.most
            && (pending == 0 || connection.pending < limits.bufferedBytes)
    }

    func notifyWhenWritable(_ body: @escaping () -> Void) {
        if isWritable {
            body()
        } else if !isClosed {
            writableCallbacks.append(body)
            connection?.awaitWritable(self)
        }
    }

    /// Some of what was held back has gone out.
    func becameWritable() {
        guard isWritable else { return }
        let callbacks = writableCallbacks
        writableCallbacks = []
        for callback in callbacks { callback() }
    }

    func sendInterim(_ response: HTTPResponse) {
        guard !isClosed, let connection else { return }
        connection.write(.init(headers: HTTP2Response.fields(response, length: nil)), on: id)
        connection.flushSoon()
    }

    /// The stream ends with its response; the connection goes on.
    func wantsNoMoreBody() {}

    func sendHead(
        _ response: HTTPResponse, length: Int64?, isEmpty: Bool, to request: RequestHead
    ) -> Exchange.Framing {
        let framing: Exchange.Framing = isEmpty ? .none : length.map { .length($0) } ?? .chunked
        guard !isClosed, let connection else { return framing }
        let status = response.status.code
        let said = status >= 200 && status != 204 ? length : nil
        var fields = HTTP2Response.fields(response, length: said)
        if !response.headerFields.contains(.date) { fields.add(name: "date", value: connection.loop.time.date) }
        // Without a body, the end is known already.
        outputEnded = framing == .none || framing == .length(0)
        connection.write(.init(headers: fields, endStream: outputEnded), on: id)
        connection.flushSoon()
        return framing
    }

    func sendPart(_ bytes: ByteBuffer, _ framing: Exchange.Framing) {
        guard !isClosed, !outputEnded, let connection else { return }
        if bytes.readableBytes < SmallWrites.size { smallParts += 1 }
        pending += bytes.readableBytes
        connection.write(bytes, isLast: false, on: self)
        connection.flushSoon()
    }

    func sendEnd(_ trailers: HTTPFields?, _ framing: Exchange.Framing) {
        guard !isClosed, !outputEnded, let connection else { return }
        outputEnded = true
        if framing == .chunked, let trailers, !trailers.isEmpty {
            connection.write(.init(headers: HTTP2Response.trailers(trailers), endStream: true), on: id)
        } else {
            connection.write(ByteBuffer(), isLast: true, on: self)
        }
        connection.flushSoon()
    }

    /// Sends a whole response that was made ready as one of HTTP/1.1.
    func send(ready bytes: ByteBuffer) {
        var body = bytes
        guard !isClosed, let connection else { return }
        guard let (_, fields) = HTTP2Response.takeHead(&body) else {
            reset(.internalError)
            return
        }
        outputEnded = true
        let isEmpty = body.readableBytes == 0
        connection.write(.init(headers: fields, endStream: isEmpty), on: id)
        if isEmpty { return }
        pending += body.readableBytes
        connection.write(body, isLast: true, on: self)
    }

    func exchangeFinished() {
        guard let exchange, let connection else { return }
        connection.loop.report(exchange)
        self.exchange = nil
        bodyDemand = nil
        dropInput()
        connection.answered(self)
    }

    func abort() {
        if let exchange { connection?.loop.report(exchange) }
        exchange = nil
        reset(.internalError)
    }

    func reset(_ code: NIOHTTP2.HTTP2ErrorCode) {
        guard let connection else { return }
        if !isClosed { connection.reset(id, code) }
        connection.answered(self)
    }

    /// So much of what was held back is on its way.
    func wentOut(_ bytes: Int, isEnd: Bool) {
        if isEnd { endWentOut = true }
        pending -= bytes
        drained += bytes
        if pending == 0 { smallParts = 0 }
    }

    // MARK: The end

    /// Nothing more comes or can be sent on it.
    ///
    /// - Parameter isReset: Whether that is not the end of both sides.
    /// - Returns: Whether an exchange still goes on: all of its response was sent, and it does not know yet.
    func closed(isReset: Bool) -> Bool {
        isClosed = true
        inputFailed = inputFailed || !inputEnded
        writableCallbacks = []
        guard let exchange else { return false }
        if outputEnded, !isReset { return true }
        dropInput()
        inputFailed = true
        let demand = bodyDemand
        bodyDemand = nil
        self.exchange = nil
        exchange.clientIsGone()
        demand?(.failed)
        connection?.loop.report(exchange)
        return false
    }

    /// Acts on what has taken too long.
    func check(at now: NIODeadline) {
        if bodyDemand != nil, isOpenForInput, demandedAt + bodyPatience.left <= now {
            failBody(Violation(408, "the request's body took too long"))
            return
        }
        guard pending > 0, !isClosed else {
            checkedAt = nil
            readPatience.renew()
            return
        }
        if let checkedAt { readPatience.spend(now - checkedAt, for: drained) }
        (checkedAt, drained) = (now, 0)
        if readPatience.isOver { connection?.clientReadsTooSlowly(self) }
    }
}
