import SharedTier
import TileCache
import TileStore

/// What `/_tileproxy/stats.json` says, and the page shows.
struct StatsReport: Encodable {
    struct Source: Encodable {
        var name: String
        var title: String
        var attribution: String?
        var kind: String
        var local: Bool
        var minzoom: Int
        var maxzoom: Int
        var tileSize: Int
        var bounds: [Double]?
        var format: String
        var requests = 0
        var hits = 0
        var stale = 0
        var revalidated = 0
        var misses = 0
        var bypassed = 0
        var refused = 0
        var errors = 0
        var absent = 0
        var notModified = 0
        var bytesSent = 0
        var hitRatio: Double?
        var upstreamRequests = 0
        var upstreamFailures = 0
        var upstreamNotModified = 0
        var upstreamBytes = 0
        var bytesSavedByNotModified = 0
        /// Seconds; what half, and what 95 of 100 answers, stayed below.
        var upstreamMedian: Double?
        var upstream95: Double?
        var upstreamMean: Double?
        var entries = 0
        var bytes = 0
        /// On disk: what it alone holds, and what it shares with other sources.
        var exclusiveBytes = 0
        var sharedBytes = 0
        var capacity: Int?
        /// The versions of a published set, the latest first.
        var versions: [Version]?
    }

    /// A version of a published set.
    struct Version: Encodable {
        /// What `/tiles/NAME@ID/` names it by.
        var id: String
        var root: String
        /// When another one took its place.
        var replaced: String?
    }

    struct Cache: Encodable {
        var entries: Int
        var blobs: Int
        var bytes: Int
        var allocatedBytes: Int
        var logicalBytes: Int
        var bytesSavedByDedupe: Int
        var manifestBytes: Int
        var checkpointBytes: Int
        var journalBytes: Int
        var imageBytes: Int
        var fresh: Int
        var stale: Int
        var negative: Int
        var pinnedBytes: Int
        var capacity: Int?
        var entryLimit: Int
        var evictedBlobs: Int
        var evictedBytes: Int
    }

    struct Shared: Encodable {
        var hits: Int
        var misses: Int
        var errors: Int
        var skipped: Int
        var stores: Int
        var dropped: Int
        var waiting: Int
        /// Seconds that an answer took on average.
        var mean: Double?
        var state: String
    }

    var version = LibraryVersion.text
    var startedAt: String
    var now: String
    var uptime: Int
    var requests = 0
    var hitRatio: Double?
    var bytesSent = 0
    var bytesSavedByNotModified = 0
    var genericRequests = 0
    var genericHits = 0
    var refusedMessages: Int
    var notStored: Int
    var shared: Shared?
    var cache: Cache?
    var sources: [Source] = []

    init(
        _ table: SourceTable, _ figures: Statistics.Snapshot, store: StoreStatistics?, evicted: RemovalReport,
        shared: SharedFigures? = nil, now: Timestamp
    ) {
        startedAt = figures.startedAt.description
        self.now = now.description
        uptime = Int(clamping: max(0, now.seconds &- figures.startedAt.seconds))
        refusedMessages = figures.refusedMessages
        notStored = figures.notStored
        self.shared = shared.map {
            Shared(
                hits: $0.hits, misses: $0.misses, errors: $0.errors, skipped: $0.skipped, stores: $0.stores,
                dropped: $0.dropped, waiting: $0.waiting, mean: $0.answers == 0 ? nil : $0.seconds / Double($0.answers),
                state: $0.isOpen ? "open" : "ok")
        }
        genericRequests = figures.other.requests
        genericHits = figures.other.hits + figures.other.stale + figures.other.revalidated
        cache = store.map { store in
            Cache(
                entries: store.entries, blobs: store.blobs, bytes: store.bytes, allocatedBytes: store.allocatedBytes,
                logicalBytes: store.logicalBytes, bytesSavedByDedupe: max(0, store.logicalBytes - store.bytes),
                manifestBytes: store.manifestBytes, checkpointBytes: store.checkpointBytes,
                journalBytes: store.journalBytes, imageBytes: store.imageBytes, fresh: store.fresh, stale: store.stale,
                negative: store.negative,
                pinnedBytes: store.pinnedBytes, capacity: store.limits.capacity, entryLimit: store.limits.entryLimit,
                evictedBlobs: evicted.removedBlobs, evictedBytes: evicted.freedBytes)
        }
        var all = RequestCounts()
        for source in table.sources {
            let counts = figures.sources.first { $0.name == source.name }
            let stored = store?.sources.first { $0.name == source.name }
            sources.append(
                Source(source, counts?.requests ?? RequestCounts(), counts?.upstream ?? UpstreamCounts(), stored))
            all += counts?.requests ?? RequestCounts()
            bytesSavedByNotModified += counts?.upstream.bytesSaved ?? 0
        }
        // Archives bring their own titles, and two editions of a map have the same one.
        let titles = Dictionary(grouping: sources, by: \.title)
        for i in sources.indices where titles[sources[i].title]?.count != 1 {
            sources[i].title += " (\(sources[i].name))"
        }
        requests = all.requests
        hitRatio = all.hitRatio
        bytesSent = all.bytesSent
    }
}

extension StatsReport.Source {
    fileprivate init(
        _ source: ServedSource, _ counts: RequestCounts, _ upstream: UpstreamCounts, _ stored: SourceStatistics?
    ) {
        let configuration = source.configuration
        name = configuration.name.description
        title = configuration.title ?? name
        attribution = configuration.attribution
        kind = "\(configuration.servedKind)"
        local = configuration.isLocal
        minzoom = configuration.servedZooms.lowerBound
        maxzoom = configuration.servedZooms.upperBound
        tileSize = configuration.tileSize
        bounds = configuration.box.map { [$0.west, $0.south, $0.east, $0.north] }
        format = source.formats.first.map { String(decoding: $0, as: UTF8.self) } ?? ""
        requests = counts.requests
        hits = counts.hits
        stale = counts.stale
        revalidated = counts.revalidated
        misses = counts.misses
        bypassed = counts.bypassed
        refused = counts.refused
        errors = counts.errors
        absent = counts.absent
        notModified = counts.notModified
        bytesSent = counts.bytesSent
        hitRatio = counts.hitRatio
        upstreamRequests = upstream.requests
        upstreamFailures = upstream.failures + upstream.serverErrors
        upstreamNotModified = upstream.notModified
        upstreamBytes = upstream.bytes
        bytesSavedByNotModified = upstream.bytesSaved
        upstreamMedian = upstream.latency.quantile(0.5)
        upstream95 = upstream.latency.quantile(0.95)
        let count = upstream.latency.count
        upstreamMean = count == 0 ? nil : upstream.latency.sum / Double(count)
        entries = stored?.entries ?? 0
        bytes = stored?.bytes ?? 0
        exclusiveBytes = stored?.exclusiveBytes ?? 0
        sharedBytes = stored?.sharedBytes ?? 0
        capacity = configuration.capacity
        let versions = source.knownVersions
        self.versions =
            versions.isEmpty
            ? nil
            : versions.map {
                StatsReport.Version(
                    id: $0.identifier, root: $0.root.description, replaced: $0.replaced.map { "\($0)" })
            }
    }
}
