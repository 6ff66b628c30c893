import CacheEngine
import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import Logging
import NIOCore
import OriginClient
import TileStore

/// One client's request on the generic route: carries out what its transaction says.
///
/// Belongs to its event loop and is used on it alone.
final class GenericExchange: @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    let proxy: GenericProxy
    let route: ProxyRoute
    let keys: ResourceKeys
    let exchange: Exchange
    /// How the request's body goes on to the origin.
    let body: UpstreamRequest.Body
    private var transaction: CacheTransaction
    /// Its own fill, while it leads one.
    private weak var fill: GenericFill?
    /// Its place at somebody else's.
    private var seat: Fills.Seat?
    private var isPatient = false
    /// Events that came of an action that is being carried out, until it is its turn.
    private var events: [CacheTransaction.Event] = []
    private var isActing = false

    init(
        _ proxy: GenericProxy, _ route: ProxyRoute, _ keys: ResourceKeys, _ request: CacheRequest,
        _ body: UpstreamRequest.Body, _ exchange: Exchange
    ) {
        self.proxy = proxy
        self.route = route
        self.keys = keys
        self.exchange = exchange
        self.body = body
        transaction = CacheTransaction(request, proxy.cache.use)
    }

    private var cache: GenericCache { proxy.cache }
    private var request: CacheRequest { transaction.request }
    private var question: Int { request.question(to: route.origin.name) }

    /// Begins.
    func start() {
        exchange.whenGone = { [weak self] in self?.clientIsGone() }
        take(.begin)
    }

    /// Hands an event to the transaction, and does what it says.
    func take(_ event: CacheTransaction.Event) {
        events.append(event)
        guard !isActing else { return }
        isActing = true
        defer { isActing = false }
        while !events.isEmpty {
            for action in transaction.on(events.removeFirst(), at: proxy.time.now) { perform(action) }
        }
    }

    private func perform(_ action: CacheTransaction.Action) {
        switch action {
        case .look(let mayWait): look(mayWait: mayWait)
        case .awaitWrites(let key):
            let loop = proxy.loop
            let waits = cache.changes.waitForWriting(key) { loop.execute { self.take(.written(waited: true)) } }
            if !waits { take(.written(waited: false)) }
        case .askLeave: take(.leave(cache.health.leave(for: route.origin.name, question)))
        case .abandonProbe(let probe): cache.health.abandoned(route.origin.name, question, probe: probe)
        case .fetch(let forwarding, let joining, let probe): fetch(forwarding, joining, probe)
        case .startPatience: startPatience()
        case .leaveFill:
            if let seat { cache.flights.leave(seat) }
            seat = nil
        case .answer(let candidate, let stored, let age, let status, let from):
            exchange.cacheResult = Answered.CacheResult(from)
            answer(candidate, stored, age: age, status)
        case .makeReady(let candidate):
            if exchange.head.isPlainRead { proxy.prepare(candidate, for: exchange.head) }
        case .refreshBehind(let candidate): refreshBehind(candidate)
        case .relay(let response, let length, let status):
            var response = response
            proxy.ownVia.add(to: &response.headerFields)
            status.add(to: &response.headerFields)
            exchange.send(response, length: length)
        case .refuse(let refusal, let status):
            if status.forward == nil { exchange.cacheResult = .miss }
            var fields: HTTPFields = [.cacheStatus: status.description]
            fields[.retryAfter] = refusal.retryAfter.map(String.init)
            exchange.reply(refusal.status, refusal.words, fields: fields)
        case .abort: exchange.abort()
        // Of the fixed use.
        case .give: break
        case .done:
            exchange.whenGone = nil
            exchange.whenClientHasEnded = nil
            proxy.isOver(self)
        }
    }

    /// The client is gone, or its answer was broken off.
    func clientIsGone() {
        take(.clientGone)
        fill?.ownerHasLeft()
    }

    // MARK: Looking

    private func look(mayWait: Bool) {
        let (request, keys) = (request, keys)
        guard mayWait else {
            do { take(.looked(try cache.lookNow(request, keys))) } catch { storeFailed(error) }
            return
        }
        cache.worker.read(on: proxy.loop) { store in
            try Lookup.find(request, keys) { key in
                try store.open(key, wholeUpTo: Candidate.wholeUpTo).map { .tile($0) } ?? .miss
            }
        } then: { result in
            switch result {
            case .success(let lookup): self.take(.looked(lookup))
            case .failure(let error): self.storeFailed(error)
            }
        }
    }

    /// A store that cannot be read is no reason to leave a client without an answer.
    private func storeFailed(_ error: any Error) {
        cache.failures.report(.warning, "the store cannot be read", ["error": "\(error)"])
        take(.looked(.miss))
    }

    // MARK: Answers

    /// Sends a stored response as the client's conditions want it.
    private func answer(_ candidate: Candidate, _ stored: StoredResponse, age: Int, _ status: CacheStatus) {
        var reply = StoredReply(
            stored, to: request.method, request.conditions, length: Int64(candidate.length), age: age,
            boundary: String(UInt64.random(in: 0...UInt64.max), radix: 36) + "-tileproxy", now: proxy.time.now)
        proxy.ownVia.add(to: &reply.response.headerFields)
        status.add(to: &reply.response.headerFields)
        exchange.send(reply.response, length: reply.length)
        guard request.method != .head, !reply.parts.isEmpty else {
            exchange.finish()
            return
        }
        BodySender(
            exchange, candidate.body, reply.parts, suffix: reply.suffix, owner: candidate.owner,
            onFailure: cache.bodyCannotBeRead(candidate.key)
        ).run()
    }

    private func refreshBehind(_ candidate: Candidate) {
        let leave = cache.health.leave(for: route.origin.name, question)
        if case .wait = leave { return }
        let refreshing = request.refreshing
        let forwarding = Forwarding(refreshing, candidate, .stale)
        guard let key = Fill.flightKey(refreshing, forwarding), let ticket = cache.flights.start(key, isOpen: true)
        else {
            if let probe = leave.probe { cache.health.abandoned(route.origin.name, question, probe: probe) }
            return
        }
        GenericFill(proxy, route, keys, refreshing, forwarding, ticket, owner: nil, probe: leave.probe)
            .start(looksAgain: false)
    }

    // MARK: Asking the origin

    private func fetch(_ forwarding: Forwarding, _ joining: CacheTransaction.Joining, _ probe: UInt64?) {
        exchange.cacheResult = forwarding.cause == .method || forwarding.cause == .bypass ? .bypass : .miss
        var ticket: Fills.Ticket?
        if let key = Fill.flightKey(request, forwarding) {
            switch joining {
            case .shared:
                let loop = proxy.loop
                switch cache.flights.join(key, hear: { news in loop.execute { self.hear(news) } }) {
                case .leads(let own): ticket = own
                case .follows(let seat):
                    self.seat = seat
                    take(.follows)
                    return
                }
            case .closed: ticket = cache.flights.start(key, isOpen: false)
            case .unlisted: break
            }
        }
        take(.leads)
        let fill = GenericFill(
            proxy, route, keys, request, forwarding, ticket, owner: self, probe: probe)
        self.fill = fill
        exchange.whenClientHasEnded = { [weak fill] in fill?.ownerHasEndedItsSide() }
        fill.start(looksAgain: ticket?.isOpen ?? false)
    }

    private func hear(_ news: FillEnd) {
        guard seat != nil else { return }
        seat = nil
        take(.heard(news))
    }

    private func startPatience() {
        guard !isPatient else { return }
        isPatient = true
        let bound = NIOLoopBound(WeakExchange(self), eventLoop: proxy.loop)
        proxy.loop.scheduleTask(in: cache.settings.collapseWait) { bound.value.exchange?.take(.patienceOver) }
    }
}

/// A timer must not keep a request that is over.
private struct WeakExchange {
    weak var exchange: GenericExchange?

    init(_ exchange: GenericExchange) { self.exchange = exchange }
}

extension Answered.CacheResult {
    init(_ from: CacheTransaction.ServedFrom) {
        switch from {
        case .hit: self = .hit
        case .stale: self = .stale
        case .revalidated: self = .revalidated
        case .miss: self = .miss
        case .bypass: self = .bypass
        }
    }
}
