import CacheEngine
import ContentCoding
import HTTPCaching
import HTTPListener
import HTTPTypes
import NIOCore
import SharedTier
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One question for a tile to its servers: carries out what its fill says.
///
/// Belongs to its event loop and is used on it alone.
final class TileAsking: @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    let tiles: TileLoop
    let source: ServedSource
    let key: TileKey
    /// What is stored, if there is something.
    private let stored: Candidate?
    private let isHeld: Bool
    private let ticket: TileFlights.Ticket
    private let isRefresh: Bool
    private let subject: TileSubject
    private let looksAgain: Bool
    var fill: TileFill
    /// What of which file the request is for, if it is for no tile's own URL.
    private var question: FileQuestion?
    private var slot: OriginSlots.Slot?
    /// Where it stands in line for a slot.
    private var place: (origin: String, number: UInt64)?
    /// The number of that wait among those that have a limit.
    private var waitLimit: UInt64?
    /// The look into the bucket that is shared that is under way, and what it has brought.
    private var look: SharedLook?
    private var shared: SharedTile?
    /// Where it has a slot, or waits for one.
    private var slotHost = ""
    /// The request that is out.
    private var call: (any TileCall)?
    /// The end of its time, while it goes on though nobody waits for it.
    private var loneEnd: Scheduled<Void>?
    /// The name of the host that the source's template leads to.
    private var ownHost = ""
    /// When the first request of this attempt was sent, and until when all of it may take, over all hosts and redirects (ticks).
    private var attempt: (began: UInt64, ends: UInt64)?
    /// When the last request was sent (ticks).
    private var sentAt: UInt64 = 0
    private var answer = TransportResponse(head: HTTPResponse(status: .ok))
    /// What is stored by now.
    var found: Candidate?
    private var isStored = true
    /// A large body, once it is stored.
    private var file: StoredBody?
    /// The body with its digest, if it was hashed before it is stored.
    private var hashed: HashedBody?
    /// The name of the body's bytes, if it is known by now.
    private var blob: BlobDigest?
    /// Why the last request had no answer.
    private var error: TransportError?
    private var events: [TileFill.Event] = []
    private var isActing = false

    /// - Parameters:
    ///   - stored: What is stored of the tile, or held in memory (`isHeld`).
    ///   - ticket: Its flight, which it lands.
    ///   - isRefresh: Whether nobody waits for it.
    ///   - subject: What is asked for under the key.
    ///   - reloads: Whether the server is asked whatever is stored.
    init(
        _ tiles: TileLoop, _ source: ServedSource, _ key: TileKey, _ stored: Candidate?, isHeld: Bool,
        _ ticket: TileFlights.Ticket, isRefresh: Bool, subject: TileSubject = .tile, reloads: Bool = false
    ) {
        self.tiles = tiles
        self.source = source
        self.key = key
        self.stored = stored
        self.isHeld = isHeld
        self.ticket = ticket
        self.isRefresh = isRefresh
        self.subject = subject
        looksAgain = !isRefresh && !reloads
        let isAbsence = if case .some(.none) = stored?.body { true } else { false }
        fill = TileFill(
            // What is asked for whatever is stored is asked without conditions: a server that has replaced the file under its old tag
            // would say that nothing has changed.
            subject.use(source.use), stored: reloads ? nil : stored?.entry.metadata,
            isAbsence: isAbsence, isKept: true,
            harmless: .harmless,
            group: source.hostGroup, asksShared: tiles.service.shared != nil && source.shared != nil)
    }

    private var service: TileService { tiles.service }
    /// By what it is left alone: a tile of an archive that changes all the time is, whatever the version.
    private var number: Int { source.flight(key).hashValue }

    /// Begins.
    func start() {
        // Whoever began the flight hears of it as its followers do; with the last of them it is given up.
        let isWanted = service.flights.leaderLeft(ticket, deserted: onLoop { $0.wasDeserted() })
        take(isWanted ? .begin(looksAgain: looksAgain) : .cancelled)
    }

    private func onLoop(_ body: @escaping @Sendable (TileAsking) -> Void) -> @Sendable () -> Void {
        { [loop = tiles.loop] in loop.execute { body(self) } }
    }

    // MARK: Nobody waits

    /// The last of those who waited has left.
    private func wasDeserted() {
        // The proxy goes down: nothing more is to be stored.
        guard !service.flights.isClosed else { return take(.cancelled) }
        take(.deserted(mayGoOn: fill.isOut && goOnAlone()))
    }

    /// Takes a place among those that go on though nobody waits for them.
    private func goOnAlone() -> Bool {
        guard loneEnd == nil, service.loneFills.take(slotHost) else { return false }
        guard service.flights.goOn(ticket, closed: onLoop { $0.take(.cancelled) }) else {
            service.loneFills.give(slotHost)
            return false
        }
        loneEnd = tiles.loop.scheduleTask(in: service.lonePatience) { self.loneTimeIsOver() }
        return true
    }

    private func loneTimeIsOver() {
        guard loneEnd != nil, !isFollowedAgain() else { return }
        take(.overdue(isHeard: call?.hasBegun ?? false))
    }

    /// Whether somebody has come who waits for it; then it no longer goes on alone.
    private func isFollowedAgain() -> Bool {
        guard service.flights.isFollowedAgain(ticket, deserted: onLoop({ $0.wasDeserted() })) else { return false }
        endLoneTime()
        take(.wanted)
        return true
    }

    private func endLoneTime() {
        guard let end = loneEnd else { return }
        end.cancel()
        loneEnd = nil
        service.loneFills.give(slotHost)
    }

    // MARK: Events

    /// Hands an event to the fill, and does what it says.
    func take(_ event: TileFill.Event) {
        events.append(event)
        guard !isActing else { return }
        isActing = true
        defer { isActing = false }
        while !events.isEmpty {
            for action in fill.on(events.removeFirst(), at: tiles.time.now, ticks: service.clock.ticks()) {
                perform(action)
            }
        }
    }

    private func perform(_ action: TileFill.Action) {
        switch action {
        case .lookAgain: take(.looked(isEnough: hasLanded()))
        case .askShared: askShared()
        case .storeShared(let metadata, let isAbsence):
            guard mayStore() else { return take(.stored) }
            carryOut(.put(isAbsence ? .none : shared?.body.map { .hashed($0) } ?? .none, metadata))
        case .askQuestion:
            let wait = service.health.wait(for: number)
            let attempts = source.tiles.attempts
            take(.question(wait, attempts: subject.part?.attempts(of: attempts) ?? attempts))
        case .prepare:
            attempt = nil
            prepare()
        case .orderHosts(let own):
            let (hosts, probe) = service.health.order(of: [own] + source.mirrors.filter { $0 != own })
            take(.hosts(hosts, probe: probe))
        case .judgeHost(let host, let judgement, let probe):
            service.health.judge(host, judgement, sentAt: sentAt, probe: probe)
        case .abandonHostProbe(let host, let probe): service.health.abandoned(host, probe: probe)
        case .countFailover: service.statistics.upstream(source.name) { $0.failovers += 1 }
        case .askRest(let hosts):
            take(.rest(service.health.rest(of: hosts)))
        // Terms are those of a download.
        case .checkTerms: take(.terms(isAllowed: true))
        case .askOrigin(let host): take(.origin(service.health.wait(forOrigin: host)))
        case .takeSlot(let host): takeSlot(host)
        case .giveSlot: giveSlot()
        case .askLeave(let host): take(.leave(service.health.leave(for: host)))
        case .abandonProbe(let host, let probe): service.health.abandoned(host, probe: probe)
        case .send(let request, let first, let share): send(request, redirectedFrom: first, share)
        case .check(let head): check(head)
        case .reportClock(let host, let ahead):
            if service.health.reportsClock(of: host) { service.clockIsAhead(key, host, seconds: ahead) }
        case .store(let record, let isAbsence):
            guard mayStore() else { return take(.stored) }
            let body: PutBody = isAbsence ? .none : hashed.map { .hashed($0) } ?? .memory(answer.body)
            carryOut(.put(body, asAsked(subject.stored(record)).intent.metadata))
        case .update(let record):
            guard let stored, mayStore() else { return take(.stored) }
            carryOut(.update(stored, asAsked(subject.stored(record)), isHeld: isHeld))
        case .forgetHeld: service.held.remove(key)
        case .drop:
            guard let stored, mayStore() else { return take(.stored) }
            carryOut(.drop(stored, isHeld: isHeld))
        case .judge(let host, let judgement, let isSettled, let probe):
            let isOfTile = isSettled || judgement != .answered
            service.health.judge(host, isOfTile ? number : nil, judgement, sentAt: sentAt, probe: probe)
        case .pause(let pause): wait(pause)
        case .end(let end): self.end(end)
        }
    }

    private func prepare() {
        switch subject {
        case .tile:
            guard let tile = key.tile else { return take(.hookFailed) }
            prepared(tiles.request(for: tile, of: source))
        case .part(let part): prepared(tiles.fileRequest(of: source, part.path), part.question)
        case .archived(let archive, let version, let isRepeated):
            guard let tile = key.tile else { return take(.hookFailed) }
            find(tile, archive, version, isRepeated: isRepeated)
        }
    }

    func prepared(_ request: HTTPRequest, _ question: FileQuestion? = nil) {
        ownHost = OriginHost(request).name
        self.question = question
        take(.prepared(request, file: question))
    }

    /// Whether the flight before this one has brought the tile, after the one who asks had looked.
    private func hasLanded() -> Bool {
        // What the store cannot tell at once, or at all, is for the server.
        guard let now = try? tiles.lookNow(key),
            case .found(let candidate) = subject.judged(now.lookup, at: tiles.time.now),
            case .serve = LoadDecision.first(.standard, candidate.response.freshness, at: tiles.time.now)
        else { return false }
        found = candidate
        return true
    }

    private func wait(_ pause: Duration) {
        let (clock, loop) = (service.clock, tiles.loop)
        Task {
            // Nobody cancels it; an event that comes too late changes nothing.
            try? await clock.sleep(pause)
            loop.execute { self.take(.paused) }
        }
    }

    // MARK: The shared tier

    private func askShared() {
        guard let bucket = service.shared, let place = source.shared else { return take(.notShared) }
        let limit = source.tiles.bodyLimit
        look = bucket.look(key, place, limit: limit, on: tiles.loop) { tile in
            self.look = nil
            // What is stored here was as new, and is stale all the same: somebody has expired it here.
            guard let tile, self.stored.map({ tile.isNews(for: $0.entry.metadata) }) ?? true else {
                return self.take(.notShared)
            }
            guard let body = tile.body else { return self.adopt(tile) }
            let response = tile.metadata.response
            self.look(
                through: body.data, response.mediaType, response.contentEncoding, self.source.tiles.kind, hashes: false
            ) { why, _ in
                guard let why else { return self.adopt(tile) }
                bucket.refused(self.key, why)
                self.take(.notShared)
            }
        }
    }

    private func adopt(_ tile: SharedTile) {
        service.shared?.taken()
        shared = tile
        answer.body = tile.body?.data ?? Data()
        take(.shared(tile.metadata, isAbsence: tile.body == nil))
    }

    /// What an answer says, counted from when its origin was asked, as a fleet's marks are about that: what is expired while the
    /// answer is under way is stale, now or when this proxy hears of it.
    ///
    /// Its age and its lifetime stay as they are.
    private func asAsked(_ record: AnswerRecord) -> AnswerRecord {
        guard let bucket = service.shared, let tile = key.tile else { return record }
        var record = record
        var metadata = record.intent.metadata
        let early = metadata.storedAt.seconds - askedAt.seconds
        if early > 0 {
            metadata.storedAt = askedAt
            metadata.initialAge = max(0, metadata.initialAge - Int(clamping: early))
        }
        if let since = bucket.staleSince(
            key.source, z: tile.z, x: tile.x, y: tile.y, storedAt: metadata.storedAt)
        {
            metadata.expires = min(metadata.expires, since)
        }
        record.intent.metadata = metadata
        return record
    }

    /// When the origin was first asked for what it has answered: where it has redirected to a file, the redirect says which one.
    private var askedAt: Timestamp {
        let now = Timestamp(seconds: tiles.time.now.seconds)
        let since = service.clock.ticks() &- (attempt?.began ?? sentAt)
        return now.adding(seconds: -Int64(clamping: since / 1_000_000_000))
    }

    /// Has what the origin said written for the other proxies.
    private func tellOthers(_ end: TileFill.End) {
        guard let bucket = service.shared, let place = source.shared, tiles.isCurrent(source) else { return }
        let key = key
        @Sendable func write(_ metadata: TileMetadata, _ blob: BlobDigest?, _ data: Data) {
            bucket.write(key, metadata, blob, ByteBuffer(bytes: data), of: place)
        }
        switch end {
        case .brought(let record, let isAbsence, .kept):
            let metadata = asAsked(record).intent.metadata
            guard !isAbsence else { return write(metadata, nil, Data()) }
            let name = hashed?.digest ?? blob ?? answer.body.withUnsafeBytes { BlobDigest(hashing: $0) }
            write(metadata, name, answer.body)
        case .confirmed(let record) where found == nil && record.isStorable:
            let metadata = asAsked(record).intent.metadata
            switch stored?.body {
            case .some(.none): write(metadata, nil, Data())
            case .memory(let data):
                guard let name = stored?.entry.blob else { return }
                write(metadata, name, data)
            case .file(let file):
                guard let name = stored?.entry.blob else { return }
                service.worker.read(on: tiles.loop) { _ in
                    try StoredBody.file(file).data() ?? Data()
                } then: { result in
                    // What cannot be read is told by whoever wants to serve it.
                    if case .success(let data) = result { write(metadata, name, data) }
                }
            case nil: break
            }
        // What was stored here may be in the bucket as well.
        case .brought(_, _, .forbidden) where stored != nil: bucket.withdraw(key, of: place)
        case .brought(_, _, .forbidden): bucket.forget(key, of: place)
        default: break
        }
    }

    // MARK: Slots

    private func takeSlot(_ host: String) {
        let loop = tiles.loop
        slotHost = host
        let entered = service.slots.enter(host, ticket.urgency) { slot in loop.execute { self.granted(slot) } }
        switch entered {
        case .slot(let slot):
            self.slot = slot
            take(.slot)
        case .waits(let number):
            place = (host, number)
            // No longer than an answer may take, or than is left of this attempt: all those ahead may hang.
            let end = attempt?.ends ?? service.clock.ticks() &+ source.tiles.timeout.nanoseconds
            waitLimit = tiles.waitLimits.add(until: end) { self.waitedInVain() }
        }
    }

    private func waitedInVain() {
        guard let place else { return }
        leaveLine()
        error = TransportError(.timeout, "\(place.origin): the requests before this one take too long")
        take(.noSlot)
    }

    private func leaveLine() {
        guard let place else { return }
        if let waitLimit { tiles.waitLimits.remove(waitLimit) }
        waitLimit = nil
        service.slots.giveUp(place.origin, place.number)
        _ = ticket.urgency.watch(nil)
        self.place = nil
    }

    /// The slot that it stood in line for.
    private func granted(_ slot: OriginSlots.Slot) {
        // One that was cancelled just before it got its slot gives it back.
        guard place != nil else { return service.slots.leave(slot) }
        leaveLine()
        self.slot = slot
        take(.slot)
    }

    private func giveSlot() {
        if let slot { service.slots.leave(slot) }
        slot = nil
    }

    // MARK: The request

    private func send(_ request: HTTPRequest, redirectedFrom first: String?, _ share: Int?) {
        let now = service.clock.ticks()
        let end = attempt?.ends ?? now &+ source.tiles.timeout.nanoseconds
        attempt = (attempt?.began ?? now, end)
        guard end > now else {
            error = TransportError(.timeout, "\(request.host): no time is left to ask it")
            return take(
                .noAnswer(TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: true, isTimeout: true)))
        }
        let timeout = Duration.nanoseconds(Int64(clamping: end - now)) / (share ?? 1)
        sentAt = now
        let outgoing: TileQuestion
        do throws(TransportError) {
            let (question, received) = (question, tiles.time.now)
            outgoing = try TileQuestion(
                request, bodyLimit: question?.mostBytes ?? source.tiles.bodyLimit, timeout: timeout,
                // The source's own hosts may lie in a private network, on whatever port.
                isRedirected: first.map { !isOwn(OriginHost(request), $0) } ?? false,
                wantsBody: question.map { question in
                    { @Sendable head in question.wantsBody(of: head, at: received) }
                })
        } catch { return received(.failure(error)) }
        // A request that is not sent at all is answered before `send` returns.
        var isOver = false
        let call = service.origins.send(outgoing, on: tiles.loop) { result in
            isOver = true
            self.call = nil
            self.received(result)
        }
        if !isOver { self.call = call }
    }

    private func isOwn(_ host: OriginHost, _ first: String) -> Bool {
        host.name == OriginHost(scheme: host.scheme, authority: first).name
            || host.name == ownHost || source.mirrors.contains { $0.name == host.name }
    }

    private func received(_ result: Result<TransportResponse, TransportError>) {
        if loneEnd != nil { _ = isFollowedAgain() }
        let took = service.clock.ticks() &- sentAt
        switch result {
        case .success(var response):
            // Of a file no coding is believed, and none is forgiven.
            if question == nil { response.dropFalseCoding() }
            answer = response
            let status = response.head.status.code
            let saved = status == 304 ? stored?.entry.size ?? 0 : 0
            service.statistics.upstream(source.name) {
                $0.requests += 1
                $0.add(status: status, bytes: response.body.count, seconds: Double(took) / 1e9)
                $0.bytesSaved += saved
            }
            take(.answer(response.head, bytes: response.body.count, requestedAt: tiles.time.ago(nanoseconds: took)))
        case .failure(let error):
            self.error = error
            // What was not sent is no request.
            if !error.isUnasked {
                service.statistics.upstream(source.name) {
                    $0.requests += 1
                    $0.failures += 1
                }
            }
            take(.noAnswer(error.meaning))
        }
    }

    /// Looks at the body of an answer.
    private func check(_ head: HTTPResponse) {
        let fields = head.headerFields
        let (body, kind) = (answer.body, source.tiles.kind)
        switch subject {
        case .tile: check(fields.combined(.contentType), fields.combined(.contentEncoding), kind)
        case .part(let part):
            let length = fields.combined(.contentRange).flatMap { ContentRange($0) }?.length ?? 0
            service.worker.compute(on: tiles.loop) {
                (part.objection(body, length), HashedBody(body))
            } then: { why, hashed in
                (self.hashed, self.blob) = (hashed, hashed.digest)
                self.take(.checked(objection: why))
            }
        case .archived:
            let said = subject.content(of: body)
            var content = HTTPFields()
            (content[.contentType], content[.contentEncoding]) = (said?.type, said?.coding)
            check(said?.type, said?.coding, source.configuration.kind ?? said?.kind ?? kind, content)
        }
    }

    private func check(_ type: String?, _ coding: String?, _ kind: TileKind, _ content: HTTPFields = [:]) {
        // Answers without a tag of the server's, and those to clients without gzip, need the body's name: made once for all,
        // and for the put.
        look(through: answer.body, type, coding, kind, hashes: true) { why, hashed in
            if let hashed { (self.hashed, self.blob) = (hashed, hashed.digest) }
            // Who has come meanwhile gets a further attempt where this one is no tile.
            if self.loneEnd != nil { _ = self.isFollowedAgain() }
            self.take(.checked(objection: why, content: content))
        }
    }

    /// Looks whether bytes are a tile of the source, from wherever they come; what has to be decompressed for that is not for the loop.
    ///
    /// - Parameter finish: Called once, with why they are none, and with the body hashed where that was asked for and took another
    ///   thread anyway.
    private func look(
        through body: Data, _ type: String?, _ coding: String?, _ kind: TileKind, hashes: Bool,
        _ finish: @escaping @Sendable (_ objection: String?, HashedBody?) -> Void
    ) {
        let objection: @Sendable () -> String? = {
            kind.objection(to: body, mediaType: type, contentEncoding: coding)
        }
        guard body.count > Self.checkedAtOnce || coding != nil || Gzip.isMarked(body) else {
            return finish(objection(), nil)
        }
        service.worker.compute(on: tiles.loop) {
            let why = objection()
            return (why, hashes && why == nil ? HashedBody(body) : nil)
        } then: { why, hashed in
            finish(why, hashed)
        }
    }

    /// Larger bodies are looked at on a thread that may take its time.
    private static let checkedAtOnce = 64 << 10

    // MARK: The store

    /// Whether the answer may be stored: not where the source has been configured anew since it was asked for.
    private func mayStore() -> Bool {
        isStored = tiles.isCurrent(source)
        return isStored
    }

    private func carryOut(_ job: TileJob) {
        let (key, held) = (key, service.held)
        service.worker.run(on: tiles.loop) { store in
            job.perform(key, store, held)
        } then: { result in
            if case .success(let outcome) = result { self.carriedOut(outcome) } else { self.take(.stored) }
        }
    }

    private func carriedOut(_ outcome: TileJob.Outcome) {
        // Somebody stored another tile since: that one counts.
        found = outcome.current.map { Candidate($0) }
        file = outcome.file?.body
        blob = outcome.blob ?? blob
        if outcome.isGone || outcome.isOlder { isStored = false }
        if let failure = outcome.failedRemoval {
            isStored = false
            service.notRemoved(key, failure)
        }
        if let failure = outcome.failure {
            isStored = false
            service.notStored(key, failure)
        }
        take(.stored)
    }

    // MARK: The end

    private func end(_ end: TileFill.End) {
        leaveLine()
        if let call {
            call.cancel()
            service.statistics.upstream(source.name) { $0.requests += 1 }
        }
        call = nil
        look?.cancel()
        look = nil
        endLoneTime()
        tellOthers(end)
        service.flights.land(ticket, news(of: end))
    }

    private func news(of end: TileFill.End) -> FillEnd {
        switch end {
        case .found: return found.map { .tile(TileNews($0, .found, isStored: true)) } ?? .again
        case .brought(let record, let isAbsence, let keeping):
            return brought(
                asAsked(record).intent.metadata, isAbsence: isAbsence, .origin, isStored: isStored && keeping == .kept)
        case .shared(let metadata, let isAbsence):
            return brought(metadata, isAbsence: isAbsence, .shared, isStored: isStored)
        case .confirmed(let record):
            if let found { return .tile(TileNews(found, .confirmed, isStored: true)) }
            let candidate = Candidate(
                tile: key, asAsked(record).intent.metadata, stored?.body ?? .none, stored?.owner,
                blob: stored?.entry.blob)
            return .tile(TileNews(candidate, .confirmed, isStored: isStored))
        case .failed(let failure): return .noTile(failure, retryAfter: failed(failure))
        case .cancelled: return .again
        }
    }

    private func brought(
        _ metadata: TileMetadata, isAbsence: Bool, _ from: TileNews.Source, isStored: Bool
    ) -> FillEnd {
        var (body, owner) = (StoredBody.none, HeldBody?.none)
        if let file {
            body = file
        } else if !isAbsence {
            // What is not in a file is in memory for as long as the slowest client reads it.
            if answer.body.count > Candidate.wholeUpTo {
                owner = HeldBody(answer.body, within: service.budget)
                guard owner != nil else { return .noTile(.noRoom, retryAfter: nil) }
            }
            body = .memory(answer.body)
            if blob == nil, metadata.etag == nil { blob = answer.body.withUnsafeBytes { BlobDigest(hashing: $0) } }
        }
        let candidate = Candidate(tile: key, metadata, body, owner, blob: isAbsence ? nil : blob)
        return .tile(TileNews(candidate, from, isStored: isStored))
    }

    /// Tells an operator of it.
    ///
    /// - Returns: When it makes sense to ask again, if that is known.
    private func failed(_ failure: TileFill.Failure) -> Duration? {
        let known = error.map { TileCacheError(.noAnswer, "\(key): \($0.message)", key: key, cause: $0) }
        let said = FetchFailure(failure, key: key, known: known, now: service.clock.ticks()).error
        service.noTile(key, said, isRefresh: isRefresh)
        return said.retryAfter
    }
}
