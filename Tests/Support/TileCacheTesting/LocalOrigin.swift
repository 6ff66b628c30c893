package import HTTPTypes
import NIOCore
import NIOHTTP1
package import NIOPosix
import NIOSSL
import TileStore

/// An HTTP/1.1 server on 127.0.0.1 that does what a test, an example or a benchmark tells it to.
///
/// It answers each request with what a closure returns: a well-formed answer, held back by a ``Gate`` if need be, or any
/// bytes and accidents (``RawStep``). It remembers what it was asked. It can be stopped, which is what offline looks like
/// to a client, and come back on the same port.
package final class LocalOrigin: Sendable {
    /// Says what to answer; runs on an event loop, so it must not wait for anything.
    package typealias Answer = @Sendable (OriginRequest) -> LocalAnswer

    private let group: MultiThreadedEventLoopGroup
    private let shared: OriginShared
    private let listener = Locked<(any Channel)?>(nil)
    /// Keeps the port while it is stopped.
    private let held = Locked<HeldPort?>(nil)
    /// The port it listens on, also while it is stopped.
    package let port: Int
    private let isSecure: Bool

    /// Starts an origin on a free port.
    ///
    /// - Parameters:
    ///   - port: The port; 0 for one that is free.
    ///   - certificate: If given, it speaks TLS and shows this certificate.
    ///   - answersHeads: Whether it answers as soon as a request's head is there, and not only after its body.
    ///   - remembers: Whether requests are recorded one by one; else only how many there were at once.
    ///   - group: The threads that it runs on.
    package static func start(
        port: Int = 0, certificate: TestCertificate? = nil, answersHeads: Bool = false, remembers: Bool = true,
        on group: MultiThreadedEventLoopGroup = .singleton, answer: @escaping Answer
    ) async throws -> LocalOrigin {
        let shared = OriginShared(
            answer: answer, answersHeads: answersHeads, remembers: remembers, tls: try certificate?.serverContext())
        let channel = try await shared.listen(on: port, group: group)
        return LocalOrigin(
            group: group, shared: shared, channel: channel, port: channel.localAddress?.port ?? port,
            isSecure: certificate != nil)
    }

    private init(
        group: MultiThreadedEventLoopGroup, shared: OriginShared, channel: any Channel, port: Int, isSecure: Bool
    ) {
        self.group = group
        self.shared = shared
        self.port = port
        self.isSecure = isSecure
        listener.withLock { $0 = channel }
    }

    deinit {
        listener.withLock { $0 }?.close(promise: nil)
        for channel in shared.goOffline() { channel.close(promise: nil) }
    }

    /// Host and port.
    package var authority: String { "127.0.0.1:\(port)" }
    /// Scheme, host and port, without a slash at the end.
    package var url: String { "\(isSecure ? "https" : "http")://\(authority)" }
    /// A GET request for a path of this origin.
    package func request(_ path: String, _ fields: HTTPFields = [:]) -> HTTPRequest {
        HTTPRequest(
            method: .get, scheme: isSecure ? "https" : "http", authority: authority, path: path, headerFields: fields)
    }

    /// Closes the port and every connection; from then on connections are refused.
    package func stop() async throws {
        let channel = listener.withLock { channel -> (any Channel)? in
            defer { channel = nil }
            return channel
        }
        try await channel?.close()
        if channel != nil { await hold() }
        for channel in shared.goOffline() {
            channel.close(promise: nil)
            try await channel.closeFuture.get()
        }
    }

    /// Keeps the port, if it can be had soon.
    ///
    /// A process that is just being started may still have the listener open; until it has, connections are not refused.
    private func hold() async {
        for _ in 0..<10_000 {
            if let port = try? HeldPort(port) { return held.withLock { $0 = port } }
            await Task.yield()
        }
    }

    /// Listens again, on the same port.
    package func restart() async throws {
        held.withLock { $0 = nil }
        let channel = try await shared.listen(on: port, group: group)
        listener.withLock { $0 = channel }
    }

    // MARK: What it has seen

    /// All requests so far, in the order in which they came.
    package var requests: [OriginRequest] { shared.log.withLock { $0.requests } }
    /// How often each path (with its query) was asked for.
    package var counts: [String: Int] { shared.log.withLock { $0.counts } }
    /// The largest number of requests that were without a complete answer at one time.
    package var maxConcurrent: Int { shared.log.withLock { $0.maxConcurrent } }
    /// How many connections are open.
    package var connections: Int { shared.log.withLock { $0.connections } }
    /// How many connections were made.
    package var connectionsMade: Int { shared.log.withLock { $0.connectionsMade } }
    /// How many bytes the system has taken from raw answers.
    package var bytesSent: Int { shared.log.withLock { $0.bytesSent } }
    /// How many bytes of requests' bodies have come.
    package var bytesReceived: Int { shared.log.withLock { $0.bytesReceived } }
    /// Forgets what it has seen.
    package func forget() { shared.log.withLock { $0.forget() } }

    /// Waits until so many requests have come.
    package func arrivals(_ count: Int) async { await until { $0.requests.count >= count } }
    /// Waits until no connection is open.
    package func connectionsClosed() async { await until { $0.connections == 0 } }

    private func until(_ isDone: @escaping @Sendable (OriginLog) -> Bool) async {
        await withCheckedContinuation { continuation in
            shared.log.withLock { $0.wait(continuation, until: isDone) }
        }
    }
}

/// What an origin's connections share.
final class OriginShared: Sendable {
    let answer: LocalOrigin.Answer
    let answersHeads: Bool
    let remembers: Bool
    let tls: NIOSSLContext?
    let log = Locked(OriginLog())
    private let open = Locked<[ObjectIdentifier: any Channel]?>(nil)

    init(answer: @escaping LocalOrigin.Answer, answersHeads: Bool, remembers: Bool, tls: NIOSSLContext?) {
        self.answer = answer
        self.answersHeads = answersHeads
        self.remembers = remembers
        self.tls = tls
    }

    func listen(on port: Int, group: MultiThreadedEventLoopGroup) async throws -> any Channel {
        open.withLock { $0 = [:] }
        return try await ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelOption(.backlog, value: 1024)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls = self.tls { try pipeline.addHandler(NIOSSLServerHandler(context: tls)) }
                    try pipeline.addHandler(ByteToMessageHandler(HTTPRequestDecoder()))
                    try pipeline.addHandler(OriginConnection(shared: self))
                }
            }
            .bind(host: "127.0.0.1", port: port).get()
    }

    /// Whether a new connection may stay.
    func opened(_ channel: any Channel) -> Bool {
        open.withLock { open in
            guard open != nil else { return false }
            open?[ObjectIdentifier(channel)] = channel
            return true
        }
    }

    func closed(_ channel: any Channel) {
        open.withLock { $0?[ObjectIdentifier(channel)] = nil }
    }

    /// Takes no connection any more and gives back those that are open.
    func goOffline() -> [any Channel] {
        open.withLock { open in
            defer { open = nil }
            return (open ?? [:]).map(\.value)
        }
    }
}
