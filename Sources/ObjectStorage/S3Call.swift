package import HTTPTypes
package import NIOCore
package import OriginClient
import TileStore

/// A request that is under way, with its second attempt if it needs one.
///
/// Belongs to its event loop and is used on it alone.
package final class S3Call: UpstreamReceiver {
    private let request: S3Request
    private let what: String
    private let pool: UpstreamPool
    private let loop: any EventLoop
    private let limits: S3Limits
    private let sign: () -> (UpstreamRequest, Timestamp)
    private var finish: ((Result<Answered, S3Error>) -> Void)?
    private var call: UpstreamCall?
    private var timer: Scheduled<Void>?
    private var retry: Scheduled<Void>?
    private var isSecondAttempt = false
    private var sentAt = Timestamp(seconds: 0)
    private var head: HTTPResponse?
    private var body = ByteBuffer()

    /// An answer, and the time that its request had.
    struct Answered: Sendable {
        var answer: S3Answer
        var sentAt: Timestamp
    }

    /// - Parameters:
    ///   - what: The request, as messages name it.
    ///   - sign: Makes what is sent, with its time.
    ///   - finish: Called once.
    init(
        _ request: S3Request, _ what: String, pool: UpstreamPool, loop: any EventLoop, limits: S3Limits,
        sign: @escaping () -> (UpstreamRequest, Timestamp), _ finish: @escaping (Result<Answered, S3Error>) -> Void
    ) {
        (self.request, self.what, self.pool, self.loop, self.limits) = (request, what, pool, loop, limits)
        (self.sign, self.finish) = (sign, finish)
    }

    func start() {
        // The timer is also what keeps this alive until it is over.
        let bound = NIOLoopBound(self, eventLoop: loop)
        timer = loop.scheduleTask(in: limits.request) {
            bound.value.fail(.timeout, "no whole answer in \(bound.value.limits.request.nanoseconds / 1_000_000) ms")
        }
        attempt()
    }

    /// Gives it up: it ends as cancelled.
    package func cancel() { fail(.cancelled, "cancelled") }

    /// Bytes of the answer's body that are here.
    var received: Int { body.readableBytes }

    /// Stops reading the answer for a while.
    func pause() { call?.pause() }

    /// Goes on reading the answer.
    func resume() { call?.resume() }

    private func attempt() {
        (head, body) = (nil, ByteBuffer())
        let (outgoing, time) = sign()
        sentAt = time
        call = pool.call(outgoing, receiver: self)
    }

    private func fail(_ code: S3Error.Code, _ words: String) { end(.failure(S3Error(code, "\(what): \(words)"))) }

    private func end(_ result: Result<Answered, S3Error>) {
        call?.cancel()
        timer?.cancel()
        retry?.cancel()
        (timer, retry, call) = (nil, nil, nil)
        let waiting = finish
        finish = nil
        waiting?(result)
    }

    // MARK: The server's answer

    package func upstreamIsReady(_ call: UpstreamCall) {
        guard request.body.readableBytes > 0 else { return }
        call.send(request.body)
        call.finish(trailers: nil)
    }

    package func upstreamSent(interim: HTTPResponse) {}

    package func upstreamSent(head: HTTPResponse, length: Int64?) {
        self.head = head
        let isCoded = head.headerFields[values: .contentEncoding].contains { $0 != "" && $0.lowercased() != "identity" }
        if isCoded {
            // Of an error the status counts, of all else nothing.
            if isError(head) { return answered(with: ByteBuffer()) }
            return fail(
                .coded, "the answer is compressed, although nobody asked for that; something between changes it")
        }
        guard let length, request.method != "HEAD", !isError(head) else { return }
        guard length <= Int64(limit(head)) else { return failTooLarge(head) }
        // A promise may be a lie: no more than a large tile is reserved on its word.
        body.reserveCapacity(min(Int(length), 1 << 20))
    }

    private func isError(_ head: HTTPResponse) -> Bool { head.status.code >= 300 }

    private func limit(_ head: HTTPResponse) -> Int {
        isError(head) ? limits.errorBytes : request.answersObject ? limits.objectBytes : limits.documentBytes
    }

    package func upstreamSent(bytes: ByteBuffer) {
        guard let head else { return }
        guard bytes.readableBytes <= limit(head) - body.readableBytes else {
            return isError(head) ? answered(with: ByteBuffer()) : failTooLarge(head)
        }
        body.writeImmutableBuffer(bytes)
    }

    private func failTooLarge(_ head: HTTPResponse) { fail(.tooLarge, "the answer is larger than \(limit(head)) B") }

    package func upstreamEnded(trailers: HTTPFields?) { answered(with: body) }

    private func answered(with body: ByteBuffer) {
        guard let head else { return fail(.malformed, "an answer without a head") }
        let status = head.status.code
        if status == 500 || status == 503, !isSecondAttempt {
            call?.cancel()
            isSecondAttempt = true
            let bound = NIOLoopBound(self, eventLoop: loop)
            retry = loop.scheduleTask(in: limits.retryPause) { bound.value.attempt() }
            return
        }
        end(.success(Answered(answer: S3Answer(head: head, body: body), sentAt: sentAt)))
    }

    package func upstreamFailed(_ failure: UpstreamFailure) {
        if case .closed = failure, !isSecondAttempt {
            isSecondAttempt = true
            attempt()
            return
        }
        end(.failure(S3Error(failure, hasHead: head != nil, what)))
    }
}
