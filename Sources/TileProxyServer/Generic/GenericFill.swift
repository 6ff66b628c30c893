import CacheEngine
import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import Logging
import NIOCore
import OriginClient
import TileStore

/// One question of the generic route to its origin: carries out what its fill says.
///
/// Belongs to its event loop and is used on it alone.
final class GenericFill: @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    private let proxy: GenericProxy
    private let route: ProxyRoute
    private let keys: ResourceKeys
    private let body: UpstreamRequest.Body
    private var fill: Fill
    private var owner: GenericExchange?
    private let client: Exchange?
    private var relay: BodyRelay?
    /// What the body will be collected in.
    private var incoming: IncomingBody?
    private var ticket: Fills.Ticket?
    private var permit: Changes.Permit?
    private var call: UpstreamCall?
    /// When the request was sent (ticks); until then, when a connection was asked for.
    private var sentAt: UInt64 = 0
    private var length: Int64?
    private var hasHead = false
    private var trailers: HTTPFields?
    private var events: [Fill.Event] = []
    private var isActing = false
    /// Whether the store is being changed before the answer goes on.
    private var isSettling = false

    /// - Parameter owner: The request that it is begun for; `nil` for a refresh in the background.
    init(
        _ proxy: GenericProxy, _ route: ProxyRoute, _ keys: ResourceKeys, _ request: CacheRequest,
        _ forwarding: Forwarding, _ ticket: Fills.Ticket?, owner: GenericExchange?, probe: UInt64?
    ) {
        self.proxy = proxy
        self.route = route
        self.keys = keys
        self.ticket = ticket
        self.owner = owner
        client = owner?.exchange
        body = owner?.body ?? .none
        var scope = route.scope(keys)
        if let client, !Invalidation.isSafe(request.method) {
            scope.aliases = route.aliases(keys, client.head, publicURL: proxy.cache.settings.publicURL())
        }
        fill = Fill(request, forwarding, proxy.cache.use, scope, hasOwner: owner != nil, probe: probe)
        if request.isForCache, let key = request.key { permit = proxy.cache.changes.takePermit(for: key) }
        let report = request.key.map { proxy.cache.bodyCannotBeRead($0) }
        relay = BodyRelay(
            client,
            BodyRelay.Listener(
                holdChanged: { [weak self] in self?.holdChanged() },
                stagingFailed: { [weak self] error, isAppending in
                    self?.notStored(error)
                    if !isAppending { self?.take(.tooMuch) }
                },
                brokenOff: { [weak self] error in
                    if let error { report?(error) }
                    self?.owner?.clientIsGone()
                }))
    }

    private var cache: GenericCache { proxy.cache }
    private var request: CacheRequest { fill.request }
    private var question: Int { request.question(to: route.origin.name) }

    /// Begins.
    func start(looksAgain: Bool) {
        proxy.began(self)
        take(.begin(looksAgain: looksAgain))
    }

    /// Hands an event to the fill, and does what it says.
    private func take(_ event: Fill.Event) {
        events.append(event)
        guard !isActing else { return }
        isActing = true
        defer { isActing = false }
        while !events.isEmpty {
            for action in fill.on(events.removeFirst(), at: proxy.time.now) { perform(action) }
        }
    }

    private func perform(_ action: Fill.Action) {
        switch action {
        // What the store cannot tell at once, or at all, is for the origin.
        case .lookAgain: take(.looked(try? cache.lookNow(request, keys)))
        case .ask(let fields): ask(fields)
        case .cancelOrigin:
            call?.cancel()
            call = nil
        case .judge(let judgement, let probe):
            cache.health.judge(route.origin.name, question, judgement, sentAt: sentAt, probe: probe)
        case .abandonProbe(let probe): cache.health.abandoned(route.origin.name, question, probe: probe)
        case .report(let trouble): report(trouble)
        case .settle(let gone, let job):
            isSettling = true
            holdChanged()
            settle(gone[...]) {
                self.carryOut(job) { _ in
                    self.take(.settled)
                    self.isSettling = false
                    self.holdChanged()
                }
            }
        case .makeRoom(let length): take(.room(makeRoom(length)))
        case .route(.drop): relay?.drop()
        case .route(.relay): relay?.relay()
        case .route(.collect):
            if let incoming { relay?.collect(incoming) }
            incoming = nil
        case .tellOwner(let news): tellOwner(news)
        case .admitNobody:
            if let ticket { cache.flights.shut(ticket) }
        case .sendFollowersAway(let news):
            if let ticket { cache.flights.close(ticket, news) }
        case .remember(let wasOfUse):
            if let key = fill.flightKey { cache.flights.remember(key, wasOfUse: wasOfUse) }
        case .store(let intent): store(intent)
        case .update(let job): carryOut(job) { self.take(.updated($0)) }
        case .startForgetting:
            call?.mayBeUnwanted = true
            proxy.loop.scheduleTask(in: cache.settings.unwantedBody) { [weak self] in self?.take(.forgotten) }
        case .end(let news): end(news)
        }
    }

    private func tellOwner(_ news: FillNews) {
        guard let owner else { return }
        switch news {
        case .head:
            owner.take(.told(news))
            relay?.headIsOut()
        case .ended:
            relay?.finish(trailers: trailers)
            owner.take(.told(news))
        case .found, .confirmed, .useStale, .failed: owner.take(.told(news))
        }
    }

    private func report(_ trouble: OriginTrouble) {
        // A query may hold secrets.
        let path = request.target.prefix { $0 != "?" }
        let metadata: Logger.Metadata = ["upstream": "\(route.name)", "why": "\(trouble)", "path": "\(path)"]
        cache.failures.report(.warning, "no answer from upstream", kind: route.name.description, metadata)
    }

    private func end(_ news: FillEnd) {
        if let ticket { cache.flights.land(ticket, news) }
        ticket = nil
        if let permit { cache.changes.giveBack(permit) }
        permit = nil
        (owner, incoming) = (nil, nil)
        relay?.fillIsOver()
        proxy.isOver(self)
    }

    // MARK: The client

    /// The client is gone.
    func ownerHasLeft() {
        guard owner != nil else { return }
        owner = nil
        let loop = proxy.loop
        let others = ticket.map { ticket in
            cache.flights.leaderLeft(ticket) { loop.execute { self.take(.deserted) } }
        }
        relay?.clientIsGone()
        call?.mayBeUnwanted = false
        take(.ownerLeft(others: others ?? false))
    }

    /// The client has ended its side: it is gone, or has nothing more to say and waits.
    func ownerHasEndedItsSide() {
        // An upload may have changed something already, and what is sent shows whether the client is there. Where others
        // wait for the answer, it is wanted.
        guard !hasHead, body == .none, ticket.map({ !cache.flights.hasFollowers($0) }) ?? true else { return }
        call?.mayBeUnwanted = true
    }

    /// The proxy goes down: what has not come by now is not waited for.
    func giveUp() {
        call?.cancel()
        take(.failed(.cancelled))
    }

    /// What the origin has to wait for has changed.
    ///
    /// A connection that waits for its client is not one that other requests wait for. One that waits for the disk is: else
    /// a slow disk would open ever more of them.
    private func holdChanged() {
        let hold = relay?.hold ?? []
        let mayGoOn = hold.isEmpty && !isSettling
        if !mayGoOn { call?.pause() }
        call?.waitsForReader = hold.contains(.reader)
        if mayGoOn { call?.resume() }
    }

    // MARK: The origin

    private func ask(_ fields: HTTPFields) {
        sentAt = cache.settings.ticks()
        var fields = fields
        proxy.ownVia.add(to: &fields)
        if request.takesTrailers {
            fields.append(HTTPField(name: .te, value: "trailers"))
            fields.append(HTTPField(name: .connection, value: "TE"))
        }
        let upstream = UpstreamRequest(
            method: request.method.rawValue, target: request.target, fields: fields, body: body)
        hasHead = false
        call = proxy.pool(for: route.origin).call(upstream, receiver: self)
    }

    /// When the origin was asked.
    private var requestedAt: HTTPDate { proxy.time.ago(nanoseconds: cache.settings.ticks() &- sentAt) }

    // MARK: The store

    /// Goes on once nothing from before is being stored for some resources, nor will be: what is removed must not come
    /// back.
    private func settle(_ resources: ArraySlice<TileKey>, then next: @escaping @Sendable () -> Void) {
        guard let resource = resources.first else {
            next()
            return
        }
        let loop = proxy.loop
        let isSettled = cache.changes.change(resource) {
            loop.execute { self.settle(resources.dropFirst(), then: next) }
        }
        if isSettled { settle(resources.dropFirst(), then: next) }
    }

    /// Makes room for a body that is to be stored.
    private func makeRoom(_ length: Int64?) -> Fill.Room {
        guard let key = request.key else { return .none }
        let limit = min(cache.use.storedBodyBytes, cache.store.largestBody(for: key))
        let known = length.map { Int(clamping: $0) }
        do {
            incoming = try IncomingBody(cache, limit: limit, length: known, loop: proxy.loop)
        } catch { notStored(error) }
        return incoming == nil ? .none : known == nil ? .asFarAsItGoes : .whole
    }

    /// Stores what was collected, and ends the client's answer.
    private func store(_ intent: OriginDecision.StoreIntent) {
        let body = relay?.collected()
        // First, so that whoever has seen the answer's end waits for the store.
        let mayStore = body != nil && permit.map { cache.changes.beginWriting($0) } ?? false
        if owner != nil { relay?.finish(trailers: trailers) }
        owner?.take(.told(.ended))
        guard mayStore, let permit, let body, let key = request.key else {
            body?.giveUp(isRead: relay?.isBehind ?? false)
            take(.mayNotStore)
            return
        }
        @Sendable func done(_ outcome: StoreJob.Outcome) {
            cache.changes.endWriting(permit)
            let held = outcome.isStored ? nil : body.held()
            let isBehind = relay?.isBehind ?? false
            if let blob = outcome.blob {
                body.isStored()
                if isBehind { readOn(body, from: blob) }
            } else {
                body.giveUp(isRead: isBehind)
            }
            take(.stored(outcome, held))
        }
        body.finish {
            if let failure = body.failure {
                self.notStored(failure)
                done(StoreJob.Outcome(isStored: false))
                return
            }
            let bytes = isBodiless(intent.status) ? .none : body.bytes
            self.carryOut(.put(primary: key, intent, body: bytes, request: self.request.fields), then: done)
        }
    }

    /// Has a slow client sent the rest from the blob that the body has become.
    private func readOn(_ body: IncomingBody, from blob: BlobDigest) {
        cache.worker.read(on: proxy.loop) { store in
            try store.open(blob)
        } then: { result in
            guard self.relay?.isBehind ?? false else { return }
            switch result {
            case .success(let file): body.readOn(from: file)
            case .failure(let error):
                if let key = self.request.key { self.cache.bodyCannotBeRead(key)(error) }
                body.readOn(from: nil)
            }
        }
    }

    /// Carries a job out on a thread that may wait, then goes on here; a failure is logged and costs nobody an answer.
    private func carryOut(_ job: StoreJob, then next: @escaping @Sendable (StoreJob.Outcome) -> Void) {
        let (keys, cache) = (keys, cache)
        var writing: Changes.Permit?
        if case .move = job {
            // A refresh is tied to the version of the entry. A move writes a response, so it needs the right to.
            guard let permit, cache.changes.beginWriting(permit) else {
                next(StoreJob.Outcome(isStored: false))
                return
            }
            writing = permit
        }
        cache.worker.run(on: proxy.loop) { [writing] store in
            defer { if let writing { cache.changes.endWriting(writing) } }
            return try job.perform(store, keys)
        } then: { result in
            switch result {
            case .success(let outcome): next(outcome)
            case .failure(let error):
                self.notStored(error)
                next(StoreJob.Outcome(isStored: false))
            }
        }
    }

    private func notStored(_ error: any Error) {
        cache.failures.report(.error, "an answer could not be stored", ["error": "\(error)"])
        cache.settings.onNotStored?()
    }
}

extension GenericFill: UpstreamReceiver {
    func upstreamIsReady(_ call: UpstreamCall) {
        // An answer is no older for having waited for a connection.
        sentAt = cache.settings.ticks()
        if body != .none { sendBody(call) }
    }

    /// Hands on the client's body part by part, as fast as the origin takes it.
    private func sendBody(_ call: UpstreamCall) {
        // Others do not wait for the connection while this client takes its time.
        call.waitsForUpload = true
        client?.nextBodyPart { [weak self] part in
            call.waitsForUpload = false
            switch part {
            case .bytes(let bytes):
                call.send(bytes)
                call.whenWritable { self?.sendBody(call) }
            case .end(let trailers): call.finish(trailers: trailers)
            case .failed:
                call.cancel()
                self?.take(.failed(.cancelled))
            }
        }
    }

    func upstreamSent(interim: HTTPResponse) {
        guard interim.status.code != 100, owner != nil else { return }
        var response = interim
        response.headerFields = interim.headerFields.withoutConnectionFields
        client?.sendInterim(response)
        relay?.waitForReader()
    }

    func upstreamSent(head: HTTPResponse, length: Int64?) {
        hasHead = true
        self.length = length
        take(.head(head, length: length, requestedAt: requestedAt))
    }

    func upstreamSent(bytes: ByteBuffer) {
        if !(relay?.append(bytes) ?? true) { take(.tooMuch) }
    }

    func upstreamEnded(trailers: HTTPFields?) {
        self.trailers = request.takesTrailers ? trailers : nil
        take(.ended)
    }

    func upstreamFailed(_ failure: UpstreamFailure) { take(.failed(OriginTrouble(failure))) }
}

extension OriginTrouble {
    init(_ failure: UpstreamFailure) {
        switch failure {
        case .unreachable(let why), .untrusted(let why), .forbidden(let why): self = .unreachable(why)
        case .nameNotFound: self = .unreachable("the name is not known")
        case .connectTimeout: self = .connectTimeout
        case .timeout: self = .timeout
        case .closed: self = .closed
        case .malformed(let why), .headTooLarge(let why): self = .malformed(why)
        case .overloaded: self = .overloaded
        case .clientTooSlow: self = .clientTooSlow
        case .clientMayBeGone: self = .clientMayBeGone
        case .cancelled: self = .cancelled
        }
    }
}
