import CacheEngine
package import HTTPCaching
package import HTTPListener
import HTTPTypes
import HTTPWire
package import Logging
package import NIOCore
import NIOPosix
package import OriginClient
import TileStore

/// How the generic route caches.
package struct GenericSettings: Sendable {
    /// The rules: those of a shared cache, with no default lifetime; a `Last-Modified` gives one by RFC 9111 §4.2.2.
    package var policy = CachePolicy(kind: .shared, usesHeuristic: true)
    /// The largest body that is stored.
    package var storedBodyBytes = 64 << 20
    /// Bytes of large bodies that are on their way into the store, at most, over all requests: in memory and in `staging/`.
    ///
    /// They count until the body is stored, or will not be; what finds no room is passed on and not stored. Half of the 1 GiB
    /// that is to be left free beside the capacity: eight bodies of the largest size. Memory is bounded besides, at some
    /// 600 KiB for each connection to an origin.
    package var stagingBytes = 512 << 20
    /// The same for bodies of up to 120 KiB, which stay in memory: large ones cannot take their room.
    package var smallBodyBytes = 64 << 20
    /// Bytes of bodies that will not be stored and are still read by slow clients, at most, in `staging/` without names, and
    /// in memory; where there are more, the answer of the one that has been read for longest is broken off.
    package var unstoredBytes = 256 << 20
    /// What an origin is given.
    package var upstream = UpstreamLimits()
    /// For `https` origins.
    package var tls = OriginTLS()
    /// How long a request waits for another one's answer before it goes on alone.
    package var collapseWait = TimeAmount.seconds(10)
    /// How long a body may go on to arrive, to be stored, when nobody waits for it any more.
    package var unwantedBody = TimeAmount.seconds(30)
    /// Nanoseconds of a clock that never goes back, by which origins that fail are left alone.
    package var ticks: @Sendable () -> UInt64 = { NIODeadline.now().uptimeNanoseconds }
    /// Random bits, by which proxies that left an origin alone together do not come back together.
    package var random: @Sendable () -> UInt64 = { .random(in: 0...UInt64.max) }
    /// A name for this proxy in `Via`, by which it knows a forwarding loop: unlike any other proxy's.
    package var viaName = "tileproxy-" + String(UInt32.random(in: 0...UInt32.max), radix: 36)
    /// How clients reach the proxy, if the operator has said so; on any thread.
    package var publicURL: @Sendable () -> String? = { nil }
    /// Called for each answer that was served and could not be stored; on any thread.
    package var onNotStored: (@Sendable () -> Void)?
    /// For what an operator should know.
    package var logger = Logger(label: "tileproxy")
    /// Where failures are reported that repeat; `nil` for one of its own.
    var failures: RepeatedFailures?

    package init() {}
}

/// What the generic routes share over all event loops.
package final class GenericCache: Sendable {
    let routes: [ProxyRoute]
    let store: TileStore
    let settings: GenericSettings
    let worker: StoreWorker
    /// What is the generic route's own in the engine.
    let use: CacheUse
    let flights = Fills()
    let changes = Changes()
    let health: OriginHealth
    let budget: StagingBudget
    let smallBudget: StagingBudget
    let unstored: UnstoredBodies
    let failures: RepeatedFailures
    let underWay = Locked(0)

    /// Makes the cache of some routes over a store.
    ///
    /// - Parameter worker: The threads of the proxy; `nil` for some of its own.
    /// - Throws: If the certificate authorities, which an `https` origin needs, cannot be read.
    init(
        routes: [ProxyRoute], store: TileStore, settings: GenericSettings = GenericSettings(),
        worker: StoreWorker? = nil
    ) throws {
        // The longest prefix wins.
        self.routes = routes.sorted { $0.prefix.utf8.count > $1.prefix.utf8.count }
        self.store = store
        self.settings = settings
        use = CacheUse(policy: settings.policy, storedBodyBytes: settings.storedBodyBytes, name: "tileproxy")
        failures = settings.failures ?? RepeatedFailures(settings.logger)
        self.worker = worker ?? StoreWorker(store: store)
        health = OriginHealth(ticks: settings.ticks, random: settings.random)
        budget = StagingBudget(limit: settings.stagingBytes)
        smallBudget = StagingBudget(limit: settings.smallBodyBytes)
        unstored = UnstoredBodies(limit: settings.unstoredBytes)
        if routes.contains(where: \.origin.isSecure) { try settings.tls.prepare() }
    }

    /// What the store can tell at once.
    func lookNow(_ request: CacheRequest, _ keys: ResourceKeys) throws -> Lookup {
        try Lookup.find(request, keys) { try store.openNow($0, wholeUpTo: Candidate.wholeUpTo) }
    }

    /// What to do where a stored body's file fails while it is being sent.
    func bodyCannotBeRead(_ key: TileKey) -> (any Error) -> Void {
        { [failures] error in
            failures.report(.error, "a stored body cannot be read", ["key": "\(key)", "error": "\(error)"])
        }
    }

    /// Waits until what is being fetched has been fetched, so long at most.
    func quiesce(grace: TimeAmount) async throws {
        let end = NIODeadline.now() + grace
        while underWay.withLock({ $0 }) > 0, .now() < end { try await Task.sleep(nanoseconds: 5_000_000) }
    }
}

/// The responder of the generic routes on one event loop.
package final class GenericProxy: Responder {
    let cache: GenericCache
    let loop: any EventLoop
    let time: LoopTime
    private let via: Via
    private let viaName: [UInt8]
    private let ready: ReadyAnswers
    private(set) var pools: [Origin: UpstreamPool] = [:]
    /// The requests and fills that are under way.
    private var active: [ObjectIdentifier: AnyObject] = [:]

    package init(_ cache: GenericCache, loop: any EventLoop, time: LoopTime, ready: ReadyAnswers) {
        self.cache = cache
        self.loop = loop
        self.time = time
        via = Via(receivedBy: cache.settings.viaName)
        viaName = Array(cache.settings.viaName.utf8)
        self.ready = ready
    }

    // MARK: Hits

    package func answer(
        _ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer
    ) -> Answered? {
        ready.answer(request, answering, via: viaName, into: &buffer, key: key)
    }

    /// The key of a request's URL; `nil` if it has none, or is not answered from the cache.
    private func key(_ request: RequestHead) -> TileKey? {
        let path = request.path
        for route in cache.routes {
            guard let rest = route.rest(of: path) else { continue }
            // Such a target is refused.
            if route.origin.basePath.isEmpty, rest.hasPrefix("//") { return nil }
            return ResourceKeys(store: cache.store, name: route.name).primary(rest: rest, query: request.query)
        }
        return nil
    }

    /// Makes a hit ready for the next time.
    func prepare(_ candidate: Candidate, for head: RequestHead) { ready.keep(candidate, for: head, via: via) }

    // MARK: Everything else

    /// Whether a path is for one of the routes.
    package func serves(_ path: String) -> Bool { cache.routes.contains { $0.rest(of: path) != nil } }

    package func respond(_ exchange: Exchange) {
        let path = exchange.head.path
        if path == "*" || maxForwards(exchange.head) == 0 {
            exchange.reply(
                HTTPResponse(status: .noContent, headerFields: [.allow: "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE"])
            )
            return
        }
        for route in cache.routes {
            guard let rest = route.rest(of: path) else { continue }
            let keys = ResourceKeys(store: cache.store, name: route.name)
            let request = CacheRequest(exchange.head, rest: rest, route, keys)
            if Via.contains(receivedBy: cache.settings.viaName, in: request.fields) {
                exchange.reply(508, "This request has come by here before.")
                return
            }
            // Behind a prefix too: the origin would read what follows as a host (RFC 9112 §3.2.2).
            guard !request.target.hasPrefix("//") else {
                exchange.reply(400, "A path that begins with //.")
                return
            }
            let asking = GenericExchange(
                self, route, keys, request, UpstreamRequest.Body(exchange.head.body), exchange)
            began(asking)
            asking.start()
            return
        }
        exchange.reply(404, "There is nothing here.")
    }

    /// OPTIONS may say how far it wants to go (RFC 9110 §7.6.2).
    private func maxForwards(_ head: RequestHead) -> Int? {
        guard head.method == .options else { return nil }
        return head.fields.withValue(of: .maxForwards, \.decimal) ?? nil
    }

    /// A request or a fill is under way, and is kept until it is over.
    func began(_ part: AnyObject) {
        active[ObjectIdentifier(part)] = part
        cache.underWay.withLock { $0 += 1 }
    }

    func isOver(_ part: AnyObject) {
        guard active.removeValue(forKey: ObjectIdentifier(part)) != nil else { return }
        cache.underWay.withLock { $0 -= 1 }
    }

    /// Gives up what is being asked for, as the proxy goes down; what has come whole is stored.
    func giveUpFills() { for part in Array(active.values) { (part as? GenericFill)?.giveUp() } }

    func pool(for origin: Origin) -> UpstreamPool {
        if let pool = pools[origin] { return pool }
        let pool = UpstreamPool(origin: origin, limits: cache.settings.upstream, loop: loop, tls: cache.settings.tls)
        pools[origin] = pool
        return pool
    }

    var ownVia: Via { via }
}

extension CacheRequest {
    /// Reads a request below a route.
    fileprivate init(_ head: RequestHead, rest: String, _ route: ProxyRoute, _ keys: ResourceKeys) {
        self.init(
            method: HTTPRequest.Method(rawValue: head.methodText) ?? .get, fields: head.fields.all,
            target: route.target(rest: rest, query: head.query), key: keys.primary(rest: rest, query: head.query),
            hasBody: head.body != .none, takesTrailers: head.fields.has("trailers", in: .te))
        if method == .options, let left = head.fields.withValue(of: .maxForwards, \.decimal) ?? nil {
            fields[.maxForwards] = String(max(left, 1) - 1)
        }
    }
}

extension UpstreamRequest.Body {
    fileprivate init(_ body: RequestHead.Body) {
        switch body {
        case .none: self = .none
        case .length(let length): self = .length(length)
        case .chunked: self = .chunked
        }
    }
}
