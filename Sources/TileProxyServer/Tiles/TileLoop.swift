import CacheEngine
import HTTPListener
import HTTPTypes
import NIOCore
import SharedTier
import TileCache
import TileStore

/// What the tile routes have on each event loop; used on it alone.
final class TileLoop {
    let service: TileService
    let loop: any EventLoop
    let time: LoopTime
    /// The waits for slots of origins.
    let waitLimits: WaitLimits
    private var table: SourceTable
    /// The fields of the requests to each source's server.
    private var fields: [HTTPFields] = []

    init(_ service: TileService, loop: any EventLoop, time: LoopTime) {
        self.service = service
        self.loop = loop
        self.time = time
        waitLimits = WaitLimits(service.clock, loop: loop)
        table = service.table
        adopt(table)
    }

    /// Takes over sources that have changed.
    func adopt(_ table: SourceTable) {
        self.table = table
        fields = table.sources.map { $0.tiles.requestFields(userAgent: service.userAgent) }
    }

    /// The request for a tile.
    func request(for tile: TileAddress, of source: ServedSource) -> HTTPRequest {
        let isCurrent = source.index < table.sources.count && table.sources[source.index] === source
        return source.tiles.request(
            for: tile,
            isCurrent ? fields[source.index] : source.tiles.requestFields(userAgent: service.userAgent))
    }

    /// The request for the file that a source names.
    ///
    /// - Parameter path: Another file's path from the folder of that one; the query stays.
    func fileRequest(of source: ServedSource, _ path: String? = nil) -> HTTPRequest {
        let request = request(for: TileAddress(unchecked: 0, 0, 0, 1, nil), of: source)
        return path.map { request.forFile(at: $0) } ?? request
    }

    /// Whether a source is still configured as it was when a tile of it was asked for.
    func isCurrent(_ source: ServedSource) -> Bool {
        table.sources.contains { $0.generation == source.generation }
    }

    // MARK: Looking

    /// What there is of a tile: stored, or held in memory because it could not be stored.
    struct Found {
        var lookup: Lookup
        var isHeld = false
    }

    /// What can be told without waiting.
    func lookNow(_ key: TileKey) throws -> Found {
        let opened = try service.store.openNow(key, wholeUpTo: Candidate.wholeUpTo)
        switch opened {
        case .mustWait: return Found(lookup: .mustWait)
        case .miss: return newest(key, nil)
        case .tile(let tile): return newest(key, tile)
        }
    }

    /// What there is, from a thread that may wait; finishes on the loop.
    func look(_ key: TileKey, _ finish: @escaping @Sendable (Result<OpenedTile?, any Error>) -> Void) {
        service.worker.read(on: loop) { store in
            try store.open(key, wholeUpTo: Candidate.wholeUpTo)
        } then: {
            finish($0)
        }
    }

    /// The newer of what is stored and what is held; stale if the fleet has expired it since.
    func newest(_ key: TileKey, _ stored: OpenedTile?) -> Found {
        var found = latest(key, stored)
        if let shared = service.shared, let tile = key.tile, case .found(let candidate) = found.lookup,
            let since = shared.staleSince(
                key.source, z: tile.z, x: tile.x, y: tile.y, storedAt: candidate.entry.metadata.storedAt)
        {
            found.lookup = .found(candidate.expired(at: since))
        }
        return found
    }

    private func latest(_ key: TileKey, _ stored: OpenedTile?) -> Found {
        guard let held = service.held.tile(key),
            held.entry.metadata.storedAt >= stored?.entry.metadata.storedAt ?? .distantPast
        else { return Found(lookup: stored.map { .found(Candidate(key: key, $0, nil)) } ?? .miss) }
        // One that is large counts for as long as its client reads it, also when others have taken its place here.
        var owner: HeldBody?
        if let data = held.data, data.count > Candidate.wholeUpTo {
            owner = HeldBody(data, within: service.budget)
            guard owner != nil else {
                return Found(lookup: stored.map { .found(Candidate(key: key, $0, nil)) } ?? .miss)
            }
        }
        return Found(lookup: .found(Candidate(held, owner)), isHeld: true)
    }

    // MARK: Asking

    /// Has a stale tile refreshed, unless that is under way or has failed a moment ago.
    func refresh(_ source: ServedSource, _ candidate: Candidate, isHeld: Bool, _ subject: TileSubject) {
        guard service.health.wait(for: source.flight(candidate.key).hashValue) == nil,
            let ticket = service.flights.keep(source.flight(candidate.key, of: subject.version), .refresh)
        else { return }
        TileAsking(
            self, source, candidate.key, candidate, isHeld: isHeld, ticket, isRefresh: true, subject: subject
        ).start()
    }

    /// A question for a tile that is to be begun.
    ///
    /// - Parameters:
    ///   - version: The version of a set at a server; `nil` for the latest one, and for all other sources.
    ///   - onlyIfCached: Whether the server is not to be asked.
    ///   - finish: Called once, on the loop, unless it is left before.
    func question(
        _ source: ServedSource, _ key: TileKey, version: String? = nil, onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) -> any TileAnswering {
        guard let remote = source.remote else {
            return TileExchange(self, source, key, onlyIfCached: onlyIfCached, finish)
        }
        return remote.question(key, version: version, of: source, on: self, onlyIfCached: onlyIfCached, finish)
    }
}
