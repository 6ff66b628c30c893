import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import NIOCore
import TileStore

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
    /// An answer but for its age and its body: one allocation of some 600 bytes.
    struct Hit {
        /// What has to be known of it, in front of its bytes.
        struct Header {
            let known: KnownEntry
            /// Which requests it is for, if not for all.
            let selection: PreparedSelection?
            /// Where the target ends, which comes first; the status line and all fields that stay the same follow.
            let targetEnd: Int32
            let end: Int32
        }

        private let storage: ManagedBuffer<Header, UInt8>

        /// Makes an answer to a request ready, if it is one that many requests can share.
        init?(
            _ candidate: Candidate, target: UnsafeRawBufferPointer, _ request: HeadFields, via: String,
            _ store: TileStore
        ) {
            guard candidate.length <= PreparedHits.largestBody, !candidate.response.freshness.noCache,
                let known = store.known(candidate.entry)
            else { return nil }
            let selection = candidate.choice.flatMap { PreparedSelection($0, request, store) }
            guard candidate.choice == nil || selection != nil else { return nil }
            var head = ByteBuffer()
            let status = candidate.response.status
            head.writeStatusLine(status.code, reason: status.reasonPhrase)
            head.writeFields(candidate.response.fields)
            if !isBodiless(status.code) { head.writeField("Content-Length: ", candidate.length) }
            head.writeStaticString("Via: ")
            head.writeString(via)
            head.writeStaticString("\r\n")
            guard head.readableBytes <= PreparedHits.largestHead else { return nil }
            let end = target.count + head.readableBytes
            let header = Header(
                known: known, selection: selection, targetEnd: Int32(clamping: target.count),
                end: Int32(clamping: end))
            storage = .create(minimumCapacity: end) { _ in header }
            storage.withUnsafeMutablePointerToElements { start in
                let room = UnsafeMutableRawBufferPointer(start: start, count: end)
                room.copyMemory(from: target)
                head.withUnsafeReadableBytes {
                    UnsafeMutableRawBufferPointer(rebasing: room[target.count...]).copyMemory(from: $0)
                }
            }
        }

        /// Runs a body on the header, the target, and the head.
        @inline(__always)
        func read<R>(_ body: (Header, _ target: UnsafeRawBufferPointer, _ head: UnsafeRawBufferPointer) -> R) -> R {
            storage.withUnsafeMutablePointers { header, bytes in
                let (middle, end) = (Int(header.pointee.targetEnd), Int(header.pointee.end))
                let all = UnsafeRawBufferPointer(start: bytes, count: end)
                return body(header.pointee, all.part(0, middle), all.part(middle, end))
            }
        }

        /// About how much memory it takes.
        var cost: Int { read { header, _, _ in Int(header.end) + 192 } }

        /// Whether two are the same one.
        static func === (a: Hit, b: Hit) -> Bool { a.storage === b.storage }
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
    private var bytes = 0
    private let bound: Int

    /// Makes a table of sets of eight slots, in each of which the newest comes first.
    ///
    /// - Parameter bytes: What all hits together may take.
    init(sets: Int = 4096, bytes: Int = 32 << 20) {
        slots = Array(repeating: Slot(), count: Self.ways * max(1, sets))
        bound = bytes
    }

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
        if bytes + hit.cost > bound {
            // It takes uncommonly long heads to get here; what is asked for again will be ready again.
            self = PreparedHits(sets: slots.count / Self.ways, bytes: bound)
        }
        let hash = hit.read { _, target, _ in self.hash(target) }
        let set = place(hash)..<place(hash) + Self.ways
        let former = set.first { slots[$0].hash == hash && slots[$0].hit?.isReplaced(by: hit) == true }
        let last = former ?? set.upperBound - 1
        bytes += hit.cost - (slots[last].hit?.cost ?? 0)
        for i in (set.lowerBound..<last).reversed() { slots[i + 1] = slots[i] }
        slots[set.lowerBound] = Slot(hash: hash, hit: hit)
    }

    @inline(__always)
    private func isFor(_ target: UnsafeRawBufferPointer, _ request: HeadFields, _ hit: Hit) -> Bool {
        hit.read { header, own, _ in
            guard own.equals(target) else { return false }
            return header.selection?.matches(request) ?? true
        }
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
        read { header, target, _ in
            other.read { theirs, theirTarget, _ in
                guard target.equals(theirTarget) else { return false }
                guard let own = header.selection, let their = theirs.selection else { return true }
                return own.equals(their)
            }
        }
    }

    /// Writes the whole answer; `nil`, and nothing is written, if it does not hold any more or would have to be waited for.
    @inline(__always)
    func answer(
        isHead: Bool, at now: HTTPDate, _ answering: borrowing Answering, from store: TileStore,
        into buffer: inout ByteBuffer
    ) -> Answered? {
        read { header, _, head in
            let freshness = StoredFreshness(header.known)
            // What the store cannot tell at once is for the long way, errors included.
            guard freshness.isFresh(at: now), let body = try? store.find(header.known) else { return nil }
            // Without its marker a variant is gone, though nobody could remove it by name.
            if let selection = header.selection, (try? store.find(selection.marker)) == nil { return nil }
            let size = isHead || !header.known.hasBody ? 0 : header.known.size
            let start = buffer.writerIndex
            buffer.reserveCapacity(minimumWritableBytes: head.count + size + 161)
            buffer.writeBytes(head)
            buffer.writeField("Age: ", freshness.age(at: now))
            buffer.writeStaticString("Cache-Status: tileproxy; hit; ttl=")
            buffer.writeDecimal(freshness.expires.seconds(since: now))
            buffer.writeStaticString("\r\n")
            answering.writeConnection(into: &buffer)
            buffer.writeStaticString("\r\n")
            guard size == 0 || buffer.write(body, size, from: store) else {
                buffer.moveWriterIndex(to: start)
                return nil
            }
            return Answered(status: header.known.response.status, bodyBytes: size, cache: .hit)
        }
    }
}

extension UnsafeRawBufferPointer {
    /// Whether both have the same bytes.
    @inline(__always)
    fileprivate func equals(_ other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count, count > 0, let a = baseAddress, let b = other.baseAddress else {
            return count == other.count
        }
        return memcmp(a, b, count) == 0
    }
}
