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

    private var slots: [Hit?]

    /// Makes a table of pairs of slots: a hit may lie in either of its pair, the newer in the first.
    init(pairs: Int = 16384) { slots = Array(repeating: nil, count: 2 * max(1, pairs)) }

    /// The hit for a target and the fields that it may depend on.
    @inline(__always)
    func find(_ target: UnsafeRawBufferPointer, _ request: HeadFields) -> Hit? {
        let first = place(target)
        if let hit = slots[first], isFor(target, request, hit) { return hit }
        if let hit = slots[first + 1], isFor(target, request, hit) { return hit }
        return nil
    }

    /// Keeps a hit in place of whatever has its slot.
    mutating func keep(_ hit: Hit) {
        let first = hit.target.withUnsafeBytes { place($0) }
        let older = slots[first].flatMap { $0.isReplaced(by: hit) ? nil : $0 }
        if let older { slots[first + 1] = older }
        slots[first] = hit
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
    private func place(_ target: UnsafeRawBufferPointer) -> Int {
        var hasher = Hasher()
        hasher.combine(bytes: target)
        return 2 * Int(truncatingIfNeeded: UInt(bitPattern: hasher.finalize()) % UInt(slots.count / 2))
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
