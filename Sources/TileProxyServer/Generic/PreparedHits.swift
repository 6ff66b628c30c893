import HTTPCaching
import HTTPTypes
import NIOCore
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Heads made ready for the answers that are asked for again and again, in a table of fixed size.
///
/// One for each event loop. An entry counts only while the store has the same state under the key, which every hit asks
/// it for; so a table that is behind costs time and never a wrong answer.
struct PreparedHits {
    /// An answer but for its age and its body.
    final class Hit {
        let target: [UInt8]
        let key: TileKey
        let blob: BlobDigest?
        let metadata: TileMetadata
        let freshness: StoredFreshness
        /// Which requests it is for, if not for all.
        let selection: PreparedSelection?
        /// The status line and all fields that stay the same.
        let head: ByteBuffer

        /// Makes an answer to a request ready, if it is one that many requests can share.
        init?(_ candidate: Candidate, target: [UInt8], _ request: HeadFields, via: String) {
            let tile = candidate.tile
            guard candidate.length <= PreparedHits.largestBody else { return nil }
            selection = candidate.choice.flatMap { PreparedSelection($0, request) }
            guard candidate.choice == nil || selection != nil else { return nil }
            self.target = target
            key = candidate.key
            blob = tile.entry.blob
            metadata = tile.entry.metadata
            freshness = candidate.response.freshness
            var head = ByteBuffer()
            let status = candidate.response.status
            head.writeStatusLine(status.code, reason: status.reasonPhrase)
            head.writeFields(candidate.response.fields)
            if !isBodiless(status.code) { head.writeField("Content-Length: ", candidate.length) }
            head.writeStaticString("Via: ")
            head.writeString(via)
            head.writeStaticString("\r\n")
            guard head.readableBytes <= PreparedHits.largestHead else { return nil }
            self.head = head
        }
    }

    /// Longer bodies are sent in pieces, which takes more than one write.
    static let largestBody = 256 << 10

    /// Heads that are longer than usual are no use to keep in memory.
    static let largestHead = 4096

    /// A place for a hit, with its target's hash beside it: most that are not meant need no look at the hit itself.
    private struct Slot {
        var hash = 0
        var hit: Hit?
    }

    /// How many hits may lie in one place: with fewer, some of a few thousand would drive each other out again and again.
    private static let ways = 8

    private var slots: [Slot]

    /// Makes a table of sets of eight slots, in each of which the newest comes first.
    init(sets: Int = 4096) { slots = Array(repeating: Slot(), count: Self.ways * max(1, sets)) }

    /// The hit for a target and the fields that it may depend on.
    @inline(__always)
    func find(_ target: UnsafeRawBufferPointer, _ request: HeadFields) -> Hit? {
        let hash = hash(target)
        let first = place(hash)
        for slot in slots[first..<first + Self.ways] where slot.hash == hash {
            if let hit = slot.hit, isFor(target, request, hit) { return hit }
        }
        return nil
    }

    /// Keeps a hit in place of the former one for its target, or else of the oldest in its set.
    mutating func keep(_ hit: Hit) {
        let hash = hit.target.withUnsafeBytes { self.hash($0) }
        let set = place(hash)..<place(hash) + Self.ways
        let former = set.first { slots[$0].hash == hash && slots[$0].hit?.isReplaced(by: hit) == true }
        for i in (set.lowerBound..<(former ?? set.upperBound - 1)).reversed() { slots[i + 1] = slots[i] }
        slots[set.lowerBound] = Slot(hash: hash, hit: hit)
    }

    @inline(__always)
    private func isFor(_ target: UnsafeRawBufferPointer, _ request: HeadFields, _ hit: Hit) -> Bool {
        let isSame = hit.target.withUnsafeBytes { own in
            guard own.count == target.count, let a = own.baseAddress, let b = target.baseAddress else { return false }
            return memcmp(a, b, own.count) == 0
        }
        guard isSame, let selection = hit.selection else { return isSame }
        return selection.matches(request)
    }

    @inline(__always)
    private func hash(_ target: UnsafeRawBufferPointer) -> Int {
        var hasher = Hasher()
        hasher.combine(bytes: target)
        return hasher.finalize()
    }

    @inline(__always)
    private func place(_ hash: Int) -> Int {
        Self.ways * Int(truncatingIfNeeded: UInt(bitPattern: hash) % UInt(slots.count / Self.ways))
    }
}

extension PreparedHits.Hit {
    /// Whether another hit is for the same requests, or for all instead of some.
    fileprivate func isReplaced(by other: PreparedHits.Hit) -> Bool {
        guard target == other.target else { return false }
        guard let selection, let theirs = other.selection else { return true }
        return selection.equals(theirs)
    }

    /// Whether an entry is still in the state that this was made from.
    @inline(__always)
    func matches(_ entry: TileEntry) -> Bool {
        entry.blob == blob && entry.metadata.storedAt == metadata.storedAt
            && entry.metadata.expires == metadata.expires && entry.metadata.initialAge == metadata.initialAge
            && entry.metadata.response == metadata.response && entry.metadata.lastModified == metadata.lastModified
    }

    /// Writes the whole answer.
    @inline(__always)
    func write(
        _ data: Data?, age: Int, timeToLive: Int, isHead: Bool, _ answering: borrowing Answering,
        _ buffer: inout ByteBuffer
    ) {
        let size = data?.count ?? 0
        buffer.reserveCapacity(minimumWritableBytes: head.readableBytes + size + 160)
        buffer.writeImmutableBuffer(head)
        buffer.writeField("Age: ", age)
        buffer.writeStaticString("Cache-Status: tileproxy; hit; ttl=")
        buffer.writeDecimal(timeToLive)
        buffer.writeStaticString("\r\n")
        answering.writeConnection(into: &buffer)
        buffer.writeStaticString("\r\n")
        if !isHead, let data { data.withUnsafeBytes { _ = buffer.writeBytes($0) } }
    }
}
