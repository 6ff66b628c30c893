import HTTPTypes
import NIOConcurrencyHelpers
package import NIOCore
package import OriginClient
package import TileStore

/// The client of one bucket, on the event loops of who asks.
///
/// Connections are kept for each loop, and bounded; so are time and bytes of every request (``S3Limits``). A request is sent
/// once more after a 500, a 503 or a connection that broke.
package final class S3Client: Sendable {
    private let bucket: S3Bucket
    private let limits: S3Limits
    private let signer: NIOLockedValueBox<S3Signer>
    private let group: any EventLoopGroup
    private let pools: [ObjectIdentifier: NIOLoopBoundBox<UpstreamPool>]
    private let now: @Sendable () -> Timestamp

    /// - Parameters:
    ///   - group: The loops to run on.
    ///   - tls: For `https`; prepared before the first request.
    ///   - now: The clock that signatures have.
    package init(
        _ bucket: S3Bucket, _ credentials: S3Credentials, limits: S3Limits = S3Limits(), group: any EventLoopGroup,
        tls: OriginTLS?, now: @escaping @Sendable () -> Timestamp
    ) {
        (self.bucket, self.limits, self.group, self.now) = (bucket, limits, group, now)
        signer = NIOLockedValueBox(S3Signer(bucket, credentials))
        var upstream = UpstreamLimits()
        upstream.connect = limits.connect
        (upstream.idle, upstream.connections, upstream.waiting) = (limits.idle, limits.connections, limits.waiting)
        (upstream.headBytes, upstream.fieldCount) = (limits.headBytes, 128)
        // The request's own time covers all of it.
        (upstream.head, upstream.bodyStall) = (.hours(24), .hours(24))
        let made = group.makeIterator().map { [upstream] loop in
            let pool = UpstreamPool(origin: bucket.origin, limits: upstream, loop: loop, tls: tls)
            return (ObjectIdentifier(loop), NIOLoopBoundBox.makeBoxSendingValue(pool, eventLoop: loop))
        }
        pools = Dictionary(uniqueKeysWithValues: made)
    }

    /// Takes new credentials, as those with a session token need from time to time.
    package func adopt(_ credentials: S3Credentials) {
        signer.withLockedValue { $0 = S3Signer(bucket, credentials) }
    }

    /// Does something; to be called on one of the loops.
    ///
    /// - Parameter finish: Called once, on the loop.
    /// - Returns: The request, while it is under way; `nil` if it could not be sent, which has been told by then.
    package func send<Answer>(
        _ operation: S3Operation<Answer>, on loop: any EventLoop,
        _ finish: @escaping (Result<Answer, S3Error>) -> Void
    ) -> S3Call? {
        let what = name(operation.request)
        return start(operation.request, what, on: loop) { result in
            finish(Self.read(operation, result, what))
        }
    }

    /// Does something, on one of the loops; a document is read on the task's own thread.
    package func send<Answer>(_ operation: S3Operation<Answer>) async throws(S3Error) -> Answer {
        let what = name(operation.request)
        let loop = group.any()
        let slot = NIOLoopBoundBox.makeBoxSendingValue(Slot(), eventLoop: loop)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { waiting in
                loop.execute {
                    guard !slot.value.isCancelled else {
                        waiting.resume(
                            returning: Result<S3Call.Answered, S3Error>.failure(
                                S3Error(.cancelled, "\(what): cancelled")))
                        return
                    }
                    slot.value.call = self.start(operation.request, what, on: loop) { waiting.resume(returning: $0) }
                }
            }
        } onCancel: {
            loop.execute {
                slot.value.isCancelled = true
                slot.value.call?.cancel()
            }
        }
        return try Self.read(operation, result, what).get()
    }

    /// Where a request is that a task waits for.
    private struct Slot {
        var call: S3Call?
        var isCancelled = false
    }

    /// Closes what is idle.
    package func shutdown() async {
        for pool in pools.values {
            // A loop that has ended has no connections any more.
            try? await pool.eventLoop.submit { pool.value.close() }.get()
        }
    }

    /// Sends a request; what came of it is not read yet.
    func start(
        _ request: S3Request, _ what: String, on loop: any EventLoop,
        _ finish: @escaping (Result<S3Call.Answered, S3Error>) -> Void
    ) -> S3Call? {
        guard let pool = pools[ObjectIdentifier(loop)] else {
            finish(.failure(S3Error(.invalid, "\(what): not asked from one of the client's event loops")))
            return nil
        }
        guard request.body.readableBytes <= limits.objectBytes else {
            finish(
                .failure(
                    S3Error(
                        .invalid,
                        "\(what): a body of \(request.body.readableBytes) B; \(limits.objectBytes) B are the most")))
            return nil
        }
        let sign = { [signer, now] in
            let time = now()
            return (signer.withLockedValue { $0 }.sign(request, at: time), time)
        }
        let call = S3Call(request, what, pool: pool.value, loop: loop, limits: limits, sign: sign, finish)
        call.start()
        return call
    }

    /// A request, as messages name it.
    private func name(_ request: S3Request) -> String {
        let target =
            request.key.map { " \(shown($0))" } ?? (request.method == "POST" ? " (DeleteObjects)" : " (ListObjectsV2)")
        return "bucket \(bucket.name) at \(bucket.origin.name): \(request.method)\(target)"
    }

    private static func read<Answer>(
        _ operation: S3Operation<Answer>, _ result: Result<S3Call.Answered, S3Error>, _ what: String
    ) -> Result<Answer, S3Error> {
        switch result {
        case .failure(let error): return .failure(error)
        case .success(let answered):
            let status = answered.answer.status
            do throws(S3AnswerDefect) {
                if let answer = try operation.read(answered.answer) { return .success(answer) }
                return .failure(S3Error(answered.answer, sentAt: answered.sentAt, what))
            } catch {
                return .failure(S3Error(.malformed, "\(what): \(error.words)", status: status))
            }
        }
    }
}
