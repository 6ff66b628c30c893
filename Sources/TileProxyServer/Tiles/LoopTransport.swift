import HTTPTypes
import HTTPWire
import NIOCore
import NIOPosix
import OriginClient
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Carries requests to `http` origins over the proxy's own connections, on the event loop that asks.
///
/// What else there is (`https`, where HTTP/2 may be had; targets that the proxy's own client would not send as they are;
/// more hosts than a configuration has) goes to another transport.
final class LoopTransport: TileTransport {
    private let other: any TileTransport
    private let otherForRedirects: any TileTransport
    private let group: MultiThreadedEventLoopGroup
    private let loops: [ObjectIdentifier: NIOLoopBoundBox<LoopPools>]

    /// More hosts than that are not the configuration's but redirections'.
    private static let mostHosts = 64

    /// - Parameters:
    ///   - group: The loops to run on.
    ///   - connectionsPerHost: From each loop.
    ///   - other: For what this one does not carry.
    ///   - otherForRedirects: The same for requests that a redirect led to another host; it must connect to public
    ///     addresses only.
    init(
        group: MultiThreadedEventLoopGroup, connectionsPerHost: Int, other: any TileTransport,
        otherForRedirects: any TileTransport
    ) {
        self.group = group
        self.other = other
        self.otherForRedirects = otherForRedirects
        var limits = UpstreamLimits()
        limits.connect = .seconds(10)
        limits.connections = connectionsPerHost
        limits.idle = .seconds(30)
        limits.headBytes = 64 << 10
        // The request's own time covers all of it.
        (limits.head, limits.bodyStall) = (.hours(24), .hours(24))
        loops = Dictionary(
            uniqueKeysWithValues: group.makeIterator().map { loop in
                (
                    ObjectIdentifier(loop),
                    .makeBoxSendingValue(LoopPools(loop: loop, limits: limits), eventLoop: loop)
                )
            })
    }

    /// Sends a request and waits for the whole answer.
    ///
    /// - Throws: ``TransportError``.
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        let loop = MultiThreadedEventLoopGroup.currentEventLoop ?? group.next()
        guard let outgoing = Self.request(request.head), let authority = request.head.authority,
            let pools = loops[ObjectIdentifier(loop)]
        else { return try await sendByOther(request) }
        let answer: TransportResponse?
        do {
            answer = try await exchange(outgoing, to: authority, request, pools)
        } catch {
            throw error as? TransportError ?? TransportError(.connection, "\(request.head.host): \(error)")
        }
        if let answer { return answer }
        return try await sendByOther(request)
    }

    private func sendByOther(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        guard request.redirect != nil else { return try await other.send(request) }
        // Before anything is sent, a handshake included; the transport looks again at the address that it got.
        do { try await PublicResolver.check(request.head.hostName) } catch {
            throw TransportError(.unsupported, "\(request.head.host): refused: \(error)", cause: error)
        }
        return try await otherForRedirects.send(request)
    }

    /// Closes what is idle.
    func shutdown() async {
        for pools in loops.values {
            // A loop that has ended has no connections any more.
            try? await pools.eventLoop.submit { pools.value.close() }.get()
        }
    }

    /// The request as the proxy's own client sends it; `nil` if it is not one for it.
    private static func request(_ head: HTTPRequest) -> UpstreamRequest? {
        guard head.scheme == "http", head.method == .get, let path = head.path else { return nil }
        let isPlain = Array(path.utf8).withUnsafeBytes { (try? RequestTarget($0, isOptions: false)) != nil }
        guard isPlain, path.utf8.first == UInt8(ascii: "/") else { return nil }
        for field in head.headerFields where ownNames.contains(field.name.canonicalName) { return nil }
        return UpstreamRequest(method: "GET", target: path, fields: head.headerFields)
    }

    /// Fields that are for the client to write.
    private static let ownNames: Set<String> = ["host", "content-length", "transfer-encoding", "connection", "expect"]

    /// - Returns: `nil` if there are too many hosts.
    private func exchange(
        _ outgoing: UpstreamRequest, to authority: String, _ request: TransportRequest,
        _ pools: NIOLoopBoundBox<LoopPools>
    ) async throws -> TransportResponse? {
        let ongoing = OngoingExchange(pools.eventLoop)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let start: @Sendable () -> Void = {
                    let pool = pools.value.pool(
                        for: authority, onlyPublic: request.redirect != nil, most: Self.mostHosts)
                    guard let pool else {
                        continuation.resume(returning: nil)
                        return
                    }
                    let exchange = TileExchange(
                        host: request.head.host, bodyLimit: max(0, request.bodyLimit), continuation: continuation)
                    exchange.start(outgoing, over: pool, timeout: TimeAmount(request.timeout), on: pools.eventLoop)
                    ongoing.began(exchange)
                }
                if pools.eventLoop.inEventLoop { start() } else { pools.eventLoop.execute(start) }
            }
        } onCancel: {
            ongoing.cancel()
        }
    }
}

extension HTTPRequest {
    /// The host without its port, and without the brackets of an IPv6 address.
    var hostName: String {
        var name = host[...]
        if name.hasPrefix("[") {
            name = name.dropFirst().prefix { $0 != "]" }
        } else if let colon = name.lastIndex(of: ":") {
            name = name[..<colon]
        }
        return name.lowercased()
    }
}
