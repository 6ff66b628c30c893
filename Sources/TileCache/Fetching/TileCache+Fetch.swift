import CacheEngine
import ContentCoding
import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One tile to fetch, or a part of a file at its server, and what the cache had of it when that was decided.
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
    /// Which networks it may use; those who join it may allow more.
    var networks = NetworkUse.any
    /// Counts what it costs.
    var meter: RequestMeter?
    /// What carries its requests in the background; `nil` for the cache's own transport.
    var background: BackgroundTransport?
    /// What is asked for if it has no URL of its own: a part of a file at the server.
    var part: ArchivePart?
    /// Whether the server is asked whatever is stored, and without conditions.
    var reloads = false
    /// Whether nothing stale will do where the server fails.
    var isStrict = false
    /// Since when the version of a file has to have been asked for; only where ``isStrict``.
    var checkedSince: Timestamp?
    /// See ``DownloadOptions/beforeStoring``.
    var beforeStoring: (@Sendable (TileKey, BlobDigest?) throws -> Void)?

    /// Whether it is for the bytes of a tile, which alone count as hits and misses.
    var isTile: Bool { part?.isTile ?? true }

    /// What makes two of them the same.
    var flight: FlightKey {
        FlightKey(
            key: key, isStored: mode != .serverOnly, background: background?.identifier, version: part?.question.mark,
            isReload: reloads)
    }

    /// What is stored, as it is given out.
    func tile(_ stored: StoredTile, origin: TileOrigin) -> CachedTile {
        part == nil ? CachedTile(stored, origin: origin) : CachedTile(part: stored, origin: origin)
    }
}

extension TileCache {
    /// Fetches a tile: carries out what its ``TileFill`` decides.
    ///
    /// - Throws: ``FetchFailure``; `CancellationError`; what the store throws when it is closed.
    func fetch(_ order: FetchOrder, _ ticket: FetchTicket) async throws -> CachedTile {
        let tile = try order.part == nil ? address(of: order) : Self.noTile
        let place = order.source.template.url(for: tile)
        if place.scheme == .file { return try await readFile(place, order) }
        var run = FetchRun(self, order, ticket, place)
        return try await run.outcome()
    }

    /// For templates that have no placeholder for a tile.
    private static let noTile = TileAddress(unchecked: 0, 0, 0, 1, nil)

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

    /// The use of the engine for a source's tiles.
    func use(_ source: TileSource) -> CacheUse {
        source.use(configuration.isShared ? .shared : .private, name: "swift-tile-cache")
    }
}

/// One fetch: has the effects of what its fill decides, and keeps what the fill only counts.
private struct FetchRun {
    let cache: TileCache
    let order: FetchOrder
    let ticket: FetchTicket
    let place: TileURL
    var fill: TileFill
    var slot: OriginSlots.Slot?
    /// When the last request was sent (ticks), and where to.
    var sentAt: UInt64 = 0
    var host = ""
    /// Until when this attempt may take, with its redirects (ticks); set when the first request is sent.
    var attemptEnds: UInt64?
    var answer = TransportResponse(head: HTTPResponse(status: .ok))
    /// The body with its digest, if it was hashed before it is stored.
    var hashed: HashedBody?
    /// What is stored by now.
    var found: CachedTile?
    /// Why there is no tile, in words.
    var error: TileCacheError?
    /// Why an answer could not be stored.
    var notStored: (any Error)?

    init(_ cache: TileCache, _ order: FetchOrder, _ ticket: FetchTicket, _ place: TileURL) {
        self.cache = cache
        self.order = order
        self.ticket = ticket
        self.place = place
        let use = cache.use(order.source)
        fill = TileFill(
            order.part?.use(use) ?? use, stored: order.reloads ? nil : order.stored?.entry.metadata,
            isAbsence: order.stored.map { $0.data == nil } ?? false, isKept: order.mode != .serverOnly,
            harmless: .harmless)
    }

    mutating func outcome() async throws -> CachedTile {
        let looksAgain = !order.reloads && (order.mode == .standard || order.mode == .cacheThenServer)
        var event: TileFill.Event? = .begin(looksAgain: looksAgain)
        do {
            while let next = event {
                event = nil
                for action in fill.on(next, at: HTTPDate(cache.clock.now()), ticks: cache.clock.ticks()) {
                    if case .end(let end) = action { return try tile(end) }
                    if let answer = try await perform(action) { event = answer }
                }
            }
        } catch {
            for action in fill.on(.cancelled, at: HTTPDate(cache.clock.now()), ticks: cache.clock.ticks()) {
                clear(action)
            }
            throw error
        }
        throw TileCacheError(.noAnswer, "\(order.key): the fetch ended without an outcome", key: order.key)
    }

    /// Does what is to be done, and says what came of it.
    private mutating func perform(_ action: TileFill.Action) async throws -> TileFill.Event? {
        switch action {
        case .lookAgain:
            found = try await landedMeanwhile()
            return .looked(isEnough: found != nil)
        // A fleet is of proxies.
        case .askShared: return .notShared
        case .storeShared: return .stored
        case .askQuestion:
            let attempts = max(order.source.attempts, ticket.terms.attempts)
            return .question(cache.wait(for: order.key), attempts: order.part?.attempts(of: attempts) ?? attempts)
        case .prepare: return try await prepare()
        case .checkTerms(let host): return .terms(isAllowed: mayAsk(host))
        case .askOrigin(let host): return .origin(cache.health.wait(forOrigin: host))
        case .takeSlot(let host):
            // The system says when a background session asks. Its requests, hours long, hold up nobody who looks at a map.
            guard order.background == nil else { return .slot }
            slot = try await cache.slots.slot(host, ticket)
            return .slot
        case .askLeave(let host):
            // Closing cancels one fetch after another, and the slot of one may go to the next before its turn.
            if cache.flights.isClosed { throw CancellationError() }
            // Nor is one of them a probe, whose outcome others wait for.
            guard order.background == nil else { return .leave(.ask) }
            return .leave(cache.health.leave(for: host))
        case .giveSlot, .abandonProbe: clear(action)
        // A source of the library has one host; mirrors are the proxy's.
        case .orderHosts(let own): return .hosts([own], probe: nil)
        case .judgeHost, .abandonHostProbe, .countFailover: break
        case .askRest: return .rest(.zero)
        case .send(let request, let first, _): return try await send(request, isRedirected: first != nil)
        case .check(let head):
            if let part = order.part { return try await check(part, head.headerFields) }
            return .checked(objection: try await objection(head.headerFields))
        case .reportClock(let host, let ahead):
            guard let report = cache.configuration.onEvent, cache.health.reportsClock(of: host) else { return nil }
            report(.dateInFuture(order.key, host: host, seconds: ahead))
        case .store(let record, let isAbsence):
            let body: PutBody = isAbsence ? .none : hashed.map { .hashed($0) } ?? .memory(answer.body)
            try await carryOut(.put(body, toStore(record).intent.metadata))
            return .stored
        case .update(let record):
            guard let stored = order.stored else { return .stored }
            try await carryOut(.update(Candidate(stored), toStore(record), isHeld: order.isHeld))
            return .stored
        case .forgetHeld: cache.held.remove(order.key)
        case .drop:
            guard let stored = order.stored else { return .stored }
            try await carryOut(.drop(Candidate(stored), isHeld: order.isHeld))
            return .stored
        case .judge(let host, let judgement, let isSettled, let probe):
            let isOfTile = isSettled || judgement != .answered
            cache.health.judge(host, isOfTile ? order.key.hashValue : nil, judgement, sentAt: sentAt, probe: probe)
        case .pause(let pause):
            try await cache.clock.sleep(pause)
            return .paused
        case .end: break
        }
        return nil
    }

    /// Gives back what a fill has taken.
    private mutating func clear(_ action: TileFill.Action) {
        switch action {
        case .giveSlot:
            if let slot { cache.slots.leave(slot) }
            slot = nil
        case .abandonProbe(let host, let probe): cache.health.abandoned(host, probe: probe)
        default: break
        }
    }

    /// The tile, if an earlier flight brought it after this one's asker had looked into the cache.
    ///
    /// Without this look, an asker that is delayed between looking and asking would send a request of its own.
    private func landedMeanwhile() async throws -> CachedTile? {
        let (key, mode) = (order.key, order.mode)
        if !order.isStrict, let held = cache.held.tile(key).flatMap(cache.judged(order.part)),
            case .serve(let reason) = cache.decision(mode, held.entry)
        {
            return order.tile(held, origin: reason.map { .stale($0) } ?? .memory)
        }
        do {
            guard let entry = try cache.store.entry(for: key), order.part != nil || isEnough(entry),
                let stored = try await cache.read(key).flatMap(cache.judged(order.part)),
                case .serve(let reason) = cache.decision(mode, stored.entry)
            else { return nil }
            let origin: TileOrigin = stored.origin == .memory ? .memory : .disk
            return order.tile(stored, origin: reason.map { .stale($0) } ?? origin)
        } catch let error as StoreError where error.code != .closed {
            cache.configuration.onEvent?(.notRead(key, error))
            return nil
        }
    }

    private func isEnough(_ entry: TileEntry) -> Bool {
        if case .serve = cache.decision(order.mode, entry) { true } else { false }
    }

    // MARK: The request

    private mutating func prepare() async throws -> TileFill.Event {
        attemptEnds = nil
        let source = order.source
        let file = order.part?.question
        var request = place.request(source.requestFields(userAgent: cache.userAgent))
        if let path = order.part?.path { request = request.forFile(at: path) }
        guard let hook = source.prepare else { return .prepared(request, file: file) }
        // The hook may change the request for as long as a request may take.
        do {
            let (plain, key) = (request, order.key)
            request = try await withDeadline(source.timeout, cache.clock) {
                var request = plain
                try await hook(&request, key)
                return request
            }
            return .prepared(request, file: file)
        } catch {
            if Task.isCancelled { throw CancellationError() }
            let what = error is DeadlineError ? "did not return within \(source.timeout)" : "failed"
            self.error = TileCacheError(
                .hookFailed, "\(order.key): the source's request hook \(what)", key: order.key, cause: error)
            return .hookFailed
        }
    }

    /// Keeps downloads away from hosts that forbid them, whether a hook or a redirection leads there.
    ///
    /// A tile that somebody looks at may be asked for, also where a download had asked for it first.
    private mutating func mayAsk(_ host: String) -> Bool {
        guard order.isBulk, ticket.terms.isBulk else { return true }
        error = BulkPolicy.objection(toHost: host, allowed: cache.configuration.bulkAllowedHosts)
        return error == nil
    }

    private mutating func send(_ request: HTTPRequest, isRedirected: Bool) async throws -> TileFill.Event {
        (sentAt, host) = (cache.clock.ticks(), request.hostAndPort)
        let end = attemptEnds ?? sentAt &+ max(order.source.timeout, ticket.terms.timeout).nanoseconds
        attemptEnds = end
        guard end > sentAt else {
            let why =
                isRedirected
                ? "no time is left to follow a redirection" : "the source's timeout leaves no time for a request"
            let error = TransportError(.timeout, "\(host): \(why)")
            self.error = TileCacheError(.noAnswer, "\(order.key): \(error.message)", key: order.key, cause: error)
            return .noAnswer(
                TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: true, isTimeout: true))
        }
        var requestedAt = HTTPDate(cache.clock.now())
        order.meter?.sent()
        do throws(TransportError) {
            var outgoing = TransportRequest(
                head: request, bodyLimit: order.part?.length ?? order.source.bodyLimit,
                timeout: .nanoseconds(Int64(clamping: end - sentAt)))
            outgoing.isRedirected = isRedirected
            outgoing.networks = order.networks.union(ticket.terms.networks)
            answer = try await cache.send(outgoing, for: order.key, by: order.background)
            // When the system sent it is not known: the time for which the answer lay here is part of its age.
            if let arrivedAt = answer.arrivedAt { requestedAt = HTTPDate(arrivedAt) }
        } catch {
            // Whatever the transport makes of being cancelled, it says nothing about the host.
            if Task.isCancelled { throw CancellationError() }
            var words = error.message
            if error.code == .bodyTooLarge, order.part?.question.isPart == true {
                words = "\(host) sent more than the part that was asked for: it has to support range requests"
            }
            self.error = TileCacheError(.noAnswer, "\(order.key): \(words)", key: order.key, cause: error)
            return .noAnswer(error.meaning)
        }
        // Of a file no coding is believed, and none is forgiven.
        if order.part == nil { answer.dropFalseCoding() }
        order.meter?.received(answer.body.count)
        return .answer(answer.head, bytes: answer.body.count, requestedAt: requestedAt)
    }

    /// What is wrong with the body; gzip, and what is large, is looked through on a thread that may take its time.
    private func objection(_ fields: HTTPFields) async throws -> String? {
        let (kind, body) = (order.source.kind, answer.body)
        let (type, coding) = (fields[.contentType], fields[.contentEncoding])
        guard Gzip.isMarked(body) || body.count > 1 << 20 else {
            return kind.objection(to: body, mediaType: type, contentEncoding: coding)
        }
        return try await cache.pool.run { kind.objection(to: body, mediaType: type, contentEncoding: coding) }
    }

    /// Looks at a part, on a thread that may take its time.
    private mutating func check(_ part: ArchivePart, _ fields: HTTPFields) async throws -> TileFill.Event {
        let body = answer.body
        let length = fields.combined(.contentRange).flatMap { ContentRange($0) }?.length ?? 0
        let (why, hashed, said) = try await cache.pool.run {
            (part.objection(body, length), HashedBody(body), part.content?(body))
        }
        self.hashed = hashed
        var content = HTTPFields()
        (content[.contentType], content[.contentEncoding]) = (said?.type, said?.coding)
        return .checked(objection: why, content: content)
    }

    // MARK: The store

    private func toStore(_ record: AnswerRecord) -> AnswerRecord { order.part?.stored(record) ?? record }

    private mutating func carryOut(_ job: TileJob) async throws {
        let (store, held, key, tell) = (cache.store, cache.held, order.key, order.beforeStoring)
        let outcome = try await cache.pool.run {
            guard let tell else { return job.perform(key, store, held) }
            let job = job.hashed
            try tell(key, job.blob)
            return job.perform(key, store, held)
        }
        cache.tellOfEvictions()
        // Somebody stored another tile since: that one counts.
        found = outcome.current.map { order.tile($0, origin: .revalidated) }
        if outcome.isGone { notStored = forbidsStoring(host) }
        if let failure = outcome.failedRemoval {
            notStored = forbidsStoring(host)
            let words =
                "\(key): \(host) forbids storing it, and what was stored before could not be removed: \(failure)"
            cache.configuration.onEvent?(
                .notStored(key, TileCacheError(.notStored, words, key: key, cause: failure)))
        }
        guard let failure = outcome.failure else { return }
        notStored = failure
        cache.configuration.onEvent?(.notStored(key, failure))
    }

    private func forbidsStoring(_ host: String) -> TileCacheError {
        TileCacheError(
            .notStored, "\(order.key): \(host) forbids storing it (no-store, or Vary: *), so that it cannot be kept",
            key: order.key)
    }

    // MARK: The end

    private func tile(_ end: TileFill.End) throws -> CachedTile {
        switch end {
        case .found:
            guard let found else { throw CancellationError() }
            return found
        case .brought(let record, let isAbsence, let keeping):
            var tile = CachedTile(
                key: order.key, data: isAbsence ? nil : answer.body, record.intent.metadata, origin: .network)
            tile.notStored = notStored
            if order.part != nil { tile.ofPart = PartNote(record.intent.metadata, hashed?.digest) }
            if case .forbidden(let host) = keeping { tile.notStored = forbidsStoring(host) }
            return tile
        case .confirmed(let record):
            if let found { return found }
            var tile = CachedTile(
                key: order.key, data: order.stored?.data, record.intent.metadata, origin: .revalidated)
            tile.notStored = notStored
            if order.part != nil { tile.ofPart = PartNote(record.intent.metadata, order.stored?.entry.blob) }
            return tile
        // No fill of an app asks a fleet.
        case .shared(let metadata, _):
            return CachedTile(key: order.key, data: nil, metadata, origin: .network)
        case .failed(let failure):
            throw FetchFailure(failure, key: order.key, known: error, now: cache.clock.ticks())
        case .cancelled: throw CancellationError()
        }
    }
}
