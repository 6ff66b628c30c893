package import HTTPCaching
package import HTTPTypes
package import TileStore

/// A fill of the fixed use: one tile's way to its origin, over mirrors, redirects and attempts.
///
/// It decides each step and does nothing itself. It is told what happens, one ``Event`` after another, and says what is to
/// be done, as ``Action``s in order; at most the last of them has an event for an answer. Bodies stay with the driver, whole,
/// and count only after ``Action/check(_:)``. What is stored is complete, allowed to be stored, and no page in place of a
/// tile. Each slot that it takes it gives back, and of each probe it tells what came of it. ``Action/end(_:)`` is its last
/// action, and comes exactly once.
///
/// A value without a socket, a store or a clock; used by one task at a time.
package struct TileFill: Sendable {
    /// What happens.
    package enum Event: Sendable {
        /// - Parameter looksAgain: Whether what is stored by now may do. Between the look of the one who asks and the flight's
        ///   begin the flight before this one may have landed.
        case begin(looksAgain: Bool)
        /// The answer to ``Action/lookAgain``: whether there is something to serve.
        case looked(isEnough: Bool)
        /// The answers to ``Action/askShared``: what others of the fleet know of the tile, fresh and whole, or nothing.
        indirect case shared(TileMetadata, isAbsence: Bool)
        case notShared
        /// The answer to ``Action/askQuestion``: whether the tile is left alone, and how many attempts those who wait allow.
        case question(OriginHealth.Wait?, attempts: Int)
        /// The answers to ``Action/prepare``: the request as the source wants it, and what of which file it is for; or nothing.
        ///
        /// ``looked(isEnough:)`` is one too: what the tile is, or that there is none, is known by now without a request.
        indirect case prepared(HTTPRequest, file: FileQuestion? = nil)
        case hookFailed
        /// What the request depends on cannot be had.
        ///
        /// - Parameter origin: Whose failure it is, if the tile is to be left alone for it.
        indirect case unprepared(Failure, origin: String? = nil)
        /// The answer to ``Action/orderHosts(_:)``: those to ask, the best first; with the number of the probe that the first one
        /// is, if it is one.
        case hosts([OriginHost], probe: UInt64?)
        /// The answer to ``Action/checkTerms(_:)``.
        case terms(isAllowed: Bool)
        /// The answer to ``Action/askOrigin(_:)``: whether the origin is left alone.
        case origin(OriginHealth.Wait?)
        /// The answers to ``Action/takeSlot(_:)``: it has one, or has waited for as long as an answer may take.
        case slot
        case noSlot
        /// The answer to ``Action/askLeave(_:)``.
        case leave(OriginHealth.Leave)
        /// The answers to ``Action/send(_:redirectedFrom:share:)``: a whole one, with so many bytes, or none.
        indirect case answer(HTTPResponse, bytes: Int, requestedAt: HTTPDate)
        case noAnswer(NoAnswer)
        /// The answer to ``Action/askRest(_:)``: how long it is until the first of these hosts has rested.
        case rest(Duration)
        /// The answer to ``Action/check(_:)``: what speaks against the body; and what it is, where the head does not say.
        indirect case checked(objection: String?, content: HTTPFields = [:])
        /// The answer to ``Action/store(_:isAbsence:)``, ``Action/update(_:)`` and ``Action/drop``: done, or it could not be.
        case stored
        /// The answer to ``Action/pause(_:)``.
        case paused
        /// It is given up.
        case cancelled
        /// Nobody waits for it any more.
        ///
        /// - Parameter mayGoOn: Whether it may go on alone, if its request is out.
        case deserted(mayGoOn: Bool)
        /// While it went on alone, somebody has come who waits for it.
        case wanted
        /// It has gone on alone for as long as it may.
        ///
        /// - Parameter isHeard: Whether any byte of an answer has come.
        case overdue(isHeard: Bool)
    }

    /// What is to be done.
    package enum Action: Sendable {
        /// Look into the tables once more.
        case lookAgain
        /// Ask the tier that the proxies of a fleet share.
        case askShared
        /// Store what it has; ``Event/stored`` follows.
        indirect case storeShared(TileMetadata, isAbsence: Bool)
        /// Ask whether the tile is left alone.
        case askQuestion
        /// Make the request, by the source's hook too.
        case prepare
        /// Ask which of the hosts that stand for one another is to be asked first.
        case orderHosts(OriginHost)
        /// Tell what became of the question at one of these hosts.
        case judgeHost(OriginHost, OriginHealth.Judgement, probe: UInt64?)
        /// The leave to try one of these hosts was not used.
        case abandonHostProbe(OriginHost, UInt64)
        /// A host has failed, and the next one is asked.
        case countFailover
        /// Ask how long the hosts, which have all failed, want to be left alone.
        case askRest([OriginHost])
        /// Ask whether the host's terms allow this request.
        case checkTerms(String)
        /// Ask whether the origin is left alone: nobody stands in line for one that is.
        case askOrigin(String)
        case takeSlot(String)
        case giveSlot
        /// Ask for leave to send: those before this one in the line may have failed meanwhile.
        case askLeave(String)
        /// The leave to try the host was not used.
        case abandonProbe(String, UInt64)
        /// Send it.
        ///
        /// - Parameters:
        ///   - redirectedFrom: The host that was asked first, where a redirect has led to another one.
        ///   - share: Among so many hosts the time that is left of this attempt is divided: one that hangs must not use up
        ///     all of it. `nil` where there is only one, which has all that is left. An attempt with its redirects has one
        ///     time.
        indirect case send(HTTPRequest, redirectedFrom: String?, share: Int?)
        /// Check the body against what the source's tiles are.
        indirect case check(HTTPResponse)
        /// A host's clock is so many seconds ahead.
        case reportClock(String, ahead: Int)
        /// Store the answer: its body, or that there is no tile; ``Event/stored`` follows.
        indirect case store(AnswerRecord, isAbsence: Bool)
        /// Bring what is stored up to date, or remove it if it may not be kept; ``Event/stored`` follows.
        indirect case update(AnswerRecord)
        /// What is held in memory must not be used any more.
        case forgetHeld
        /// What is stored must not be used any more: the origin has answered by something that must not be kept;
        /// ``Event/stored`` follows.
        case drop
        /// Tell what became of the question at a host.
        ///
        /// - Parameter isSettled: Whether the tile is settled by it: there, absent, or unchanged.
        case judge(String, OriginHealth.Judgement, isSettled: Bool, probe: UInt64?)
        /// Wait before the next attempt; ``Event/paused`` follows.
        case pause(Duration)
        indirect case end(End)
    }

    /// What came of it.
    package enum End: Sendable {
        /// What is stored by now will do.
        case found
        /// What the shared tier has: a tile, or that there is none.
        indirect case shared(TileMetadata, isAbsence: Bool)
        /// The origin's answer: a tile, or that there is none.
        indirect case brought(AnswerRecord, isAbsence: Bool, Keeping)
        /// The origin says that what is stored still holds.
        indirect case confirmed(AnswerRecord)
        case failed(Failure)
        case cancelled
    }

    /// Whether an answer was to be kept.
    package enum Keeping: Hashable, Sendable { case kept, notWanted, forbidden(host: String) }

    /// Why there is no tile.
    package enum Failure: Hashable, Sendable {
        /// The tile or the host is left alone for now.
        case waiting(until: UInt64, OriginFailure)
        /// The source's hook failed.
        case hook
        /// The host's terms forbid the request.
        case forbidden(host: String)
        /// There is no memory for a large tile that cannot be stored.
        case noRoom
        /// There was no answer, or no whole one.
        case noAnswer(NoAnswer)
        /// An answer that is neither a tile nor its absence.
        case status(Int, host: String, retryAfter: Duration?)
        /// An answer that is not believed, in words.
        case unusable(Objection, String, host: String)
    }

    /// What it means that there was no answer.
    package struct NoAnswer: Hashable, Sendable {
        /// What it says about the host.
        package var setback: OriginSetback
        /// Whether asking again soon makes sense.
        package var mayPass: Bool
        /// Whether it was for want of time.
        package var isTimeout: Bool

        package init(_ setback: OriginSetback, mayPass: Bool, isTimeout: Bool = false) {
            self.setback = setback
            self.mayPass = mayPass
            self.isTimeout = isTimeout
        }
    }

    /// What is wrong with an answer.
    package enum Objection: Hashable, Sendable {
        case notModified, redirect, body
        /// The body is not whole, which may be otherwise next time.
        case incomplete
        /// It is about another version of the file than its other parts.
        case otherVersion
    }

    // Boxed, so that a state is not copied field by field with each event.
    private indirect enum State {
        case idle, looking, askingShared, asking, preparing, pausing, over
        case storingShared(TileMetadata, isAbsence: Bool)
        case orderingHosts(HTTPRequest)
        case checkingTerms(HTTPRequest)
        case askingOrigin(HTTPRequest)
        case waitingForSlot(HTTPRequest)
        case askingLeave(HTTPRequest)
        case sent(HTTPRequest)
        case checking(HTTPRequest, HTTPResponse, requestedAt: HTTPDate)
        case storing(AnswerRecord, isAbsence: Bool)
        case updating(AnswerRecord)
        case dropping(AnswerRecord, isAbsence: Bool)
        case askingRest(Failure)
        case retrying(Failure)
    }

    private let use: CacheUse
    /// What is stored, if it can be asked about.
    private let stored: TileMetadata?
    private let hasStored: Bool
    /// Whether the answer is to be stored.
    private let isKept: Bool
    /// What any server may see of a request.
    private let harmless: Set<HTTPField.Name>
    /// Whether there is a tier to ask before the origin.
    private let asksShared: Bool
    private var state = State.idle
    private var attempt = 1
    private var redirects = 0
    /// The hosts that stand for one another, in the order of this attempt; how many of them have been asked; and the request
    /// as it is sent to them.
    private var hosts: [OriginHost] = []
    private var asked = 0
    private var plain = HTTPRequest(method: .get, scheme: nil, authority: nil, path: nil)
    /// What is told if the others fail too: an answer, an error though it is, says more than none.
    private var best: Failure?
    /// The host that was asked first, and the one that is asked now, as messages name them.
    private var first = ""
    private var host = ""
    /// The same as slots name it, and as what is known of failures does.
    private var (origin, account) = ("", "")
    /// What failures are noted under where several hosts stand for one another.
    private let group: String?
    private var hasSlot = false
    /// The number of the leave to try a host that has failed, until it is told what came of it.
    private var probe: UInt64?
    /// The same of the one of several hosts that is tried.
    private var hostProbe: (host: OriginHost, number: UInt64)?
    /// Whether it goes on though nobody waits for it: then it sends no further request.
    private var isAlone = false
    /// What of a file the request is for, if it is for no tile's own URL; and what is noted with it.
    private var file: FileQuestion?
    private var mark: String?
    /// Why the attempt before failed.
    private var last: Failure?

    /// The longest that one is kept waiting for another attempt, in nanoseconds.
    private static let longestPause: UInt64 = 5_000_000_000

    /// - Parameters:
    ///   - stored: What is stored of the tile.
    ///   - isAbsence: Whether it says that there is no tile: a 304 could only be about an error page's validators.
    ///   - isKept: Whether the answer is to be stored.
    ///   - harmless: The fields that go to other hosts too.
    ///   - group: The name under which failures of all its hosts are noted, for a source that has mirrors.
    ///   - asksShared: Whether a fleet's shared tier is asked before the origin.
    package init(
        _ use: CacheUse, stored: TileMetadata?, isAbsence: Bool, isKept: Bool, harmless: Set<HTTPField.Name>,
        group: String? = nil, asksShared: Bool = false
    ) {
        self.use = use
        self.stored = isKept && !isAbsence ? stored : nil
        hasStored = stored != nil
        self.isKept = isKept
        self.harmless = harmless
        self.group = group
        self.asksShared = asksShared && isKept
    }

    /// Whether it is over.
    package var isOver: Bool { if case .over = state { true } else { false } }

    /// Whether its request is out: then it may go on alone when nobody waits for it any more.
    package var isOut: Bool { if case .sent = state { isKept } else { false } }

    /// Takes an event; events that come too late change nothing.
    ///
    /// - Parameter ticks: Nanoseconds of the clock by which ``OriginHealth`` tells until when something is left alone.
    package mutating func on(_ event: Event, at now: HTTPDate, ticks: UInt64) -> [Action] {
        switch (event, state) {
        case (_, .over): return []
        case (.cancelled, _): return end(.cancelled)
        // That a client leaves says nothing of the host: else whoever has no patience closes a slow one to all others.
        case (.deserted(let mayGoOn), .sent):
            isAlone = mayGoOn && isKept
            return isAlone ? [] : end(.cancelled)
        // The answer is here: what is left to be done is done soon, and waits for nobody.
        case (.deserted, .checking), (.deserted, .storing), (.deserted, .updating), (.deserted, .dropping),
            (.deserted, .storingShared):
            isAlone = true
            return []
        case (.deserted, _): return end(.cancelled)
        case (.wanted, _):
            isAlone = false
            return []
        case (.overdue(let isHeard), .sent) where isAlone: return isHeard ? end(.cancelled) : leaveSilent()
        case (.begin(let looksAgain), .idle):
            guard looksAgain else { return ask() }
            state = .looking
            return [.lookAgain]
        case (.looked(isEnough: true), .looking): return end(.found)
        case (.looked(isEnough: false), .looking): return ask()
        case (.notShared, .askingShared):
            state = .asking
            return [.askQuestion]
        case (.shared(let metadata, let isAbsence), .askingShared):
            state = .storingShared(metadata, isAbsence: isAbsence)
            return [.storeShared(metadata, isAbsence: isAbsence)]
        case (.stored, .storingShared(let metadata, let isAbsence)):
            return end(.shared(metadata, isAbsence: isAbsence))
        case (.question(let wait, _), .asking):
            if let wait { return end(.failed(.waiting(until: wait.until, wait.failure))) }
            state = .preparing
            return [.prepare]
        case (.question(let wait, let attempts), .retrying(let failure)): return retry(failure, wait, attempts, ticks)
        case (.paused, .pausing):
            state = .preparing
            return [.prepare]
        case (.hookFailed, .preparing): return end(.failed(.hook))
        case (.unprepared(let failure, let origin), .preparing):
            guard let origin else { return end(.failed(failure)) }
            account = origin
            return [judge(.failed(failure.setback), isSettled: false)] + end(.failed(failure))
        case (.looked(isEnough: true), .preparing): return end(.found)
        case (.prepared(let request, let file), .preparing):
            self.file = file
            return begin(request)
        case (.hosts(let hosts, let probe), .orderingHosts(let request)):
            if let probe, let first = hosts.first { hostProbe = (first, probe) }
            (self.hosts, asked, plain, best) = (hosts.isEmpty ? [OriginHost(request)] : hosts, 0, request, nil)
            return askNextHost()
        case (.terms(let isAllowed), .checkingTerms(let request)):
            guard isAllowed else { return end(.failed(.forbidden(host: host))) }
            if best != nil, redirects == 0 {
                state = .waitingForSlot(request)
                return [.takeSlot(origin)]
            }
            state = .askingOrigin(request)
            return [.askOrigin(account)]
        case (.origin(let wait), .askingOrigin(let request)):
            if let wait { return giveUp(.waiting(until: wait.until, wait.failure)) }
            state = .waitingForSlot(request)
            return [.takeSlot(origin)]
        case (.slot, .waitingForSlot(let request)):
            hasSlot = true
            // The leave to ask one of the hosts is for all of them.
            if best != nil, redirects == 0 { return send(request) }
            state = .askingLeave(request)
            return [.askLeave(account)]
        case (.noSlot, .waitingForSlot):
            // As if the origin were silent: those ahead have had as long as an answer may take, and more would be in vain.
            let silence = OriginSetback(.unasked, .unreachable)
            let failure = Failure.noAnswer(NoAnswer(silence, mayPass: false, isTimeout: true))
            // Where another host has failed before, it is judged by that.
            return best != nil && redirects == 0 ? failAtHost(failure) : giveUp(failure)
        case (.leave(let leave), .askingLeave(let request)):
            if case .wait(let failure, let until) = leave { return giveUp(.waiting(until: until, failure)) }
            probe = leave.probe
            return send(request)
        case (.answer(let response, let bytes, let requestedAt), .sent(let request)):
            return answer(response, bytes, request, requestedAt, now)
        case (.noAnswer(let none), .sent): return failAtHost(.noAnswer(none))
        case (.rest(let rest), .askingRest(let failure)): return fail(failure.with(retryAfter: max(rest, .seconds(1))))
        case (.checked(let objection, let content), .checking(let request, var response, let requestedAt)):
            if let objection { return fail(.unusable(.body, objection, host: host)) }
            for field in content { response.headerFields[field.name] = field.value }
            return keep(response, isAbsence: false, request, requestedAt, now)
        case (.stored, .storing(let record, let isAbsence)):
            return settle(.brought(record, isAbsence: isAbsence, .kept))
        case (.stored, .updating(let record)): return settle(.confirmed(record))
        case (.stored, .dropping(let record, let isAbsence)):
            return settle(.brought(record, isAbsence: isAbsence, .forbidden(host: host)))
        default: return []
        }
    }

    /// Asks the others of the fleet first, where there are some: a bucket costs less than an origin, and answers when that is away.
    private mutating func ask() -> [Action] {
        state = asksShared ? .askingShared : .asking
        return [asksShared ? .askShared : .askQuestion]
    }

    private mutating func end(_ end: End) -> [Action] {
        state = .over
        let unused = probe.map { [Action.abandonProbe(account, $0)] } ?? []
        return unused + leaveHostProbe() + leaveHost() + [.end(end)]
    }

    /// The request is given up, and the host has not sent a byte.
    private mutating func leaveSilent() -> [Action] {
        let judgement = OriginHealth.Judgement.failed(OriginSetback(.silent, .unreachable))
        // The others that stand for it are not blamed.
        let judged = mirror.map { judgeHost($0, judgement) } ?? judge(judgement, isSettled: false)
        return [judged] + end(.cancelled)
    }

    private mutating func leaveHostProbe() -> [Action] {
        defer { hostProbe = nil }
        return hostProbe.map { [.abandonHostProbe($0.host, $0.number)] } ?? []
    }

    private mutating func leaveHost() -> [Action] {
        probe = nil
        defer { hasSlot = false }
        return hasSlot ? [.giveSlot] : []
    }

    // MARK: The request

    private mutating func begin(_ prepared: HTTPRequest) -> [Action] {
        var request = prepared
        request.method = .get
        for name in HTTPField.Name.conditions { request.headerFields[name] = nil }
        for field in file?.fields(isKnown: hasStored) ?? [:] { request.headerFields[field.name] = field.value }
        // What is stored of another version is no condition for this one.
        if let stored, file.map({ !$0.isFixed }) ?? true {
            // RFC 9111 §4.3.1.
            request.headerFields[.ifNoneMatch] = stored.etag
            request.headerFields[.ifModifiedSince] = stored.lastModified.map { HTTPDate($0).description }
        }
        redirects = 0
        guard group != nil else {
            first = request.hostAndPort
            return approach(request)
        }
        state = .orderingHosts(request)
        return [.orderHosts(OriginHost(request))]
    }

    /// Sends the request to the next of the hosts that stand for one another.
    private mutating func askNextHost() -> [Action] {
        var request = plain
        request.scheme = hosts[asked].scheme
        request.authority = hosts[asked].authority
        asked += 1
        first = request.hostAndPort
        return approach(request)
    }

    /// The host that is asked, where several stand for one another and no redirect has led away.
    private var mirror: OriginHost? { redirects == 0 && asked > 0 ? hosts[asked - 1] : nil }

    /// Goes to a host: by its terms, its failures and its limits.
    private mutating func approach(_ request: HTTPRequest) -> [Action] {
        (host, origin) = (request.hostAndPort, request.originName)
        account = redirects == 0 ? group ?? origin : origin
        state = .checkingTerms(request)
        return [.checkTerms(host)]
    }

    private mutating func send(_ request: HTTPRequest) -> [Action] {
        state = .sent(request)
        let share = mirror == nil || hosts.count == 1 ? nil : hosts.count - asked + 1
        return [.send(request, redirectedFrom: host == first ? nil : first, share: share)]
    }

    // MARK: The answer

    private mutating func answer(
        _ response: HTTPResponse, _ bytes: Int, _ request: HTTPRequest, _ requestedAt: HTTPDate, _ now: HTTPDate
    ) -> [Action] {
        let status = response.status.code
        if status >= 500 || status == 429, mirror != nil {
            return failAtHost(.status(status, host: host, retryAfter: retryAfter(response.headerFields, now: now)))
        }
        // It is no longer one that is asked last.
        let noted = mirror.map { [judgeHost($0, .answered)] } ?? []
        return noted + take(response, bytes, request, requestedAt, now)
    }

    private mutating func judgeHost(_ host: OriginHost, _ judgement: OriginHealth.Judgement) -> Action {
        guard let probe = hostProbe, probe.host == host else { return .judgeHost(host, judgement, probe: nil) }
        hostProbe = nil
        return .judgeHost(host, judgement, probe: probe.number)
    }

    private mutating func take(
        _ response: HTTPResponse, _ bytes: Int, _ request: HTTPRequest, _ requestedAt: HTTPDate, _ now: HTTPDate
    ) -> [Action] {
        let status = response.status.code
        if Redirect.isOne(status) { return redirect(response, request) }
        if let file {
            switch file.verdict(on: response, at: now) {
            case .part(let version):
                guard Int64(bytes) == file.count(in: version) else {
                    let words = "\(bytes) of \(file.count(in: version)) bytes"
                    return fail(.unusable(.incomplete, words, host: host))
                }
                mark = file.mark ?? String(version.length)
                state = .checking(request, file.whole(response), requestedAt: requestedAt)
                return [.check(response)]
            case .whole: return whole(response, as: file.whole(response), bytes, request, requestedAt)
            case .otherVersion(let words):
                let failure = Failure.unusable(.otherVersion, words, host: host)
                guard !file.isRepeated else { return fail(failure) }
                // Nobody's fault, and the file is asked about anew at once.
                // It settles nothing: the same may have failed before, and is left alone for longer each time.
                return [judge(.answered, isSettled: false)] + end(.failed(failure))
            case .refused(let words): return fail(.unusable(.body, words, host: host))
            case .other where status == 304: return notModified(response, request, requestedAt, now)
            // That there is no such file does not mean that there is no such tile.
            case .other:
                let wait = retryAfter(response.headerFields, now: now)
                return fail(.status(status, host: host, retryAfter: wait))
            }
        }
        switch status {
        case 304: return notModified(response, request, requestedAt, now)
        case 200, 203: return whole(response, as: response, bytes, request, requestedAt)
        case _ where isAbsence(status): return keep(response, isAbsence: true, request, requestedAt, now)
        default:
            let wait = retryAfter(response.headerFields, now: now)
            return fail(.status(status, host: host, retryAfter: wait))
        }
    }

    /// - Parameter kept: The answer as it is to be stored.
    private mutating func whole(
        _ response: HTTPResponse, as kept: HTTPResponse, _ bytes: Int, _ request: HTTPRequest, _ requestedAt: HTTPDate
    ) -> [Action] {
        guard bytes <= use.storedBodyBytes else {
            return fail(
                .unusable(.body, "more than the \(use.storedBodyBytes) bytes that the source allows", host: host))
        }
        if let stated = response.headerFields.combined(.contentLength).flatMap({ Int($0) }), stated != bytes {
            return fail(.unusable(.incomplete, "\(bytes) of \(stated) bytes", host: host))
        }
        state = .checking(request, kept, requestedAt: requestedAt)
        return [.check(response)]
    }

    /// The host has answered, and only another request would bring the tile, which nobody waits for.
    private mutating func stop() -> [Action] { [judge(.answered, isSettled: false)] + end(.cancelled) }

    private mutating func redirect(_ response: HTTPResponse, _ request: HTTPRequest) -> [Action] {
        guard !isAlone else { return stop() }
        guard redirects < Redirect.most else {
            return fail(.unusable(.redirect, "redirected more than \(Redirect.most) times", host: host))
        }
        redirects += 1
        switch Redirect.next(response, to: request, harmless: harmless) {
        case .refuse(let why): return fail(.unusable(.redirect, "sent \(why)", host: host))
        case .follow(let next):
            guard next.originName != origin else { return send(next) }
            // Another host has limits, terms and failures of its own.
            let judged = judge(.answered, isSettled: false)
            return [judged] + leaveHost() + approach(next)
        }
    }

    private mutating func notModified(
        _ response: HTTPResponse, _ request: HTTPRequest, _ requestedAt: HTTPDate, _ now: HTTPDate
    ) -> [Action] {
        guard let stored, request.headerFields.isConditional else {
            return fail(.unusable(.notModified, "answered 304 to a request without conditions", host: host))
        }
        let known = storedResponse(of: stored)
        guard case .confirmed = NotModifiedOutcome(response.headerFields, asked: [known.validators], now: now) else {
            // About something else than what is stored: only the whole tile helps.
            guard !isAlone else { return stop() }
            var plain = request
            plain.headerFields[.ifNoneMatch] = nil
            plain.headerFields[.ifModifiedSince] = nil
            return send(plain)
        }
        var record = use.refreshed(known, by: response, to: request, requestedAt: requestedAt, receivedAt: now).record
        if file != nil { record.intent.metadata = record.intent.metadata.noting(stored.fileMark) }
        state = .updating(record)
        return reportClock(record) + [.update(record)]
    }

    private mutating func keep(
        _ response: HTTPResponse, isAbsence: Bool, _ request: HTTPRequest, _ requestedAt: HTTPDate, _ now: HTTPDate
    ) -> [Action] {
        var record = use.record(response, to: request, requestedAt: requestedAt, receivedAt: now)
        record.intent.metadata = record.intent.metadata.noting(mark)
        let report = reportClock(record)
        guard isKept else { return report + settle(.brought(record, isAbsence: isAbsence, .notWanted)) }
        guard record.isStorable else {
            if hasStored {
                state = .dropping(record, isAbsence: isAbsence)
                return report + [.forgetHeld, .drop]
            }
            return report + [.forgetHeld] + settle(.brought(record, isAbsence: isAbsence, .forbidden(host: host)))
        }
        state = .storing(record, isAbsence: isAbsence)
        return report + [.store(record, isAbsence: isAbsence)]
    }

    /// The tile is settled.
    private mutating func settle(_ end: End) -> [Action] {
        [judge(.answered, isSettled: true)] + self.end(end)
    }

    private mutating func judge(_ judgement: OriginHealth.Judgement, isSettled: Bool) -> Action {
        defer { probe = nil }
        return .judge(account, judgement, isSettled: isSettled, probe: probe)
    }

    private func reportClock(_ record: AnswerRecord) -> [Action] {
        record.freshness.dateAhead > 60 ? [.reportClock(host, ahead: record.freshness.dateAhead)] : []
    }

    // MARK: Failures

    /// A host has failed: the next one is asked, if there is one that stands for it.
    private mutating func failAtHost(_ failure: Failure) -> [Action] {
        guard let mirror else { return fail(failure) }
        let setback = failure.setback
        let actions = setback.blame == .unasked ? leaveHostProbe() : [judgeHost(mirror, .failed(setback))]
        let isAnswered = if case .status = best { true } else { false }
        if case .noAnswer = failure, isAnswered || best != nil && failure.isOutOfTime {} else { best = failure }
        // Those that are not asked are not blamed either.
        if isAlone, asked < hosts.count { return actions + end(.cancelled) }
        guard asked < hosts.count, !failure.isOutOfTime else {
            let last = best ?? failure
            guard case .status(_, _, .some) = last, hosts.count > 1 else { return actions + fail(last) }
            // What one of them has asked for is noted. Together they can be asked again when the first of them has rested.
            state = .askingRest(last)
            return actions + [.askRest(hosts)]
        }
        let slot: [Action] = hasSlot ? [.giveSlot] : []
        hasSlot = false
        return actions + slot + [.countFailover] + askNextHost()
    }

    /// A question that was sent has failed.
    private mutating func fail(_ failure: Failure) -> [Action] {
        let judged = judge(.failed(failure.setback), isSettled: false)
        return [judged] + leaveHost() + giveUp(failure)
    }

    /// Tries again where that makes sense, and is allowed.
    private mutating func giveUp(_ failure: Failure) -> [Action] {
        // Report the first failure, not the back-off that it caused.
        if case .waiting = failure, let last { return end(.failed(last)) }
        last = failure
        // A stale tile now is better than a fresh one in a while.
        guard failure.mayPass, !hasStored, !isAlone else { return end(.failed(failure)) }
        state = .retrying(failure)
        return leaveHost() + [.askQuestion]
    }

    private mutating func retry(
        _ failure: Failure, _ wait: OriginHealth.Wait?, _ attempts: Int, _ ticks: UInt64
    ) -> [Action] {
        guard attempt < attempts, let wait else { return end(.failed(failure)) }
        let left = wait.until > ticks ? wait.until - ticks : 0
        guard left <= Self.longestPause else { return end(.failed(failure)) }
        attempt += 1
        state = .pausing
        return [.pause(.nanoseconds(Int64(left)))]
    }
}

extension HTTPFields {
    fileprivate var isConditional: Bool { self[.ifNoneMatch] != nil || self[.ifModifiedSince] != nil }
}

extension HTTPField.Name {
    /// What only the cache may set.
    fileprivate static let conditions: [HTTPField.Name] = [
        .ifNoneMatch, .ifModifiedSince, .ifMatch, .ifUnmodifiedSince, .ifRange, .range,
    ]
}
