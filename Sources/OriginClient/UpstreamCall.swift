package import HTTPTypes
package import NIOCore

/// One request to an origin and its response.
///
/// Belongs to its event loop and is used on it alone.
package final class UpstreamCall {
    let request: UpstreamRequest
    weak var receiver: (any UpstreamReceiver)?
    // Held until the call is over: what came before the connection broke may still have to be handed on.
    var connection: UpstreamConnection?
    /// Whether it was sent on a connection that had been used before.
    var usedKeptConnection = false
    var wasRepeated = false
    let madeAt = NIODeadline.now()
    @exclusivity(unchecked) private(set) var isOver = false
    private(set) var requestIsComplete: Bool
    @exclusivity(unchecked) private(set) var isPaused = false
    /// Whether it waits for its own client to send more of the request's body.
    package var waitsForUpload = false { didSet { tellWaiting() } }
    /// Whether it waits for its own client to read more of the response.
    package var waitsForReader = false { didSet { tellWaiting() } }
    /// Whether the connection knows that it waits for either.
    ///
    /// Meanwhile its connection is not among those that other requests may have to wait for.
    private var waitsForClient = false
    /// Whether its own client has ended its side and may be gone: then it gives its connection up to one that waits.
    ///
    /// Only until the response's head is there. What is sent then shows whether there is somebody.
    package var mayBeUnwanted = false {
        didSet { if mayBeUnwanted != oldValue, !isOver { connection?.callMayBeUnwanted(mayBeUnwanted) } }
    }
    /// Bytes that have come from the client or gone to it.
    @exclusivity(unchecked) private(set) var movedBytes = 0

    init(_ request: UpstreamRequest, receiver: any UpstreamReceiver) {
        self.request = request
        self.receiver = receiver
        requestIsComplete = request.body == .none
    }

    /// Whether a byte of the response has come, and the call is not over.
    package var isAnswering: Bool { connection?.isAnswering ?? false }

    private func tellWaiting() {
        let waits = waitsForUpload || waitsForReader
        guard waits != waitsForClient else { return }
        waitsForClient = waits
        if !isOver { connection?.callWaitsForClient(waits) }
    }

    /// Sends a part of the request's body.
    package func send(_ bytes: ByteBuffer) {
        guard !isOver, let connection, bytes.readableBytes > 0 else { return }
        movedBytes += bytes.readableBytes
        connection.send(bytes, chunked: request.body == .chunked)
    }

    /// Ends the request's body.
    package func finish(trailers: HTTPFields?) {
        guard !isOver, !requestIsComplete else { return }
        requestIsComplete = true
        connection?.finishBody(chunked: request.body == .chunked, trailers: trailers)
    }

    /// Calls the body once more of the request's body can be sent.
    package func whenWritable(_ body: @escaping () -> Void) { connection?.notifyWhenWritable(body) }

    /// Stops reading the response for a while.
    package func pause() { isPaused = true }

    /// Goes on reading the response.
    package func resume() {
        guard isPaused else { return }
        isPaused = false
        connection?.resume()
    }

    /// Gives up: nothing more will be heard of it.
    package func cancel() {
        guard !isOver else { return }
        isOver = true
        receiver = nil
        connection?.abandon()
        connection = nil
    }

    /// A part of the response goes to the client.
    func received(_ bytes: ByteBuffer) {
        movedBytes += bytes.readableBytes
        receiver?.upstreamSent(bytes: bytes)
    }

    func end(trailers: HTTPFields?) {
        guard !isOver else { return }
        isOver = true
        connection = nil
        receiver?.upstreamEnded(trailers: trailers)
    }

    func fail(_ failure: UpstreamFailure) {
        guard !isOver else { return }
        isOver = true
        connection = nil
        receiver?.upstreamFailed(failure)
    }
}
