import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import Logging
import NIOCore
import OriginClient
import TileStore

/// One request on its way through the cache: carries out what the decisions say.
///
/// Belongs to its event loop and is used on it alone. Without a client it is a refresh in the background.
final class ProxyExchange: @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    let proxy: GenericProxy
    let route: ProxyRoute
    let keys: ResourceKeys
    let request: ProxyRequest
    let exchange: Exchange?

    var forwarding: Forwarding?
    var call: UpstreamCall?
    var ticket: Flights.Ticket?
    var permit: Changes.Permit?
    private var askedAt = NIODeadline.uptimeNanoseconds(0)
    var intent: OriginDecision.StoreIntent?
    var status = HTTPResponse.Status.ok
    var collector: BodyCollector?
    /// Whether what the origin sends goes to the client.
    var passes = false
    /// Whether the origin has begun to answer.
    var hasHead = false
    /// Whether the origin's answer is only read to its end.
    var drops = false
    /// Bytes of the collected body that went to the client.
    var handedOn = 0
    /// Whether the client takes the body more slowly than it is collected, and is sent it from there.
    var isBehind = false
    /// What was collected of a body that turned out to be too large to be stored, until the client has it; and what came
    /// next.
    var backlog: (collected: BodyCollector, next: ByteBuffer)?
    private var rounds = 0
    /// Until when it waits for others, over all rounds.
    private var waitsUntil: NIODeadline?
    private var goesAlone = false
    private var hasWaitedForStore = false
    private(set) var hasWaited = false
    private var isOver = false
    /// Others wait for what becomes of its question to an origin that has failed.
    private var isProbe = false

    init(
        _ proxy: GenericProxy, _ route: ProxyRoute, _ keys: ResourceKeys, _ request: ProxyRequest, _ exchange: Exchange?
    ) {
        self.proxy = proxy
        self.route = route
        self.keys = keys
        self.request = request
        self.exchange = exchange
    }

    var cache: GenericCache { proxy.cache }
    var now: HTTPDate { proxy.time.now }
    var logger: Logger { cache.settings.logger }

    // MARK: Looking

    func start() {
        exchange?.whenGone = { [weak self] in self?.clientIsGone() }
        // A refresh in the background knows its question already.
        if exchange == nil, let forwarding {
            send(forwarding)
            return
        }
        guard request.isForCache else {
            act(.decide(request, .miss, at: now))
            return
        }
        look()
    }

    private func look() {
        do {
            let lookup = try Lookup.find(request, keys) { try cache.store.openNow($0, wholeUpTo: Candidate.wholeUpTo) }
            guard case .mustWait = lookup else {
                act(.decide(request, lookup, at: now))
                return
            }
        } catch {
            storeFailed(error)
            return
        }
        let (request, keys) = (request, keys)
        cache.worker.run(on: proxy.loop) { store in
            try Lookup.find(request, keys) { key in
                try store.open(key, wholeUpTo: Candidate.wholeUpTo).map { .tile($0) } ?? .miss
            }
        } then: { result in
            switch result {
            case .success(let lookup): self.act(.decide(request, lookup, at: self.now))
            case .failure(let error): self.storeFailed(error)
            }
        }
    }

    /// A store that cannot be read is no reason to leave a client without an answer.
    private func storeFailed(_ error: any Error) {
        cache.failures.report(.warning, "the store cannot be read", ["error": "\(error)"])
        act(.decide(request, .miss, at: now))
    }

    private func act(_ decision: CacheDecision) {
        if case .serve = decision {} else if waitsForStore() { return }
        switch decision {
        case .serve(let candidate, let age, let isStale, let refresh):
            serve(candidate, age: age, isStale: isStale)
            if refresh { refreshBehind(candidate) }
            end()
        case .gatewayTimeout:
            exchange?.cacheResult = .miss
            reply(504, "Nothing that fits is stored.", nil, detail: "only-if-cached")
            end()
        case .forward(let forwarding):
            if !serveWithout(forwarding) { forward(forwarding) }
        }
    }

    /// Answers from what is stored while an origin that has failed is left alone; `false` if it has to be asked.
    private func serveWithout(_ forwarding: Forwarding) -> Bool {
        guard let candidate = forwarding.candidate, exchange != nil, !isProbe else { return false }
        // Where stale is forbidden whatever happens, the origin is asked whatever has happened.
        let freshness = candidate.response.freshness
        guard freshness.mayServe(after: .unreachable, asking: request.asking, at: now) else { return false }
        switch cache.health.leave(for: route.origin, question) {
        case .ask: return false
        case .probe:
            isProbe = true
            return false
        case .wait(let failure):
            guard freshness.mayServe(after: failure, asking: request.asking, at: now) else { return false }
            exchange?.cacheResult = .stale
            var status = CacheStatus(cache: "tileproxy")
            status.hit = true
            status.timeToLive = freshness.expires.seconds(since: now)
            status.detail = failure == .unreachable ? "origin-unreachable" : "stale-if-error"
            send(candidate.response, candidate, age: freshness.age(at: now), status)
            end()
            return true
        }
    }

    /// Tells what became of the question, for those who could do without an answer.
    func judge(_ failure: OriginFailure?, isConnecting: Bool = false) {
        isProbe = false
        if let failure {
            cache.health.failed(route.origin, question, failure, isConnecting: isConnecting)
        } else {
            cache.health.answered(route.origin, question)
        }
    }

    /// What tells one question to the origin from another.
    private var question: Int { request.target.hashValue }

    /// Waits for what is just being stored for the request's URL, once: who has seen an answer's end must find it here.
    private func waitsForStore() -> Bool {
        guard let key = request.key, request.isForCache, exchange != nil, !hasWaitedForStore else { return false }
        hasWaitedForStore = true
        let loop = proxy.loop
        return cache.changes.waitForWriting(key) { loop.execute { self.look() } }
    }

    // MARK: Answers from the store

    private func serve(_ candidate: Candidate, age: Int, isStale: Bool) {
        guard let exchange else { return }
        exchange.cacheResult = isStale ? .stale : .hit
        var status = CacheStatus(cache: "tileproxy")
        status.timeToLive = candidate.response.freshness.expires.seconds(since: now)
        if hasWaited {
            status.forward = forwarding?.cause ?? .uriMiss
            status.collapsed = true
            exchange.cacheResult = .miss
        } else {
            status.hit = true
        }
        send(candidate.response, candidate, age: age, status)
        if !isStale, !hasWaited, exchange.head.isPlainRead { proxy.prepare(candidate, for: exchange.head) }
    }

    /// Sends a stored response as the client's conditions want it.
    func send(_ stored: StoredResponse, _ candidate: Candidate, age: Int, _ status: CacheStatus) {
        guard let exchange else { return }
        var reply = StoredReply(
            stored, to: request.method, request.conditions, length: Int64(candidate.length), age: age,
            boundary: String(UInt64.random(in: 0...UInt64.max), radix: 36) + "-tileproxy", now: now)
        proxy.ownVia.add(to: &reply.response.headerFields)
        status.add(to: &reply.response.headerFields)
        exchange.send(reply.response, length: reply.length)
        guard request.method != .head, !reply.parts.isEmpty else {
            exchange.finish()
            return
        }
        BodySender(
            exchange, candidate.body, reply.parts, suffix: reply.suffix, owner: candidate.owner,
            onFailure: bodyCannotBeRead(candidate.key)
        ).run()
    }

    /// What to do where a stored body's file fails while it is being sent.
    func bodyCannotBeRead(_ key: TileKey) -> (any Error) -> Void {
        { [failures = cache.failures] error in
            failures.report(.error, "a stored body cannot be read", ["key": "\(key)", "error": "\(error)"])
        }
    }

    /// Refreshes what was just served stale, if nobody is at it.
    private func refreshBehind(_ candidate: Candidate) {
        let leave = cache.health.leave(for: route.origin, question)
        if case .wait = leave { return }
        guard let key = request.key, let ticket = cache.flights.startAlone(flightKey(key), isOpen: true) else {
            if leave == .probe { cache.health.abandoned(route.origin, question) }
            return
        }
        let behind = ProxyExchange(proxy, route, keys, request.refreshing, nil)
        behind.ticket = ticket
        behind.goesAlone = true
        behind.isProbe = leave == .probe
        behind.forwarding = Forwarding(behind.request, candidate, .stale)
        proxy.run(behind)
    }

    /// Sends an error of the proxy's own.
    func reply(_ code: Int, _ words: String, _ cause: CacheStatus.Forward?, detail: String? = nil) {
        guard let exchange, exchange.isOpen else { return }
        guard !exchange.hasStarted else {
            exchange.abort()
            return
        }
        var status = CacheStatus(cache: "tileproxy")
        status.forward = cause
        status.detail = detail
        exchange.reply(code, words, fields: [.cacheStatus: status.description])
    }

    // MARK: Asking the origin

    private func forward(_ forwarding: Forwarding) {
        self.forwarding = forwarding
        guard let key = request.key, request.isForCache, request.method == .get, ticket == nil else {
            send(forwarding)
            return
        }
        let isWorthWaiting = cache.flights.isWorthWaiting(flightKey(key))
        let until = waitsUntil ?? .now() + cache.settings.collapseWait
        waitsUntil = until
        guard forwarding.mayCollapse, !goesAlone, isWorthWaiting, exchange != nil, .now() < until else {
            ticket = cache.flights.startAlone(flightKey(key), isOpen: false)
            send(forwarding)
            return
        }
        let loop = proxy.loop
        let once = WaitOnce(self)
        ticket = cache.flights.join(flightKey(key)) { landing in loop.execute { once.landed(landing) } }
        if ticket != nil {
            // Between the look and the ticket, the flight before this one may have landed.
            if let found = foundMeanwhile() {
                land(.stored)
                act(found)
            } else {
                send(forwarding)
            }
        } else {
            loop.scheduleTask(deadline: until) { once.landed(.useless) }
        }
    }

    /// An answer that is stored by now.
    private func foundMeanwhile() -> CacheDecision? {
        // What the store cannot tell at once, or at all, is for the origin.
        let lookup = try? Lookup.find(request, keys) { try cache.store.openNow($0, wholeUpTo: Candidate.wholeUpTo) }
        guard let lookup else { return nil }
        let decision = CacheDecision.decide(request, lookup, at: now)
        if case .serve = decision { return decision }
        return nil
    }

    /// Requests that want different variants do not wait for one another.
    func flightKey(_ key: TileKey) -> TileKey { forwarding?.candidate?.key ?? key }

    /// The request that this one waited for is over.
    fileprivate func landed(_ landing: Flights.Landing) {
        guard exchange?.isOpen ?? false else {
            end()
            return
        }
        switch landing {
        case .stored:
            rounds += 1
            hasWaited = true
            goesAlone = rounds > 1
            look()
        case .held(let answer):
            goesAlone = true
            guard answer.isFor(request) else {
                goAlone()
                return
            }
            hasWaited = true
            act(.decide(request, .found(answer.candidate), at: now))
        case .useless, .failed: goAlone()
        case .abandoned: look()
        }
    }

    /// Asks by itself, after waiting for somebody else's answer was in vain.
    ///
    /// It does not join again: what failed for one may fail for each, one after the other.
    private func goAlone() {
        goesAlone = true
        guard let forwarding, !serveWithout(forwarding) else { return }
        send(forwarding)
    }

    private func send(_ forwarding: Forwarding) {
        self.forwarding = forwarding
        if permit == nil, request.isForCache, let key = request.key {
            permit = cache.changes.takePermit(for: key)
        }
        askedAt = .now()
        var fields = ProxyRequest.forwarded(forwarding.fields, via: proxy.ownVia)
        if exchange?.head.fields.has("trailers", in: .te) ?? false {
            fields.append(HTTPField(name: .te, value: "trailers"))
            fields.append(HTTPField(name: .connection, value: "TE"))
        }
        let upstream = UpstreamRequest(
            method: request.method.rawValue, target: request.target, fields: fields, body: request.body)
        exchange?.cacheResult = forwarding.cause == .method || forwarding.cause == .bypass ? .bypass : .miss
        call = proxy.pool(for: route.origin).call(upstream, receiver: self)
        exchange?.whenClientHasEnded = { [weak self] in
            // An upload may have changed something already, and what is sent shows whether the client is there.
            guard let self, !hasHead, request.body == .none else { return }
            call?.mayBeUnwanted = true
        }
    }

    /// Asks again without conditions: the answer to the question made no sense.
    func askAgain() {
        guard let forwarding, forwarding.candidate != nil else { return }
        call?.cancel()
        var plain = request
        plain.dropConditions()
        send(Forwarding(plain, nil, forwarding.cause))
    }

    /// When the origin was asked, to the nearest second before now.
    ///
    /// The clock shows whole seconds: an answer that took milliseconds must not look a second old because the clock
    /// ticked meanwhile.
    var requestedAt: HTTPDate {
        let elapsed = NIODeadline.now() - askedAt
        return now.adding(seconds: -((elapsed.nanoseconds + 500_000_000) / 1_000_000_000))
    }

    // MARK: The end

    private func clientIsGone() {
        // What is being stored is worth having all the same; nothing else is.
        if collector != nil, !drops {
            (passes, isBehind) = (false, false)
            call?.resume()
            return
        }
        call?.cancel()
        land(.abandoned)
        end()
    }

    /// The origin gave no answer, or no whole one.
    func fail(_ failure: UpstreamFailure) {
        // Those who wait for the answer are there: one of them asks instead.
        land(failure == .clientMayBeGone ? .abandoned : .failed)
        collector = nil
        defer { end() }
        guard let exchange, exchange.isOpen else { return }
        guard !exchange.hasStarted else {
            exchange.abort()
            return
        }
        if let candidate = forwarding?.candidate,
            candidate.response.freshness.mayServe(after: .unreachable, asking: request.asking, at: now)
        {
            serveStale(candidate, because: nil)
            return
        }
        let mustRevalidate = forwarding?.candidate.map { $0.response.freshness.mustRevalidate } ?? false
        switch failure {
        case .connectTimeout, .timeout: reply(504, "The origin did not answer in time.", forwarding?.cause)
        case .clientTooSlow: reply(408, "The request came too slowly, and others needed its place.", forwarding?.cause)
        case .clientMayBeGone: reply(503, "The connection was ended, and others needed its place.", forwarding?.cause)
        case .overloaded: reply(503, "The origin has too much to do.", forwarding?.cause)
        case .unreachable, .forbidden, .closed, .malformed, .cancelled:
            reply(mustRevalidate ? 504 : 502, "The origin gave no answer.", forwarding?.cause)
        }
    }

    /// Tells the log that the origin gave no answer, or none that can be used.
    func report(_ failure: UpstreamFailure) {
        // A query may hold secrets.
        let path = request.target.prefix { $0 != "?" }
        let metadata: Logger.Metadata = ["upstream": "\(route.name)", "why": "\(failure)", "path": "\(path)"]
        cache.failures.report(.warning, "no answer from upstream", kind: route.name.description, metadata)
    }

    /// Answers from what is stored, because the origin cannot.
    func serveStale(_ candidate: Candidate, because status: Int?) {
        exchange?.cacheResult = .stale
        var cacheStatus = CacheStatus(cache: "tileproxy")
        cacheStatus.forward = forwarding?.cause
        cacheStatus.forwardStatus = status
        cacheStatus.timeToLive = candidate.response.freshness.expires.seconds(since: now)
        cacheStatus.detail = status == nil ? "origin-unreachable" : "stale-if-error"
        send(candidate.response, candidate, age: candidate.response.freshness.age(at: now), cacheStatus)
    }

    func land(_ landing: Flights.Landing) {
        if let ticket { cache.flights.land(ticket, landing) }
        ticket = nil
    }

    func end() {
        guard !isOver else { return }
        isOver = true
        if isProbe { cache.health.abandoned(route.origin, question) }
        land(.useless)
        if let permit { cache.changes.giveBack(permit) }
        permit = nil
        exchange?.whenGone = nil
        exchange?.whenClientHasEnded = nil
        proxy.isOver(self)
    }
}

/// Takes the first of two calls: the landing, or the end of patience.
private final class WaitOnce: @unchecked Sendable {
    // Touched on the exchange's loop alone.
    private var exchange: ProxyExchange?

    init(_ exchange: ProxyExchange) { self.exchange = exchange }

    func landed(_ landing: Flights.Landing) {
        let waiting = exchange
        exchange = nil
        waiting?.landed(landing)
    }
}
