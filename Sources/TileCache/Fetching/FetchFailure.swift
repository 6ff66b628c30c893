import CacheEngine
import HTTPCaching
import TileStore

/// A fetch that brought nothing: what to tell the caller, and what it means for the next one.
struct FetchFailure: Error, Sendable {
    /// What the caller is told if nothing in the cache can help.
    var error: TileCacheError
    /// What it means for stale tiles.
    var failure: OriginFailure
    /// Whether asking again soon makes sense.
    var mayPass = false
    /// What it says about the host, and not only about this tile.
    var blame = OriginSetback.Blame.none
    /// What the host asked for.
    var retryAfter: Duration?
}

extension FetchFailure {
    /// Nothing, or only a part of an answer, came.
    init(_ failure: TransportError, key: TileKey, host: String) {
        let isAnswer = failure.code == .bodyTooLarge || failure.code == .headTooLarge || failure.code == .unsupported
        self.init(
            error: TileCacheError(.noAnswer, "\(key): \(failure.message)", key: key, cause: failure),
            failure: isAnswer ? .refused : .unreachable, mayPass: !isAnswer && failure.code != .nameNotFound,
            blame: !isAnswer && failure.code != .truncated ? .silent : .none)
    }

    /// An answer that is neither a tile nor its absence.
    init(status: Int, key: TileKey, host: String, retryAfter: Duration?) {
        let mayPass = [429, 500, 502, 503, 504].contains(status)
        let advice =
            switch status {
            case 401, 403: "; check the source's credentials and the server's terms"
            case 429: "; ask for less at once"
            default: ""
            }
        var error = TileCacheError(
            .badStatus, "\(key): \(host) answered with status \(status)\(advice)", key: key, status: status)
        error.retryAfter = retryAfter
        self.init(
            error: error, failure: .status(status), mayPass: mayPass,
            blame: status == 429 ? .overloaded : status >= 500 ? .error : .none, retryAfter: retryAfter)
    }

    /// An answer that is not believed.
    init(_ code: TileCacheError.Code, _ message: String, key: TileKey) {
        self.init(error: TileCacheError(code, "\(key): \(message)", key: key), failure: .refused)
    }

    /// The tile or the host is left alone for now.
    init(_ wait: OriginHealth.Wait, key: TileKey, now: UInt64) {
        let left = Duration.nanoseconds(Int64(clamping: wait.until > now ? wait.until - now : 0))
        let seconds = left.components.seconds + 1
        self.init(
            error: TileCacheError(
                .waiting, "\(key): it or its host failed lately; it is asked again in \(seconds) s", key: key,
                retryAfter: left),
            failure: wait.failure)
    }

    /// What it says about the host and the tile.
    var judgement: OriginHealth.Judgement {
        .failed(OriginSetback(blame, failure, retryAfter: retryAfter))
    }
}

extension OriginFailure {
    /// An answer that is no tile, whatever its status says.
    static let refused = OriginFailure.status(200)
}
