#if NIO
import AsyncHTTPClient
import HTTPTypes
public import NIOCore
import NIOHTTP1
import NIOHTTP2
import NIOPosix
import NIOSSL
public import TileCache
import TileStore

/// A transport over async-http-client: what servers, command-line tools and apps on Linux use.
///
/// Keeps every promise of ``TileTransport``: the limit on the body is exact and pushes back on the server, the deadline
/// covers the whole exchange, and bytes arrive as they were sent. HTTP/1.1 everywhere, HTTP/2 where an https server
/// offers it.
///
/// - A connection that could not be made fails its requests at once. Only one thing is tried twice: a request that went
///   out on a kept connection just when the server closed it, so that no answer came (RFC 9112 section 9.3.1).
/// - A body without a length or chunks is complete only if the server ended the connection in order: not after a reset,
///   nor over TLS without close_notify.
/// - A byte of a header value that is not UTF-8 arrives as U+FFFD.
/// - It starts no task of its own (`Scripts/bench-transport.sh` measures what a request costs),
///   and holds at most the body and a few reads.
/// - Call ``shutdown()`` to close its connections at a time of your choice; else they close when the last reference goes.
public final class AsyncHTTPClientTransport: TileTransport {
    /// What can be set.
    public struct Configuration: Sendable {
        /// How many HTTP/1.1 connections one host gets (16); further requests wait for one.
        ///
        /// A cache sends no more requests to a host at once than that, whatever its own configuration says.
        public var connectionsPerHost = 16
        /// How long making a connection may take (10 s), name lookup and encryption included.
        public var connectTimeout: Duration = .seconds(10)
        /// How long a connection is kept that nobody uses (30 s).
        public var idleTimeout: Duration = .seconds(30)
        /// How large the header fields of an answer may be (64 KiB): bytes of names and values, with 4 a field.
        ///
        /// HTTP/1.1 stops reading at 256 fields, 80 KiB in one field or 2 MiB in all, whatever is set here.
        public var headLimit = 64 << 10
        /// A PEM file of certificate authorities to trust besides the system's.
        public var certificateAuthorities: String?
        /// Whether the certificate of an https server is checked.
        public var verifiesCertificates = true
        /// Whether HTTP/2 is used with an https server that offers it.
        public var usesHTTP2 = true

        /// The defaults.
        public init() {}
    }

    /// How many requests to one host it carries at once: ``Configuration/connectionsPerHost``.
    public let requestsPerHost: Int?
    private let client: HTTPClient
    private let headLimit: Int
    private let connectionsMade: Locked<Int>

    /// Makes a transport; it connects to nothing yet.
    ///
    /// - Parameters:
    ///   - configuration: What differs from the defaults.
    ///   - eventLoopGroup: Where its connections live; NIO's shared threads if not given. It has to outlive the transport.
    public init(
        configuration: Configuration = Configuration(), eventLoopGroup: (any EventLoopGroup)? = nil
    ) {
        var settings = HTTPClient.Configuration(
            redirectConfiguration: .disallow,
            timeout: .init(connect: TimeAmount(configuration.connectTimeout)),
            connectionPool: .init(
                idleTimeout: TimeAmount(configuration.idleTimeout),
                concurrentHTTP1ConnectionsPerHostSoftLimit: max(1, configuration.connectionsPerHost)),
            decompression: .disabled)
        // Else a refused connection is tried again and again until `connectTimeout`: an app that is offline would wait.
        settings.connectionPool.retryConnectionEstablishment = false
        settings.httpVersion = configuration.usesHTTP2 ? .automatic : .http1Only
        var tls = TLSConfiguration.makeClientConfiguration()
        if let file = configuration.certificateAuthorities { tls.additionalTrustRoots = [.file(file)] }
        if !configuration.verifiesCertificates { tls.certificateVerification = .none }
        settings.tlsConfiguration = tls
        let connectionsMade = Locked(0)
        self.connectionsMade = connectionsMade
        let count: @Sendable (any Channel) -> EventLoopFuture<Void> = { channel in
            connectionsMade.withLock { $0 += 1 }
            return channel.eventLoop.makeSucceededVoidFuture()
        }
        settings.http1_1ConnectionDebugInitializer = { channel in
            count(channel).flatMap {
                StatusCheck.add(to: channel) { try $0.handler(type: ByteToMessageHandler<HTTPResponseDecoder>.self) }
            }
        }
        settings.http2ConnectionDebugInitializer = count
        settings.http2StreamChannelDebugInitializer = { channel in
            StatusCheck.add(to: channel) { try $0.handler(type: HTTP2FramePayloadToHTTP1ClientCodec.self) }
        }
        // NIO's own sockets on every platform, so that errors and trust are the same everywhere.
        client = HTTPClient(
            eventLoopGroupProvider: .shared(eventLoopGroup ?? MultiThreadedEventLoopGroup.singleton),
            configuration: settings)
        headLimit = configuration.headLimit
        requestsPerHost = max(1, configuration.connectionsPerHost)
    }

    // The client insists on being shut down; it keeps itself alive until that is done.
    deinit { client.shutdown { _ in } }

    /// Closes all connections; requests in flight end as ``TransportError/Code/cancelled``, and so do later ones.
    public func shutdown() async {
        // The only error is that it was shut down before.
        try? await client.shutdown()
    }

    /// Sends a request and waits for the whole answer.
    ///
    /// - Throws: ``TransportError``.
    public func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        let deadline = NIODeadline.now() + TimeAmount(request.timeout)
        let made = connectionsMade.withLock { $0 }
        do {
            return try await exchange(request, until: deadline)
        } catch {
            // No connection was made since: so the request went out on a kept one, and that was closed under its feet.
            guard error.isClosedBeforeAnswer, request.head.method == .get || request.head.method == .head,
                connectionsMade.withLock({ $0 }) == made
            else { throw error }
            return try await exchange(request, until: deadline)
        }
    }

    private func exchange(
        _ request: TransportRequest, until deadline: NIODeadline
    ) async throws(TransportError) -> TransportResponse {
        let collector = AnswerCollector(request: request, headLimit: headLimit)
        do {
            // Else it would be on its way, and perhaps answered, before it is cancelled.
            if Task.isCancelled { throw HTTPClientError.cancelled }
            // Not the client's `async` interface: that one's deadline ends with the head, and it costs two tasks more.
            let task = client.execute(
                request: try HTTPClient.Request(request.head), delegate: collector, deadline: deadline)
            return try await withTaskCancellationHandler {
                try await task.futureResult.get()
            } onCancel: {
                task.cancel()
            }
        } catch {
            throw TransportError(error, host: request.head.host, headArrived: collector.headArrived)
        }
    }
}

extension HTTPClient.Request {
    fileprivate init(_ head: HTTPRequest) throws {
        let host = head.host
        guard let scheme = head.scheme?.lowercased(), scheme == "http" || scheme == "https", !host.isEmpty else {
            throw TransportError(.unsupported, "\(host): only http and https can be asked")
        }
        // The client below traps on one that is no number of 16 bits, and a redirect can name any.
        let port = host.hasSuffix("]") ? nil : host.lastIndex(of: ":").map { host[host.index(after: $0)...] }
        guard port.map({ $0.isEmpty || (UInt16($0) ?? 0) > 0 }) ?? true else {
            throw TransportError(.unsupported, "\(host): its port is not one from 1 to 65535")
        }
        var headers = HTTPHeaders()
        headers.reserveCapacity(head.headerFields.count + 1)
        for field in head.headerFields { headers.add(name: field.name.rawName, value: field.value) }
        try self.init(
            url: "\(scheme)://\(host)\(head.path ?? "/")", method: HTTPMethod(rawValue: head.method.rawValue),
            headers: headers)
    }
}

extension TimeAmount {
    /// The same time in nanoseconds, within what NIO's clock can add up.
    fileprivate init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        guard seconds >= 0 else { self = .zero; return }
        self = .seconds(min(seconds, 1 << 31)) + .nanoseconds(attoseconds / 1_000_000_000)
    }
}
#endif
