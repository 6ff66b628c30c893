import HTTPCaching
import NIOCore
import TileStore

/// The header blocks of tiles that are asked for again and again, made once for each entry; bounded in bytes.
///
/// One for each event loop. A block counts only while the store has the entry that it was made from, which every hit
/// asks it for. Two generations: what was used since the last turn survives the next.
struct PreparedTiles {
    /// Which tile, in 16 bytes.
    struct Place: Hashable {
        let high: UInt64
        let low: UInt64

        @inline(__always)
        init(source: Int, z: Int, x: Int, y: Int, scale: Int) {
            high = UInt64(truncatingIfNeeded: source) << 16 | UInt64(truncatingIfNeeded: z << 8 | scale)
            low = UInt64(truncatingIfNeeded: x) << 32 | UInt64(truncatingIfNeeded: y)
        }
    }

    /// What is sent for an entry, but for what changes from answer to answer.
    final class Block {
        let key: TileKey
        let blob: BlobDigest?
        let freshness: StoredFreshness
        let metadata: TileMetadata
        /// Fields that a 304 has too.
        let common: [UInt8]
        /// Fields about the bytes, with `Content-Length`.
        let content: [UInt8]
        /// The entity tag as an `If-None-Match` of a browser has it.
        let tag: [UInt8]
        /// Whether only clients that take gzip get this.
        let needsGzip: Bool
        let size: Int

        init(
            key: TileKey, entry: TileEntry, common: [UInt8], content: [UInt8], tag: [UInt8], needsGzip: Bool
        ) {
            self.key = key
            blob = entry.blob
            metadata = entry.metadata
            freshness = StoredFreshness(entry.metadata)
            self.common = common
            self.content = content
            self.tag = tag
            self.needsGzip = needsGzip
            size = entry.size
        }

        /// Whether an entry is still in the state that this was made from.
        @inline(__always)
        func matches(_ entry: TileEntry) -> Bool {
            let now = entry.metadata
            return entry.blob == blob && now.storedAt == metadata.storedAt && now.expires == metadata.expires
                && now.initialAge == metadata.initialAge && now.lastModified == metadata.lastModified
                && now.response == metadata.response
        }

        /// About how much memory it takes.
        var cost: Int { common.count + content.count + tag.count + 400 }
    }

    private var young: [Place: Block] = [:]
    private var old: [Place: Block] = [:]
    private var youngBytes = 0
    private let generation: Int

    /// - Parameter bytes: What all blocks together may take.
    init(bytes: Int = 16 << 20) { generation = max(1, bytes / 2) }

    /// How many there are.
    var count: Int { young.count + old.count }

    @inline(__always)
    mutating func find(_ place: Place) -> Block? {
        if let block = young[place] { return block }
        guard let block = old.removeValue(forKey: place) else { return nil }
        keep(block, at: place)
        return block
    }

    mutating func keep(_ block: Block, at place: Place) {
        if let former = young.updateValue(block, forKey: place) { youngBytes -= former.cost }
        youngBytes += block.cost
        guard youngBytes > generation else { return }
        old = young
        young = [:]
        youngBytes = 0
    }

    mutating func removeAll() { self = PreparedTiles(bytes: generation * 2) }
}
