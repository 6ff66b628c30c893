import HTTPWire
package import NIOCore

/// What answers requests: one for each event loop, used on it alone, so that it needs no locks.
package protocol Responder: AnyObject {
    /// Answers at once, if that takes no waiting: writes a whole response into the buffer.
    ///
    /// The way of a hit. It is asked only for requests without a body. The response must end where its own framing says,
    /// must have no body if the method is HEAD, and must carry what ``Answering/writeConnection(into:)`` writes.
    ///
    /// - Returns: What was sent; `nil` if nothing was written, and ``respond(_:)`` shall be called.
    func answer(_ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer) -> Answered?

    /// Answers in its own time, by means of the exchange.
    func respond(_ exchange: Exchange)
}

/// What a responder has to know to answer at once.
package struct Answering: ~Copyable {
    /// The loop's time.
    package let time: LoopTime
    /// Whether the connection stays open after the answer.
    package let keepAlive: Bool
    /// Whether the client speaks HTTP/1.1.
    package let isHTTP11: Bool
    /// Bytes that may be written if as many wait for the client already as there may be.
    private let room: Int
    private let connection: HTTPConnection?

    package init(time: LoopTime, keepAlive: Bool, isHTTP11: Bool) {
        self.init(time: time, keepAlive: keepAlive, isHTTP11: isHTTP11, room: .max, connection: nil)
    }

    init(time: LoopTime, keepAlive: Bool, isHTTP11: Bool, room: Int, connection: HTTPConnection?) {
        self.time = time
        self.keepAlive = keepAlive
        self.isHTTP11 = isHTTP11
        self.room = room
        self.connection = connection
    }

    /// Whether an answer of so many bytes may be written whole; a larger one has to be sent in pieces.
    package func hasRoom(for bytes: Int) -> Bool {
        // What really waits is looked at only where it matters.
        bytes <= room || bytes <= room + (connection?.roomInChannel ?? 0)
    }

    /// Writes the `Connection` field where one is needed.
    package func writeConnection(into buffer: inout ByteBuffer) {
        buffer.writeConnection(keepAlive: keepAlive, isHTTP11: isHTTP11)
    }
}

/// How a request ended, for the log and the figures.
package struct Answered: Sendable {
    /// The status that was sent; 0 if the exchange broke off before one.
    package var status: Int
    /// Bytes of body that were sent.
    package var bodyBytes: Int
    /// What the cache did, if it had a part in it.
    package var cache: CacheResult

    /// How the cache took part in an answer.
    package enum CacheResult: String, Sendable {
        /// No cache was asked.
        case none
        /// Answered from the cache, fresh.
        case hit
        /// Answered from the cache, stale.
        case stale
        /// Answered from the cache after the origin confirmed it.
        case revalidated
        /// Answered by the origin.
        case miss
        /// Not for the cache.
        case bypass
    }

    package init(status: Int, bodyBytes: Int, cache: CacheResult = .none) {
        self.status = status
        self.bodyBytes = bodyBytes
        self.cache = cache
    }
}

/// Is told of every request when it is over.
///
/// Called on event loops, one call for each request: it must be quick and must not wait.
package protocol ExchangeObserver: AnyObject, Sendable {
    /// Whether it wants to be told of requests that were answered, too, and not only of those that were refused.
    var wantsAnswered: Bool { get }
    /// A request was answered, or broke off.
    func finished(_ request: RequestHead, from client: SocketAddress?, _ answered: Answered, took: TimeAmount)
    /// A message was refused before it became a request.
    func refused(status: Int, from client: SocketAddress?)
}
