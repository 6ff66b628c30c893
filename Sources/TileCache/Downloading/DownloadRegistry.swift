import TileStore

/// The downloads of a cache that are under way, so that closing it ends them.
final class DownloadRegistry: Sendable {
    private struct State {
        var running: [UInt64: TileDownload] = [:]
        var last: UInt64 = 0
        var isClosed = false
    }
    private let state = Locked(State())

    /// How many are under way.
    var count: Int { state.withLock { $0.running.count } }

    /// Those that are under way.
    var all: [TileDownload] { state.withLock { Array($0.running.values) } }

    /// Enters a download.
    ///
    /// - Returns: Its number; `nil` if the cache is closed.
    func enter(_ download: TileDownload) -> UInt64? {
        state.withLock { state in
            if state.isClosed { return nil }
            state.last += 1
            state.running[state.last] = download
            return state.last
        }
    }

    private let resuming = Locked(())

    /// The download that carries out a plan: one that is under way, unless it is about to end, or a new one.
    ///
    /// Two who ask at the same time get the same.
    func download(of plan: WrittenPlan, orNew make: () -> TileDownload) -> TileDownload {
        resuming.withLock { _ in
            // Not within the other lock, which a new one needs to be entered.
            download(of: plan) ?? make()
        }
    }

    /// The download that carries out a plan, if one is under way and not about to end.
    func download(of plan: WrittenPlan) -> TileDownload? { all.first { $0.plan == plan && !$0.isEnding } }

    func leave(_ number: UInt64) { state.withLock { _ = $0.running.removeValue(forKey: number) } }

    /// Ends all downloads, and lets none begin any more.
    func close() {
        let running = state.withLock { state in
            state.isClosed = true
            return Array(state.running.values)
        }
        for download in running { download.end(.closed) }
    }
}

extension TileCacheError {
    /// The cache was closed.
    static let closed = TileCacheError(.closed, "the cache was closed")
}
