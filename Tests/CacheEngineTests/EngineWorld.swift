import Foundation
import HTTPCaching
import HTTPTypes
import TileStore

@testable import CacheEngine

/// What a script makes happen to clients, fills and an origin; numbers pick one of what there is.
enum EngineStep: Hashable, Sendable {
    /// A client asks for a resource.
    case arrive(resource: Int, Wish)
    /// Something that was asked for of the store, or told by another thread, gets through.
    case deliver(Int)
    /// The origin answers a question.
    case head(Int, Answer)
    /// The body of an answer goes on, ends, or is too large.
    case end(Int)
    case tooMuch(Int)
    /// The origin gives no answer, or no more of it.
    case fail(Int, OriginTrouble)
    /// A client goes away.
    case leave(Int)
    /// A client has waited long enough.
    case patience(Int)
    /// Seconds pass.
    case wait(Int)
    /// The disk is full, or is so no longer.
    case disk(isFull: Bool)

    /// What a client wants.
    enum Wish: Hashable, Sendable, CaseIterable { case plain, noCache, onlyIfCached, range, head, change }
    /// What an origin answers.
    enum Answer: Hashable, Sendable, CaseIterable {
        case cacheable, brief, noStore, noCache, lengthless, notModified, notFound, gone, broken, busy, tooLarge, stale
    }
}

/// Clients, fills and an origin around the machines, in one thread: everything that would take time is a step of its own.
final class EngineWorld {
    /// A request of a client, and what it got.
    final class Client {
        var transaction: CacheTransaction
        var answers: [String] = []
        var isGone = false
        var isDone = false
        /// Whether its head is out and the rest is to come.
        var isRelaying = false
        var isPatient = false
        /// Whether it was told that the request that it followed failed.
        var heardOfFailure = false
        var seat: Fills.Seat?
        weak var fill: Question?
        var events: [CacheTransaction.Event] = []
        var isActing = false

        init(_ request: CacheRequest, _ use: CacheUse) { transaction = CacheTransaction(request, use) }
    }

    /// A fill and its question to the origin.
    final class Question {
        var fill: Fill
        let owner: Client?
        var hasOwner: Bool
        let ticket: Fills.Ticket?
        var permit: Changes.Permit?
        var isAsked = false
        var hasHead = false
        var isComplete = false
        var isPaused = false
        var route = Fill.Route.drop
        var answer = EngineStep.Answer.broken
        var isOver = false
        var ends = 0
        var events: [Fill.Event] = []
        var isActing = false
        var askedAt = HTTPDate(seconds: 0)

        init(_ fill: Fill, _ owner: Client?, _ ticket: Fills.Ticket?) {
            self.fill = fill
            self.owner = owner
            self.ticket = ticket
            hasOwner = owner != nil
        }
    }

    private let use: CacheUse

    let flights = Fills()
    let changes = Changes()
    let health: OriginHealth
    let budget = StagingBudget(limit: 1 << 20)
    private let time: Time
    private(set) var clients: [Client] = []
    private(set) var questions: [Question] = []
    /// What waits to get through, in the order in which it began.
    private var pending: [() -> Void] = []
    private var stored: [TileKey: (metadata: TileMetadata, data: Data)] = [:]
    private var diskIsFull = false
    /// How often room was asked for: some of the bodies find none.
    private var rooms = 0
    /// What must never be.
    private(set) var violations: [String] = []

    /// The world's clock, which the health of origins reads from any thread.
    private final class Time: Sendable {
        let now = Locked<Int64>(1_000_000)
    }

    /// - Parameter isOneAsker: Whether all clients are one, and share what becomes of a request.
    init(isOneAsker: Bool) {
        use = isOneAsker ? MachineLab.oneAsker : MachineLab.use
        let time = Time()
        self.time = time
        health = OriginHealth(
            ticks: { UInt64(time.now.withLock { $0 }) * 1_000_000_000 }, random: { 0 })
    }

    private var now: HTTPDate { HTTPDate(seconds: time.now.withLock { $0 }) }

    private func key(_ resource: Int) -> TileKey? { try? TileKey("site:/\(resource)") }

    // MARK: Steps

    func run(_ script: [EngineStep]) {
        for step in script { run(step) }
        settle()
        check()
    }

    private func run(_ step: EngineStep) {
        switch step {
        case .arrive(let resource, let wish): arrive(resource, wish)
        case .deliver(let index):
            if !pending.isEmpty { pending.remove(at: index % pending.count)() }
        case .head(let index, let answer):
            if let question = pick(index, { $0.isAsked && !$0.hasHead }) { head(question, answer) }
        case .end(let index):
            if let question = pick(index, { $0.hasHead && !$0.isComplete && !$0.isPaused }) { end(question) }
        case .tooMuch(let index):
            if let question = pick(index, { $0.hasHead && !$0.isComplete && !$0.isPaused }) {
                guard case .collect = question.route else { return }
                take(.tooMuch, question)
            }
        case .fail(let index, let trouble):
            if let question = pick(index, { $0.isAsked && !$0.isComplete && !$0.isPaused }) {
                question.isComplete = true
                question.isAsked = false
                take(.failed(trouble), question)
            }
        case .leave(let index):
            let there = clients.filter { !$0.isGone && !$0.isDone }
            guard !there.isEmpty else { return }
            leave(there[index % there.count])
        case .patience(let index):
            let there = clients.filter { $0.isPatient && !$0.isDone }
            if !there.isEmpty { take(.patienceOver, there[index % there.count]) }
        case .wait(let seconds): time.now.withLock { $0 += Int64(seconds) }
        case .disk(let isFull): diskIsFull = isFull
        }
    }

    private func pick(_ index: Int, _ isFit: (Question) -> Bool) -> Question? {
        let fit = questions.filter(isFit)
        return fit.isEmpty ? nil : fit[index % fit.count]
    }

    /// Lets everything come to its end: the origin answers all that is open.
    private func settle() {
        var rounds = 0
        while rounds < 10_000 {
            rounds += 1
            if !pending.isEmpty {
                pending.removeFirst()()
            } else if let question = questions.first(where: { $0.isAsked && !$0.hasHead }) {
                head(question, .cacheable)
            } else if let question = questions.first(where: { $0.hasHead && !$0.isComplete && !$0.isPaused }) {
                end(question)
            } else {
                return
            }
        }
        violations.append("it does not come to rest")
    }

    // MARK: Clients

    private func arrive(_ resource: Int, _ wish: EngineStep.Wish) {
        guard clients.count < 40 else { return }
        var fields = HTTPFields()
        var method = HTTPRequest.Method.get
        switch wish {
        case .plain: break
        case .noCache: fields[.cacheControl] = "no-cache"
        case .onlyIfCached: fields[.cacheControl] = "only-if-cached"
        case .range: fields[.range] = "bytes=0-1"
        case .head: method = .head
        case .change: method = .post
        }
        let request = CacheRequest(
            method: method, fields: fields, target: "/\(resource)", key: key(resource), hasBody: wish == .change)
        let client = Client(request, use)
        clients.append(client)
        take(.begin, client)
    }

    private func leave(_ client: Client) {
        client.isGone = true
        take(.clientGone, client)
        guard let question = client.fill, question.hasOwner else { return }
        question.hasOwner = false
        let others = question.ticket.map { ticket -> Bool in
            let deserted = OneThread<Void> { [weak self] in
                self?.pending.append { self?.take(.deserted, question) }
            }
            return flights.leaderLeft(ticket) { deserted.body(()) }
        }
        take(.ownerLeft(others: others ?? false), question)
    }

    private func take(_ event: CacheTransaction.Event, _ client: Client) {
        client.events.append(event)
        guard !client.isActing else { return }
        client.isActing = true
        defer { client.isActing = false }
        while !client.events.isEmpty {
            for action in client.transaction.on(client.events.removeFirst(), at: now) { perform(action, client) }
        }
    }

    private func answer(_ client: Client, _ what: String) {
        if client.isGone { violations.append("a client that is gone is answered: \(what)") }
        client.answers.append(what)
    }

    private func perform(_ action: CacheTransaction.Action, _ client: Client) {
        let request = client.transaction.request
        switch action {
        case .look(let mayWait):
            let found = lookup(request)
            // The first look cannot always tell at once.
            let result: Lookup = !mayWait && clients.count % 3 == 0 ? .mustWait : found
            pending.append { [weak self] in self?.take(.looked(result), client) }
        case .awaitWrites(let key):
            let written = OneThread<Void> { [weak self] in
                self?.pending.append { self?.take(.written(waited: true), client) }
            }
            let waits = changes.waitForWriting(key) { written.body(()) }
            if !waits { take(.written(waited: false), client) }
        case .askLeave: take(.leave(health.leave(for: "origin", request.target.hashValue)), client)
        case .abandonProbe(let probe): health.abandoned("origin", request.target.hashValue, probe: probe)
        case .fetch(let forwarding, let joining, let probe): fetch(forwarding, joining, probe, client)
        case .startPatience: client.isPatient = true
        case .leaveFill:
            if let seat = client.seat { flights.leave(seat) }
            client.seat = nil
        case .answer(let candidate, _, _, _, let from):
            if from == .hit, candidate.response.freshness.noCache { violations.append("no-cache is a hit") }
            if case .memory(let data) = candidate.body, data != Data("whole".utf8) {
                violations.append("half a body is served")
            }
            answer(client, from.rawValue)
        case .give, .makeReady: break
        case .refreshBehind(let candidate):
            let leave = health.leave(for: "origin", request.target.hashValue)
            if case .wait = leave { return }
            let forwarding = Forwarding(request.refreshing, candidate, .stale)
            guard let key = Fill.flightKey(request.refreshing, forwarding),
                let ticket = flights.start(key, isOpen: true)
            else {
                if let probe = leave.probe {
                    health.abandoned("origin", request.target.hashValue, probe: probe)
                }
                return
            }
            begin(request.refreshing, forwarding, ticket, nil, probe: leave.probe, looksAgain: false)
        case .relay:
            answer(client, "relay")
            client.isRelaying = true
        case .refuse(let refusal, _): answer(client, "refuse \(refusal.status)")
        case .abort:
            if !client.isRelaying { violations.append("an answer that has not begun is broken off") }
            client.isRelaying = false
        case .done:
            if client.isDone { violations.append("a request is over twice") }
            client.isDone = true
        }
    }

    private func fetch(
        _ forwarding: Forwarding, _ joining: CacheTransaction.Joining, _ probe: UInt64?, _ client: Client
    ) {
        let request = client.transaction.request
        if client.heardOfFailure { violations.append("a client asks though the failure is its own") }
        var ticket: Fills.Ticket?
        if let key = Fill.flightKey(request, forwarding) {
            switch joining {
            case .shared:
                let hear = OneThread<FillEnd> { [weak self] news in
                    self?.pending.append {
                        guard client.seat != nil else { return }
                        client.seat = nil
                        if case .failed = news { client.heardOfFailure = true }
                        self?.take(.heard(news), client)
                    }
                }
                switch flights.join(key, hear: { hear.body($0) }) {
                case .leads(let own): ticket = own
                case .follows(let seat):
                    client.seat = seat
                    take(.follows, client)
                    return
                }
            case .closed: ticket = flights.start(key, isOpen: false)
            case .unlisted: break
            }
        }
        take(.leads, client)
        begin(request, forwarding, ticket, client, probe: probe, looksAgain: ticket?.isOpen ?? false)
    }

    private func lookup(_ request: CacheRequest) -> Lookup {
        guard let key = request.key, let found = stored[key] else { return .miss }
        return .found(Candidate(key: key, found.metadata, .memory(found.data), nil))
    }

    // MARK: Fills

    private func begin(
        _ request: CacheRequest, _ forwarding: Forwarding, _ ticket: Fills.Ticket?, _ owner: Client?, probe: UInt64?,
        looksAgain: Bool
    ) {
        let scope = ResourceScope(origin: "http://origin") { path, _ in try? TileKey("site:" + path) }
        let fill = Fill(request, forwarding, use, scope, hasOwner: owner != nil, probe: probe)
        let question = Question(fill, owner, ticket)
        owner?.fill = question
        if request.isForCache, let key = request.key { question.permit = changes.takePermit(for: key) }
        questions.append(question)
        take(.begin(looksAgain: looksAgain), question)
    }

    private func take(_ event: Fill.Event, _ question: Question) {
        question.events.append(event)
        guard !question.isActing else { return }
        question.isActing = true
        defer { question.isActing = false }
        while !question.events.isEmpty {
            for action in question.fill.on(question.events.removeFirst(), at: now) { perform(action, question) }
        }
    }

    private func perform(_ action: Fill.Action, _ question: Question) {
        let request = question.fill.request
        if question.isOver { violations.append("a fill that is over wants \(action)") }
        switch action {
        case .lookAgain: take(.looked(lookup(request)), question)
        case .ask:
            (question.isAsked, question.hasHead, question.isComplete) = (true, false, false)
            question.askedAt = now
        case .cancelOrigin: (question.isAsked, question.isComplete) = (false, true)
        case .judge(let judgement, let probe):
            let sentAt = UInt64(question.askedAt.seconds) * 1_000_000_000
            health.judge("origin", request.target.hashValue, judgement, sentAt: sentAt, probe: probe)
        case .abandonProbe(let probe): health.abandoned("origin", request.target.hashValue, probe: probe)
        case .report: break
        case .settle(let keys, let job):
            question.isPaused = true
            settle(keys[...]) { [weak self] in
                self?.pending.append {
                    self?.carryOut(job, question) { _ in
                        question.isPaused = false
                        self?.take(.settled, question)
                    }
                }
            }
        case .makeRoom(let length):
            rooms += 1
            take(.room(rooms % 4 == 0 ? .none : length == nil ? .asFarAsItGoes : .whole), question)
        case .route(let route): question.route = route
        case .tellOwner(let news):
            guard question.hasOwner, let owner = question.owner else { return }
            take(.told(news), owner)
            if case .ended = news { owner.isRelaying = false }
        case .admitNobody: if let ticket = question.ticket { flights.shut(ticket) }
        case .sendFollowersAway(let news):
            if let ticket = question.ticket { flights.close(ticket, news) }
        case .remember(let wasOfUse):
            if let key = question.fill.flightKey { flights.remember(key, wasOfUse: wasOfUse) }
        case .store(let intent): store(question, intent)
        case .update(let job):
            pending.append { [weak self] in
                self?.carryOut(job, question) { self?.take(.updated($0), question) }
            }
        case .startForgetting: break
        case .end(let news):
            question.isOver = true
            question.ends += 1
            if let ticket = question.ticket { flights.land(ticket, news) }
            if let permit = question.permit { changes.giveBack(permit) }
            question.permit = nil
        }
    }

    private func settle(_ keys: ArraySlice<TileKey>, then next: @escaping () -> Void) {
        guard let key = keys.first else {
            next()
            return
        }
        let again = OneThread<Void> { [weak self] in
            self?.pending.append { self?.settle(keys.dropFirst(), then: next) }
        }
        if changes.change(key, settled: { again.body(()) }) { settle(keys.dropFirst(), then: next) }
    }

    private func store(_ question: Question, _ intent: OriginDecision.StoreIntent) {
        let mayStore = question.permit.map { changes.beginWriting($0) } ?? false
        if question.hasOwner, let owner = question.owner {
            take(.told(.ended), owner)
            owner.isRelaying = false
        }
        guard mayStore, let permit = question.permit, let key = question.fill.request.key else {
            take(.mayNotStore, question)
            return
        }
        if question.answer == .noStore { violations.append("what must not be stored is stored") }
        let data = Data("whole".utf8)
        let body = HeldBody(data, 0, budget)
        pending.append { [weak self] in
            guard let self else { return }
            let isStored = !diskIsFull
            let isOld = stored[key].map { intent.metadata.isOlder(than: $0.metadata) } ?? false
            let known = stored[key].map { StoredFreshness(of: $0.metadata) }
            if isStored, !isOld { stored[key] = (intent.metadata, data) }
            changes.endWriting(permit)
            let isCurrent = !isOld || (known.map { $0.isFresh(at: self.now) && !$0.noCache } ?? false)
            take(.stored(StoreJob.Outcome(isStored: isStored && isCurrent), body), question)
        }
    }

    private func carryOut(_ job: StoreJob, _ question: Question, then next: (StoreJob.Outcome) -> Void) {
        switch job {
        case .put, .move: next(StoreJob.Outcome(isStored: false))
        case .refresh(let candidate, let metadata):
            if !diskIsFull, let known = stored[candidate.key], known.metadata == candidate.entry.metadata {
                stored[candidate.key] = (metadata, known.data)
            }
            next(StoreJob.Outcome(isStored: !diskIsFull))
        case .remove(let keys):
            for key in keys { stored[key] = nil }
            next(StoreJob.Outcome())
        }
    }

    // MARK: The origin

    private func head(_ question: Question, _ answer: EngineStep.Answer) {
        var fields: HTTPFields = [.date: now.description]
        var status = 200
        var length: Int64? = 5
        switch answer {
        case .cacheable:
            fields[.cacheControl] = "max-age=60, stale-if-error=600"
            fields[.eTag] = "\"1\""
        case .brief:
            fields[.cacheControl] = "max-age=1, stale-while-revalidate=100"
            fields[.eTag] = "\"1\""
        case .noStore: fields[.cacheControl] = "no-store"
        case .noCache:
            fields[.cacheControl] = "no-cache"
            fields[.eTag] = "\"1\""
        case .lengthless:
            fields[.cacheControl] = "max-age=60"
            length = nil
        case .notModified:
            (status, length) = (304, nil)
            fields[.eTag] = "\"1\""
            fields[.cacheControl] = "max-age=60"
        case .notFound: status = 404
        case .gone: status = 410
        case .broken: status = 503
        case .busy:
            status = 429
            fields[.retryAfter] = "50"
        case .tooLarge:
            fields[.cacheControl] = "max-age=60"
            length = 5000
        case .stale:
            fields[.cacheControl] = "max-age=0"
            fields[.eTag] = "\"1\""
        }
        question.hasHead = true
        question.answer = answer
        take(
            .head(
                HTTPResponse(status: .init(code: status), headerFields: fields), length: length,
                requestedAt: question.askedAt), question)
    }

    private func end(_ question: Question) {
        question.isComplete = true
        question.isAsked = false
        take(.ended, question)
    }

    // MARK: Invariants

    private func check() {
        for (index, client) in clients.enumerated() {
            if !client.isDone { violations.append("client \(index) is not over") }
            if client.isGone {
                if client.answers.count > 1 { violations.append("client \(index) got \(client.answers)") }
            } else if client.answers.count != 1 {
                violations.append("client \(index) got \(client.answers.count) answers: \(client.answers)")
            }
            if client.isRelaying, !client.isGone { violations.append("client \(index) waits for the rest") }
        }
        for (index, question) in questions.enumerated() where question.ends != 1 {
            violations.append("fill \(index) ended \(question.ends) times")
        }
        if flights.count != 0 { violations.append("\(flights.count) flights are left") }
        if changes.count != 0 { violations.append("\(changes.count) permits are left") }
    }
}

/// Carries a closure of this thread through what may call it on any.
private final class OneThread<T>: @unchecked Sendable {
    // Called by the world's one thread alone.
    let body: (T) -> Void

    init(_ body: @escaping (T) -> Void) { self.body = body }
}
