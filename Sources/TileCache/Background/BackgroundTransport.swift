import HTTPTypes
import TileStore

/// The requests of a region's download, carried by a background session: has the effects of what ``BackgroundExchanges`` decides.
///
/// Differs from other transports in this: ``TransportRequest/timeout`` does not count, as the system decides when it is a good
/// time; redirects are followed by the system. An answer may have come hours ago: ``TransportResponse/arrivedAt`` says when.
final class BackgroundTransport: TileTransport {
    typealias Answer = Result<TransportResponse, TransportError>

    fileprivate struct Delivered: Sendable {
        var answer: Answer
        var at: Timestamp
    }
    private struct Waiter {
        var request: TransportRequest
        var continuation: CheckedContinuation<Answer, Never>
    }
    private struct State {
        var exchanges = BackgroundExchanges<Delivered>()
        var session: (any BackgroundSession)?
        var last: UInt64 = 0
        var waiters: [UInt64: Waiter] = [:]
        var resting: [UInt64: CheckedContinuation<Void, Never>] = [:]
    }

    /// The session's identifier.
    let identifier: String
    private let state = Locked(State())

    /// Opens the session.
    init(_ identifier: String, _ sessions: any BackgroundSessions) {
        self.identifier = identifier
        let session = sessions.open(identifier) { [weak self] event in self?.hear(event) }
        state.withLock { $0.session = session }
    }

    deinit { state.withLock { $0.session }?.invalidate() }

    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        let (name, number) = (Self.name(of: request), newNumber())
        let answer: Answer = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                state.withLock { $0.waiters[number] = Waiter(request: request, continuation: continuation) }
                tell(.wanted(number, name))
                // A cancellation before that found nobody.
                if Task.isCancelled { tell(.unwanted(number)) }
            }
        } onCancel: {
            tell(.unwanted(number))
        }
        return try answer.get()
    }

    // MARK: Work

    /// So many work on what comes next.
    func begin(_ workers: Int = 1) { tell(.workBegan(workers)) }
    func end(_ workers: Int = 1) { tell(.workEnded(workers)) }

    /// Waits until the system has told all that happened meanwhile, and all of it is taken care of; or until the task is cancelled.
    func rest() async {
        let number = newNumber()
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                state.withLock { $0.resting[number] = continuation }
                tell(.rest(number))
                if Task.isCancelled { stopResting(number) }
            }
        } onCancel: {
            stopResting(number)
        }
    }

    /// A download is over: what is left of its tasks is ended.
    func finish() { tell(.over) }

    private func stopResting(_ number: UInt64) {
        tell(.restUnwanted(number))
        state.withLock { $0.resting.removeValue(forKey: number) }?.resume()
    }

    private func newNumber() -> UInt64 {
        state.withLock { state in
            state.last += 1
            return state.last
        }
    }

    // MARK: Effects

    private func hear(_ event: BackgroundEvent) {
        switch event {
        case .listed(let names): tell(.listed(names))
        case .ended(let name, let answer, let time):
            // Why nothing came is no use to one who asks later: that one tries again.
            let bytes: Int? = if case .success(let answer) = answer { answer.body.count } else { nil }
            tell(.ended(name, Delivered(answer: answer, at: time), bytes: bytes))
        case .eventsDelivered: tell(.eventsDelivered)
        }
    }

    private func tell(_ event: BackgroundExchanges<Delivered>.Event) {
        var answers: [(CheckedContinuation<Answer, Never>, Answer)] = []
        var rested: [CheckedContinuation<Void, Never>] = []
        state.withLock { state in
            for action in state.exchanges.on(event) {
                switch action {
                // Within the lock, so that the system hears of a task's beginning before it hears of its end.
                case .start(let name, let waiter):
                    if let request = state.waiters[waiter]?.request { state.session?.start(request, named: name) }
                case .cancel(let name): state.session?.cancel(name)
                case .answer(let number, let delivered):
                    guard let waiter = state.waiters.removeValue(forKey: number) else { continue }
                    answers.append((waiter.continuation, delivered.handed(to: waiter.request)))
                case .giveUp(let number):
                    guard let waiter = state.waiters.removeValue(forKey: number) else { continue }
                    let error = TransportError(.cancelled, "\(waiter.request.head.host): cancelled")
                    answers.append((waiter.continuation, .failure(error)))
                case .rested(let number):
                    if let continuation = state.resting.removeValue(forKey: number) { rested.append(continuation) }
                }
            }
        }
        for (continuation, answer) in answers { continuation.resume(returning: answer) }
        for continuation in rested { continuation.resume() }
    }

    /// What tells a request from others, the same in each process.
    ///
    /// A hash, since addresses and fields may hold secrets.
    private static func name(of request: TransportRequest) -> String {
        let head = request.head
        var text = "\(head.method.rawValue) \(head.scheme ?? "")://\(head.authority ?? "")\(head.path ?? "")\n"
        for field in head.headerFields { text += "\(field.name.canonicalName): \(field.value)\n" }
        return Array(text.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }.description
    }
}

extension BackgroundTransport.Delivered {
    /// As who asked for it gets it: within its limit, and with the time at which it came.
    fileprivate func handed(to request: TransportRequest) -> BackgroundTransport.Answer {
        guard case .success(var response) = answer else { return answer }
        guard response.body.count <= request.bodyLimit else {
            return .failure(TransportError(.bodyTooLarge, "\(request.head.host): the body is larger than allowed"))
        }
        response.arrivedAt = at
        return .success(response)
    }
}
