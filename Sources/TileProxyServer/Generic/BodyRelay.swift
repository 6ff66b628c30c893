import CacheEngine
import HTTPListener
import HTTPTypes
import NIOCore
import TileStore

/// Takes the bytes of an origin's answer where the fill wants them: to the client, towards the store, to both, or nowhere.
///
/// What is to be stored comes at the origin's speed, whoever reads it, as others may wait for it: into memory, or into a
/// staged file. A client that is slower is sent it from there, piece by piece. What is not to be stored comes at the
/// client's speed. Belongs to its event loop.
final class BodyRelay: @unchecked Sendable {
    // Sendable so that a read on another thread can call it back on its loop; nothing is touched off the loop.

    /// What the origin has to wait for.
    struct Hold: OptionSet {
        let rawValue: Int
        /// The client takes its time, before the head too.
        static let reader = Hold(rawValue: 1)
        /// The disk takes its time.
        static let disk = Hold(rawValue: 2)
    }

    /// What the relay tells its fill.
    struct Listener {
        /// ``BodyRelay/hold`` has changed.
        ///
        /// The origin may bring more before this returns.
        var holdChanged: () -> Void
        /// The store takes no more of the body.
        ///
        /// The fill has to decide what becomes of it, now or when ``BodyRelay/append(_:)`` returns.
        var stagingFailed: (_ error: any Error, _ isAppending: Bool) -> Void
        /// The client's answer was broken off: bytes that are staged cannot be read, or, without an error, others needed
        /// their room more.
        var brokenOff: ((any Error)?) -> Void
    }

    private let exchange: Exchange?
    private let listener: Listener
    private(set) var hold: Hold = []

    private var route = Fill.Route.drop
    /// Whether the head has gone to the client, and the body may follow.
    private var hasHead = false
    /// What is to be stored, or what a slow client is still sent of it; then also what came next.
    private var incoming: IncomingBody?
    /// Whether the body is complete, and the store's.
    private var isCollected = false
    /// Bytes of it that went to the client.
    private var handedOn = 0
    /// Whether the client takes the body more slowly than it comes, and is sent it from ``incoming``.
    private(set) var isBehind = false
    private var isReading = false
    /// Whether the body has ended, for a client that has not come to its end.
    private var isEnding = false
    private var trailers: HTTPFields?
    /// The part that could not be collected.
    private var overflow: ByteBuffer?

    /// - Parameter exchange: The client; `nil` for a refresh in the background.
    init(_ exchange: Exchange?, _ listener: Listener) {
        self.exchange = exchange
        self.listener = listener
    }

    /// The client that the bytes go to, if there is one.
    private var client: Exchange? { hasHead && exchange?.isOpen ?? false ? exchange : nil }

    /// The head has gone to the client.
    func headIsOut() { hasHead = true }

    /// The bytes go towards the store from now on.
    func collect(_ body: IncomingBody) {
        route = .collect
        incoming = body
        body.onProgress = { [weak self] in self?.progressed() }
        body.onPushedOut = { [weak self] in self?.breakOff(nil) }
    }

    /// The bytes go nowhere from now on.
    func drop() { route = .drop }

    /// The bytes go to the client alone from now on, after those that it has not been sent yet.
    func relay() {
        route = .relay
        let next = overflow
        overflow = nil
        guard let incoming else {
            if let next { pass(next) }
            return
        }
        incoming.giveUp(isRead: isBehind)
        guard isBehind else {
            self.incoming = nil
            if let next { pass(next) }
            change(hold.subtracting(.disk))
            return
        }
        if let next { incoming.keep(next) }
        change(.reader)
    }

    /// The client is gone: what is to be stored comes at full speed.
    func clientIsGone() {
        isBehind = false
        if isCollected || route == .relay { incoming = nil }
        change(hold.subtracting(.reader))
    }

    /// The fill is over: what is not stored by now will not be.
    ///
    /// A client that is behind with a complete body is still sent the rest.
    func fillIsOver() {
        guard !isEnding else { return }
        incoming?.giveUp(isRead: false)
        (incoming, isBehind) = (nil, false)
    }

    // MARK: Bytes

    /// Takes a part; `false` if it cannot be collected.
    ///
    /// Then the fill decides, and the part is not lost.
    func append(_ bytes: ByteBuffer) -> Bool {
        switch route {
        case .drop: return true
        case .relay:
            guard isBehind, let incoming else {
                pass(bytes)
                return true
            }
            incoming.keep(bytes)
            change(hold.union(.reader))
            return true
        case .collect:
            guard let incoming, collect(bytes, in: incoming) else {
                overflow = bytes
                return false
            }
            if !isBehind, let client {
                client.send(bytes)
                handedOn += bytes.readableBytes
                if !client.isWritable {
                    isBehind = true
                    client.whenWritable { self.catchUp() }
                }
            }
            if incoming.isFull { change(hold.union(.disk)) }
            return true
        }
    }

    private func collect(_ bytes: ByteBuffer, in incoming: IncomingBody) -> Bool {
        do { return try incoming.append(bytes) } catch {
            listener.stagingFailed(error, true)
            return false
        }
    }

    /// Something was written, or could not be.
    private func progressed() {
        guard let incoming, !isCollected, case .collect = route else { return }
        if let failure = incoming.failure {
            listener.stagingFailed(failure, false)
        } else if !incoming.isFull {
            change(hold.subtracting(.disk))
        }
    }

    private func change(_ new: Hold) {
        guard new != hold else { return }
        hold = new
        listener.holdChanged()
    }

    /// Sends the client a part at its speed.
    private func pass(_ bytes: ByteBuffer) {
        guard let client else { return }
        client.send(bytes)
        waitForClient(client)
    }

    /// Lets the origin wait until the client has taken what was sent to it, before the head too.
    func waitForReader() {
        if let exchange { waitForClient(exchange) }
    }

    private func waitForClient(_ client: Exchange) {
        guard client.isOpen, !client.isWritable else { return }
        change(hold.union(.reader))
        client.whenWritable { [weak self] in self?.clientHasRead() }
    }

    private func clientHasRead() {
        // One that is behind a body that is not stored has more to read first.
        if !isBehind || route != .relay { change(hold.subtracting(.reader)) }
    }

    // MARK: A client that is behind

    /// Sends a client that is behind what has come meanwhile, as fast as it takes it.
    private func catchUp() {
        guard isBehind, !isReading, let client, let incoming else { return }
        while handedOn < incoming.count {
            guard client.isWritable else {
                client.whenWritable { self.catchUp() }
                return
            }
            guard let piece = incoming.readNow(at: handedOn) else {
                isReading = true
                incoming.read(at: handedOn) { self.goOn($0) }
                return
            }
            client.send(piece)
            handedOn += piece.readableBytes
        }
        isBehind = false
        if route == .relay || isEnding { self.incoming = nil }
        if isEnding {
            client.finish(trailers: trailers)
        } else if client.isWritable {
            change(hold.subtracting(.reader))
        } else if route == .relay {
            waitForClient(client)
        } else {
            isBehind = true
            client.whenWritable { self.catchUp() }
        }
    }

    /// A piece has been read on another thread.
    private func goOn(_ result: Result<ByteBuffer, any Error>) {
        isReading = false
        guard isBehind, let client else { return }
        switch result {
        case .success(let piece):
            client.send(piece)
            handedOn += piece.readableBytes
            catchUp()
        case .failure(let error): breakOff(error)
        }
    }

    /// Breaks the answer of a client off that is behind.
    private func breakOff(_ why: (any Error)?) {
        guard isBehind, let client else { return }
        client.abort()
        if isEnding { (incoming, isBehind) = (nil, false) }
        listener.brokenOff(why)
    }

    // MARK: The end

    /// All that was collected, for the store.
    func collected() -> IncomingBody? {
        isCollected = true
        defer { if !isBehind { incoming = nil } }
        return incoming
    }

    /// Ends the client's answer, once it has all of it.
    func finish(trailers: HTTPFields?) {
        guard let client else { return }
        guard isBehind, let incoming else {
            client.finish(trailers: trailers)
            return
        }
        (isEnding, self.trailers) = (true, trailers)
        // What is small enough waits in the connection's buffers, as a stored body does: the budget is for others.
        guard incoming.count <= IncomingBody.inMemoryUpTo, let rest = incoming.readNow(at: handedOn) else { return }
        client.send(rest)
        handedOn += rest.readableBytes
        catchUp()
    }
}
