#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a read returns: the entry, and its bytes if it has any.
public struct StoredTile: Sendable {
    /// Where the bytes came from.
    public enum Origin: Sendable { case memory, disk }
    /// The entry.
    public let entry: TileEntry
    /// The bytes, exactly as they were put; `nil` for an entry without a body.
    public let data: Data?
    /// Where the bytes came from; `memory` for an entry without a body.
    public let origin: Origin

    package init(entry: TileEntry, data: Data?, origin: Origin) {
        self.entry = entry
        self.data = data
        self.origin = origin
    }
}

/// One tile to put.
public struct TilePut: Sendable {
    /// Under which key.
    public var key: TileKey
    /// The bytes; `nil` for a response without a body.
    public var data: Data?
    /// Validators and times.
    public var metadata: TileMetadata

    /// Describes what to put.
    public init(key: TileKey, data: Data?, metadata: TileMetadata) {
        self.key = key
        self.data = data
        self.metadata = metadata
    }
}

/// What became of a put.
public enum PutOutcome: Hashable, Sendable {
    /// Stored; `newBlob` says whether its bytes were new to the cache.
    case stored(blob: BlobDigest?, newBlob: Bool)
    /// Not stored: what is there has a later `Date`; see ``TileMetadata/date``.
    case olderThanStored
    /// Not stored: it is larger than the whole capacity. What was stored under the key is gone.
    case largerThanCapacity
    /// Not stored: it is larger than its source's own capacity (``StoreConfiguration/sourceCapacities``). What was stored under the
    /// key is gone.
    case largerThanSourceCapacity
}

/// What names the state of a key on which a decision was made: the store acts only if it still holds.
public struct EntryVersion: Hashable, Sendable {
    /// The blob.
    public var blob: BlobDigest?
    /// The entity tag.
    public var etag: String?
    /// The `Last-Modified` time.
    public var lastModified: Timestamp?
    /// Names a state.
    public init(blob: BlobDigest?, etag: String?, lastModified: Timestamp?) {
        self.blob = blob
        self.etag = etag
        self.lastModified = lastModified
    }
    /// The state that an entry was in when it was read.
    public init(_ entry: TileEntry) {
        self.init(blob: entry.blob, etag: entry.metadata.etag, lastModified: entry.metadata.lastModified)
    }
}

/// How much a cache may hold.
public struct StoreLimits: Hashable, Sendable {
    /// Allocated bytes of blobs that no region pins; `nil` for no limit.
    public var capacity: Int?
    /// Entries that no region pins.
    public var entryLimit: Int

    /// Makes limits.
    ///
    /// Without an entry limit there is one for each 2 KiB of the capacity, at least 100,000; without a capacity either,
    /// 100,000,000.
    public init(capacity: Int?, entryLimit: Int? = nil) {
        self.capacity = capacity.map { max(0, $0) }
        self.entryLimit = entryLimit.map { max(0, $0) } ?? capacity.map { max(100_000, $0 / 2048) } ?? 100_000_000
    }
}

/// What a removal, an eviction or a collection did.
public struct RemovalReport: Hashable, Sendable {
    /// Entries that are gone.
    public var removedEntries = 0
    /// Blobs that are gone.
    public var removedBlobs = 0
    /// Allocated bytes of the blobs that are gone.
    public var freedBytes = 0

    /// An empty report.
    public init() {}

    /// Adds another report's figures.
    public static func += (a: inout RemovalReport, b: RemovalReport) {
        a.removedEntries += b.removedEntries
        a.removedBlobs += b.removedBlobs
        a.freedBytes += b.freedBytes
    }
}

/// Figures of one source.
public struct SourceStatistics: Hashable, Sendable {
    /// Its name.
    public var name: SourceName
    /// Its entries.
    public var entries = 0
    /// The sum of their blobs' sizes, shared ones counted each time.
    public var bytes = 0
    /// Allocated bytes of the blobs that only its entries refer to: what removing all of them, pinned ones too, would free.
    public var exclusiveBytes = 0
    /// Allocated bytes of the blobs that its entries and those of other sources refer to, each blob counted once.
    ///
    /// It is counted with each source that shares it, so the sum over the sources may be more than the cache has.
    public var sharedBytes = 0
    /// The zooms of its tiles.
    public var zooms: ClosedRange<Int>?
}

/// Figures of a whole cache.
public struct StoreStatistics: Hashable, Sendable {
    /// Entries.
    public var entries = 0
    /// Blobs.
    public var blobs = 0
    /// The sum of the blobs' sizes.
    public var bytes = 0
    /// The same, each rounded up to the disk's blocks.
    public var allocatedBytes = 0
    /// The sum of the entries' sizes: what the tiles would take without deduplication.
    public var logicalBytes = 0
    /// The size of the manifest's files: checkpoint, journal and index image, and whatever else lies in `manifest/`.
    public var manifestBytes = 0
    /// The size of the checkpoint: all entries, as they were when the journal began.
    public var checkpointBytes = 0
    /// The size of the journals: what has changed since the checkpoint.
    public var journalBytes = 0
    /// The size of the index image, which only makes opening fast; 0 where there is none.
    public var imageBytes = 0
    /// Entries that are fresh.
    public var fresh = 0
    /// Entries that are stale.
    public var stale = 0
    /// Entries with an error status or without content (404, 410, 204): remembered absence.
    public var negative = 0
    /// Entries that a region pins.
    public var pinnedEntries = 0
    /// Allocated bytes of pinned blobs.
    public var pinnedBytes = 0
    /// The limits.
    public var limits = StoreLimits(capacity: nil)
    /// By source, in the order of their names.
    public var sources: [SourceStatistics] = []
}

/// What a check of the whole cache found.
public struct VerifyReport: Hashable, Sendable {
    /// Entries in the manifest.
    public var entries = 0
    /// Blobs whose files were looked at.
    public var blobsChecked = 0
    /// Bytes that were hashed.
    public var bytesChecked = 0
    /// Blobs with bytes that are not theirs, or that are no plain files.
    public var damaged: [BlobDigest] = []
    /// Blobs without a file.
    public var missing: [BlobDigest] = []
    /// Files in `objects/` that no entry names (paths in the cache's folder).
    public var orphans: [String] = []
    /// What lies in the cache's folder and in `manifest/` and was not made by the store (paths in the cache's folder).
    ///
    /// It is passed over, and never removed.
    public var foreign: [String] = []
    /// Blobs whose count is not the number of entries that name them, and accounts that are not their sums.
    public var countMismatches = 0
    /// Lines of the manifest that could not be read; one more if a file of it was missing, and was made anew by this process.
    public var journalDamage = 0
    /// Whether repairs were made.
    public var repaired = false
    /// Whether nothing was found that matters; orphans alone do not.
    public var ok: Bool { damaged.isEmpty && missing.isEmpty && countMismatches == 0 && journalDamage == 0 }
}

/// What a compaction did.
public struct CompactionReport: Hashable, Sendable {
    /// Entries in the new checkpoint.
    public var entries = 0
    /// Its size.
    public var checkpointBytes = 0
}

/// Which entries are meant.
///
/// All conditions that are given must hold.
public struct EntrySelection: Sendable {
    /// Only of this source.
    public var source: SourceName?
    /// Only tiles of these zooms.
    public var zooms: ClosedRange<Int>?
    /// Only tiles that this box touches.
    public var box: GeoBox?
    /// Only what this region covers: tiles of its sources, and its resources.
    public var region: PinnedRegion?
    /// Only entries that are stale.
    public var stale = false
    /// Only entries that have been stale for at least so many seconds.
    public var staleFor: Int?
    /// Only entries that were not used for at least so many seconds.
    public var unusedFor: Int?
    /// Only these keys.
    public var keys: Set<TileKey>?
    /// Only these tiles, in all their scales and formats.
    package var tiles: TileSet?

    /// Selects everything.
    public init() {}
}

/// Figures of a pinned region.
public struct RegionStatistics: Hashable, Sendable {
    /// The region.
    public var region: PinnedRegion
    /// How many tiles of a scale it covers, of all its sources.
    public var tiles: Int
    /// How many entries with bytes are there, in all scales and formats.
    public var present = 0
    /// How many of its resources are there; how many there are in all, ``region`` says.
    public var presentResources = 0
    /// The sum of the sizes of their blobs, each blob counted once.
    public var bytes = 0
}
