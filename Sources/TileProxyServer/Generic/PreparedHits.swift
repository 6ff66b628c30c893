import HTTPCaching
import HTTPTypes
import NIOCore
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Heads made ready for the answers that are asked for again and again, in a table of fixed size.
///
/// One for each event loop. An entry counts only while the store has the same state under the key, which every hit asks
/// it for; so a table that is behind costs time and never a wrong answer.
struct PreparedHits {
    /// An answer but for its age and its body.
    struct Hit {
        let target: [UInt8]
        let key: TileKey
        let blob: BlobDigest?
        let metadata: TileMetadata
        let freshness: StoredFreshness
        /// The status line and all fields that stay the same.
        let head: ByteBuffer
    }

    /// Longer bodies are sent in pieces, which takes more than one write.
    static let largestBody = 256 << 10

    private var slots: [Hit?]

    init(capacity: Int = 4096) { slots = Array(repeating: nil, count: max(1, capacity)) }

    /// The hit for a target.
    @inline(__always)
    func find(_ target: UnsafeRawBufferPointer) -> Hit? {
        guard let hit = slots[place(target)], hit.target.count == target.count,
            hit.target.withUnsafeBytes({ bytes in zip(bytes, target).allSatisfy { $0 == $1 } })
        else { return nil }
        return hit
    }

    /// Keeps a hit in place of whatever has its slot.
    mutating func keep(_ hit: Hit) { slots[hit.target.withUnsafeBytes { place($0) }] = hit }

    @inline(__always)
    private func place(_ target: UnsafeRawBufferPointer) -> Int {
        var hasher = Hasher()
        hasher.combine(bytes: target)
        return Int(truncatingIfNeeded: UInt(bitPattern: hasher.finalize()) % UInt(slots.count))
    }
}

extension PreparedHits.Hit {
    /// Makes an answer ready, if it is one that many requests can share.
    init?(_ candidate: Candidate, target: [UInt8], via: String) {
        let tile = candidate.tile
        guard !candidate.isVariant, candidate.length <= PreparedHits.largestBody else { return nil }
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
        self.head = head
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
