package import HTTPCaching
package import Logging
import NIOConcurrencyHelpers
package import NIOCore
import NIOPosix

/// The HTTP/1.1 server: listens, takes requests to responders, and goes down without losing what is under way.
package final class HTTPServer: Sendable {
    /// How a server runs.
    package struct Configuration: Sendable {
        /// The address to listen on.
        package var host = "127.0.0.1"
        /// The port; 0 for any that is free.
        package var port = 8080
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
        /// For what an operator should know.
        package var logger = Logger(label: "tileproxy")

        package init() {}
    }

    /// Where it listens.
    package let address: SocketAddress
    private let channel: any Channel
    private let loops: [NIOLoopBound<LoopConnections>]
    private let sweeps: [RepeatedTask]
    private let group: any EventLoopGroup
    private let acceptErrors: AcceptErrors

    private init(
        channel: any Channel, address: SocketAddress, loops: [NIOLoopBound<LoopConnections>], sweeps: [RepeatedTask],
        group: any EventLoopGroup, acceptErrors: AcceptErrors
    ) {
        self.channel = channel
        self.address = address
        self.loops = loops
        self.sweeps = sweeps
        self.group = group
        self.acceptErrors = acceptErrors
    }

    /// Starts a server on a group of event loops, with one responder for each of them.
    ///
    /// - Throws: What the system says if it cannot listen there.
    package static func start(
        _ configuration: Configuration, on group: any EventLoopGroup,
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
                let part = Part(loop: shared, responder: makeResponder(loop, time))
                return (bound, NIOLoopBound(part, eventLoop: loop), sweep)
            }.get()
            loops.append(shared)
            sweeps.append(sweep)
            parts[ObjectIdentifier(loop)] = part
        }
        let limits = configuration.limits
        let counter = ConnectionCounter(limit: limits.connections)
        let logger = configuration.logger
        let byLoop = parts
        let acceptErrors = AcceptErrors(logger: logger, onFailure: configuration.onAcceptFailure)
        let bootstrap = ServerBootstrap(group: group)
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
                    guard let part = byLoop[ObjectIdentifier(channel.eventLoop)]?.value else {
                        throw ChannelError.operationUnsupported
                    }
                    try channel.pipeline.syncOperations.addHandler(
                        HTTPConnection(loop: part.loop, responder: part.responder))
                }
            }
        let channel = try await bootstrap.bind(host: configuration.host, port: configuration.port).get()
        guard let address = channel.localAddress else { throw ChannelError.operationUnsupported }
        return HTTPServer(
            channel: channel, address: address, loops: loops, sweeps: sweeps, group: group, acceptErrors: acceptErrors)
    }

    /// What the connections of one loop are made with.
    private struct Part {
        var loop: LoopConnections
        var responder: any Responder
    }

    /// The port that it listens on.
    package var port: Int { address.port ?? 0 }

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
        try? await channel.close()
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
