import CacheEngine
import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One request for a resource: carries out what its transaction says.
///
/// Lives in its caller's task. Only its inbox is used by others.
final class ResourceExchange {
    /// What happens to it.
    enum Event: Sendable {
        case transaction(CacheTransaction.Event)
        /// The fill that it follows is over.
        case heard(ResourceFill.End)
        /// Its own fill writes.
        case told(ResourceFill.Letter)
    }

    private let cache: TileCache
    private let resource: Resource
    private let inbox: Inbox<Event>
    private var transaction: CacheTransaction
    /// Its own fill, while it leads one.
    private var fill: Inbox<ResourceFill.Event>?
    /// Its place at somebody else's.
    private var seat: Flights<TileKey, ResourceFill.End>.Seat?
    /// The body of the answer that its own fill hands on.
    private var body = Data()
    /// Why there is no answer from the server.
    private var trouble: (any Error)?
    /// Why the answer is not stored.
    private var notStored: (any Error)?
    /// Whether a server was asked, or somebody's request followed.
    private var hasAsked = false
    private var answer: CachedResponse?
    private var failure: TileCacheError?

    init(_ cache: TileCache, _ resource: Resource, _ inbox: Inbox<Event>) {
        self.cache = cache
        self.resource = resource
        self.inbox = inbox
        transaction = CacheTransaction(resource.request, cache.resources.use)
    }

    private var parts: ResourceParts { cache.resources }
    private var request: CacheRequest { resource.request }

    /// Answers it.
    ///
    /// - Returns: `nil` for what is only wanted if it is stored, and is not.
    /// - Throws: ``TileCacheError``; `CancellationError`.
    func run() async throws -> CachedResponse? {
        var events = inbox.makeIterator()
        await take(.begin)
        while !transaction.isOver {
            guard let event = await events.next() else {
                await take(.clientGone)
                fill?.put(.ownerLeft)
                if Task.isCancelled { throw CancellationError() }
                throw TileCacheError(.closed, "\(resource.origin): the cache was closed before the answer came")
            }
            switch event {
            case .transaction(let event): await take(event)
            case .heard(let end):
                seat = nil
                let news = end.news(for: resource)
                switch news {
                case .held: notStored = end.error
                case .failed: trouble = end.error
                case .stored, .error, .alone, .again, .tile, .noTile: break
                }
                await take(.heard(news))
            case .told(let letter):
                switch letter.news {
                case .head: body = letter.body
                case .ended, .confirmed: notStored = letter.error
                case .failed: trouble = letter.error
                case .found, .useStale: break
                }
                await take(.told(letter.news))
            }
        }
        if let failure { throw failure }
        answer?.notStored = notStored
        return answer
    }

    /// Hands an event to the transaction, and does what it says.
    private func take(_ event: CacheTransaction.Event) async {
        var events = [event]
        while !events.isEmpty {
            for action in transaction.on(events.removeFirst(), at: HTTPDate(cache.clock.now())) {
                if let next = await perform(action) { events.append(next) }
            }
        }
    }

    /// - Returns: What came of it at once.
    private func perform(_ action: CacheTransaction.Action) async -> CacheTransaction.Event? {
        switch action {
        case .look(let mayWait): return .looked(await look(mayWait: mayWait))
        case .awaitWrites(let key):
            let inbox = inbox
            let waits = parts.changes.waitForWriting(key) { inbox.put(.transaction(.written(waited: true))) }
            return waits ? nil : .written(waited: false)
        case .askLeave: return .leave(cache.health.leave(for: resource.host, resource.question))
        case .abandonProbe(let probe): cache.health.abandoned(resource.host, resource.question, probe: probe)
        case .fetch(let forwarding, let joining, let probe): return fetch(forwarding, joining, probe)
        // The transport's time limit bounds the wait; who went alone would only stand in the host's line behind it.
        case .startPatience: break
        case .leaveFill:
            if let seat { parts.flights.leave(seat) }
            seat = nil
        case .answer(let candidate, let stored, let age, _, let from):
            if !hasAsked { cache.tell(.hit(candidate.key, isStale: from == .stale)) }
            await answer(candidate, stored, age: age, CachedResponse.Origin(from))
        // A hit is decided anew each time: that costs an app nothing that it would notice.
        case .give, .makeReady: break
        case .refreshBehind(let candidate): refreshBehind(candidate)
        case .relay(let head, _, _):
            answer = CachedResponse(resource.head, head, body, .server)
        case .refuse(let refusal, let status): if status.forward != nil { fail(refusal.words) }
        case .abort: fail("The answer broke off.")
        case .done: break
        }
        return nil
    }

    private func fail(_ words: String) {
        answer = nil
        if let known = trouble as? TileCacheError {
            failure = known
            return
        }
        failure = TileCacheError(
            .noAnswer, "\(resource.origin): \((trouble as? TransportError)?.message ?? words)", key: request.key,
            cause: trouble)
    }

    // MARK: Looking

    private func look(mayWait: Bool) async -> Lookup {
        do {
            guard mayWait else { return try cache.lookNow(resource) }
            let (store, resource) = (cache.store, resource)
            return try await cache.pool.run {
                try Lookup.find(resource.request, resource.keys) { key in
                    try store.open(key, wholeUpTo: .max).map { .tile($0) } ?? .miss
                }
            }
        } catch {
            // A disk that cannot be read is no reason to leave a caller without an answer.
            if let key = request.key { cache.configuration.onEvent?(.notRead(key, error)) }
            return .miss
        }
    }

    private func answer(
        _ candidate: Candidate, _ stored: StoredResponse, age: Int, _ origin: CachedResponse.Origin
    ) async {
        let reply = StoredReply(
            stored, to: request.method, request.conditions, length: Int64(candidate.length), age: age,
            boundary: String(cache.clock.random(), radix: 36), now: HTTPDate(cache.clock.now()))
        do {
            let isBodiless = request.method == .head || reply.parts.isEmpty
            let body = isBodiless ? Data() : reply.body(of: try await bytes(of: candidate.body))
            answer = CachedResponse(resource.head, reply.response, body, origin)
        } catch {
            failure = TileCacheError(
                .noAnswer, "\(candidate.key): its stored body cannot be read: \(error)", key: candidate.key,
                cause: error)
        }
    }

    private func bytes(of body: StoredBody) async throws -> Data {
        switch body {
        case .none: return Data()
        case .memory(let data): return data
        case .file(let file):
            return try await cache.pool.run {
                var data = Data(count: file.size)
                try data.withUnsafeMutableBytes { try file.read(into: $0, at: 0) }
                return data
            }
        }
    }

    // MARK: Asking the server

    private func fetch(
        _ forwarding: Forwarding, _ joining: CacheTransaction.Joining, _ probe: UInt64?
    ) -> CacheTransaction.Event {
        // What was heard of another's request says nothing about its own.
        (trouble, notStored) = (nil, nil)
        if !hasAsked, let key = request.key { cache.tell(.miss(key)) }
        hasAsked = true
        var ticket: Flights<TileKey, ResourceFill.End>.Ticket?
        if let key = Fill.flightKey(request, forwarding) {
            switch joining {
            case .shared:
                let inbox = inbox
                switch parts.flights.join(key, hear: { inbox.put(.heard($0)) }) {
                case .leads(let own): ticket = own
                case .follows(let seat):
                    self.seat = seat
                    return .follows
                }
            case .closed: ticket = parts.flights.start(key, isOpen: false)
            case .unlisted: break
            }
        }
        fill = ResourceFill.begin(cache, resource, forwarding, ticket, owner: inbox, probe: probe)
        return .leads
    }

    private func refreshBehind(_ candidate: Candidate) {
        let leave = cache.health.leave(for: resource.host, resource.question)
        if case .wait = leave { return }
        let refreshing = resource.refreshing
        let forwarding = Forwarding(refreshing.request, candidate, .stale)
        guard let key = Fill.flightKey(refreshing.request, forwarding),
            let ticket = parts.flights.start(key, isOpen: true)
        else {
            if let probe = leave.probe { cache.health.abandoned(resource.host, resource.question, probe: probe) }
            return
        }
        _ = ResourceFill.begin(cache, refreshing, forwarding, ticket, owner: nil, probe: leave.probe)
    }
}

extension TileCache {
    /// What the store can tell at once of a resource.
    func lookNow(_ resource: Resource) throws -> Lookup {
        try Lookup.find(resource.request, resource.keys) { try store.openNow($0, wholeUpTo: .max) }
    }
}

extension CachedResponse.Origin {
    fileprivate init(_ from: CacheTransaction.ServedFrom) {
        switch from {
        case .hit: self = .stored
        case .stale: self = .stale
        case .revalidated: self = .revalidated
        // Somebody else's answer from the server, which was waited for.
        case .miss, .bypass: self = .server
        }
    }
}

extension StoredReply {
    /// The bytes that the answer has of a stored body.
    fileprivate func body(of whole: Data) -> Data {
        if parts.count == 1, parts[0].prefix.isEmpty, suffix.isEmpty, parts[0].bytes == 0..<Int64(whole.count) {
            return whole
        }
        var body = Data()
        for part in parts {
            body.append(contentsOf: part.prefix.utf8)
            let bytes = Int(part.bytes.lowerBound)..<Int(part.bytes.upperBound)
            body.append(whole[whole.startIndex + bytes.lowerBound..<whole.startIndex + bytes.upperBound])
        }
        body.append(contentsOf: suffix.utf8)
        return body
    }
}
