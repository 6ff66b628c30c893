import HTTPWire
import NIOCore

/// What the connections of one event loop share.
///
/// Belongs to its loop and is used on it alone.
final class LoopConnections {
    let limits: ServerLimits
    let time: LoopTime
    /// Is told of requests that were answered.
    let observer: (any ExchangeObserver)?
    /// Is told of messages that were refused.
    let refusals: (any ExchangeObserver)?
    private let hostNames: Set<String>
    private(set) var isDraining = false
    /// When heads that are not complete are given up, once the server is going down.
    private(set) var headsEnd: NIODeadline?
    /// How long a request that is just arriving may take when the server goes down.
    static let drainGrace = TimeAmount.seconds(1)
    private var open: [ObjectIdentifier: any ClientConnection] = [:]
    private var whenEmpty: [EventLoopPromise<Void>] = []
    private var scratch = ByteBuffer()

    init(limits: ServerLimits, time: LoopTime, hostNames: Set<String>, observer: (any ExchangeObserver)?) {
        self.limits = limits
        self.time = time
        self.hostNames = hostNames
        self.observer = observer.flatMap { $0.wantsAnswered ? $0 : nil }
        refusals = observer
    }

    var count: Int { open.count }

    /// What is buffered for each connection.
    var buffered: [BufferedBytes] { open.values.map(\.buffered) }

    /// Room to put answers together, which all connections use in turns.
    func takeScratch(_ allocator: ByteBufferAllocator) -> ByteBuffer {
        guard scratch.capacity > 0 else { return allocator.buffer(capacity: 8192) }
        var taken = ByteBuffer()
        swap(&taken, &scratch)
        return taken
    }

    /// Keeps the room for the next answer; what is still on its way to a client is left to that.
    func giveBack(_ buffer: inout ByteBuffer) {
        if (1...65536).contains(buffer.capacity) {
            swap(&buffer, &scratch)
            scratch.clear()
        }
        // Also where it is too large to be kept: what has been written must not be there to be written again.
        buffer = ByteBuffer()
    }

    /// Tells the observer how an exchange ended.
    ///
    /// - Parameter status: What was sent in place of the exchange's own answer.
    func report(_ exchange: Exchange, status: Int? = nil) {
        observer?.finished(
            exchange.head, from: exchange.client,
            Answered(status: status ?? exchange.status, bodyBytes: exchange.sentBytes, cache: exchange.cacheResult),
            took: .now() - exchange.startedAt)
    }

    /// The answer to a message that is refused.
    func refusal(_ violation: Violation) -> ByteBuffer {
        let words = "\(violation.reason)\n"
        var buffer = ByteBuffer()
        buffer.writeStatusLine(violation.status)
        time.writeDate(into: &buffer)
        buffer.writeStaticString("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n")
        if violation.status == 405 {
            buffer.writeStaticString("Allow: GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE\r\n")
        }
        buffer.writeField("Content-Length: ", words.utf8.count)
        buffer.writeStaticString("\r\n")
        buffer.writeString(words)
        return buffer
    }

    func add(_ connection: any ClientConnection) { open[ObjectIdentifier(connection)] = connection }

    func remove(_ connection: any ClientConnection) {
        open[ObjectIdentifier(connection)] = nil
        guard open.isEmpty else { return }
        for promise in whenEmpty { promise.succeed() }
        whenEmpty = []
    }

    /// Looks at every connection for what has taken too long.
    func sweep(at now: NIODeadline) {
        for connection in open.values { connection.check(at: now) }
    }

    /// Lets no new request in; the future is done when the last connection is closed.
    func drain(on loop: any EventLoop) -> EventLoopFuture<Void> {
        isDraining = true
        headsEnd = .now() + Self.drainGrace
        for connection in open.values { connection.drain() }
        let promise = loop.makePromise(of: Void.self)
        if open.isEmpty { promise.succeed() } else { whenEmpty.append(promise) }
        return promise.futureResult
    }

    func killAll() { for connection in open.values { connection.kill() } }

    /// Whether an authority in a request's target names this server; any other would make it an open proxy.
    func isOurs(_ authority: UnsafeRawBufferPointer, _ channel: any Channel, isSecure: Bool) -> Bool {
        let text = String(decoding: authority, as: UTF8.self).lowercased()
        if hostNames.contains(text) { return true }
        guard let address = channel.localAddress, let ip = address.ipAddress, let port = address.port else {
            return false
        }
        let host = ip.contains(":") ? "[\(ip)]" : ip
        var names = ["\(host):\(port)", "localhost:\(port)"]
        if port == (isSecure ? 443 : 80) { names += [host, "localhost"] }
        return names.contains(text)
    }
}
