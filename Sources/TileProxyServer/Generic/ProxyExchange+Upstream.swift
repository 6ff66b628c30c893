import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import Logging
import NIOCore
import OriginClient
import TileStore

extension ProxyExchange: UpstreamReceiver {
    // MARK: The request's body

    func upstreamIsReady(_ call: UpstreamCall) {
        if request.body != .none { sendBody(call) }
    }

    /// Hands on the client's body part by part, as fast as the origin takes it.
    private func sendBody(_ call: UpstreamCall) {
        // Others do not wait for the connection while this client takes its time.
        call.waitsForClient = true
        exchange?.nextBodyPart { [weak self] part in
            call.waitsForClient = false
            switch part {
            case .bytes(let bytes):
                call.send(bytes)
                call.whenWritable { self?.sendBody(call) }
            case .end(let trailers): call.finish(trailers: trailers)
            case .failed: call.cancel()
            }
        }
    }

    // MARK: The response

    func upstreamSent(interim: HTTPResponse) {
        guard interim.status.code != 100 else { return }
        var response = interim
        response.headerFields = interim.headerFields.withoutConnectionFields
        exchange?.sendInterim(response)
    }

    func upstreamSent(head: HTTPResponse, length: Int64?) {
        hasHead = true
        // What a gateway answers that got no answer itself; any other answer shows that the origin is there.
        let isAway = (502...504).contains(head.status.code)
        judge(isAway ? .status(head.status.code) : nil)
        guard let forwarding else { return }
        var response = head
        response.headerFields = head.headerFields.withoutConnectionFields
        let decision = OriginDecision.decide(
            head, to: request, forwarding, policy: cache.settings.policy, requestedAt: requestedAt, receivedAt: now)
        switch decision {
        case .pass(let intent): settle(response, head, length: length, intent)
        case .confirmed(let stored, let update):
            drops = true
            if let candidate = forwarding.candidate { confirm(candidate, stored, update) }
        case .serveStale:
            drops = true
            land(.stored)
            if let candidate = forwarding.candidate { serveStale(candidate, because: head.status.code) }
            call?.cancel()
            end()
        case .askAgain: askAgain()
        case .badGateway:
            call?.cancel()
            let failure = UpstreamFailure.malformed("a 304 to a request without conditions")
            report(failure)
            fail(failure)
        }
    }

    /// Does to the store what must be done before the client sees the answer, then hands it on.
    private func settle(
        _ response: HTTPResponse, _ raw: HTTPResponse, length: Int64?, _ intent: OriginDecision.StoreIntent?
    ) {
        let job =
            Invalidations.superseded(by: raw, to: request, forwarding, isStored: intent != nil)
            ?? Invalidations.job(
                for: raw, to: request, forwarding?.candidate, route, keys, policy: cache.settings.policy,
                length: length,
                now: now)
        guard let job else {
            pass(response, length: length, intent)
            return
        }
        // Who gets the answer to a change may rely on not being shown the past.
        call?.pause()
        var gone: [TileKey] = []
        if case .remove(let keys) = job, !request.isForCache { gone = keys }
        settle(gone[...]) {
            self.perform(job) { _ in
                self.pass(response, length: length, intent)
                self.call?.resume()
            }
        }
    }

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

    private func pass(_ response: HTTPResponse, length: Int64?, _ intent: OriginDecision.StoreIntent?) {
        status = response.status
        if let intent, request.method == .get {
            collector = BodyCollector(length: length, limit: cache.settings.storedBodyBytes, budget: cache.budget)
            self.intent = collector == nil ? nil : intent
        }
        let isOfUse = self.intent?.isReusable(at: now) ?? false
        remember(wasOfUse: isOfUse)
        if let ticket, !isOfUse { cache.flights.release(ticket, .useless) }
        guard let exchange, exchange.isOpen else { return }
        passes = true
        var response = response
        proxy.ownVia.add(to: &response.headerFields)
        var cacheStatus = CacheStatus(cache: "tileproxy")
        cacheStatus.forward = forwarding?.cause
        cacheStatus.stored = self.intent != nil
        if forwarding?.candidate != nil { cacheStatus.forwardStatus = response.status.code }
        if let intent = self.intent { cacheStatus.timeToLive = intent.freshness.expires.seconds(since: now) }
        cacheStatus.add(to: &response.headerFields)
        exchange.send(response, length: length)
    }

    func upstreamSent(bytes: ByteBuffer) {
        guard !drops else { return }
        guard let collector else {
            handOn(bytes)
            return
        }
        guard collector.append(bytes) else {
            stopCollecting(collector, bytes)
            return
        }
        // What is to be stored comes at the origin's speed, whoever reads it: others may be waiting for it.
        guard passes, !isBehind, let exchange else { return }
        exchange.send(bytes)
        handedOn += bytes.readableBytes
        if !exchange.isWritable {
            isBehind = true
            exchange.whenWritable { [weak self] in self?.catchUp() }
        }
    }

    /// Hands on a part of a body that is not collected, at the client's speed.
    private func handOn(_ bytes: ByteBuffer) {
        guard passes, let exchange else { return }
        exchange.send(bytes)
        waitForClient(exchange)
    }

    /// Lets the origin wait until the client has taken what was sent to it; the connection meanwhile is not one that other
    /// requests wait for.
    private func waitForClient(_ exchange: Exchange) {
        guard !exchange.isWritable else { return }
        call?.pause()
        call?.waitsForClient = true
        exchange.whenWritable { [weak self] in
            self?.call?.waitsForClient = false
            self?.call?.resume()
        }
    }

    /// The body is too large to be stored, and is only passed on.
    private func stopCollecting(_ collector: BodyCollector, _ bytes: ByteBuffer) {
        self.collector = nil
        intent = nil
        remember(wasOfUse: false)
        if let ticket { cache.flights.release(ticket, .useless) }
        guard passes else {
            call?.cancel()
            end()
            return
        }
        guard isBehind else {
            handOn(bytes)
            return
        }
        backlog = (collector, bytes)
        call?.pause()
        call?.waitsForClient = true
    }

    /// Sends a client that is behind what has been collected meanwhile.
    private func catchUp() {
        guard isBehind, let exchange, exchange.isOpen, let source = collector ?? backlog?.collected else { return }
        while handedOn < source.count {
            guard exchange.isWritable else {
                exchange.whenWritable { [weak self] in self?.catchUp() }
                return
            }
            let end = min(handedOn + BodySender.pieceBytes, source.count)
            exchange.send(source.slice(handedOn..<end))
            handedOn = end
        }
        isBehind = false
        guard let (_, next) = backlog else { return }
        backlog = nil
        exchange.send(next)
        call?.waitsForClient = false
        waitForClient(exchange)
        if exchange.isWritable { call?.resume() }
    }

    /// Sends what is left of a collected body to a client that is behind, while it is being stored and afterwards.
    private func sendRest(of body: HeldBody, trailers: HTTPFields?, key: TileKey) -> BodySender? {
        guard passes, let exchange else { return nil }
        guard isBehind else {
            exchange.finish(trailers: trailers)
            return nil
        }
        isBehind = false
        let rest = BodyPart(prefix: "", bytes: Int64(handedOn)..<Int64(body.data.count))
        let sender = BodySender(
            exchange, .memory(body.data), rest.bytes.isEmpty ? [] : [rest], trailers: trailers, owner: body,
            onFailure: bodyCannotBeRead(key))
        sender.run()
        return sender
    }

    func upstreamEnded(trailers: HTTPFields?) {
        guard !drops else { return }
        let wantsTrailers = exchange?.head.fields.has("trailers", in: .te) ?? false
        let trailers = wantsTrailers ? trailers : nil
        if let intent, let collector, let key = request.key {
            let body = collector.finish()
            self.collector = nil
            // First, so that whoever has seen the answer's end waits for the store.
            let isStoring = beginStoring()
            let rest = sendRest(of: body, trailers: trailers, key: key)
            if isStoring { store(intent, body, key, rest) }
        } else if passes {
            exchange?.finish(trailers: trailers)
        }
        passes = false
        if intent == nil {
            land(.useless)
            end()
        }
    }

    func upstreamFailed(_ failure: UpstreamFailure) {
        switch failure {
        case .unreachable, .forbidden, .connectTimeout: judge(.unreachable, isConnecting: true)
        case .timeout, .closed, .malformed: if !hasHead { judge(.unreachable) }
        case .overloaded, .clientTooSlow, .clientMayBeGone, .cancelled: break
        }
        if !drops {
            if failure != .cancelled, failure != .clientMayBeGone { report(failure) }
            fail(failure)
        }
    }

    /// Remembers for the next time whether others should wait for such an answer.
    private func remember(wasOfUse: Bool) {
        guard request.method == .get, forwarding?.mayCollapse ?? false, let key = request.key else { return }
        cache.flights.remember(flightKey(key), wasOfUse: wasOfUse)
    }

    // MARK: The store

    /// Whether the answer may still be stored; if so, whoever asks for its URL waits for that from now on.
    private func beginStoring() -> Bool {
        if let permit, cache.changes.beginWriting(permit) { return true }
        intent = nil
        return false
    }

    /// - Parameter rest: What still sends the body to a client that is slow.
    private func store(
        _ intent: OriginDecision.StoreIntent, _ body: HeldBody, _ key: TileKey, _ rest: BodySender?
    ) {
        let data = isBodiless(status.code) ? nil : body.data
        let job = StoreJob.put(primary: key, intent, status, body: data, request: request.fields)
        perform(job) { outcome in
            if let permit = self.permit { self.cache.changes.endWriting(permit) }
            if outcome.isStored {
                self.land(.stored)
                if let rest, let place = outcome.place { self.letGo(of: body, rest, place) }
            } else {
                // Those who wait are answered all the same: a full disk must not send each of them to the origin.
                let metadata = entry(status: self.status, fields: intent.fields, freshness: intent.freshness)
                let held = Candidate(key: key, metadata, data.map { .memory($0) } ?? .none, body)
                self.land(.held(HeldAnswer(held, vary: intent.vary, for: self.request.fields)))
            }
            self.end()
        }
    }

    /// Has a slow client sent the rest from the file, so that the memory can be used for others.
    private func letGo(of body: HeldBody, _ rest: BodySender, _ place: (key: TileKey, blob: BlobDigest)) {
        guard !rest.isOver, body.data.count > Candidate.wholeUpTo else { return }
        cache.worker.run(on: proxy.loop) { store in
            let opened = try store.open(place.key, wholeUpTo: Candidate.wholeUpTo)
            return opened?.entry.blob == place.blob ? opened?.body : nil
        } then: { result in
            // What is in memory serves as well.
            if case .success(.some(let stored)) = result { rest.read(from: stored) }
        }
    }

    /// Updates what a 304 confirmed, and answers from it.
    private func confirm(_ candidate: Candidate, _ stored: StoredResponse, _ update: OriginDecision.Update) {
        exchange?.cacheResult = .revalidated
        switch update {
        case .refresh:
            let job = StoreJob.update(candidate, stored, for: request)
            perform(job) { outcome in
                guard !outcome.isStored else {
                    self.confirmed(candidate, stored, isStored: true)
                    return
                }
                // A moved response answers other requests than before: those who wait ask by themselves.
                guard case .refresh(_, let metadata) = job else {
                    self.confirmed(candidate, stored, isStored: false)
                    return
                }
                let held = Candidate(key: candidate.key, metadata, candidate.body, candidate.owner)
                self.confirmed(
                    candidate, stored, isStored: false, held: HeldAnswer(held, vary: [], for: self.request.fields))
            }
        case .leave: confirmed(candidate, stored, isStored: false)
        case .remove:
            perform(.remove([candidate.key])) { _ in self.confirmed(candidate, stored, isStored: false) }
        }
    }

    /// - Parameter held: The answer for those who wait, if it could not be stored.
    private func confirmed(
        _ candidate: Candidate, _ stored: StoredResponse, isStored: Bool, held: HeldAnswer? = nil
    ) {
        var status = CacheStatus(cache: "tileproxy")
        status.forward = forwarding?.cause
        status.forwardStatus = 304
        status.timeToLive = stored.freshness.expires.seconds(since: now)
        status.stored = isStored
        let isReusable = (isStored || held != nil) && !stored.freshness.noCache && stored.freshness.isFresh(at: now)
        remember(wasOfUse: isReusable)
        land(isReusable ? held.map { .held($0) } ?? .stored : .useless)
        send(stored, candidate, age: stored.freshness.age(at: now), status)
        end()
    }

    /// Carries a job out on a thread that may wait, then goes on here; a failure is logged and costs nobody an answer.
    private func perform(_ job: StoreJob, then next: @escaping @Sendable (StoreJob.Outcome) -> Void) {
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
                cache.failures.report(.error, "an answer could not be stored", ["error": "\(error)"])
                cache.settings.onNotStored?()
                next(StoreJob.Outcome(isStored: false))
            }
        }
    }
}
