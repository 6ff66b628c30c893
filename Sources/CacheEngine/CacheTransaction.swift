package import HTTPCaching
package import HTTPTypes
package import TileStore

/// One client's request on its way through the cache: decides, and does nothing itself.
///
/// It is told what happens, one ``Event`` after another, and says what is to be done, as ``Action``s in order. It answers
/// its client exactly once: by ``Action/answer(_:_:age:_:_:)``, ``Action/give(_:_:_:)``, ``Action/relay(_:length:_:)`` or
/// ``Action/refuse(_:_:)``; after a relayed head only ``Action/abort`` may follow. ``Action/done`` is its last. After the
/// client is gone it answers nothing.
///
/// A value without a socket, a store or a clock; used by one thread at a time.
package struct CacheTransaction: Sendable {
    /// What happens.
    package enum Event: Sendable {
        /// The request is there.
        case begin
        /// What the store has for it. A store that cannot be read counts as ``Lookup/miss``.
        case looked(Lookup)
        /// Nothing is being written for its URL any more; whether there was something to wait for.
        case written(waited: Bool)
        /// The answer to ``Action/askLeave``.
        case leave(OriginHealth.Leave)
        /// The answer to ``Action/fetch(_:_:probe:)``: its own fill has been begun.
        case leads
        /// The answer to ``Action/fetch(_:_:probe:)``: it waits for somebody else's.
        case follows
        /// What became of the fill that it follows.
        case heard(FillEnd)
        /// What becomes of its own fill.
        case told(FillNews)
        /// It has waited for others for as long as a request should.
        case patienceOver
        /// The client is gone.
        case clientGone
    }

    /// What is to be done.
    package enum Action: Sendable {
        /// Look the request up: at once, or where that cannot tell, on a thread that may wait.
        case look(mayWait: Bool)
        /// Wait until what is being written for a URL is written; ``Event/written(waited:)`` follows.
        case awaitWrites(TileKey)
        /// Ask whether the origin is left alone; ``Event/leave(_:)`` follows.
        case askLeave
        /// The leave to try the origin was not used.
        case abandonProbe(UInt64)
        /// Ask the origin, or wait for another who does; ``Event/leads`` or ``Event/follows`` comes of it.
        case fetch(Forwarding, Joining, probe: UInt64?)
        /// Have ``Event/patienceOver`` come when the time to wait for others is over; it runs from the first time on.
        case startPatience
        /// Hear no more of the fill that it follows.
        case leaveFill
        /// Answer from what is stored.
        case answer(Candidate, StoredResponse, age: Int, CacheStatus, ServedFrom)
        /// Answer with what a fill of the fixed use has brought.
        case give(Candidate, CacheStatus, ServedFrom)
        /// Make the answer that was just given ready for the next time.
        case makeReady(Candidate)
        /// Have what was just served stale refreshed, if nobody is at it.
        case refreshBehind(Candidate)
        /// Hand on the head of the origin's answer; its body comes from the fill.
        case relay(HTTPResponse, length: Int64?, CacheStatus)
        /// Answer with an error of the cache's own.
        case refuse(Refusal, CacheStatus)
        /// Break the answer off: its head is out, and the rest will not come.
        case abort
        /// The request is over.
        case done
    }

    /// How a request to the origin stands to those of others.
    package enum Joining: Sendable {
        /// It joins a fill of the same key, or begins one that others may join.
        case shared
        /// It begins one that nobody may join, and that is known.
        case closed
        /// It asks by itself, unknown to others.
        case unlisted
    }

    /// Where an answer came from, for logs and figures.
    package enum ServedFrom: String, Sendable {
        case hit, stale, revalidated, miss, bypass
    }

    private enum State {
        case idle
        case looking
        case waitingForWrites(CacheDecision)
        case askingLeave(Forwarding)
        case fetching(Forwarding)
        case following(Forwarding)
        case leading(Forwarding)
        case relaying
        case over
    }

    /// The request.
    package let request: CacheRequest
    private let use: CacheUse
    private var state = State.idle
    /// How often it has followed a fill that was stored in the end.
    private var rounds = 0
    /// Its answer is somebody else's fill.
    private var hasWaited = false
    private var goesAlone = false
    /// What it waited for was of no use to it.
    private var waitedInVain = false
    /// Why it last went towards the origin.
    private var cause = CacheStatus.Forward.uriMiss
    private var hasAwaitedWrites = false
    private var patienceIsOver = false
    /// The number of the leave to try an origin that has failed, until it is used.
    private var probe: UInt64?

    package init(_ request: CacheRequest, _ use: CacheUse) {
        self.request = request
        self.use = use
    }

    /// Whether it is over.
    package var isOver: Bool { if case .over = state { true } else { false } }

    /// Takes an event; events that come too late change nothing.
    package mutating func on(_ event: Event, at now: HTTPDate) -> [Action] {
        switch (event, state) {
        case (_, .over): return []
        case (.clientGone, let before):
            state = .over
            let follows = if case .following = before { true } else { false }
            let unused = abandonProbe()
            return (follows ? [.leaveFill] : []) + unused + [.done]
        case (.begin, .idle):
            guard request.isForCache else { return act(.decide(request, .miss, at: now), now) }
            return look()
        case (.looked(.mustWait), .looking): return [.look(mayWait: true)]
        case (.looked(let lookup), .looking): return act(.decide(request, lookup, at: now), now)
        case (.written(waited: true), .waitingForWrites): return look()
        case (.written(waited: false), .waitingForWrites(let decision)): return proceed(decision, now)
        case (.leave(let leave), .askingLeave(let forwarding)): return take(leave, forwarding, now)
        case (.leads, .fetching(let forwarding)):
            // The fill judges the origin from now on.
            probe = nil
            // A fill of the fixed use is nobody's own: who began it hears of it as all others do.
            state = use.requests == .fixed ? .following(forwarding) : .leading(forwarding)
            return []
        case (.follows, .fetching(let forwarding)):
            state = .following(forwarding)
            // Such a fill has its own time, and its answer is everybody's.
            if use.requests == .fixed {
                hasWaited = true
                return []
            }
            return abandonProbe() + [.startPatience]
        case (.heard(let news), .following(let forwarding)): return heard(news, forwarding, now)
        case (.patienceOver, .following(let forwarding)):
            patienceIsOver = true
            return [.leaveFill] + goAlone(forwarding, now)
        case (.patienceOver, _):
            patienceIsOver = true
            return []
        case (.told(let news), .leading(let forwarding)): return told(news, forwarding, now)
        case (.told(.ended), .relaying): return end([])
        case (.told(.failed), .relaying): return end([.abort])
        default: return []
        }
    }

    private mutating func look() -> [Action] {
        state = .looking
        return [.look(mayWait: false)]
    }

    private mutating func end(_ actions: [Action]) -> [Action] {
        state = .over
        return actions + abandonProbe() + [.done]
    }

    private mutating func abandonProbe() -> [Action] {
        defer { probe = nil }
        return probe.map { [.abandonProbe($0)] } ?? []
    }

    // MARK: Decisions

    private mutating func act(_ decision: CacheDecision, _ now: HTTPDate) -> [Action] {
        if case .serve(_, _, _, refresh: false) = decision { return proceed(decision, now) }
        // Read-your-writes: a client that saw the end of a response must find it here. So what is just being stored for the
        // URL is waited for, once; not for a hit, as whoever replaces a fresh response makes it stale first
        // (`Invalidations.replaced`). Of the fixed use nothing is being stored once its flight has landed.
        guard let key = request.key, request.isForCache, use.requests == .clients, !hasAwaitedWrites else {
            return proceed(decision, now)
        }
        hasAwaitedWrites = true
        state = .waitingForWrites(decision)
        return [.awaitWrites(key)]
    }

    private mutating func proceed(_ decision: CacheDecision, _ now: HTTPDate) -> [Action] {
        switch decision {
        case .serve(let candidate, let age, let isStale, let refresh):
            return serve(candidate, age: age, isStale: isStale, refresh: refresh, now)
        case .gatewayTimeout:
            var status = CacheStatus(cache: use.name)
            status.detail = "only-if-cached"
            return end([.refuse(Refusal(status: 504, words: "Nothing that fits is stored."), status)])
        case .forward(let forwarding): return forward(forwarding, now)
        }
    }

    private mutating func serve(
        _ candidate: Candidate, age: Int, isStale: Bool, refresh: Bool, _ now: HTTPDate
    ) -> [Action] {
        var status = CacheStatus(cache: use.name)
        status.timeToLive = candidate.response.freshness.expires.seconds(since: now)
        var from = isStale ? ServedFrom.stale : .hit
        if hasWaited {
            status.forward = cause
            status.collapsed = true
            from = .miss
        } else {
            status.hit = true
        }
        var actions: [Action] = [.answer(candidate, candidate.response, age: age, status, from)]
        if !isStale, !hasWaited { actions.append(.makeReady(candidate)) }
        if refresh { actions.append(.refreshBehind(candidate)) }
        return end(actions)
    }

    // MARK: Asking the origin

    /// Asks the origin, or answers from what is stored while an origin that has failed is left alone.
    private mutating func forward(_ forwarding: Forwarding, _ now: HTTPDate) -> [Action] {
        // Where stale is forbidden whatever happens, the origin is asked whatever has happened. A fill of the fixed use asks
        // for leave itself.
        guard let candidate = forwarding.candidate, probe == nil, use.requests == .clients,
            use.mayServe(candidate.response, after: .unreachable, asking: request.asking, at: now)
        else { return fetch(forwarding) }
        state = .askingLeave(forwarding)
        return [.askLeave]
    }

    private mutating func take(
        _ leave: OriginHealth.Leave, _ forwarding: Forwarding, _ now: HTTPDate
    ) -> [Action] {
        switch leave {
        case .ask: break
        case .probe(let number): probe = number
        case .wait(let failure, _):
            guard let candidate = forwarding.candidate else { break }
            // An origin that asked to be left alone (a 429 with Retry-After too) cannot answer: an error of RFC 5861 §4.
            let standing: OriginFailure = failure == .unreachable ? .unreachable : .status(503)
            guard use.mayServe(candidate.response, after: standing, asking: request.asking, at: now) else { break }
            return useStale(candidate, whileLeftAlone: failure, now)
        }
        return fetch(forwarding)
    }

    private mutating func fetch(_ forwarding: Forwarding) -> [Action] {
        state = .fetching(forwarding)
        let joining: Joining
        cause = forwarding.cause
        if !request.isForCache || request.method != .get || waitedInVain {
            joining = .unlisted
        } else {
            joining = forwarding.mayCollapse && !goesAlone && !patienceIsOver ? .shared : .closed
        }
        return [.fetch(forwarding, joining, probe: probe)]
    }

    /// Asks by itself, after waiting for somebody else's answer was in vain.
    ///
    /// It does not join again: what failed for one may fail for each, one after the other.
    private mutating func goAlone(_ forwarding: Forwarding, _ now: HTTPDate) -> [Action] {
        (goesAlone, waitedInVain) = (true, true)
        return forward(forwarding, now)
    }

    private mutating func heard(_ news: FillEnd, _ forwarding: Forwarding, _ now: HTTPDate) -> [Action] {
        switch news {
        case .stored:
            rounds += 1
            hasWaited = true
            goesAlone = rounds > 1
            return look()
        case .held(let answer):
            goesAlone = true
            guard answer.isFor(request) else { return goAlone(forwarding, now) }
            hasWaited = true
            guard answer.isForEqualRequests else {
                return act(.decide(request, .found(answer.candidate), at: now), now)
            }
            let stored = answer.candidate.response
            let outcome = request.conditions.outcome(
                for: stored.validators, status: stored.status.code, method: request.method, now: now)
            guard outcome != .forward else { return goAlone(forwarding, now) }
            return serve(
                answer.candidate, age: stored.freshness.age(at: now), isStale: false, refresh: false, now)
        case .failed(let trouble): return failed(trouble, forwarding, now)
        case .error(let status):
            guard let candidate = forwarding.candidate,
                use.mayServe(candidate.response, after: .status(status), asking: request.asking, at: now)
            else { return goAlone(forwarding, now) }
            return useStale(candidate, status, forwarding, now)
        case .alone: return goAlone(forwarding, now)
        case .again: return look()
        case .tile(let news): return take(news, forwarding, now)
        case .noTile(let failure, let retryAfter): return failed(failure, retryAfter, forwarding, now)
        }
    }

    // MARK: A fill of the fixed use

    /// Answers with what the fill brought, as it is: it came after this request, or shortly before it, while it was being
    /// checked and stored.
    private mutating func take(_ news: TileNews, _ forwarding: Forwarding, _ now: HTTPDate) -> [Action] {
        let metadata = news.candidate.entry.metadata
        var status = CacheStatus(cache: use.name)
        status.timeToLive = HTTPDate(metadata.expires).seconds(since: now)
        status.hit = news.source == .found && !hasWaited
        if !status.hit { status.forward = forwarding.cause }
        status.collapsed = hasWaited
        status.stored = news.isStored && news.source != .found && !hasWaited
        var from = ServedFrom.miss
        switch news.source {
        case .found: from = hasWaited ? .miss : .hit
        case .confirmed:
            status.forwardStatus = 304
            from = .revalidated
        case .origin:
            if forwarding.candidate != nil { status.forwardStatus = metadata.response.status }
        case .shared: status.answeredBy = "\(use.name)-shared"
        }
        return end([.give(news.candidate, status, from)])
    }

    private mutating func failed(
        _ failure: TileFill.Failure, _ retryAfter: Duration?, _ forwarding: Forwarding, _ now: HTTPDate
    ) -> [Action] {
        let why = failure.setback.failure
        if let candidate = forwarding.candidate,
            case .serve = LoadDecision.after(
                why, .standard, candidate.response, isPinned: candidate.entry.isPinned, use, at: now)
        {
            if case .waiting = failure { return useStale(candidate, whileLeftAlone: why, now) }
            let because: Int? = if case .status(let status) = why { status } else { nil }
            return useStale(candidate, because, forwarding, now)
        }
        var status = CacheStatus(cache: use.name)
        status.forward = forwarding.cause
        status.collapsed = hasWaited
        return end([.refuse(.after(failure, retryAfter: retryAfter), status)])
    }

    // MARK: Its own fill

    private mutating func told(_ news: FillNews, _ forwarding: Forwarding, _ now: HTTPDate) -> [Action] {
        switch news {
        case .found(let lookup): return act(.decide(request, lookup, at: now), now)
        case .head(let response, let length, let status):
            state = .relaying
            return [.relay(response, length: length, status)]
        case .confirmed(let candidate, let stored, let status):
            return end([.answer(candidate, stored, age: stored.freshness.age(at: now), status, .revalidated)])
        case .useStale(let candidate, let because): return useStale(candidate, because, forwarding, now)
        case .failed(let trouble): return failed(trouble, forwarding, now)
        case .ended: return end([.abort])
        }
    }

    /// Answers from what is stored without asking, because the origin has failed and is left alone.
    private mutating func useStale(
        _ candidate: Candidate, whileLeftAlone failure: OriginFailure, _ now: HTTPDate
    ) -> [Action] {
        let freshness = candidate.response.freshness
        var status = CacheStatus(cache: use.name)
        status.hit = true
        status.timeToLive = freshness.expires.seconds(since: now)
        status.detail = failure == .unreachable ? "origin-unreachable" : "stale-if-error"
        return end([.answer(candidate, candidate.response, age: freshness.age(at: now), status, .stale)])
    }

    /// There is no answer: from what is stored, where that is allowed, else an error.
    private mutating func failed(_ trouble: OriginTrouble, _ forwarding: Forwarding, _ now: HTTPDate) -> [Action] {
        if let candidate = forwarding.candidate {
            // An origin that asked to be left alone cannot answer: an error of RFC 5861 §4, and no silence.
            if case .leftAlone(let failure) = trouble {
                let standing: OriginFailure = failure == .unreachable ? .unreachable : .status(503)
                let mayServe = use.mayServe(candidate.response, after: standing, asking: request.asking, at: now)
                if mayServe || isReliedOn(candidate) {
                    return useStale(candidate, whileLeftAlone: failure, now)
                }
            } else if use.mayServe(candidate.response, after: .unreachable, asking: request.asking, at: now)
                || isReliedOn(candidate)
            {
                return useStale(candidate, nil, forwarding, now)
            }
        }
        let freshness = forwarding.candidate?.response.freshness
        let mustRevalidate = freshness.map { $0.mustRevalidate || $0.noCache } ?? false
        var status = CacheStatus(cache: use.name)
        status.forward = forwarding.cause
        return end([.refuse(.after(trouble, mustRevalidate: mustRevalidate), status)])
    }

    /// Whether the owner of the cache has asked for a response to be kept, whatever its origin says: it is there when there is no
    /// answer, as a pinned tile is (``LoadDecision``).
    private func isReliedOn(_ candidate: Candidate) -> Bool {
        let asking = request.asking
        return use.sharesOutcomes && candidate.entry.isPinned && !asking.noCache && asking.maxAge == nil
            && asking.minFresh == nil
    }

    /// Answers from what is stored, because the origin cannot.
    private mutating func useStale(
        _ candidate: Candidate, _ because: Int?, _ forwarding: Forwarding, _ now: HTTPDate
    ) -> [Action] {
        let freshness = candidate.response.freshness
        var status = CacheStatus(cache: use.name)
        status.forward = forwarding.cause
        status.forwardStatus = because
        status.timeToLive = freshness.expires.seconds(since: now)
        status.detail = because == nil ? "origin-unreachable" : "stale-if-error"
        return end([.answer(candidate, candidate.response, age: freshness.age(at: now), status, .stale)])
    }
}
