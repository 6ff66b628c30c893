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
        /// The certificate to show where an address is secure.
        package var tls: ServerTLS?
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

    /// Why a server cannot listen at an address.
    package struct ListenFailure: Error {
        package let address: ListenAddress
        package let cause: any Error
    }

    /// Where it listens, in the order of the configuration.
    package let addresses: [SocketAddress]
    private let channels: [any Channel]
    private let loops: [NIOLoopBound<LoopConnections>]
    private let sweeps: [RepeatedTask]
    private let acceptErrors: AcceptErrors

    private init(
        channels: [any Channel], addresses: [SocketAddress], loops: [NIOLoopBound<LoopConnections>],
        sweeps: [RepeatedTask], acceptErrors: AcceptErrors
    ) {
        self.channels = channels
        self.addresses = addresses
        self.loops = loops
        self.sweeps = sweeps
        self.acceptErrors = acceptErrors
    }

    /// Starts a server on a group of event loops, with one responder for each of them.
    ///
    /// - Parameter makePlainResponder: Makes of a loop's responder the one for connections that are not encrypted; without
    ///   it they are the same.
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
        var addresses: [SocketAddress] = []
        for wanted in configuration.addresses {
            do {
                let bootstrap = try bootstrap(
                    configuration, isSecure: wanted.isSecure, group, parts, counter, acceptErrors)
                let channel = try await bootstrap.bind(host: wanted.host, port: wanted.port).get()
                channels.append(channel)
                guard let address = channel.localAddress else { throw ChannelError.operationUnsupported }
                addresses.append(address)
            } catch {
                for sweep in sweeps { sweep.cancel() }
                for channel in channels { try? await channel.close() }
                throw ListenFailure(address: wanted, cause: error)
            }
        }
        return HTTPServer(
            channels: channels, addresses: addresses, loops: loops, sweeps: sweeps, acceptErrors: acceptErrors)
    }

    private static func bootstrap(
        _ configuration: Configuration, isSecure: Bool, _ group: any EventLoopGroup,
        _ parts: [ObjectIdentifier: NIOLoopBound<Part>], _ counter: ConnectionCounter, _ acceptErrors: AcceptErrors
    ) throws -> ServerBootstrap {
        let limits = configuration.limits
        let logger = configuration.logger
        let tls = isSecure ? configuration.tls : nil
        if isSecure, tls == nil { throw TLSProblem(description: "there is no certificate") }
        let failures = HandshakeFailures(logger: logger, onFailure: configuration.onHandshakeFailure)
        return ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptPause(acceptErrors))
                }
            }
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
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
                    let pipeline = channel.pipeline.syncOperations
                    guard let tls else {
                        try pipeline.addHandler(HTTPConnection(loop: part.loop, responder: part.plain))
                        return
                    }
                    let edge = TLSEdge()
                    let handshake = TLSHandshake(loop: part.loop, edge: edge, failures: failures) { agreed in
                        if agreed == "h2" {
                            return HTTP2Connection.handlers(loop: part.loop, responder: part.responder, edge: edge)
                        }
                        return [HTTPConnection(loop: part.loop, responder: part.responder, tls: edge)]
                    }
                    try pipeline.addHandlers([edge, tls.handler(), handshake])
                }
            }
    }

    /// What the connections of one loop are made with.
    private struct Part {
        var loop: LoopConnections
        var responder: any Responder
        /// For connections that are not encrypted.
        var plain: any Responder
    }

    /// The port that it listens on first.
    package var port: Int { addresses.first?.port ?? 0 }

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
