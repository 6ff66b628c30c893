import CacheEngine
import HTTPCaching
import HTTPTypes
import HTTPWire
import NIOCore
import OriginClient
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One request of ``LoopTransport`` and its answer, put together in memory.
///
/// Belongs to its loop and is used on it alone.
final class TileExchange: UpstreamReceiver {
    private let host: String
    private let bodyLimit: Int
    private var continuation: CheckedContinuation<TransportResponse?, any Error>?
    private var call: UpstreamCall?
    private var timer: Scheduled<Void>?
    private var head: HTTPResponse?
    private var body = Data()

    init(host: String, bodyLimit: Int, continuation: CheckedContinuation<TransportResponse?, any Error>) {
        self.host = host
        self.bodyLimit = bodyLimit
        self.continuation = continuation
    }

    func start(_ request: UpstreamRequest, over pool: UpstreamPool, timeout: TimeAmount, on loop: any EventLoop) {
        // The timer is also what keeps this alive until it is over.
        let bound = NIOLoopBound(self, eventLoop: loop)
        timer = loop.scheduleTask(in: timeout) {
            let me = bound.value
            me.fail(.timeout, "no complete answer in time")
        }
        call = pool.call(request, receiver: self)
    }

    func cancel() { fail(.cancelled, "cancelled") }

    private func fail(_ code: TransportError.Code, _ words: String, cause: UpstreamFailure? = nil) {
        call?.cancel()
        end(.failure(TransportError(code, "\(host): \(words)", cause: cause)))
    }

    private func end(_ result: Result<TransportResponse?, any Error>) {
        timer?.cancel()
        (timer, call) = (nil, nil)
        let waiting = continuation
        continuation = nil
        waiting?.resume(with: result)
    }

    // MARK: The origin's answer

    func upstreamIsReady(_ call: UpstreamCall) {}

    func upstreamSent(interim: HTTPResponse) {}

    func upstreamSent(head: HTTPResponse, length: Int64?) {
        self.head = head
        guard let length, !isBodiless(head.status.code) else { return }
        guard length <= Int64(bodyLimit) else {
            fail(.bodyTooLarge, "the body is larger than \(bodyLimit) B")
            return
        }
        // A promise may be a lie: no more than a large tile is reserved on its word.
        body.reserveCapacity(min(Int(length), 1 << 20))
    }

    func upstreamSent(bytes: ByteBuffer) {
        guard bytes.readableBytes <= bodyLimit - body.count else {
            fail(.bodyTooLarge, "the body is larger than \(bodyLimit) B")
            return
        }
        bytes.withUnsafeReadableBytes { body.append(contentsOf: $0) }
    }

    func upstreamEnded(trailers: HTTPFields?) {
        guard let head else {
            fail(.malformed, "no head")
            return
        }
        end(.success(TransportResponse(head: head, body: body)))
    }

    func upstreamFailed(_ failure: UpstreamFailure) {
        switch failure {
        case .unreachable(let why): fail(.connection, "no connection: \(why)", cause: failure)
        case .forbidden(let why): fail(.unsupported, "refused: \(why)", cause: failure)
        case .connectTimeout, .timeout: fail(.timeout, "no connection in time", cause: failure)
        case .closed where head != nil: fail(.truncated, "the body broke off", cause: failure)
        case .closed: fail(.connection, "closed without an answer", cause: failure)
        case .malformed(let why): fail(.malformed, "no HTTP: \(why)", cause: failure)
        case .overloaded: fail(.connection, "too many requests wait already", cause: failure)
        case .clientTooSlow, .clientMayBeGone, .cancelled: fail(.cancelled, "cancelled", cause: failure)
        }
    }
}

/// An exchange that may be cancelled from any thread, before it has begun too.
final class OngoingExchange: Sendable {
    private struct State {
        var isCancelled = false
        var exchange: NIOLoopBound<TileExchange>?
    }

    private let loop: any EventLoop
    private let state = Locked(State())

    init(_ loop: any EventLoop) { self.loop = loop }

    /// Called on the loop.
    func began(_ exchange: TileExchange) {
        let bound = NIOLoopBound(exchange, eventLoop: loop)
        let isCancelled = state.withLock { state in
            state.exchange = bound
            return state.isCancelled
        }
        if isCancelled { exchange.cancel() }
    }

    func cancel() {
        let exchange = state.withLock { state in
            state.isCancelled = true
            return state.exchange
        }
        guard let exchange else { return }
        loop.execute { exchange.value.cancel() }
    }
}

/// The connections of one loop to the hosts that tiles come from.
final class LoopPools {
    private let loop: any EventLoop
    private let limits: UpstreamLimits
    private var pools: [Place: UpstreamPool] = [:]

    /// Connections that were made for a redirect are not shared with others: they have been checked, the others need not be.
    private struct Place: Hashable {
        var authority: String
        var onlyPublic: Bool
    }

    init(loop: any EventLoop, limits: UpstreamLimits) {
        self.loop = loop
        self.limits = limits
    }

    /// The connections to a host; `nil` if it is one too many, or no host.
    ///
    /// - Parameter onlyPublic: Whether to connect to no address of this machine or of a private network.
    func pool(for authority: String, onlyPublic: Bool, most: Int) -> UpstreamPool? {
        let place = Place(authority: authority, onlyPublic: onlyPublic)
        if let pool = pools[place] { return pool }
        guard pools.count < most, let origin = Origin("http://" + authority) else { return nil }
        let pool = UpstreamPool(origin: origin, limits: limits, loop: loop, tls: nil, onlyPublic: onlyPublic)
        pools[place] = pool
        return pool
    }

    func close() { for pool in pools.values { pool.close() } }
}
