import HTTPCaching
import HTTPTypes
import HTTPWire
package import NIOCore
import NIOPosix
import OriginClient
package import TileCache

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Carries requests for tiles to their origins, on the event loop that asks.
package protocol TileOrigins: Sendable {
    /// Sends a request; to be called on the loop.
    ///
    /// - Parameter finish: Called once, on the loop, with the whole answer, unless the request is cancelled before.
    /// - Returns: The request, while it is under way; `nil` if it could not be sent, which has been told by then.
    func send(
        _ request: TileQuestion, on loop: any EventLoop,
        _ finish: @escaping (Result<TransportResponse, TransportError>) -> Void
    ) -> (any TileCall)?
}

/// A request for a tile that is under way; used on its loop alone.
package protocol TileCall: AnyObject {
    /// Whether a byte of an answer has come.
    var hasBegun: Bool { get }
    /// Gives it up; nothing is told.
    func cancel()
}

/// Carries requests for tiles to their origins, over `http` and `https`, by connections of each event loop.
final class OriginTransport: TileOrigins {
    /// The loops that have connections.
    let group: MultiThreadedEventLoopGroup
    private let loops: [ObjectIdentifier: NIOLoopBoundBox<UpstreamPools>]

    /// - Parameters:
    ///   - group: The loops to run on.
    ///   - connectionsPerHost: From each loop.
    ///   - idle: How long a connection is kept after a request.
    ///   - tls: For `https`; prepared before such a host is asked.
    ///   - permitsPeer: Which addresses a redirect may lead to.
    init(
        group: MultiThreadedEventLoopGroup, connectionsPerHost: Int, idle: TimeAmount = .seconds(30), tls: OriginTLS?,
        permitsPeer: @escaping @Sendable (SocketAddress) -> Bool = \.isPublic
    ) {
        self.group = group
        var limits = UpstreamLimits()
        limits.connect = .seconds(10)
        limits.connections = connectionsPerHost
        limits.idle = idle
        limits.headBytes = 64 << 10
        // The request's own time covers all of it.
        (limits.head, limits.bodyStall) = (.hours(24), .hours(24))
        let pools = group.makeIterator().map { loop in
            let pools = UpstreamPools(loop: loop, limits: limits, tls: tls, permitsPeer: permitsPeer)
            return (ObjectIdentifier(loop), NIOLoopBoundBox.makeBoxSendingValue(pools, eventLoop: loop))
        }
        loops = Dictionary(uniqueKeysWithValues: pools)
    }

    /// Takes over the hosts of a configuration: connections to others are bounded in number.
    func adopt(_ hosts: Set<Origin>) {
        for pools in loops.values { pools.eventLoop.execute { pools.value.adopt(hosts) } }
    }

    /// Closes what is idle.
    func shutdown() async {
        for pools in loops.values {
            // A loop that has ended has no connections any more.
            try? await pools.eventLoop.submit { pools.value.close() }.get()
        }
    }

    func send(
        _ request: TileQuestion, on loop: any EventLoop,
        _ finish: @escaping (Result<TransportResponse, TransportError>) -> Void
    ) -> (any TileCall)? {
        guard let pools = loops[ObjectIdentifier(loop)] else {
            finish(.failure(request.failure(.connection, "not asked from one of the proxy's event loops")))
            return nil
        }
        let exchange = OriginExchange(request, finish)
        exchange.start(pools.value, on: loop)
        return exchange.isOver ? nil : exchange
    }
}

/// A request for a tile as it goes out, after everything that cannot be sent was refused.
package struct TileQuestion: Sendable {
    let request: UpstreamRequest
    let isSecure: Bool
    let authority: String
    /// As messages may show it.
    let host: String
    /// Whether a redirect has led to this host; then it goes to public addresses only.
    let isRedirected: Bool
    let bodyLimit: Int
    let timeout: Duration
    /// Says of an answer's head whether its body is of any use; `nil` if every body is.
    let wantsBody: (@Sendable (HTTPResponse) -> Bool)?

    /// - Parameters:
    ///   - head: Method, scheme, authority, path and fields.
    ///   - bodyLimit: How many bytes of body are read at most.
    ///   - wantsBody: Says of an answer's head whether its body is of any use; if not, the head is the answer.
    ///   - timeout: How long the whole exchange may take.
    /// - Throws: What cannot be sent.
    init(
        _ head: HTTPRequest, bodyLimit: Int, timeout: Duration, isRedirected: Bool,
        wantsBody: (@Sendable (HTTPResponse) -> Bool)? = nil
    ) throws(TransportError) {
        self.wantsBody = wantsBody
        host = head.host
        func refuse(_ why: String) -> TransportError { TransportError(.unsupported, "\(head.host): not sent: \(why)") }
        switch head.scheme {
        case "http": isSecure = false
        case "https": isSecure = true
        default: throw refuse("only http and https can be asked")
        }
        guard let authority = head.authority, !authority.contains("@") else {
            throw refuse("the URL has no host, or a user name; give the source an Authorization header instead")
        }
        self.authority = authority
        let target = head.path ?? "/"
        if let objection = UpstreamRequest.objection(toTarget: target) { throw refuse(objection) }
        var fields = head.headerFields
        var host: String?
        for field in head.headerFields {
            let name = field.name.canonicalName
            if name == "host" { host = field.value }
            guard !UpstreamRequest.reserved.contains(name) else {
                throw refuse("the header field \(field.name) is for the connection to set")
            }
        }
        if let host {
            guard Array(host.utf8).withUnsafeBytes(RequestTarget.isAuthority) else {
                throw refuse("the header field Host is no host")
            }
            fields = fields.filter { $0.name.canonicalName != "host" }
        }
        request = UpstreamRequest(method: head.method.rawValue, target: target, fields: fields, host: host)
        self.isRedirected = isRedirected
        self.bodyLimit = max(0, bodyLimit)
        self.timeout = timeout
    }

    /// - Parameter isUnasked: Whether nothing has been sent, so that the host is not to blame.
    fileprivate func failure(
        _ code: TransportError.Code, _ words: String, cause: UpstreamFailure? = nil, isUnasked: Bool = false
    ) -> TransportError {
        var error = TransportError(code, "\(host): \(words)", cause: cause)
        error.isUnasked = isUnasked
        return error
    }
}

/// One request and its answer, put together in memory.
///
/// Belongs to its loop and is used on it alone.
private final class OriginExchange: UpstreamReceiver, TileCall {
    private let outgoing: TileQuestion
    private var finish: ((Result<TransportResponse, TransportError>) -> Void)?
    private var call: UpstreamCall?
    private var timer: Scheduled<Void>?
    private var head: HTTPResponse?
    private var body = Data()
    /// Whether the body is passed over, and how much of it has come.
    private var isHeadEnough = false
    private var passedOver = 0
    /// So much of a body that is of no use is read for the sake of the connection.
    private static let mostPassedOver = 64 << 10

    init(_ outgoing: TileQuestion, _ finish: @escaping (Result<TransportResponse, TransportError>) -> Void) {
        self.outgoing = outgoing
        self.finish = finish
    }

    func start(_ pools: UpstreamPools, on loop: any EventLoop) {
        let pool: UpstreamPool
        do throws(UpstreamPools.Refusal) {
            pool = try pools.pool(
                isSecure: outgoing.isSecure, authority: outgoing.authority, isChecked: outgoing.isRedirected)
        } catch {
            switch error {
            case .noHost: fail(.unsupported, "not sent: this is no host and port", isUnasked: true)
            case .tooManyHosts:
                fail(.connection, "not sent: too many hosts that redirects lead to are being asked", isUnasked: true)
            }
            return
        }
        // The timer is also what keeps this alive until it is over.
        let bound = NIOLoopBound(self, eventLoop: loop)
        timer = loop.scheduleTask(in: TimeAmount(outgoing.timeout)) {
            bound.value.fail(.timeout, "no complete answer in time")
        }
        call = pool.call(outgoing.request, receiver: self)
    }

    var isOver: Bool { finish == nil }

    var hasBegun: Bool { head != nil || call?.isAnswering ?? false }

    func cancel() {
        finish = nil
        fail(.cancelled, "cancelled")
    }

    private func fail(
        _ code: TransportError.Code, _ words: String, cause: UpstreamFailure? = nil, isUnasked: Bool = false
    ) {
        call?.cancel()
        end(.failure(outgoing.failure(code, words, cause: cause, isUnasked: isUnasked)))
    }

    private func end(_ result: Result<TransportResponse, TransportError>) {
        timer?.cancel()
        (timer, call) = (nil, nil)
        let waiting = finish
        finish = nil
        waiting?(result)
    }

    // MARK: The origin's answer

    func upstreamIsReady(_ call: UpstreamCall) {}

    func upstreamSent(interim: HTTPResponse) {}

    func upstreamSent(head: HTTPResponse, length: Int64?) {
        self.head = head
        isHeadEnough = outgoing.wantsBody.map { !$0(head) } ?? false
        guard !isHeadEnough else {
            if length ?? 0 > Self.mostPassedOver { endEarly(head) }
            return
        }
        guard let length, outgoing.request.method != "HEAD", !isBodiless(head.status.code) else { return }
        guard length <= Int64(outgoing.bodyLimit) else { return failTooLarge() }
        // A promise may be a lie: no more than a large tile is reserved on its word.
        body.reserveCapacity(min(Int(length), 1 << 20))
    }

    /// The answer is its head; the rest is not waited for.
    private func endEarly(_ head: HTTPResponse) {
        call?.cancel()
        end(.success(TransportResponse(head: head, body: Data())))
    }

    func upstreamSent(bytes: ByteBuffer) {
        if isHeadEnough {
            passedOver += bytes.readableBytes
            if passedOver > Self.mostPassedOver, let head { endEarly(head) }
            return
        }
        guard bytes.readableBytes <= outgoing.bodyLimit - body.count else { return failTooLarge() }
        bytes.withUnsafeReadableBytes { body.append(contentsOf: $0) }
    }

    private func failTooLarge() { fail(.bodyTooLarge, "the body is larger than \(outgoing.bodyLimit) B") }

    func upstreamEnded(trailers: HTTPFields?) {
        guard let head else { return fail(.malformed, "no head") }
        end(.success(TransportResponse(head: head, body: body)))
    }

    func upstreamFailed(_ failure: UpstreamFailure) {
        switch failure {
        case .unreachable(let why): fail(.connection, "no connection: \(why)", cause: failure)
        case .nameNotFound: fail(.nameNotFound, "the name is not known", cause: failure)
        case .untrusted(let why): fail(.tls, "no trusted encryption: \(why)", cause: failure)
        case .forbidden(let why): fail(.unsupported, "refused: \(why)", cause: failure, isUnasked: true)
        case .connectTimeout, .timeout: fail(.timeout, "no connection in time", cause: failure)
        case .closed where head != nil: fail(.truncated, "the body broke off", cause: failure)
        case .closed: fail(.connection, "closed without an answer", cause: failure)
        case .malformed(let why): fail(.malformed, "no HTTP: \(why)", cause: failure)
        case .headTooLarge(let why): fail(.headTooLarge, why, cause: failure)
        case .overloaded: fail(.connection, "too many requests wait already", cause: failure, isUnasked: true)
        case .clientTooSlow, .clientMayBeGone, .cancelled: fail(.cancelled, "cancelled", cause: failure)
        }
    }
}
