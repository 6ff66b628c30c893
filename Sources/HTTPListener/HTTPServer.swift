package import HTTPCaching
package import Logging
import NIOConcurrencyHelpers
package import NIOCore
import NIOPosix

/// The HTTP server: listens, takes requests to responders, and goes down without losing what is under way.
package final class HTTPServer: Sendable {
    /// How a server runs.
    package struct Configuration: Sendable {
        /// Where to listen.
        package var addresses = [ListenAddress(port: 8080)]
        /// The rights of the files of Unix sockets.
        package var socketMode = ListeningSocket.defaultMode
        /// The certificate to show where an address is secure.
        package var tls: ServerTLS?
        /// Which connections begin with a PROXY header.
        package var proxyHeaders = ProxyHeaders()
        /// What clients may take.
        package var limits = ServerLimits()
        /// Names, with ports, under which this server answers a request whose target is a whole URL.
        package var hostNames: Set<String> = []
        /// The time of day.
        package var clock = LoopTime.system
        /// Is told of every request.
        package var observer: (any ExchangeObserver)?
        /// Called each time a connection could not be accepted; on any event loop.
        package var onAcceptFailure: (@Sendable () -> Void)?
        /// Called each time a client and the server could not agree on encryption; on any event loop.
        package var onHandshakeFailure: (@Sendable () -> Void)?
        /// For what an operator should know.
        package var logger = Logger(label: "tileproxy")

        package init() {}
    }

    /// Servers in front that say, by the PROXY protocol, for whom they connect.
    package struct ProxyHeaders: Sendable {
        /// Where each connection has to begin with a header.
        package var addresses: Set<ListenAddress> = []
        /// Whether a peer's word is taken; any other peer is closed there.
        package var isTrusted: @Sendable (SocketAddress) -> Bool = { _ in false }

        package init() {}
    }

    /// Why a server cannot listen at an address.
    package struct ListenFailure: Error {
        package let address: ListenAddress
        package let cause: any Error
    }

    /// Where it listens, in the order of the configuration.
    package let addresses: [SocketAddress]
    private let channels: [any Channel]
    private let sockets: [ListeningSocket]
    private let logger: Logger
    private let loops: [NIOLoopBound<LoopConnections>]
    private let sweeps: [RepeatedTask]
    private let acceptErrors: AcceptErrors

    private init(
        channels: [any Channel], sockets: [ListeningSocket], addresses: [SocketAddress],
        loops: [NIOLoopBound<LoopConnections>], sweeps: [RepeatedTask], acceptErrors: AcceptErrors, logger: Logger
    ) {
        self.channels = channels
        self.sockets = sockets
        self.logger = logger
        self.addresses = addresses
        self.loops = loops
        self.sweeps = sweeps
        self.acceptErrors = acceptErrors
    }

    /// Starts a server on a group of event loops, with one responder for each of them.
    ///
    /// - Parameter makePlainResponder: Makes of a loop's responder the one for connections to a port that are not encrypted;
    ///   without it they are the same. What comes by a Unix socket comes from a server in front, and has the loop's own.
    /// - Throws: ``ListenFailure``.
    package static func start(
        _ configuration: Configuration, on group: any EventLoopGroup,
        makePlainResponder: (@Sendable (any Responder) -> any Responder)? = nil,
        makeResponder: @escaping @Sendable (any EventLoop, LoopTime) -> any Responder
    ) async throws -> HTTPServer {
        var loops: [NIOLoopBound<LoopConnections>] = []
        var sweeps: [RepeatedTask] = []
        var parts: [ObjectIdentifier: NIOLoopBound<Part>] = [:]
        for loop in group.makeIterator() {
            let (shared, part, sweep) = try await loop.submit {
                let time = LoopTime(clock: configuration.clock)
                let shared = LoopConnections(
                    limits: configuration.limits, time: time, hostNames: configuration.hostNames,
                    observer: configuration.observer)
                let bound = NIOLoopBound(shared, eventLoop: loop)
                let pause = configuration.limits.sweep
                let sweep = loop.scheduleRepeatedTask(initialDelay: pause, delay: pause) { _ in
                    bound.value.sweep(at: .now())
                }
                let responder = makeResponder(loop, time)
                let part = Part(
                    loop: shared, responder: responder, plain: makePlainResponder?(responder) ?? responder)
                return (bound, NIOLoopBound(part, eventLoop: loop), sweep)
            }.get()
            loops.append(shared)
            sweeps.append(sweep)
            parts[ObjectIdentifier(loop)] = part
        }
        let acceptErrors = AcceptErrors(logger: configuration.logger, onFailure: configuration.onAcceptFailure)
        let counter = ConnectionCounter(limit: configuration.limits.connections)
        var channels: [any Channel] = []
        var sockets: [ListeningSocket] = []
        var addresses: [SocketAddress] = []
        for wanted in configuration.addresses {
            do {
                let bootstrap = try bootstrap(configuration, wanted, group, parts, counter, acceptErrors)
                let channel: any Channel
                switch wanted.place {
                case .port(let host, let port): channel = try await bootstrap.bind(host: host, port: port).get()
                case .socket(let path):
                    let (socket, descriptor) = try await listen(at: path, mode: configuration.socketMode)
                    sockets.append(socket)
                    channel = try await bootstrap.withBoundSocket(descriptor).get()
                    // NIO has listened again, with a backlog of its own.
                    try await channel.eventLoop.submit { [channel] in
                        if channel.isActive { ListeningSocket.listen(on: descriptor, backlog: backlog) }
                    }.get()
                }
                channels.append(channel)
                guard let address = channel.localAddress else { throw ChannelError.operationUnsupported }
                addresses.append(address)
            } catch {
                for sweep in sweeps { sweep.cancel() }
                await remove(sockets, configuration.logger)
                for channel in channels { try? await channel.close() }
                throw ListenFailure(address: wanted, cause: error)
            }
        }
        return HTTPServer(
            channels: channels, sockets: sockets, addresses: addresses, loops: loops, sweeps: sweeps,
            acceptErrors: acceptErrors, logger: configuration.logger)
    }

    /// How many connections may wait to be accepted.
    private static let backlog: Int32 = 1024

    private static func listen(
        at path: String, mode: Int
    ) async throws -> (socket: ListeningSocket, descriptor: Int32) {
        try await NIOThreadPool.singleton.runIfActive {
            try ListeningSocket.listen(at: path, mode: mode, backlog: backlog)
        }
    }

    /// Removes the files of Unix sockets; what cannot be removed is told to the operator.
    private static func remove(_ sockets: [ListeningSocket], _ logger: Logger) async {
        for socket in sockets {
            do { try await NIOThreadPool.singleton.runIfActive { try socket.remove() } } catch {
                logger.warning("a socket's file stays", metadata: ["reason": "\(error)"])
            }
        }
    }

    private static func bootstrap(
        _ configuration: Configuration, _ address: ListenAddress, _ group: any EventLoopGroup,
        _ parts: [ObjectIdentifier: NIOLoopBound<Part>], _ counter: ConnectionCounter, _ acceptErrors: AcceptErrors
    ) throws -> ServerBootstrap {
        let limits = configuration.limits
        let logger = configuration.logger
        let tls = address.isSecure ? configuration.tls : nil
        if address.isSecure, tls == nil { throw TLSProblem(description: "there is no certificate") }
        let failures = HandshakeFailures(logger: logger, onFailure: configuration.onHandshakeFailure)
        let isSocket = address.socketPath != nil
        let proxyHeaders = configuration.proxyHeaders
        let hasProxyHeader = proxyHeaders.addresses.contains(address)
        var bootstrap = ServerBootstrap(group: group)
        if !isSocket {
            bootstrap =
                bootstrap
                .serverChannelOption(.backlog, value: backlog)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
        }
        return
            bootstrap
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptPause(acceptErrors))
                }
            }
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.maxMessagesPerRead, value: 1)
            .childChannelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 1024, initial: 2048, maximum: limits.readBytes)
            )
            .childChannelOption(
                .writeBufferWaterMark,
                value: .init(low: limits.waitingBytes / 2, high: limits.waitingBytes)
            )
            .childChannelInitializer { channel in
                guard counter.enter() else {
                    logger.debug("refused a connection: the limit is reached")
                    return channel.close()
                }
                channel.closeFuture.whenComplete { _ in counter.leave() }
                return channel.eventLoop.makeCompletedFuture {
                    guard let part = parts[ObjectIdentifier(channel.eventLoop)]?.value else {
                        throw ChannelError.operationUnsupported
                    }
                    let speak: (SocketAddress?) -> [any ChannelHandler] = { client in
                        guard let tls else {
                            let responder = isSocket ? part.responder : part.plain
                            return [HTTPConnection(loop: part.loop, responder: responder, client: client)]
                        }
                        return secure(part, tls, failures, client)
                    }
                    let pipeline = channel.pipeline.syncOperations
                    guard hasProxyHeader else {
                        try pipeline.addHandlers(speak(nil))
                        return
                    }
                    try pipeline.addHandler(
                        ProxyHeaderReader(
                            loop: part.loop, isTrusted: proxyHeaders.isTrusted, logger: logger, makeNext: speak))
                }
            }
    }

    /// What speaks on an encrypted connection.
    private static func secure(
        _ part: Part, _ tls: ServerTLS, _ failures: HandshakeFailures, _ client: SocketAddress?
    ) -> [any ChannelHandler] {
        let edge = TLSEdge()
        let handshake = TLSHandshake(loop: part.loop, edge: edge, failures: failures, client: client) { agreed in
            if agreed == "h2" {
                return HTTP2Connection.handlers(
                    loop: part.loop, responder: part.responder, edge: edge, client: client)
            }
            return [HTTPConnection(loop: part.loop, responder: part.responder, tls: edge, client: client)]
        }
        return [edge, tls.handler(), handshake]
    }

    /// What the connections of one loop are made with.
    private struct Part {
        var loop: LoopConnections
        var responder: any Responder
        /// For connections to a port that are not encrypted.
        var plain: any Responder
    }

    /// The port that it listens on first.
    package var port: Int { addresses.lazy.compactMap(\.port).first ?? 0 }

    /// How often a connection could not be accepted.
    package var acceptFailures: Int { acceptErrors.count }

    /// How many clients are connected.
    package func connectionCount() async throws -> Int {
        var count = 0
        for loop in loops { count += try await loop.eventLoop.submit { loop.value.count }.get() }
        return count
    }

    /// What is buffered for each client.
    package func buffered() async throws -> [BufferedBytes] {
        var all: [BufferedBytes] = []
        for loop in loops { all += try await loop.eventLoop.submit { loop.value.buffered }.get() }
        return all
    }

    /// Stops listening, lets requests that are under way end, then closes; after the grace, closes what is left.
    package func shutdown(grace: TimeAmount = .seconds(30)) async throws {
        // Before anything else: clients that come later must not find a socket on which nobody listens.
        await Self.remove(sockets, logger)
        // One that is closed already stays so.
        for channel in channels { try? await channel.close() }
        let drained = loops.map { loop in
            loop.eventLoop.flatSubmit { loop.value.drain(on: loop.eventLoop) }
        }
        let kills = loops.map { loop in loop.eventLoop.scheduleTask(in: grace) { loop.value.killAll() } }
        for future in drained { try await future.get() }
        for kill in kills { kill.cancel() }
        for sweep in sweeps { sweep.cancel() }
    }
}

/// Counts connections over all loops.
private final class ConnectionCounter: Sendable {
    private let limit: Int
    private let count = NIOLockedValueBox(0)

    init(limit: Int) { self.limit = limit }

    func enter() -> Bool {
        count.withLockedValue { count in
            guard count < limit else { return false }
            count += 1
            return true
        }
    }

    func leave() { count.withLockedValue { $0 -= 1 } }
}
