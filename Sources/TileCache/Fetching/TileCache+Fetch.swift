import CacheEngine
import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One tile to fetch, and what the cache had of it when that was decided.
struct FetchOrder: Sendable {
    var source: TileSource
    var key: TileKey
    /// What to ask about by a conditional request; its bytes have just been read, so a 304 has something to hold on to.
    var stored: StoredTile?
    var mode: LoadMode
    /// Whether ``stored`` is held in memory because it could not be stored; the store has something older, or nothing.
    var isHeld = false
    /// Whether it is part of a download that some hosts' terms forbid.
    var isBulk = false
    /// Counts what it costs.
    var meter: RequestMeter?

    var isStored: Bool { mode != .serverOnly }
}

extension TileCache {
    /// Fetches a tile: asks, believes or refuses the answer, stores it, and keeps account of failures.
    ///
    /// - Throws: ``FetchFailure``; `CancellationError`; what the store throws when it is closed.
    func fetch(_ order: FetchOrder, _ ticket: FetchTicket) async throws -> CachedTile {
        let tile = try address(of: order)
        let place = order.source.template.url(for: tile)
        if place.scheme == .file { return try await readFile(place, order) }
        if let landed = try await landedMeanwhile(order) { return landed }
        if let wait = wait(for: order.key) {
            throw FetchFailure(wait, key: order.key, now: clock.ticks())
        }
        var attempt = 1
        var last: FetchFailure?
        while true {
            let request = try await self.request(place, order)
            do { return try await send(request, order, ticket) } catch let failure as FetchFailure {
                // That the host is left alone after the first attempt is no news; why, is.
                if let last, failure.error.code == .waiting { throw last }
                last = failure
                // A stale tile now is better than a fresh one in a while.
                guard failure.mayPass, order.stored == nil, attempt < max(order.source.attempts, ticket.terms.attempts),
                    let wait = wait(for: order.key), let pause = inlinePause(wait)
                else { throw failure }
                attempt += 1
                try await clock.sleep(pause)
            }
        }
    }

    /// Whether a tile is left alone for now, because it failed lately.
    func wait(for key: TileKey) -> OriginHealth.Wait? { health.wait(for: key.hashValue) }

    /// The place of the tile, if the source has one there.
    func address(of order: FetchOrder) throws -> TileAddress {
        guard let tile = order.key.tile else {
            throw FetchFailure(.outOfBounds, "is no tile and cannot be asked for by a template", key: order.key)
        }
        guard order.key.source == order.source.name else {
            throw FetchFailure(
                .outOfBounds, "is a tile of another source than \(order.source.name)", key: order.key)
        }
        try order.source.check(tile)
        return tile
    }

    /// What became of a request at one host.
    private enum Hop {
        case tile(CachedTile)
        /// The host sent it to another one, after so many redirections in all.
        case elsewhere(HTTPRequest, redirects: Int)
    }

    /// Sends a request, and on to where it is redirected: at each host by that host's terms, limits and failures.
    private func send(_ request: HTTPRequest, _ order: FetchOrder, _ ticket: FetchTicket) async throws -> CachedTile {
        let first = Self.host(of: request)
        var request = request
        var redirects = 0
        while true {
            let host = Self.host(of: request)
            try checkTerms(request, order, ticket)
            // Nobody stands in line for a host that is left alone.
            if let wait = health.wait(forOrigin: host) {
                throw FetchFailure(wait, key: order.key, now: clock.ticks())
            }
            let (asked, before) = (request, redirects)
            let hop = try await slots.withSlot(host, ticket) {
                try await visit(host, from: first, asked, before, order, ticket)
            }
            switch hop {
            case .tile(let tile): return tile
            case .elsewhere(let next, let count): (request, redirects) = (next, count)
            }
        }
    }

    /// Asks a host in whose slot it runs, and notes what became of it.
    ///
    /// - Parameter first: The host that was asked first: another one than `host` after a redirect.
    private func visit(
        _ host: String, from first: String, _ request: HTTPRequest, _ redirects: Int, _ order: FetchOrder,
        _ ticket: FetchTicket
    ) async throws -> Hop {
        // Closing cancels one fetch after another, and the slot of one may go to the next before its turn.
        if flights.isClosed { throw CancellationError() }
        // Those before this one in the line may have failed meanwhile.
        let leave = health.leave(for: host)
        if case .wait(let failure, let until) = leave {
            throw FetchFailure(
                OriginHealth.Wait(until: until, failure: failure), key: order.key, now: clock.ticks())
        }
        let sentAt = clock.ticks()
        do {
            let hop = try await exchange(request, redirects, order, host, from: first, ticket)
            switch hop {
            case .tile: health.answered(host, order.key.hashValue, sentAt: sentAt)
            case .elsewhere: health.answered(host, sentAt: sentAt)
            }
            return hop
        } catch let failure as FetchFailure {
            health.judge(host, order.key.hashValue, failure.judgement, sentAt: sentAt)
            throw failure
        } catch {
            if leave == .probe { health.abandoned(host) }
            throw error
        }
    }

    /// The tile, if an earlier flight brought it after this one's asker had looked into the cache.
    ///
    /// Without this look, an asker that is delayed between looking and asking would send a request of its own.
    private func landedMeanwhile(_ order: FetchOrder) async throws -> CachedTile? {
        guard order.mode == .standard || order.mode == .cacheThenServer else { return nil }
        if let held = held.tile(order.key),
            case .serve(let reason) = decision(order.mode, held.entry)
        {
            return CachedTile(held, origin: reason.map { .stale($0) } ?? .memory)
        }
        do {
            guard let entry = try store.entry(for: order.key),
                case .serve = decision(order.mode, entry),
                let stored = try await read(order.key),
                case .serve(let reason) = decision(order.mode, stored.entry)
            else { return nil }
            let origin: TileOrigin = stored.origin == .memory ? .memory : .disk
            return CachedTile(stored, origin: reason.map { .stale($0) } ?? origin)
        } catch let error as StoreError where error.code != .closed {
            configuration.onEvent?(.notRead(order.key, error))
            return nil
        }
    }

    /// The host and port of a request as messages and accounts name them: never with a password.
    private static func host(of request: HTTPRequest) -> String {
        let authority = request.authority?.lowercased() ?? ""
        return authority.lastIndex(of: "@").map { String(authority[authority.index(after: $0)...]) } ?? authority
    }

    /// How long a caller is kept waiting for another attempt; `nil` if that would be too long.
    private func inlinePause(_ wait: OriginHealth.Wait) -> Duration? {
        let now = clock.ticks()
        let left = wait.until > now ? wait.until - now : 0
        return left <= 5_000_000_000 ? .nanoseconds(Int64(left)) : nil
    }

    // MARK: The request

    private func request(_ place: TileURL, _ order: FetchOrder) async throws -> HTTPRequest {
        var fields = HTTPFields()
        fields[.userAgent] = userAgent
        fields[.accept] = order.source.kind.accept
        fields[.acceptEncoding] = order.source.kind.acceptEncoding
        for name in Set(order.source.headers.map(\.name)) {
            fields[values: name] = order.source.headers[values: name]
        }
        var request = HTTPRequest(
            method: .get, scheme: place.scheme.rawValue, authority: place.authority, path: place.path,
            headerFields: fields)
        if let prepare = order.source.prepare { try await self.prepare(&request, order, prepare) }
        request.method = .get
        for name in HTTPField.Name.ownedByCache { request.headerFields[name] = nil }
        // That a tile was absent is nothing to ask about: a 304 could only be about an error page's validators.
        if order.isStored, let stored = order.stored, stored.data != nil {
            // RFC 9111 §4.3.1.
            request.headerFields[.ifNoneMatch] = stored.entry.metadata.etag
            request.headerFields[.ifModifiedSince] = stored.entry.metadata.lastModified.map { HTTPDate($0).description }
        }
        return request
    }

    /// Has the source's hook change the request, for as long as a request may take.
    private func prepare(
        _ request: inout HTTPRequest, _ order: FetchOrder, _ hook: @escaping TileSource.RequestHook
    ) async throws {
        do {
            if order.source.prepareNeverSuspends {
                try await hook(&request, order.key)
            } else {
                let (plain, key) = (request, order.key)
                request = try await withDeadline(order.source.timeout, clock) {
                    var request = plain
                    try await hook(&request, key)
                    return request
                }
            }
        } catch {
            if Task.isCancelled { throw CancellationError() }
            let what = error is DeadlineError ? "did not return within \(order.source.timeout)" : "failed"
            throw FetchFailure(
                error: TileCacheError(
                    .hookFailed, "\(order.key): the source's request hook \(what)", key: order.key, cause: error),
                failure: .unreachable)
        }
    }

    /// Sends a request, and follows where it is sent as long as that is the same host.
    private func exchange(
        _ request: HTTPRequest, _ redirects: Int, _ order: FetchOrder, _ host: String, from first: String,
        _ ticket: FetchTicket
    ) async throws -> Hop {
        var (request, redirects) = (request, redirects)
        while true {
            let requestedAt = clock.now()
            let answer: TransportResponse
            order.meter?.sent()
            do throws(TransportError) {
                var outgoing = TransportRequest(
                    head: request, bodyLimit: order.source.bodyLimit,
                    timeout: max(order.source.timeout, ticket.terms.timeout))
                if host != first { outgoing.redirect = RedirectOrigin(authority: first, source: order.source.name) }
                answer = try await transport.send(outgoing)
            } catch {
                // Whatever the transport makes of being cancelled, it says nothing about the host.
                if Task.isCancelled { throw CancellationError() }
                throw FetchFailure(error, key: order.key, host: host)
            }
            order.meter?.received(answer.body.count)
            guard Redirect.isOne(answer.head.status.code) else {
                if let tile = try await settle(answer, request, order, host, requestedAt) { return .tile(tile) }
                // A 304 about something else than what is stored: only the whole tile helps.
                request.headerFields[.ifNoneMatch] = nil
                request.headerFields[.ifModifiedSince] = nil
                continue
            }
            guard redirects < Redirect.most else {
                throw FetchFailure(
                    .badRedirect, "\(host) redirected more than \(Redirect.most) times", key: order.key)
            }
            redirects += 1
            switch Redirect.next(answer.head, to: request, harmless: HTTPField.Name.harmless) {
            case .follow(let next):
                // Another host has limits, terms and failures of its own.
                guard Self.host(of: next) == host else { return .elsewhere(next, redirects: redirects) }
                request = next
            case .refuse(let why): throw FetchFailure(.badRedirect, "\(host) sent \(why)", key: order.key)
            }
        }
    }

    /// Keeps downloads away from hosts that forbid them, whether a hook or a redirection leads there.
    ///
    /// A tile that somebody looks at may be asked for, also where a download had asked for it first.
    private func checkTerms(_ request: HTTPRequest, _ order: FetchOrder, _ ticket: FetchTicket) throws {
        guard order.isBulk, ticket.terms.isBulk else { return }
        let allowed = configuration.bulkAllowedHosts
        if let error = BulkPolicy.objection(toHost: Self.host(of: request), allowed: allowed) {
            throw FetchFailure(error: error, failure: .refused)
        }
    }

    // MARK: The answer

    /// The tile that an answer brings or confirms; `nil` for a 304 that confirms something else.
    private func settle(
        _ answer: TransportResponse, _ request: HTTPRequest, _ order: FetchOrder, _ host: String,
        _ requestedAt: Timestamp
    ) async throws -> CachedTile? {
        let receivedAt = clock.now()
        let status = answer.head.status.code
        switch status {
        case 304:
            guard order.isStored, let stored = order.stored, request.headerFields.isConditional else {
                throw FetchFailure(.badStatus, "\(host) answered 304 to a request without conditions", key: order.key)
            }
            return try await confirm(stored, answer, request, order, host, requestedAt, receivedAt)
        case 200, 203:
            try check(answer, order, host)
            return try await keep(answer.body, answer, request, order, host, requestedAt, receivedAt)
        case 204, 404, 410:
            return try await keep(nil, answer, request, order, host, requestedAt, receivedAt)
        default:
            throw FetchFailure(
                status: status, key: order.key, host: host,
                retryAfter: retryAfter(answer.head.headerFields, now: HTTPDate(receivedAt)))
        }
    }

    /// Refuses what is no tile.
    private func check(_ answer: TransportResponse, _ order: FetchOrder, _ host: String) throws {
        let fields = answer.head.headerFields
        guard answer.body.count <= order.source.bodyLimit else {
            throw FetchFailure(
                .badBody, "\(host) sent more than the \(order.source.bodyLimit) bytes that the source allows",
                key: order.key)
        }
        if let stated = fields[.contentLength].flatMap({ Int($0) }), stated != answer.body.count {
            var failure = FetchFailure(
                .badBody, "\(host) sent \(answer.body.count) of \(stated) bytes", key: order.key)
            failure.mayPass = true
            throw failure
        }
        if let objection = order.source.kind.objection(
            to: answer.body, mediaType: fields[.contentType], contentEncoding: fields[.contentEncoding])
        {
            throw FetchFailure(.badBody, "\(host) sent \(objection)", key: order.key)
        }
    }

    private var kind: CacheKind { configuration.isShared ? .shared : .private }

    /// The use of the engine for a source's tiles.
    func use(_ source: TileSource) -> CacheUse {
        let rules = source.lifetimes
        let policy = CachePolicy(
            kind: kind, defaultLifetime: Int(clamping: rules.unstated.components.seconds),
            minimumLifetime: rules.minimum.map { Int(clamping: $0.components.seconds) },
            overridesOrigin: rules.overridesServer)
        var use = CacheUse(
            tiles: policy, absent: Int(clamping: rules.absent.components.seconds),
            staleOnError: Int(clamping: rules.staleOnError.components.seconds),
            storedBodyBytes: source.bodyLimit, name: "swift-tile-cache")
        use.servesStaleAlways = source.offlineUse == .always
        return use
    }

    /// Stores an answer, if it may be stored, and returns it whether or not that worked.
    private func keep(
        _ body: Data?, _ answer: TransportResponse, _ request: HTTPRequest, _ order: FetchOrder, _ host: String,
        _ requestedAt: Timestamp, _ receivedAt: Timestamp
    ) async throws -> CachedTile {
        let record = use(order.source).record(
            answer.head, to: request, requestedAt: HTTPDate(requestedAt), receivedAt: HTTPDate(receivedAt))
        let metadata = record.intent.metadata
        var fetched = CachedTile(key: order.key, data: body, metadata, origin: .network)
        reportClock(record, order, host)
        guard order.isStored else { return fetched }
        guard record.isStorable else {
            held.remove(order.key)
            fetched.notStored = Self.forbidsStoring(order.key, request)
            return fetched
        }
        let store = self.store
        do {
            let put = try await pool.run { try store.put(body, for: order.key, metadata: metadata) }
            if put == .largerThanCapacity {
                throw StoreError(
                    .invalidValue,
                    "\(order.key) has \(body?.count ?? 0) bytes, more than the cache's whole capacity; raise it")
            }
            held.remove(order.key)
        } catch {
            held.hold(body, order.key, metadata)
            fetched.notStored = error
            configuration.onEvent?(.notStored(order.key, error))
        }
        return fetched
    }

    /// Reports a server whose clock is ahead of this machine's.
    private func reportClock(_ record: AnswerRecord, _ order: FetchOrder, _ host: String) {
        guard record.freshness.dateAhead > 60, let report = configuration.onEvent else { return }
        guard health.reportsClock(of: host) else { return }
        report(.dateInFuture(order.key, host: host, seconds: record.freshness.dateAhead))
    }

    private static func forbidsStoring(_ key: TileKey, _ request: HTTPRequest) -> TileCacheError {
        TileCacheError(
            .notStored,
            "\(key): \(host(of: request)) forbids storing it (no-store, or Vary: *), so that it cannot be kept",
            key: key)
    }

    /// The server says that what is stored still holds; `nil` if it confirms something else.
    private func confirm(
        _ stored: StoredTile, _ answer: TransportResponse, _ request: HTTPRequest, _ order: FetchOrder,
        _ host: String, _ requestedAt: Timestamp, _ receivedAt: Timestamp
    ) async throws -> CachedTile? {
        let response = storedResponse(of: stored.entry.metadata)
        let outcome = NotModifiedOutcome(
            answer.head.headerFields, asked: [response.validators], now: HTTPDate(receivedAt))
        guard case .confirmed = outcome else { return nil }
        let (record, _) = use(order.source).refreshed(
            response, by: answer.head, to: request, requestedAt: HTTPDate(requestedAt),
            receivedAt: HTTPDate(receivedAt))
        reportClock(record, order, host)
        let metadata = record.intent.metadata
        var confirmed = CachedTile(key: order.key, data: stored.data, metadata, origin: .revalidated)
        let store = self.store
        let version = EntryVersion(stored.entry)
        do {
            let current = try await pool.run { () -> StoredTile? in
                guard record.isStorable else {
                    // It still holds, but is not to be kept any longer. A region's tile stays as it is: it was stored
                    // when that was allowed, and somebody relies on it.
                    _ = try store.remove([order.key], includingPinned: false)
                    return nil
                }
                if !order.isHeld {
                    if try store.refresh(order.key, from: version, metadata: metadata) { return nil }
                    if let current = try store.read(order.key) { return current }
                }
                // Evicted or removed meanwhile; its bytes are still at hand, and good.
                try store.put(stored.data, for: order.key, metadata: metadata)
                return nil
            }
            held.remove(order.key)
            // Somebody stored another tile since: that one counts.
            if let current { return CachedTile(current, origin: .revalidated) }
            if !record.isStorable, try store.entry(for: order.key) == nil {
                confirmed.notStored = Self.forbidsStoring(order.key, request)
            }
        } catch {
            if record.isStorable { held.hold(stored.data, order.key, metadata) }
            confirmed.notStored = error
            configuration.onEvent?(.notStored(order.key, error))
        }
        return confirmed
    }
}

extension HTTPFields {
    fileprivate var isConditional: Bool { self[.ifNoneMatch] != nil || self[.ifModifiedSince] != nil }
}

extension HTTPField.Name {
    /// What only the cache may set.
    fileprivate static let ownedByCache: [HTTPField.Name] = [
        .ifNoneMatch, .ifModifiedSince, .ifMatch, .ifUnmodifiedSince, .ifRange, .range,
    ]

    /// What any server may see: nothing of a source's own.
    fileprivate static let harmless: Set<HTTPField.Name> = [
        .userAgent, .accept, .acceptEncoding, .ifNoneMatch, .ifModifiedSince,
    ]
}
