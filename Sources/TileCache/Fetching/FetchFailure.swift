package import CacheEngine
import HTTPCaching
package import TileStore

/// A fetch that brought nothing: what to tell the caller, and what it means for the next one.
package struct FetchFailure: Error, Sendable {
    /// What the caller is told if nothing in the cache can help.
    package var error: TileCacheError
    /// What it means for stale tiles.
    var failure: OriginFailure
    /// Whether asking again soon makes sense.
    var mayPass = false
    /// What the host asked for.
    var retryAfter: Duration?
    /// Whether what was asked for is gone, or of another version of its file by now.
    package var isOtherVersion = false
}

extension FetchFailure {
    /// Something that is no tile.
    package init(_ code: TileCacheError.Code, _ message: String, key: TileKey) {
        self.init(error: TileCacheError(code, "\(key): \(message)", key: key), failure: .refused)
    }

    /// A fill that failed, in words.
    ///
    /// - Parameters:
    ///   - known: What only the one who carries it out knows: the hook's error, the transport's, the terms'.
    ///   - now: In ticks.
    package init(_ failure: TileFill.Failure, key: TileKey, known: TileCacheError?, now: UInt64) {
        let setback = failure.setback
        self.init(
            error: known ?? TileCacheError(.noAnswer, "\(key): there is no answer", key: key),
            failure: setback.failure, mayPass: failure.mayPass, retryAfter: setback.retryAfter)
        if case .unusable(.otherVersion, _, _) = failure { isOtherVersion = true }
        switch failure {
        case .waiting(let until, let why):
            let left = Duration.nanoseconds(Int64(clamping: until > now ? until - now : 0))
            // An answer of 200 that was of no use is no status to be told.
            let status: Int? = if case .status(let status) = why, status >= 400 { status } else { nil }
            let words = status.map { " with status \($0)" } ?? ""
            error = TileCacheError(
                .waiting,
                "\(key): it or its host failed lately\(words); it is asked again in \(left.components.seconds + 1) s",
                key: key, status: status, retryAfter: left)
        case .status(let status, let host, let retryAfter):
            let advice =
                switch status {
                case 401, 403: "; check the source's credentials and the server's terms"
                case 429: "; ask for less at once"
                default: ""
                }
            error = TileCacheError(
                .badStatus, "\(key): \(host) answered with status \(status)\(advice)", key: key, status: status,
                retryAfter: retryAfter)
        case .unusable(.notModified, let words, let host):
            error = TileCacheError(.badStatus, "\(key): \(host) \(words)", key: key)
        case .unusable(.redirect, let words, let host):
            error = TileCacheError(.badRedirect, "\(key): \(host) \(words)", key: key)
        case .unusable(.body, let words, let host), .unusable(.incomplete, let words, let host),
            .unusable(.otherVersion, let words, let host):
            error = TileCacheError(.badBody, "\(key): \(host) sent \(words)", key: key)
        case .hook, .forbidden, .noAnswer, .noRoom: break
        }
    }
}

extension TransportError {
    /// Whether an answer came that the transport does not take.
    private var isAnswer: Bool { code == .bodyTooLarge || code == .headTooLarge || code == .unsupported }

    /// What it says about the host and the tile.
    package var meaning: TileFill.NoAnswer {
        let blame: OriginSetback.Blame = isUnasked ? .unasked : isAnswer || code == .truncated ? .none : .silent
        return TileFill.NoAnswer(
            OriginSetback(blame, isAnswer ? .refused : .unreachable), mayPass: !isAnswer && code != .nameNotFound,
            isTimeout: code == .timeout)
    }
}

extension OriginFailure {
    /// An answer that is no tile, whatever its status says.
    static let refused = OriginFailure.status(200)
}
