import HTTPCaching
import HTTPTypes
import Logging
import NIOCore
import TileStore

extension ProxyExchange: UpstreamReceiver {
    // MARK: The request's body

    func upstreamIsReady(_ call: UpstreamCall) {
        if request.body != .none { sendBody(call) }
    }

    /// Hands on the client's body part by part, as fast as the origin takes it.
    private func sendBody(_ call: UpstreamCall) {
        exchange?.nextBodyPart { [weak self] part in
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
            self.perform(job) {
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
        if let collector, !collector.append(bytes) {
            self.collector = nil
            intent = nil
            remember(wasOfUse: false)
            if let ticket { cache.flights.release(ticket, .useless) }
            if !passes {
                call?.cancel()
                end()
                return
            }
        }
        guard passes, let exchange else { return }
        exchange.send(bytes)
        if !exchange.isWritable {
            call?.pause()
            exchange.whenWritable { [weak self] in self?.call?.resume() }
        }
    }

    func upstreamEnded(trailers: HTTPFields?) {
        guard !drops else { return }
        if let intent, let collector, let key = request.key { store(intent, collector, key) }
        let wantsTrailers = exchange?.head.fields.has("trailers", in: .te) ?? false
        if passes { exchange?.finish(trailers: wantsTrailers ? trailers : nil) }
        passes = false
        if intent == nil {
            land(.useless)
            end()
        }
    }

    func upstreamFailed(_ failure: UpstreamFailure) {
        switch failure {
        case .unreachable, .timeout, .closed, .malformed: if !hasHead { judge(.unreachable) }
        case .overloaded, .cancelled: break
        }
        if !drops {
            if failure != .cancelled { report(failure) }
            fail(failure)
        }
    }

    /// Remembers for the next time whether others should wait for such an answer.
    private func remember(wasOfUse: Bool) {
        guard request.method == .get, forwarding?.mayCollapse ?? false, let key = request.key else { return }
        cache.flights.remember(flightKey(key), wasOfUse: wasOfUse)
    }

    // MARK: The store

    private func store(_ intent: OriginDecision.StoreIntent, _ collector: BodyCollector, _ key: TileKey) {
        guard let permit, cache.changes.beginWriting(permit) else {
            self.intent = nil
            return
        }
        let body = isBodiless(status.code) ? nil : collector.body
        let job = StoreJob.put(primary: key, intent, status, body: body, request: request.fields)
        perform(job) {
            self.cache.changes.endWriting(permit)
            self.collector = nil
            self.land(.stored)
            self.end()
        }
    }

    /// Updates what a 304 confirmed, and answers from it.
    private func confirm(_ candidate: Candidate, _ stored: StoredResponse, _ update: OriginDecision.Update) {
        exchange?.cacheResult = .revalidated
        switch update {
        case .refresh:
            perform(.update(candidate, stored, for: request)) {
                self.confirmed(candidate, stored, isStored: true)
            }
        case .leave: confirmed(candidate, stored, isStored: false)
        case .remove: perform(.remove([candidate.key])) { self.confirmed(candidate, stored, isStored: false) }
        }
    }

    private func confirmed(_ candidate: Candidate, _ stored: StoredResponse, isStored: Bool) {
        var status = CacheStatus(cache: "tileproxy")
        status.forward = forwarding?.cause
        status.forwardStatus = 304
        status.timeToLive = stored.freshness.expires.seconds(since: now)
        status.stored = isStored
        let isReusable = isStored && !stored.freshness.noCache && stored.freshness.isFresh(at: now)
        remember(wasOfUse: isReusable)
        land(isReusable ? .stored : .useless)
        send(stored, candidate, age: stored.freshness.age(at: now), status)
        end()
    }

    /// Carries a job out on a thread that may wait, then goes on here; a failure is logged and costs nobody an answer.
    private func perform(_ job: StoreJob, then next: @escaping @Sendable () -> Void) {
        let (keys, settings, changes) = (keys, cache.settings, cache.changes)
        var writing: Changes.Permit?
        if case .move = job {
            // A refresh is tied to the version of the entry. A move writes a response, so it needs the right to.
            guard let permit, changes.beginWriting(permit) else {
                next()
                return
            }
            writing = permit
        }
        cache.worker.run(on: proxy.loop) { [writing] store in
            defer { if let writing { changes.endWriting(writing) } }
            try job.perform(store, keys)
        } then: { result in
            if case .failure(let error) = result {
                settings.logger.error("an answer could not be stored", metadata: ["error": "\(error)"])
                settings.onNotStored?()
            }
            next()
        }
    }
}
