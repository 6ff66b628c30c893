package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a store should do, told with plain dictionaries and no files.
///
/// The state is that of the cache; what a store has in memory alone (the uses that it has not written yet) is a
/// ``Uses`` that its caller keeps for each store.
package struct StoreModel: Equatable, Sendable {
    /// A use that was not recorded yet.
    package struct Use: Hashable, Sendable {
        package var key: TileKey
        package var blob: BlobDigest?
        package init(key: TileKey, blob: BlobDigest?) {
            self.key = key
            self.blob = blob
        }
    }

    /// The uses that one store has not recorded yet, in order.
    package struct Uses: Equatable, Sendable {
        package var list: [Use] = []
        package init() {}
        package mutating func add(_ use: Use) {
            list.removeAll { $0 == use }
            list.append(use)
        }
    }

    package struct Entry: Equatable, Sendable {
        package var blob: BlobDigest?
        package var size: Int
        package var metadata: TileMetadata
        package var lastUsed: Timestamp
        package var recency: UInt64
        package var isPinned: Bool
    }

    package struct Blob: Equatable, Sendable {
        package var size: Int
        package var recency: UInt64
        package var references: Int
        package var pins: Int
    }

    package private(set) var entries: [TileKey: Entry] = [:]
    package private(set) var blobs: [BlobDigest: Blob] = [:]
    package private(set) var regions: [String: PinnedRegion] = [:]
    package private(set) var limits: StoreLimits
    package private(set) var nextSequence: UInt64 = 1
    package let blockSize: Int
    /// Every state that the cache went through, if that is asked for: one for each record.
    package var trail: [StoreSnapshot]?

    package init(limits: StoreLimits, blockSize: Int) {
        self.limits = limits
        self.blockSize = blockSize
    }

    // MARK: Looking

    package func allocated(_ size: Int) -> Int { (size + blockSize - 1) / blockSize * blockSize }

    /// Allocated bytes of the blobs that nothing pins.
    package var unpinnedBytes: Int {
        blobs.values.reduce(0) { $0 + ($1.pins == 0 ? allocated($1.size) : 0) }
    }

    /// Entries that no region pins.
    package var unpinnedEntries: Int { entries.values.reduce(0) { $0 + ($1.isPinned ? 0 : 1) } }

    package func isPinned(_ key: TileKey) -> Bool {
        regions.values.contains { $0.contains(key) }
    }

    package func entry(_ key: TileKey) -> TileEntry? {
        entries[key].map {
            TileEntry(
                key: key, blob: $0.blob, size: $0.size, metadata: $0.metadata, lastUsed: $0.lastUsed,
                recency: $0.recency, isPinned: $0.isPinned)
        }
    }

    package func snapshot() -> StoreSnapshot {
        StoreSnapshot(
            entries: entries.keys.sorted().compactMap(entry),
            blobs: blobs.keys.sorted().compactMap { digest in
                blobs[digest].map {
                    BlobState(
                        digest: digest, size: $0.size, references: $0.references, pins: $0.pins, recency: $0.recency)
                }
            },
            limits: limits, regions: regions.keys.sorted().compactMap { regions[$0] }, nextSequence: nextSequence)
    }

    package func selects(_ selection: EntrySelection, _ key: TileKey, now: Timestamp) -> Bool {
        guard let entry = entries[key] else { return false }
        if let source = selection.source, key.source != source { return false }
        if let keys = selection.keys, !keys.contains(key) { return false }
        if let zooms = selection.zooms {
            guard let tile = key.tile, zooms.contains(tile.z) else { return false }
        }
        if selection.stale, !entry.metadata.isStale(at: now) { return false }
        return true
    }

    // MARK: Changing

    private mutating func record() {
        guard trail != nil else { return }
        let state = snapshot()
        trail?.append(state)
    }

    private mutating func release(_ digest: BlobDigest?, pinned: Bool, _ report: inout RemovalReport) {
        guard let digest, var blob = blobs[digest] else { return }
        blob.references -= 1
        if pinned { blob.pins -= 1 }
        if blob.references == 0 {
            blobs[digest] = nil
            report.removedBlobs += 1
            report.freedBytes += allocated(blob.size)
        } else {
            blobs[digest] = blob
        }
    }

    private mutating func removeEntry(_ key: TileKey, _ report: inout RemovalReport) {
        guard let entry = entries.removeValue(forKey: key) else { return }
        report.removedEntries += 1
        release(entry.blob, pinned: entry.isPinned, &report)
    }

    private mutating func dropBlob(_ digest: BlobDigest, _ report: inout RemovalReport) {
        for (key, entry) in entries where entry.blob == digest { removeEntry(key, &report) }
    }

    /// A blob was found damaged or missing.
    package mutating func drop(_ digest: BlobDigest) {
        var report = RemovalReport()
        dropBlob(digest, &report)
        record()
    }

    package mutating func flush(_ uses: inout Uses, now: Timestamp) {
        let valid = uses.list.filter { use in entries[use.key].map { $0.blob == use.blob } ?? false }
        uses.list = []
        guard !valid.isEmpty else { return }
        for use in valid {
            entries[use.key]?.recency = nextSequence
            entries[use.key]?.lastUsed = now
            if let digest = use.blob { blobs[digest]?.recency = nextSequence }
            nextSequence += 1
        }
        record()
    }

    package mutating func put(_ tiles: [TilePut], uses: inout Uses, now: Timestamp) -> [PutOutcome] {
        if !uses.list.isEmpty {
            let more = tiles.reduce(0) { $0 + allocated($1.data?.count ?? 0) }
            if limits.capacity.map({ unpinnedBytes + more > $0 }) ?? false
                || unpinnedEntries + tiles.count > limits.entryLimit
            {
                flush(&uses, now: now)
            }
        }
        let outcomes = tiles.map { putOne($0) }
        keepLimits()
        return outcomes
    }

    /// Whether a response was made before a stored one, by dates that are no later than their receipt.
    private static func isOlder(_ new: TileMetadata, than old: TileMetadata) -> Bool {
        guard let mine = new.date, let theirs = old.date else { return false }
        let clockWentBack = old.storedAt.seconds - new.storedAt.seconds > 60
        return !clockWentBack && min(mine, new.storedAt) < min(theirs, old.storedAt)
    }

    private mutating func putOne(_ tile: TilePut) -> PutOutcome {
        let old = entries[tile.key]
        if let old, Self.isOlder(tile.metadata, than: old.metadata) { return .olderThanStored }
        let pinned = isPinned(tile.key)
        let size = tile.data?.count ?? 0
        var report = RemovalReport()
        if tile.data != nil, !pinned, let capacity = limits.capacity, allocated(size) > capacity {
            if old != nil {
                removeEntry(tile.key, &report)
                record()
            }
            return .largerThanCapacity
        }
        let digest = tile.data.map { $0.withUnsafeBytes { BlobDigest(hashing: $0) } }
        var isNew = false
        if let digest {
            isNew = blobs[digest] == nil
            var blob = blobs[digest] ?? Blob(size: size, recency: 0, references: 0, pins: 0)
            blob.references += 1
            if pinned { blob.pins += 1 }
            blob.recency = nextSequence
            blobs[digest] = blob
        }
        if let old { release(old.blob, pinned: old.isPinned, &report) }
        entries[tile.key] = Entry(
            blob: digest, size: size, metadata: tile.metadata, lastUsed: tile.metadata.storedAt, recency: nextSequence,
            isPinned: pinned)
        nextSequence += 1
        record()
        return .stored(blob: digest, newBlob: isNew)
    }

    package mutating func refresh(_ key: TileKey, from version: EntryVersion, metadata: TileMetadata) -> Bool {
        guard let old = entry(key), EntryVersion(old) == version else { return false }
        if Self.isOlder(metadata, than: old.metadata) { return false }
        entries[key]?.metadata = metadata
        record()
        return true
    }

    package mutating func remove(
        _ keys: [TileKey], includingPinned: Bool, uses: inout Uses, now: Timestamp
    ) -> RemovalReport {
        var report = RemovalReport()
        for key in keys {
            guard let entry = entries[key], includingPinned || !entry.isPinned else { continue }
            removeEntry(key, &report)
            record()
        }
        // A blob that has lost its last pinned entry counts as unpinned again.
        if isOverLimits { flush(&uses, now: now) }
        keepLimits()
        return report
    }

    package mutating func remove(
        _ selection: EntrySelection, includingPinned: Bool, uses: inout Uses, now: Timestamp
    ) -> RemovalReport {
        remove(
            entries.keys.filter { selects(selection, $0, now: now) }.sorted(), includingPinned: includingPinned,
            uses: &uses, now: now)
    }

    package mutating func expire(_ selection: EntrySelection, now: Timestamp) -> Int {
        var count = 0
        for key in entries.keys.sorted() where selects(selection, key, now: now) {
            guard let entry = entries[key], entry.metadata.expires > now else { continue }
            entries[key]?.metadata.expires = now
            count += 1
            record()
        }
        return count
    }

    private func victims() -> [BlobDigest] {
        blobs.filter { $0.value.pins == 0 }.sorted { $0.value.recency < $1.value.recency }.map(\.key)
    }

    private func entryVictims() -> [TileKey] {
        entries.filter { !$0.value.isPinned }.sorted { $0.value.recency < $1.value.recency }.map(\.key)
    }

    /// Whether one of the limits is exceeded.
    package var isOverLimits: Bool {
        (limits.capacity.map { unpinnedBytes > $0 } ?? false) || unpinnedEntries > limits.entryLimit
    }

    private mutating func keepLimits() {
        var report = RemovalReport()
        if let capacity = limits.capacity, unpinnedBytes > capacity {
            let low = capacity - min(capacity / 100, 4 << 20)
            var queue = victims()[...]
            while unpinnedBytes > low, let victim = queue.popFirst() {
                if queue.isEmpty, unpinnedBytes <= capacity { break }
                dropBlob(victim, &report)
                record()
            }
        }
        if unpinnedEntries > limits.entryLimit {
            let low = limits.entryLimit - limits.entryLimit / 100
            var queue = entryVictims()[...]
            while unpinnedEntries > low, let victim = queue.popFirst() {
                if queue.isEmpty, unpinnedEntries <= limits.entryLimit { break }
                removeEntry(victim, &report)
                record()
            }
        }
    }

    package mutating func evict(
        toBytes: Int?, entries limit: Int?, uses: inout Uses, now: Timestamp
    ) -> RemovalReport {
        flush(&uses, now: now)
        var report = RemovalReport()
        if let bytes = toBytes ?? limits.capacity {
            for victim in victims() where unpinnedBytes > bytes {
                dropBlob(victim, &report)
                record()
            }
        }
        let count = limit ?? limits.entryLimit
        for victim in entryVictims() where unpinnedEntries > count {
            removeEntry(victim, &report)
            record()
        }
        return report
    }

    package mutating func setLimits(_ new: StoreLimits, uses: inout Uses, now: Timestamp) {
        limits = new
        record()
        if isOverLimits { flush(&uses, now: now) }
        keepLimits()
    }

    package mutating func pin(_ region: PinnedRegion, uses: inout Uses, now: Timestamp) {
        regions[region.name] = region
        countPins()
        record()
        if isOverLimits { flush(&uses, now: now) }
        keepLimits()
    }

    package mutating func unpin(_ name: String, uses: inout Uses, now: Timestamp) -> Bool {
        guard regions.removeValue(forKey: name) != nil else { return false }
        countPins()
        record()
        if isOverLimits { flush(&uses, now: now) }
        keepLimits()
        return true
    }

    private mutating func countPins() {
        for digest in blobs.keys { blobs[digest]?.pins = 0 }
        for (key, entry) in entries {
            let pinned = isPinned(key)
            entries[key]?.isPinned = pinned
            if pinned, let digest = entry.blob { blobs[digest]?.pins += 1 }
        }
    }
}
