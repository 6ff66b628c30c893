package import HTTPCaching
package import HTTPTypes
package import TileStore

/// What a fill tells the transaction that it was begun for.
package enum FillNews: Sendable {
    /// The answer is stored by now: no question was sent.
    case found(Lookup)
    /// The head of an answer to hand on; the body follows, then ``ended``.
    indirect case head(HTTPResponse, length: Int64?, CacheStatus)
    /// The origin has confirmed what is stored, which is brought up to date here.
    indirect case confirmed(Candidate, StoredResponse, CacheStatus)
    /// The origin answered with an error of this status, and what is stored may stand in (RFC 5861 §4).
    case useStale(Candidate, status: Int)
    /// There is no answer, or no more of it.
    case failed(OriginTrouble)
    /// The answer that was handed on is complete.
    case ended
}

/// One question to an origin: decides what becomes of the answer, and does nothing itself.
///
/// It serves the transaction that it was begun for, its owner, and the followers in ``Flights``. Bytes stay with the
/// driver; the fill says where they go (``Action/route(_:)``). An answer is stored only if the rules allow it, nothing has
/// changed the resource meanwhile, and the body is complete. ``Action/end`` is its last action, and comes exactly once.
///
/// A value without a socket, a store or a clock; used by one thread at a time.
package struct Fill: Sendable {
    /// What happens.
    package enum Event: Sendable {
        /// - Parameter looksAgain: Whether to look into the tables first. Between the look of the owner and the flight's
        ///   begin the flight before this one may have landed.
        case begin(looksAgain: Bool)
        /// The answer to ``Action/lookAgain``; `nil` if the store could not tell at once.
        case looked(Lookup?)
        /// The head of the final answer, with all its fields.
        indirect case head(HTTPResponse, length: Int64?, requestedAt: HTTPDate)
        /// What had to be done to the store before the answer goes on is done.
        case settled
        /// The answer to ``Action/makeRoom(length:)``.
        case room(Room)
        /// The body turns out too large to be collected, there is no more room for it, or the disk does not take it.
        case tooMuch
        /// The answer is complete.
        case ended
        /// There is no answer, or no more of it.
        case failed(OriginTrouble)
        /// The answer to ``Action/store(_:)``: what became of it; where it is not stored, its body if that is in memory.
        indirect case stored(StoreJob.Outcome, HeldBody?)
        /// The answer to ``Action/store(_:)``: the resource has changed meanwhile, so it must not be stored.
        case mayNotStore
        /// The answer to ``Action/update(_:)``.
        indirect case updated(StoreJob.Outcome)
        /// The owner has left; whether others wait.
        case ownerLeft(others: Bool)
        /// The owner has left, and all others have too.
        case deserted
        /// Nobody has waited for some time for what is being collected.
        case forgotten
    }

    /// Where the bytes of the body go.
    package enum Route: Hashable, Sendable {
        /// Nowhere: the body is only read to its end.
        case drop
        /// To the owner, at its speed.
        case relay
        /// Towards the store at the origin's speed, as far as there is room, and to the owner at its own speed.
        case collect
    }

    /// What room there is for a body that is to be stored.
    package enum Room: Hashable, Sendable {
        /// None: it is larger than what is stored, or others have the room.
        case none
        /// Some; as its length is not known, it may turn out too small.
        case asFarAsItGoes
        /// Enough for all of it, and it is kept for it.
        case whole
    }

    /// What is to be done.
    package enum Action: Sendable {
        /// Look the request up without waiting.
        case lookAgain
        /// Send the question with these fields.
        case ask(HTTPFields)
        /// Give the question up, and its connection.
        case cancelOrigin
        /// Tell what became of the question, for those who could do without an answer.
        ///
        /// With the number of the leave to try an origin that has failed, if it had one.
        case judge(OriginHealth.Judgement, probe: UInt64?)
        /// The leave to try the origin was not used.
        case abandonProbe(UInt64)
        /// Tell an operator that there is no answer.
        case report(OriginTrouble)
        /// Do this before the answer goes on; the origin is read no further, and ``Event/settled`` follows.
        ///
        /// First wait for what is being stored for these URLs, and let nothing from before be stored for them any more. Then
        /// do the job to the store.
        indirect case settle([TileKey], StoreJob)
        /// Make room for a body that is to be stored, of this length if it is known; ``Event/room(_:)`` follows.
        case makeRoom(length: Int64?)
        /// Where the body goes.
        case route(Route)
        /// Let nobody join any more: the answer is for those who have asked by now.
        case admitNobody
        /// Tell the owner; nothing where it has left.
        case tellOwner(FillNews)
        /// Send followers away, and let nobody join any more.
        case sendFollowersAway(FillEnd)
        /// Remember whether such an answer is of use to others.
        case remember(wasOfUse: Bool)
        /// Store the collected body, unless the resource has changed; ``Event/stored(_:_:)`` or ``Event/mayNotStore``
        /// follows.
        indirect case store(OriginDecision.StoreIntent)
        /// Bring what is stored up to date; ``Event/updated(_:)`` follows.
        indirect case update(StoreJob)
        /// Nobody waits for what is being collected: whoever needs the connection may have it, and after some time
        /// ``Event/forgotten`` shall come.
        case startForgetting
        /// The fill is over; what followers are told who are left.
        case end(FillEnd)
    }

    // What a state carries lies in a box: each event copies the state.
    private indirect enum State {
        case idle
        case looking
        /// The question is out.
        case asked
        /// The head is there, and the store is being changed before it goes on.
        case settling(HTTPResponse, length: Int64?, OriginDecision.StoreIntent?)
        /// Room is being made for the body.
        case makingRoom(HTTPResponse, length: Int64?, OriginDecision.StoreIntent)
        /// The body goes to the owner, and to nobody else.
        case relaying
        case collecting(OriginDecision.StoreIntent)
        case storing(OriginDecision.StoreIntent)
        case updating(Candidate, StoredResponse, StoreJob)
        case over
    }

    /// The request that it asks for.
    package let request: CacheRequest
    private let use: CacheUse
    private let scope: ResourceScope
    /// The question as it was begun with; what is stored under it may have to go.
    private let first: Forwarding
    /// The question that is out.
    private var forwarding: Forwarding
    /// The request that the question was made from: without conditions once they made no sense.
    private var asked: CacheRequest
    private var state = State.idle
    private var hasOwner: Bool
    private var hasHead = false
    /// Everybody left while the store was being changed; what is then collected is wanted by nobody.
    private var isDeserted = false
    /// Others wait for what becomes of this question to an origin that has failed.
    private var probe: UInt64?

    /// - Parameters:
    ///   - hasOwner: Whether it is begun for a transaction; a refresh in the background is not.
    ///   - probe: The number of the leave that ``OriginHealth`` has given it to try an origin that has failed.
    package init(
        _ request: CacheRequest, _ forwarding: Forwarding, _ use: CacheUse, _ scope: ResourceScope, hasOwner: Bool,
        probe: UInt64?
    ) {
        self.request = request
        asked = request
        first = forwarding
        self.forwarding = forwarding
        self.use = use
        self.scope = scope
        self.hasOwner = hasOwner
        self.probe = probe
    }

    /// Whether it is over.
    package var isOver: Bool { if case .over = state { true } else { false } }
    /// What requests that ask the same have in common: those that want different variants do not wait for one another.
    package var flightKey: TileKey? { Self.flightKey(request, first) }

    /// The same before there is a fill.
    package static func flightKey(_ request: CacheRequest, _ forwarding: Forwarding) -> TileKey? {
        forwarding.candidate?.key ?? request.key
    }

    /// Takes an event; events that come too late change nothing.
    package mutating func on(_ event: Event, at now: HTTPDate) -> [Action] {
        switch (event, state) {
        case (_, .over): return []
        case (.begin(let looksAgain), .idle):
            guard looksAgain else { return ask() }
            state = .looking
            return [.lookAgain]
        case (.looked(let lookup), .looking):
            if let lookup, case .serve = CacheDecision.decide(request, lookup, at: now) {
                return end(.stored, [.tellOwner(.found(lookup))])
            }
            return ask()
        case (.head(let response, let length, let requestedAt), .asked):
            return head(response, length, requestedAt, now)
        case (.settled, .settling(let response, let length, let intent)): return pass(response, length, intent, now)
        case (.room(.none), .makingRoom(let response, let length, _)): return withoutRoom(response, length, now)
        case (.room(let room), .makingRoom(let response, let length, let intent)):
            return handOn(response, length, intent, isRoomCertain: room == .whole, now)
        case (.tooMuch, .collecting(let intent)): return stopCollecting(intent)
        case (.ended, .relaying): return end(.alone, [.tellOwner(.ended)])
        case (.ended, .collecting(let intent)):
            state = .storing(intent)
            return [.store(intent)]
        case (.stored(let outcome, let body), .storing(let intent)):
            return end(news(of: intent, isStored: outcome.isStored, body, now))
        case (.mayNotStore, .storing): return end(.alone)
        case (.updated(let outcome), .updating(let candidate, let stored, let job)):
            return updated(outcome, candidate, stored, job, now)
        case (.failed(let trouble), _): return failed(trouble)
        case (.ownerLeft(let others), _): return ownerLeft(others: others)
        case (.deserted, .looking), (.deserted, .asked): return end(.again, [.cancelOrigin])
        case (.deserted, .collecting): return [.startForgetting]
        case (.deserted, .settling), (.deserted, .makingRoom):
            isDeserted = true
            return []
        case (.forgotten, .collecting): return end(.again, [.cancelOrigin])
        default: return []
        }
    }

    private mutating func ask() -> [Action] {
        state = .asked
        return [.ask(forwarding.fields)]
    }

    private mutating func end(_ news: FillEnd, _ actions: [Action] = []) -> [Action] {
        state = .over
        let unused: [Action] = probe.map { [.abandonProbe($0)] } ?? []
        probe = nil
        return actions + unused + [.end(news)]
    }

    private mutating func judge(_ judgement: OriginHealth.Judgement) -> Action {
        defer { probe = nil }
        return .judge(judgement, probe: probe)
    }

    // MARK: The head

    private mutating func head(
        _ raw: HTTPResponse, _ length: Int64?, _ requestedAt: HTTPDate, _ now: HTTPDate
    ) -> [Action] {
        hasHead = true
        let status = raw.status.code
        let judgement = judge(Self.judgement(of: raw, now))
        let decision = OriginDecision.decide(
            raw, to: asked, forwarding, use, requestedAt: requestedAt, receivedAt: now)
        switch decision {
        case .pass(let intent): return [judgement] + settle(raw, length, intent, now)
        case .confirmed(let stored, let intent, let update):
            return [judgement, .route(.drop)] + confirm(stored, intent, update, now)
        case .serveStale:
            var actions: [Action] = [judgement, .route(.drop), .cancelOrigin]
            if let candidate = forwarding.candidate { actions.append(.tellOwner(.useStale(candidate, status: status))) }
            return end(.error(status: status), actions)
        case .askAgain:
            // The answer to the question made no sense: once more without it.
            var plain = request
            plain.dropConditions()
            asked = plain
            forwarding = Forwarding(plain, nil, forwarding.cause)
            hasHead = false
            return [judgement, .cancelOrigin] + ask()
        case .badGateway:
            let trouble = OriginTrouble.malformed("a 304 to a request without conditions")
            return end(news(of: trouble), [judgement, .cancelOrigin, .report(trouble), .tellOwner(.failed(trouble))])
        }
    }

    /// What an answer says about the origin.
    ///
    /// 502, 503 and 504 are what a gateway answers that got no answer itself; any other answer shows that the origin is there.
    private static func judgement(of response: HTTPResponse, _ now: HTTPDate) -> OriginHealth.Judgement {
        let status = response.status.code
        let isBusy = status == 503 || status == 429
        let pause = isBusy ? retryAfter(response.headerFields, now: now).flatMap { $0 > .zero ? $0 : nil } : nil
        if (502...504).contains(status) { return .failed(OriginSetback(.silent, .status(status), retryAfter: pause)) }
        return pause == nil ? .answered : .failed(OriginSetback(.overloaded, .status(status), retryAfter: pause))
    }

    /// Does to the store what must be done before the client sees the answer, then hands it on.
    private mutating func settle(
        _ raw: HTTPResponse, _ length: Int64?, _ intent: OriginDecision.StoreIntent?, _ now: HTTPDate
    ) -> [Action] {
        var response = raw
        response.headerFields = raw.headerFields.withoutConnectionFields
        let isTooLarge = length.map { $0 > Int64(use.storedBodyBytes) } ?? false
        let intent = isTooLarge || request.method != .get ? nil : intent
        let job =
            Invalidations.superseded(by: raw, to: request, first, use, isStored: intent != nil)
            ?? Invalidations.job(
                for: raw, to: request, forwarding.candidate, scope, use, length: length, now: now)
            ?? Invalidations.replaced(by: intent, to: request, first, now: now)
        guard let job else { return pass(response, length, intent, now) }
        // Who gets the answer to a change may rely on not being shown the past.
        var gone: [TileKey] = []
        if case .remove(let keys) = job, !request.isForCache { gone = keys }
        state = .settling(response, length: length, intent)
        return [.settle(gone, job)]
    }

    private mutating func pass(
        _ response: HTTPResponse, _ length: Int64?, _ intent: OriginDecision.StoreIntent?, _ now: HTTPDate
    ) -> [Action] {
        guard let intent else { return handOn(response, length, nil, isRoomCertain: false, now) }
        state = .makingRoom(response, length: length, intent)
        return [.makeRoom(length: isBodiless(response.status.code) ? 0 : length)]
    }

    /// There is no room for the body: what it would have replaced must not come back when the origin is away.
    private mutating func withoutRoom(_ response: HTTPResponse, _ length: Int64?, _ now: HTTPDate) -> [Action] {
        guard let job = Invalidations.superseded(by: response, to: request, first, use, isStored: false) else {
            return handOn(response, length, nil, isRoomCertain: false, now)
        }
        state = .settling(response, length: length, nil)
        return [.settle([], job)]
    }

    /// Hands the head on, and says where the body goes.
    ///
    /// - Parameters:
    ///   - intent: What is to be stored of it, where there is room.
    ///   - isRoomCertain: Whether the room is enough: only then the head, which goes out before the body has come, may say
    ///     that the answer is stored.
    private mutating func handOn(
        _ response: HTTPResponse, _ length: Int64?, _ intent: OriginDecision.StoreIntent?, isRoomCertain: Bool,
        _ now: HTTPDate
    ) -> [Action] {
        let isOfUse = intent.map { use.sharesOutcomes || $0.isReusable(at: now) } ?? false
        var actions = remember(wasOfUse: isOfUse)
        if !isOfUse { actions.append(.sendFollowersAway(.alone)) }
        var status = CacheStatus(cache: use.name)
        status.forward = forwarding.cause
        // What is stored and later by its `Date` stays.
        let stays = first.candidate.map { intent?.metadata.isOlder(than: $0.entry.metadata) ?? false } ?? false
        status.stored = intent != nil && isRoomCertain && !stays
        if first.candidate != nil { status.forwardStatus = response.status.code }
        if let intent { status.timeToLive = HTTPDate(intent.metadata.expires).seconds(since: now) }
        actions.append(.tellOwner(.head(response, length: length, status)))
        if let intent {
            state = .collecting(intent)
            if use.sharesOutcomes, !intent.isReusable(at: now) { actions.append(.admitNobody) }
            let forgetting: [Action] = isDeserted ? [.startForgetting] : []
            return actions + [.route(.collect)] + forgetting
        }
        guard hasOwner else { return end(.alone, actions + [.cancelOrigin]) }
        state = .relaying
        return actions + [.route(.relay)]
    }

    private mutating func stopCollecting(_ intent: OriginDecision.StoreIntent) -> [Action] {
        // The head is out: this is done while the body goes on.
        let superseded = Invalidations.superseded(
            by: HTTPResponse(status: .init(code: intent.metadata.response.status)), to: request, first, use,
            isStored: false)
        let settling: [Action] = superseded.map { [.settle([], $0)] } ?? []
        let actions = settling + remember(wasOfUse: false) + [.sendFollowersAway(.alone)]
        guard hasOwner else { return end(.alone, actions + [.cancelOrigin]) }
        state = .relaying
        return actions + [.route(.relay)]
    }

    /// Remembers for the next time whether others should wait for such an answer.
    private func remember(wasOfUse: Bool) -> [Action] {
        request.method == .get && forwarding.mayCollapse ? [.remember(wasOfUse: wasOfUse)] : []
    }

    // MARK: Confirmations

    private mutating func confirm(
        _ stored: StoredResponse, _ intent: OriginDecision.StoreIntent, _ update: OriginDecision.Update,
        _ now: HTTPDate
    ) -> [Action] {
        guard let candidate = forwarding.candidate else { return end(.alone) }
        let job: StoreJob
        switch update {
        case .refresh: job = .update(candidate, intent, for: request)
        case .remove: job = .remove([candidate.key])
        case .leave: return confirmed(candidate, stored, isStored: false, held: nil, now)
        }
        state = .updating(candidate, stored, job)
        let isOnce = use.sharesOutcomes && !stored.isReusable(at: now)
        return (isOnce ? [.admitNobody] : []) + [.update(job)]
    }

    private mutating func updated(
        _ outcome: StoreJob.Outcome, _ candidate: Candidate, _ stored: StoredResponse, _ job: StoreJob,
        _ now: HTTPDate
    ) -> [Action] {
        switch job {
        // It was removed or replaced meanwhile: those who wait look for what is there now.
        case .refresh where !outcome.isCurrent:
            return end(.again, [.tellOwner(.confirmed(candidate, stored, confirmation(stored, isStored: false, now)))])
        case .refresh(_, let metadata):
            let isOnce = use.sharesOutcomes && !stored.isReusable(at: now)
            let current = Candidate(key: candidate.key, metadata, candidate.body, candidate.owner)
            let answer = HeldAnswer(current, vary: [], for: request.fields, isForEqualRequests: isOnce)
            let isHeld = isOnce || !outcome.isStored
            return confirmed(candidate, stored, isStored: outcome.isStored, held: isHeld ? answer : nil, now)
        // A moved response answers other requests than before: those who wait ask by themselves.
        case .move, .put: return confirmed(candidate, stored, isStored: outcome.isStored, held: nil, now)
        case .remove: return confirmed(candidate, stored, isStored: false, held: nil, now)
        }
    }

    /// - Parameter held: The answer for those who wait, if it could not be stored, or must not be used again unasked.
    private mutating func confirmed(
        _ candidate: Candidate, _ stored: StoredResponse, isStored: Bool, held: HeldAnswer?, _ now: HTTPDate
    ) -> [Action] {
        let status = confirmation(stored, isStored: isStored, now)
        let isOfUse =
            held.map { $0.isForEqualRequests || stored.isReusable(at: now) } ?? (isStored && stored.isReusable(at: now))
        let news = isOfUse ? held.map { FillEnd.held($0) } ?? .stored : .alone
        return end(news, remember(wasOfUse: isOfUse) + [.tellOwner(.confirmed(candidate, stored, status))])
    }

    private func confirmation(_ stored: StoredResponse, isStored: Bool, _ now: HTTPDate) -> CacheStatus {
        var status = CacheStatus(cache: use.name)
        status.forward = forwarding.cause
        status.forwardStatus = 304
        status.timeToLive = stored.freshness.expires.seconds(since: now)
        status.stored = isStored
        return status
    }

    // MARK: The end

    /// What those who wait are told of an answer that is complete.
    ///
    /// They are answered also where nothing can be stored: a full disk must not send each of them to the origin.
    /// Bodies that are too large to be in memory are no answer to them.
    private func news(
        of intent: OriginDecision.StoreIntent, isStored: Bool, _ body: HeldBody?, _ now: HTTPDate
    ) -> FillEnd {
        let isOnce = use.sharesOutcomes && !intent.isReusable(at: now)
        if isStored, !isOnce { return .stored }
        guard let key = request.key, let body else { return .alone }
        let bytes = isBodiless(intent.status) ? StoredBody.none : .memory(body.data)
        let candidate = Candidate(key: key, intent.metadata, bytes, body)
        return .held(HeldAnswer(candidate, vary: intent.vary, for: request.fields, isForEqualRequests: isOnce))
    }

    /// What those who wait are told when there is no answer.
    private func news(of trouble: OriginTrouble) -> FillEnd {
        // A connection that was given up says nothing about the answer.
        if trouble == .clientMayBeGone { return .again }
        return use.sharesOutcomes && trouble.isForAll ? .failed(trouble) : .alone
    }

    private mutating func failed(_ trouble: OriginTrouble) -> [Action] {
        switch state {
        // The answer is there; what becomes of its connection does not matter.
        case .storing, .updating, .over: return []
        case .idle, .looking, .asked, .settling, .makingRoom, .relaying, .collecting: break
        }
        var actions: [Action] = []
        if trouble.isOrigins(hasHead: hasHead) {
            let blame: OriginSetback.Blame = trouble.isConnecting ? .unconnected : .silent
            actions.append(judge(.failed(OriginSetback(blame, .unreachable))))
        }
        if trouble.isReported { actions.append(.report(trouble)) }
        actions.append(.tellOwner(.failed(trouble)))
        return end(news(of: trouble), actions)
    }

    private mutating func ownerLeft(others: Bool) -> [Action] {
        hasOwner = false
        switch state {
        // What is being stored, or taken back, is worth having all the same; but an origin may take its time for ever.
        case .collecting: return others ? [] : [.startForgetting]
        case .storing, .updating: return []
        case .settling, .makingRoom:
            isDeserted = !others
            return []
        case .looking, .asked:
            // Others wait for it; or it may have changed something, and what is stored has to go by its answer.
            return others || !Invalidation.isSafe(request.method) ? [] : end(.again, [.cancelOrigin])
        case .idle, .relaying: return end(.again, [.cancelOrigin])
        case .over: return []
        }
    }
}

extension StoredResponse {
    /// Whether it may answer others without asking the origin.
    fileprivate func isReusable(at now: HTTPDate) -> Bool { !freshness.noCache && freshness.isFresh(at: now) }
}
