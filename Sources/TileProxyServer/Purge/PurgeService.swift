import CacheEngine
import Logging
import NIOCore
import SharedTier
import TileCache
import TileStore

/// Purging over HTTP: how often, and what is done; shared by all event loops.
final class PurgeService: Sendable {
    /// What became of a request.
    enum Outcome: Sendable {
        case expired(Int)
        case removed(Int)
        /// The body says nothing that can be done.
        case refused(String)
        /// The store failed.
        case failed(any Error)
        /// So many entries of this node were marked stale, but the bucket could not be told.
        case bucketFailed(Int, any Error)
    }

    private struct State {
        /// Ten at once, and then one a second.
        var allowance = RequestAllowance(burst: 10, interval: 1_000_000_000)
        var waiting = 0
        var tasks: [UInt64: Task<Void, Never>] = [:]
        var lastTask: UInt64 = 0
        var isStopping = false
    }

    /// The most bytes of a body: some 300,000 tiles.
    static let mostBytes = 4 << 20
    /// How many may be waited for at a time.
    private static let mostWaiting = 16

    let token: PurgeToken
    private let tiles: TileService
    /// The names of the upstreams.
    private let upstreams: Set<SourceName>
    /// Adds marks to the bucket that is shared with others.
    private let marks: MarkWriter?
    private let logger: Logger
    private let state = Locked(State())
    /// One thread of its own: what waits for it is another purge, and no put.
    private let thread = BlockingPool(threads: 1)

    init(
        _ token: PurgeToken, tiles: TileService, upstreams: some Sequence<SourceName>, marks: MarkWriter?,
        logger: Logger
    ) {
        self.token = token
        self.tiles = tiles
        self.upstreams = Set(upstreams)
        self.marks = marks
        self.logger = logger
    }

    /// Lets a request in.
    ///
    /// - Returns: `nil`, or in how many seconds to come again. Who is let in calls ``purge(_:from:on:_:)`` or ``giveUp()``.
    func enter() -> Int? {
        let ticks = tiles.clock.ticks()
        return state.withLock { state in
            guard state.waiting < Self.mostWaiting else { return 5 }
            if let wait = state.allowance.take(at: ticks) { return Int((wait + 999_999_999) / 1_000_000_000) }
            state.waiting += 1
            return nil
        }
    }

    /// A request that was let in came to nothing.
    func giveUp() { state.withLock { $0.waiting -= 1 } }

    /// Does what a body says, on a thread that may wait, and then calls back on the loop.
    func purge(
        _ body: ByteBuffer, from client: String, on loop: any EventLoop, _ finish: @escaping @Sendable (Outcome) -> Void
    ) {
        let end: @Sendable (Outcome) -> Void = { outcome in
            self.giveUp()
            loop.execute { finish(outcome) }
        }
        thread.submit {
            do throws(PurgeRequest.Mistake) {
                let read = body.withUnsafeReadableBytes { bytes in
                    Result { () throws(PurgeRequest.Mistake) in try PurgeRequest(json: bytes) }
                }
                let request = try read.get()
                try self.checkSource(of: request)
                self.begin(request, client, end)
            } catch { end(.refused(error.message)) }
        }
    }

    private func checkSource(of request: PurgeRequest) throws(PurgeRequest.Mistake) {
        guard tiles.table.source(named: request.source.description) != nil || upstreams.contains(request.source) else {
            throw PurgeRequest.Mistake(
                message: "source: there is no source and no upstream named \(request.source)")
        }
    }

    private func begin(_ request: PurgeRequest, _ client: String, _ end: @escaping @Sendable (Outcome) -> Void) {
        do {
            let isShared = tiles.table.source(named: request.source.description)?.shared != nil
            guard let marks, isShared else { return end(try finish(request, client, marked: nil)) }
            // At once, whatever becomes of the bucket. What is to be removed goes when it would not come back from there.
            let expired = try tiles.purge(request.selection, removes: false)
            let isAccepted = start {
                do {
                    try await marks.add { known, now in
                        try request.marks(after: known, at: now, random: UInt32.random(in: 0...UInt32.max))
                    }
                } catch {
                    self.log(request, client, ["expired": "\(expired)", "bucket": "\(error)"])
                    return end(.bucketFailed(expired, error))
                }
                self.thread.submit {
                    do { end(try self.finish(request, client, marked: expired)) } catch { end(.failed(error)) }
                }
            }
            if !isAccepted { end(.bucketFailed(expired, CancellationError())) }
        } catch { end(.failed(error)) }
    }

    /// Does the rest.
    ///
    /// - Parameter expired: How many were marked stale already, here and in the bucket.
    private func finish(_ request: PurgeRequest, _ client: String, marked expired: Int?) throws -> Outcome {
        if let expired, !request.removes {
            log(request, client, ["expired": "\(expired)"])
            return .expired(expired)
        }
        let count = try tiles.purge(request.selection, removes: request.removes)
        log(request, client, [request.removes ? "removed" : "expired": "\(count)"])
        return request.removes ? .removed(count) : .expired(count)
    }

    private func log(_ request: PurgeRequest, _ client: String, _ more: Logger.Metadata) {
        var metadata: Logger.Metadata = ["source": "\(request.source)", "client": "\(client)"]
        if let zooms = request.zooms { metadata["zooms"] = "\(zooms.lowerBound)-\(zooms.upperBound)" }
        if let box = request.box { metadata["bbox"] = "\(box.west),\(box.south),\(box.east),\(box.north)" }
        if let tiles = request.tiles { metadata["tiles"] = "\(tiles.count)" }
        logger.notice("purged", metadata: metadata.merging(more) { $1 })
    }

    // MARK: Tasks

    /// Starts what waits for the bucket; `false` if it is too late for that.
    private func start(_ body: @escaping @Sendable () async -> Void) -> Bool {
        state.withLock { state in
            guard !state.isStopping else { return false }
            state.lastTask += 1
            let number = state.lastTask
            state.tasks[number] = Task {
                await body()
                self.state.withLock { $0.tasks[number] = nil }
            }
            return true
        }
    }

    /// Gives up what waits for the bucket, and waits for what is being purged.
    func shutdown(within limit: Duration? = nil) async {
        let tasks = state.withLock { state in
            state.isStopping = true
            return Array(state.tasks.values)
        }
        for task in tasks { task.cancel() }
        for task in tasks { await task.value }
        await thread.finish(within: limit)
    }
}

extension PurgeRequest {
    /// The same for all proxies of the bucket.
    func marks(after known: Marks, at now: Timestamp, random: UInt32) throws -> Marks {
        guard let tiles else {
            return try Marks.expiring(source, zooms: zooms, box: box, after: known, at: now, random: random)
        }
        var spans: [Int: [TileSpan]] = [:]
        if let box { for zoom in zooms ?? 0...28 { spans[zoom] = try box.spans(zoom: zoom) } }
        let meant = tiles.listed.filter { tile in
            guard zooms?.contains(tile.z) ?? true else { return false }
            return box == nil || spans[tile.z]?.contains { $0.contains(z: tile.z, x: tile.x, y: tile.y) } ?? false
        }
        return try Marks.expiring(source, tiles: meant, at: now)
    }
}

extension TileService {
    /// Marks entries stale or removes them, and drops what is held of them because it could not be stored.
    ///
    /// Blocks. All event loops heed it with their next look: what they have ready is compared with the store's tables each time.
    func purge(_ selection: EntrySelection, removes: Bool) throws -> Int {
        held.remove { key in selection.names(key) }
        return removes ? try store.remove(selection).removedEntries : try store.expire(selection)
    }
}

extension EntrySelection {
    /// Whether a tile may be meant, whatever its entry says: no condition on its address excludes it.
    fileprivate func names(_ key: TileKey) -> Bool {
        guard source == nil || source == key.source else { return false }
        guard let tile = key.tile else { return zooms == nil && box == nil && tiles == nil }
        return (zooms?.contains(tile.z) ?? true)
            && (tiles?.contains(PackedTile(z: tile.z, x: tile.x, y: tile.y)) ?? true)
    }
}
