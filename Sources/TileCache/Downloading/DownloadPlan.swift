import CacheEngine
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What is kept of a region's download in `downloads/`, so that another process can go on with it.
///
/// Which tiles they are, the region's own record in the manifest says; this says what it does not. Nothing here is secret:
/// of the source there are its name and a salted fingerprint. Docs/on-disk-format.md describes it.
struct DownloadPlan: Codable, Hashable, Sendable {
    /// The number of a plan for tiles of one source.
    static let tiles = 1
    /// The number of a plan for all that styles name.
    static let styles = 2

    var download = Self.tiles
    var region: String
    var source: String
    /// Of what tells the source, or the map, from others; ``TileSource/fingerprint(in:)``, ``StyledRegion/fingerprint(in:)``.
    var fingerprint: String
    /// Of what the region covers: a region that was pinned anew under the name is another one.
    var spans: String
    var scale: Int
    var format: String?
    /// When it began: what was stored since then is not asked for again.
    var begun: Int64
    var options: Options

    struct Options: Codable, Hashable, Sendable {
        var concurrency: Int
        var requestsPerSecond: Double?
        var revalidatesFresh: Bool
        var priority: Int
        var attempts: Int
        /// Milliseconds.
        var patience: Int64
        /// Milliseconds.
        var firstPatience: Int64?
        var byteBudget: Int?
        var requestBudget: Int?
        /// Not in plans of older programs.
        var allowsExpensive: Bool?
        var allowsConstrained: Bool?
        var inBackground: Bool?
    }

    init(
        _ region: PinnedRegion, _ source: TileSource, like tile: TileAddress, begun: Timestamp,
        _ options: DownloadOptions, in store: TileStore
    ) {
        self.region = region.name
        self.source = region.source.description
        fingerprint = source.fingerprint(in: store)
        spans = Self.digest(of: region)
        scale = tile.scale
        format = tile.format
        self.begun = begun.seconds
        self.options = Options(options)
    }

    /// For a region of all that styles name.
    init(_ region: PinnedRegion, fingerprint: String, scale: Int, begun: Timestamp, _ options: DownloadOptions) {
        download = Self.styles
        self.region = region.name
        source = region.source.description
        self.fingerprint = fingerprint
        spans = Self.digest(of: region)
        self.scale = scale
        self.begun = begun.seconds
        self.options = Options(options)
    }

    /// Reads a plan.
    ///
    /// - Throws: `DecodingError`, or ``TileCacheError`` for one of a newer program or with options that are none.
    init(_ text: String) throws {
        self = try JSONDecoder().decode(DownloadPlan.self, from: Data(text.utf8))
        guard download == Self.tiles || download == Self.styles else {
            throw TileCacheError(
                .invalidRegion,
                "the download of region \(region) was begun by a newer program (plan \(download)); finish it with that one"
            )
        }
        _ = try options.value()
    }

    /// As it is written.
    func written() throws -> WrittenPlan {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return WrittenPlan(region: region, text: String(decoding: try encoder.encode(self), as: UTF8.self))
    }

    /// Whether it is for a region as it is in the manifest.
    func isFor(_ region: PinnedRegion) -> Bool {
        region.name == self.region && region.source.description == source && Self.digest(of: region) == spans
            && region.isOfOneSource == (download == Self.tiles)
    }

    private static func digest(of region: PinnedRegion) -> String {
        if region.isOfOneSource { return digest(of: region.spans) }
        let parts = region.tiles.map { "\($0.source) \(digest(of: $0.spans))" } + region.resources.map(\.description)
        return Array(parts.joined(separator: "\n").utf8).withUnsafeBytes { BlobDigest(hashing: $0) }.description
    }

    static func digest(of spans: [TileSpan]) -> String {
        var numbers: [UInt32] = []
        numbers.reserveCapacity(spans.count * 5)
        for span in spans {
            for number in [
                span.zoom, span.columns.lowerBound, span.columns.upperBound, span.rows.lowerBound, span.rows.upperBound,
            ] { numbers.append(UInt32(truncatingIfNeeded: number).littleEndian) }
        }
        return numbers.withUnsafeBytes { BlobDigest(hashing: $0) }.description
    }
}

/// A plan as it stands in its file, members that this program does not know included.
struct WrittenPlan: Hashable, Sendable {
    var region: String
    var text: String
}

extension DownloadPlan.Options {
    init(_ options: DownloadOptions) {
        concurrency = options.concurrency
        requestsPerSecond = options.requestsPerSecond
        revalidatesFresh = options.revalidatesFresh
        priority = options.priority.rawValue
        attempts = options.attempts
        patience = Self.milliseconds(options.patience)
        firstPatience = options.firstPatience.map(Self.milliseconds)
        byteBudget = options.byteBudget
        requestBudget = options.requestBudget
        allowsExpensive = options.networks.allowsExpensive
        allowsConstrained = options.networks.allowsConstrained
        inBackground = options.inBackground
    }

    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidOptions``.
    func value() throws -> DownloadOptions {
        guard let priority = FetchPriority(rawValue: priority) else {
            throw TileCacheError(.invalidOptions, "download options: priority \(priority); expected 0 to 2")
        }
        var options = DownloadOptions()
        options.concurrency = concurrency
        options.requestsPerSecond = requestsPerSecond
        options.revalidatesFresh = revalidatesFresh
        options.priority = priority
        options.attempts = attempts
        options.patience = .milliseconds(patience)
        options.firstPatience = firstPatience.map { .milliseconds($0) }
        options.byteBudget = byteBudget
        options.requestBudget = requestBudget
        if let allowsExpensive { options.networks.allowsExpensive = allowsExpensive }
        if let allowsConstrained { options.networks.allowsConstrained = allowsConstrained }
        options.inBackground = inBackground ?? false
        try options.check()
        return options
    }

    private static func milliseconds(_ duration: Duration) -> Int64 {
        Int64(clamping: duration.nanoseconds / 1_000_000)
    }
}

extension TileSource {
    /// Tells it from other sources of its name, in the plans of a store: 32 hexadecimal digits.
    ///
    /// Salted, and made without the template's query and values: those may be others tomorrow.
    func fingerprint(in store: TileStore) -> String {
        let text = "download\n\(place)\n\(tileSize)\n\(format ?? "")\n\(kind)"
        return store.fingerprint(of: text).description
    }
}
