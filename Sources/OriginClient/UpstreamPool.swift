package import NIOCore
import NIOPosix

/// The connections of one event loop to one origin: kept open between requests, bounded in number.
///
/// Belongs to its loop and is used on it alone.
package final class UpstreamPool {
    private let origin: Origin
    private let limits: UpstreamLimits
    private let loop: any EventLoop
    private let tls: OriginTLS?
    private let permitsPeer: (@Sendable (SocketAddress) -> Bool)?
    private var idle: [UpstreamConnection] = []
    private var all: [ObjectIdentifier: UpstreamConnection] = [:]
    /// Those that wait for their own clients: no other request waits for them.
    private var held: [ObjectIdentifier: UpstreamConnection] = [:]
    /// Those whose clients have ended their side: they are given up where another request needs the place.
    private var unwanted: [ObjectIdentifier: UpstreamConnection] = [:]
    private var connecting = 0
    /// Calls that will be enqueued in a moment.
    private var announced = 0
    private var waiting: [UpstreamCall] = []
    private var sweeping: RepeatedTask?

    /// Makes a pool; no connection is opened yet.
    ///
    /// - Parameters:
    ///   - tls: Used for an `https` origin only. Without it such an origin counts as unreachable.
    ///   - permitsPeer: Which addresses may be connected to; `nil` for any. For a host that somebody else has named.
    package init(
        origin: Origin, limits: UpstreamLimits, loop: any EventLoop, tls: OriginTLS?,
        permitsPeer: (@Sendable (SocketAddress) -> Bool)? = nil
    ) {
        self.permitsPeer = permitsPeer
        self.origin = origin
        self.limits = limits
        self.loop = loop
        self.tls = tls
    }

    /// Sends a request; the receiver is told what comes of it, never before this returns.
    package func call(_ request: UpstreamRequest, receiver: any UpstreamReceiver) -> UpstreamCall {
        let call = UpstreamCall(request, receiver: receiver)
        let bound = NIOLoopBound((self, call), eventLoop: loop)
        announced += 1
        loop.execute {
            let (pool, call) = bound.value
            pool.announced -= 1
            pool.enqueue(call, fresh: false)
        }
        return call
    }

    /// Whether nobody uses its connections or waits for one.
    var isIdle: Bool { announced == 0 && waiting.isEmpty && connecting == 0 && idle.count == all.count }

    func enqueue(_ call: UpstreamCall, fresh: Bool) {
        guard !call.isOver else { return }
        if !fresh {
            while let connection = idle.popLast() {
                guard connection.isReusable else {
                    connection.close()
                    continue
                }
                connection.start(call)
                return
            }
        }
        if waiting.count >= limits.waiting, let place = waiting.firstIndex(where: { $0.mayBeUnwanted }) {
            waiting.remove(at: place).fail(.clientMayBeGone)
        }
        guard waiting.count < limits.waiting else {
            call.fail(.overloaded)
            return
        }
        waiting.append(call)
        openIfNeeded()
    }

    func openIfNeeded() {
        giveUpUnwanted()
        while connecting < waiting.count, all.count - held.count + connecting < limits.connections {
            let isFull = all.count + connecting >= limits.connections + limits.held
            guard isFull else {
                open()
                continue
            }
            guard giveUpSlowest() else { return }
        }
    }

    /// A connection has begun or ceased to wait for its own client.
    func holdingChanged(_ connection: UpstreamConnection) {
        let id = ObjectIdentifier(connection)
        guard connection.heldSince != nil, all[id] != nil else {
            held[id] = nil
            return
        }
        held[id] = connection
        openIfNeeded()
    }

    /// A connection's client has ended its side, or is known to be there.
    func unwantedChanged(_ connection: UpstreamConnection, _ mayBe: Bool) {
        let id = ObjectIdentifier(connection)
        unwanted[id] = mayBe && all[id] != nil ? connection : nil
    }

    /// Makes places for requests whose clients wait for sure, by giving up those that may have nobody.
    private func giveUpUnwanted() {
        while let (_, connection) = unwanted.first, all.count - held.count + connecting >= limits.connections,
            waiting.count(where: { !$0.mayBeUnwanted && !$0.isOver }) > connecting
        {
            remove(connection)
            connection.giveUpClient(.clientMayBeGone)
        }
    }

    /// Breaks off the response, or the upload, of the client that has moved the fewest bytes a second.
    ///
    /// - Returns: Whether there was one that had had its time.
    private func giveUpSlowest() -> Bool {
        let now = NIODeadline.now()
        let rates = held.values.compactMap { connection in
            connection.clientRate(at: now, after: limits.heldGrace).map { (connection, $0) }
        }
        guard let slowest = rates.min(by: { $0.1 < $1.1 })?.0 else { return false }
        remove(slowest)
        slowest.giveUpClient(.clientTooSlow)
        return true
    }

    private func open() {
        connecting += 1
        startSweeping()
        let (origin, limits) = (origin, limits)
        let tls = tls
        let bound = NIOLoopBound(self, eventLoop: loop)
        let made = ClientBootstrap(group: loop)
            .resolver(permitsPeer.map { PermittedResolver(loop: loop, permits: $0) })
            .connectTimeout(limits.connect)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            // An orderly end is then an event of its own, which a reset does not cause.
            .channelOption(.allowRemoteHalfClosure, value: true)
            // One read at a time, so that a pause takes effect after it.
            .channelOption(.maxMessagesPerRead, value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    // The scheme decides: plain origins beside secure ones must not get TLS.
                    if origin.isSecure {
                        guard let tls else { throw UpstreamFailure.untrusted("TLS is not set up") }
                        try pipeline.addHandler(tls.handler(for: origin))
                    }
                    try pipeline.addHandler(UpstreamConnection(origin: origin, limits: limits, pool: bound.value))
                }
            }
            .connect(host: origin.host, port: origin.port)
        let end = NIODeadline.now() + limits.connect
        made.hop(to: loop).whenComplete { result in bound.value.connected(result, until: end) }
    }

    private func connected(_ result: Result<any Channel, any Error>, until end: NIODeadline) {
        do {
            let connection = try result.get().pipeline.syncOperations.handler(type: UpstreamConnection.self)
            connection.whenEstablished(until: end) { result in self.opened(connection, result) }
        } catch {
            connecting -= 1
            failOne(error)
        }
    }

    private func opened(_ connection: UpstreamConnection, _ result: Result<Void, any Error>) {
        connecting -= 1
        switch result {
        case .success:
            all[ObjectIdentifier(connection)] = connection
            serveNext(on: connection)
        case .failure(let error): failOne(error)
        }
    }

    /// A connection could not be made: one of those who wait is told; the others try again.
    private func failOne(_ error: any Error) {
        if !waiting.isEmpty {
            waiting.removeFirst().fail(UpstreamFailure(connecting: error))
        }
        openIfNeeded()
    }

    /// A connection has no request any more.
    func release(_ connection: UpstreamConnection) {
        held[ObjectIdentifier(connection)] = nil
        unwanted[ObjectIdentifier(connection)] = nil
        // While it is idle, it reads, and is closed by whatever comes.
        guard waiting.isEmpty || connection.isReusable else {
            connection.close()
            return
        }
        serveNext(on: connection)
    }

    private func serveNext(on connection: UpstreamConnection) {
        while !waiting.isEmpty {
            // Those whose clients may be gone come last.
            let call = waiting.remove(at: waiting.firstIndex { !$0.mayBeUnwanted } ?? 0)
            guard !call.isOver else { continue }
            connection.start(call)
            return
        }
        connection.rest()
        idle.append(connection)
    }

    func forget(_ connection: UpstreamConnection) {
        remove(connection)
        openIfNeeded()
    }

    private func remove(_ connection: UpstreamConnection) {
        all[ObjectIdentifier(connection)] = nil
        held[ObjectIdentifier(connection)] = nil
        unwanted[ObjectIdentifier(connection)] = nil
        idle.removeAll { $0 === connection }
    }

    private func startSweeping() {
        guard sweeping == nil else { return }
        let bound = NIOLoopBound(self, eventLoop: loop)
        sweeping = loop.scheduleRepeatedTask(initialDelay: limits.sweep, delay: limits.sweep) { _ in
            bound.value.sweep(at: .now())
        }
    }

    /// Looks at every connection for what has taken too long.
    func sweep(at now: NIODeadline) {
        for connection in all.values { connection.check(at: now) }
        failLate(at: now)
        // A client that was not slow for long enough a moment ago may be so now.
        openIfNeeded()
        if all.isEmpty, connecting == 0, waiting.isEmpty {
            sweeping?.cancel()
            sweeping = nil
        }
    }

    /// Those who have waited for a connection for as long as an answer may take are told that there will be none: an
    /// origin that hangs must not make them wait for all who came before.
    private func failLate(at now: NIODeadline) {
        let late = waiting.filter { $0.madeAt + limits.head <= now }
        guard !late.isEmpty else { return }
        waiting.removeAll { $0.madeAt + limits.head <= now }
        for call in late { call.fail(.timeout) }
    }

    /// Bytes in the buffers of each connection.
    package var bufferedBytes: [Int] { all.values.map(\.bufferedBytes) }

    /// Closes what is idle, for a server that goes down.
    package func close() {
        for connection in idle { connection.close() }
        sweeping?.cancel()
        sweeping = nil
    }
}
