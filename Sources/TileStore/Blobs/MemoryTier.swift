#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Hot blobs by digest, bounded in bytes: ten thousand equal ocean tiles take the room of one.
///
/// In shards by digest, so that threads rarely meet; each shard is an LRU list of its own share of the bytes.
final class MemoryTier: Sendable {
    private let shards: [Locked<Shard>]
    /// What a blob costs beside its bytes.
    static let overhead = 160

    init(bytes: Int) {
        // A shard holds at least a megabyte, so that ordinary tiles fit whatever the bound.
        let count = bytes <= 0 ? 0 : min(16, max(1, bytes >> 20))
        var power = 1
        while power * 2 <= count { power *= 2 }
        shards = count == 0 ? [] : (0..<power).map { _ in Locked(Shard(bound: bytes / power)) }
    }

    @inline(__always)
    private func shard(_ digest: BlobDigest) -> Locked<Shard>? {
        shards.isEmpty ? nil : shards[Int(truncatingIfNeeded: digest.d) & (shards.count - 1)]
    }

    @inline(__always)
    func data(for digest: BlobDigest) -> Data? { shard(digest)?.withLock { $0.use(digest) } }

    func insert(_ data: Data, for digest: BlobDigest) { shard(digest)?.withLock { $0.insert(data, digest) } }

    func remove(_ digest: BlobDigest) { shard(digest)?.withLock { $0.remove(digest) } }

    private struct Shard {
        private struct Item {
            var digest: BlobDigest
            var data: Data
            var before: Int32
            var after: Int32
        }
        let bound: Int
        private var bytes = 0
        private var places: [BlobDigest: Int32] = [:]
        private var items: [Item?] = []
        private var free: [Int32] = []
        private var first: Int32 = -1
        private var last: Int32 = -1

        init(bound: Int) { self.bound = bound }

        @inline(__always)
        mutating func use(_ digest: BlobDigest) -> Data? {
            guard let place = places[digest] else { return nil }
            if place != last {
                unlink(place)
                append(place)
            }
            return items[Int(place)]?.data
        }

        mutating func insert(_ data: Data, _ digest: BlobDigest) {
            let cost = data.count + MemoryTier.overhead
            guard cost <= bound, places[digest] == nil else { return }
            while bytes + cost > bound, first >= 0 { drop(first) }
            let place: Int32
            if let reused = free.popLast() {
                place = reused
            } else {
                place = Int32(items.count)
                items.append(nil)
            }
            items[Int(place)] = Item(digest: digest, data: data, before: -1, after: -1)
            places[digest] = place
            append(place)
            bytes += cost
        }

        mutating func remove(_ digest: BlobDigest) { if let place = places[digest] { drop(place) } }

        private mutating func drop(_ place: Int32) {
            unlink(place)
            guard let item = items[Int(place)] else { return }
            bytes -= item.data.count + MemoryTier.overhead
            places[item.digest] = nil
            items[Int(place)] = nil
            free.append(place)
        }

        private mutating func unlink(_ place: Int32) {
            guard let (before, after) = items[Int(place)].map({ ($0.before, $0.after) }) else { return }
            if before < 0 { first = after } else { items[Int(before)]?.after = after }
            if after < 0 { last = before } else { items[Int(after)]?.before = before }
        }

        private mutating func append(_ place: Int32) {
            items[Int(place)]?.before = last
            items[Int(place)]?.after = -1
            if last < 0 { first = place } else { items[Int(last)]?.after = place }
            last = place
        }
    }
}
