import CacheEngine
import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One question to a server about a resource: carries out what its fill says.
///
/// Lives in a task of its own, so that it goes on for those who follow it when its owner has left. Only its inbox is used
/// by others.
final class ResourceFill {
    /// What happens to it.
    enum Event: Sendable {
        /// The transport has brought a whole answer, or none.
        case answered(Result<TransportResponse, TransportError>, requestedAt: HTTPDate)
        /// The host failed lately, and is not asked.
        case leftAlone(OriginFailure)
        /// The request that it was begun for was given up.
        case ownerLeft
        /// Those who followed it have left as well.
        case deserted
    }

    /// What it tells its followers.
    struct End: Sendable {
        let news: FillEnd
        /// Why there is no answer, or why it is not stored.
        var error: (any Error)?
        /// What the caller allowed that it was begun for.
        let bodyLimit: Int
        let timeout: Duration
        let networks: NetworkUse

        fileprivate init(_ news: FillEnd, _ resource: Resource, _ error: (any Error)? = nil) {
            (self.news, self.error) = (news, error)
            (bodyLimit, timeout, networks) = (resource.bodyLimit, resource.timeout, resource.terms.networks)
        }

        /// What one who asks for a resource hears of it.
        ///
        /// A failure by a limit of another caller's is not that of one who allows more: those ask again, together.
        func news(for resource: Resource) -> FillEnd {
            guard case .failed = news, let failure = error as? TransportError else { return news }
            if networks.union(resource.terms.networks) != networks { return .again }
            switch failure.code {
            case .timeout: return resource.timeout > timeout ? .again : news
            case .bodyTooLarge: return resource.bodyLimit > bodyLimit ? .again : news
            default: return news
            }
        }
    }

    /// What it tells its owner, besides the news.
    struct Letter: Sendable {
        let news: FillNews
        /// The body of the answer.
        var body = Data()
        /// Why there is no answer, or why it is not stored.
        var error: (any Error)?
    }

    private let cache: TileCache
    private let resource: Resource
    private let inbox: Inbox<Event>
    private var fill: Fill
    private var owner: Inbox<ResourceExchange.Event>?
    private var ticket: Flights<TileKey, End>.Ticket?
    private var permit: Changes.Permit?
    private var call: Task<Void, Never>?
    /// When the question went out, in ticks.
    private var sentAt: UInt64?
    /// What the owner is told at the end.
    private var last: Letter?
    /// Whether it has leave to try a host that has failed.
    private let isProbe: Bool
    /// The body of the answer to the question that is out; `nil` before it is there.
    private var body: Data?
    private var error: (any Error)?

    private init(
        _ cache: TileCache, _ resource: Resource, _ forwarding: Forwarding, _ ticket: Flights<TileKey, End>.Ticket?,
        owner: Inbox<ResourceExchange.Event>?, probe: UInt64?, _ inbox: Inbox<Event>
    ) {
        self.cache = cache
        self.resource = resource
        self.ticket = ticket
        self.owner = owner
        isProbe = probe != nil
        self.inbox = inbox
        fill = Fill(
            resource.request, forwarding, cache.resources.use, resource.scope, hasOwner: owner != nil, probe: probe)
        permit = resource.request.key.map { cache.resources.changes.takePermit(for: $0) }
    }

    /// Begins one.
    ///
    /// - Parameter owner: The request that it is begun for; `nil` for a refresh in the background.
    /// - Returns: Where it is told that its owner has left.
    static func begin(
        _ cache: TileCache, _ resource: Resource, _ forwarding: Forwarding, _ ticket: Flights<TileKey, End>.Ticket?,
        owner: Inbox<ResourceExchange.Event>?, probe: UInt64?
    ) -> Inbox<Event> {
        let inbox = Inbox<Event>()
        let looksAgain = owner != nil && ticket?.isOpen ?? false
        // Where the cache is closed already, it begins with its end.
        let number = cache.resources.drivers.began { inbox.close() }
        if number == nil { inbox.close() }
        Task(priority: owner == nil ? .utility : .medium) {
            let fill = ResourceFill(cache, resource, forwarding, ticket, owner: owner, probe: probe, inbox)
            await fill.run(looksAgain: looksAgain)
            if let number { cache.resources.drivers.isOver(number) }
        }
        return inbox
    }

    private var parts: ResourceParts { cache.resources }
    private var request: CacheRequest { resource.request }

    private func run(looksAgain: Bool) async {
        var events = inbox.makeIterator()
        await take(.begin(looksAgain: looksAgain))
        while !fill.isOver {
            guard let event = await events.next() else {
                // The cache is closed.
                await take(.failed(.cancelled))
                call?.cancel()
                break
            }
            switch event {
            case .answered(let result, let requestedAt): await answered(result, requestedAt)
            case .leftAlone(let why): await take(.failed(.leftAlone(why)))
            case .deserted: await take(.deserted)
            case .ownerLeft:
                owner = nil
                let inbox = inbox
                let others = ticket.map { parts.flights.leaderLeft($0) { inbox.put(.deserted) } }
                await take(.ownerLeft(others: others ?? false))
            }
        }
    }

    private func answered(_ result: Result<TransportResponse, TransportError>, _ requestedAt: HTTPDate) async {
        switch result {
        case .failure(let failure):
            error = failure
            await take(.failed(OriginTrouble(failure)))
        case .success(let answer) where isShort(answer):
            let failure = TransportError(
                .truncated, "\(resource.host): the body has \(answer.body.count) bytes, not as many as its head says")
            error = failure
            await take(.failed(OriginTrouble(failure)))
        case .success(let answer):
            body = answer.body
            await take(.head(answer.head, length: length(of: answer), requestedAt: requestedAt))
            // Where another question has gone out instead, this body is nobody's.
            guard body != nil, !fill.isOver else { return }
            await take(.ended)
        }
    }

    /// Whether a body is not as long as its head says: what is stored is complete (RFC 9111 §3.3).
    private func isShort(_ answer: TransportResponse) -> Bool {
        guard request.method == .get, !isBodiless(answer.head.status.code),
            let stated = answer.head.headerFields[.contentLength].flatMap({ Int($0) })
        else { return false }
        return stated != answer.body.count
    }

    private func length(of answer: TransportResponse) -> Int64? {
        if isBodiless(answer.head.status.code) { return nil }
        if request.method == .head { return answer.head.headerFields[.contentLength].flatMap { Int64($0) } }
        return Int64(answer.body.count)
    }

    /// Hands an event to the fill, and does what it says.
    private func take(_ event: Fill.Event) async {
        var events = [event]
        while !events.isEmpty {
            for action in fill.on(events.removeFirst(), at: HTTPDate(cache.clock.now())) {
                if let next = await perform(action) { events.append(next) }
            }
        }
    }

    /// - Returns: What came of it at once.
    private func perform(_ action: Fill.Action) async -> Fill.Event? {
        switch action {
        // What the store cannot tell at once, or at all, is for the server.
        case .lookAgain: return .looked(try? cache.lookNow(resource))
        case .ask(let fields): ask(fields)
        case .cancelOrigin:
            call?.cancel()
            call = nil
        case .judge(let judgement, let probe):
            cache.health.judge(
                resource.host, resource.question, asOfTiles(judgement), sentAt: sentAt, probe: probe)
        case .abandonProbe(let probe): cache.health.abandoned(resource.host, resource.question, probe: probe)
        case .report(let trouble): report(trouble)
        case .settle(let gone, let job):
            for key in gone { await settle(key) }
            _ = await carryOut(job)
            return .settled
        // The transport brings a body whole, whatever is made of it. If it cannot be stored, the put says why.
        case .makeRoom: return .room(.whole)
        case .route: break
        case .tellOwner(let news): tell(news)
        case .admitNobody: if let ticket { parts.flights.shut(ticket) }
        case .sendFollowersAway(let news): if let ticket { parts.flights.close(ticket, End(news, resource)) }
        case .remember(let wasOfUse):
            if let key = fill.flightKey { parts.flights.remember(key, wasOfUse: wasOfUse) }
        case .store(let intent): return await store(intent)
        case .update(let job):
            let outcome = await carryOut(job)
            if let error, let key = request.key { cache.configuration.onEvent?(.notStored(key, error)) }
            return .updated(outcome)
        // The whole body is there when its head is: nothing is waited for.
        case .startForgetting: break
        case .end(let news):
            if let ticket { parts.flights.land(ticket, End(news, resource, error)) }
            // Only then: who asks again once it has its answer must not hear of this one.
            if let last { owner?.put(.told(last)) }
            if let permit { parts.changes.giveBack(permit) }
            (ticket, permit, owner) = (nil, nil, nil)
        }
        return nil
    }

    /// What an answer, or its absence, says about the host, by the rules of tiles: they share its record.
    private func asOfTiles(_ judgement: OriginHealth.Judgement) -> OriginHealth.Judgement {
        guard case .failed(var setback) = judgement else { return judgement }
        if let failure = error as? TransportError {
            setback = failure.meaning.setback
        } else if setback.blame == .silent {
            // 502, 503 and 504 are answers of a host that is up.
            setback.blame = .error
        }
        return .failed(setback)
    }

    /// Tells the owner: of the head at once, of the end once the flight has landed.
    private func tell(_ news: FillNews) {
        guard let owner else { return }
        var letter = Letter(news: news)
        switch news {
        case .head: letter.body = body ?? Data()
        case .failed, .ended, .confirmed: letter.error = error
        case .found, .useStale: break
        }
        if case .head = news { owner.put(.told(letter)) } else { last = letter }
    }

    /// A refresh in the background has nobody else to tell.
    private func report(_ trouble: OriginTrouble) {
        guard owner == nil, let key = request.key else { return }
        let why = error ?? TileCacheError(.noAnswer, "\(resource.origin): \(trouble)", key: key)
        cache.configuration.onEvent?(.refreshFailed(key, why))
    }

    // MARK: The server

    private func ask(_ fields: HTTPFields) {
        body = nil
        sentAt = cache.clock.ticks()
        let (cache, resource, inbox) = (cache, resource, inbox)
        let outgoing = resource.outgoing(fields)
        let key = request.key
        // Nobody asks a host that is left alone, as with tiles. The one that tries it for the others does.
        if !isProbe, let wait = cache.health.wait(forOrigin: resource.host) {
            let now = cache.clock.ticks()
            let left = Duration.nanoseconds(Int64(clamping: wait.until > now ? wait.until - now : 0))
            error = TileCacheError(
                .waiting, "\(resource.host) failed lately; it is asked again in \(left.components.seconds + 1) s",
                key: request.key, retryAfter: left)
            inbox.put(.leftAlone(wait.failure))
            return
        }
        call = Task {
            let slot: OriginSlots.Slot
            do {
                slot = try await cache.slots.slot(outgoing.head.originName, FetchTicket(resource.terms.priority))
            } catch {
                let cancelled = TransportError(.cancelled, "\(outgoing.head.host): cancelled")
                inbox.put(.answered(.failure(cancelled), requestedAt: HTTPDate(cache.clock.now())))
                return
            }
            defer { cache.slots.leave(slot) }
            let requestedAt = HTTPDate(cache.clock.now())
            resource.terms.meter?.sent()
            let result: Result<TransportResponse, TransportError>
            do throws(TransportError) { result = .success(try await cache.send(outgoing, for: key)) } catch {
                result = .failure(error)
            }
            if case .success(let answer) = result { resource.terms.meter?.received(answer.body.count) }
            inbox.put(.answered(result, requestedAt: requestedAt))
        }
    }

    // MARK: The store

    /// Goes on once nothing from before is being stored for a resource, nor will be.
    private func settle(_ key: TileKey) async {
        await withCheckedContinuation { continuation in
            if parts.changes.change(key, settled: { continuation.resume() }) { continuation.resume() }
        }
    }

    private func store(_ intent: OriginDecision.StoreIntent) async -> Fill.Event {
        guard let permit, let key = request.key, let body, parts.changes.beginWriting(permit) else {
            tell(.ended)
            return .mayNotStore
        }
        // What happened to the entry before this one does not matter any more.
        error = nil
        var outcome = StoreJob.Outcome(isStored: false)
        if body.count <= ResourceParts.storedBodyBytes {
            let bytes = isBodiless(intent.status) ? PutBody.none : .memory(body)
            outcome = await carryOut(.put(primary: key, intent, body: bytes, request: request.fields))
        }
        parts.changes.endWriting(permit)
        if !outcome.isStored, error == nil { error = whyNotStored(key, body.count, outcome) }
        if let error { cache.configuration.onEvent?(.notStored(key, error)) }
        tell(.ended)
        return .stored(outcome, HeldBody(body))
    }

    private func whyNotStored(_ key: TileKey, _ bytes: Int, _ outcome: StoreJob.Outcome) -> any Error {
        if bytes > ResourceParts.storedBodyBytes {
            let most = ResourceParts.storedBodyBytes >> 20
            return TileCacheError(
                .notStored, "\(key) has \(bytes) bytes; a resource of more than \(most) MiB is not stored", key: key)
        }
        if outcome.isTooLarge {
            return StoreError(
                .invalidValue,
                "\(key) has \(bytes) bytes, more than the capacity of the cache or of its source; raise it")
        }
        return TileCacheError(
            .notStored, "\(key): by its server's Date the answer is older than what is stored, which stays",
            key: key)
    }

    /// Carries a job out on a thread that may wait; a failure costs nobody an answer.
    private func carryOut(_ job: StoreJob) async -> StoreJob.Outcome {
        var writing: Changes.Permit?
        if case .move = job {
            // A move writes a response, so it needs the right to.
            guard let permit, parts.changes.beginWriting(permit) else { return StoreJob.Outcome(isStored: false) }
            writing = permit
        }
        defer { if let writing { parts.changes.endWriting(writing) } }
        let (store, keys) = (cache.store, resource.keys)
        defer { cache.tellOfEvictions() }
        do { return try await cache.pool.run { try job.perform(store, keys) } } catch {
            self.error = error
            return StoreJob.Outcome(isStored: false)
        }
    }
}
