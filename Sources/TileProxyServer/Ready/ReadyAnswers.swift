import CacheEngine
import HTTPCaching
package import HTTPListener
import HTTPTypes
import HTTPWire
import NIOCore
package import TileStore

/// Answers fresh hits at once, for the tile routes and the generic routes of one event loop.
///
/// Each answer reads the entry from the store, so it is never older than the store. This table keeps heads, one for all
/// entries that share their fields, and the keys of the generic routes' targets, which save making them again; bounded in
/// bytes. Tile routes make their keys from numbers and need no memory for a tile.
package final class ReadyAnswers {
    /// Which head: of the generic routes or of a source, and the shared fields it was made from.
    private struct HeadKey: Hashable {
        /// The source's place among the sources; -1 for the generic routes.
        var route: Int
        var fields: ObjectIdentifier
    }

    private let store: TileStore
    private let time: LoopTime
    private let bound: Int
    // Used on the event loop only, and never re-entered while they change: no run-time exclusivity checks.
    @exclusivity(unchecked) private var heads: [HeadKey: ReadyHead] = [:]
    @exclusivity(unchecked) private var targets = ReadyTargets()
    /// The head used last for each source; usually the next tile has the same one.
    @exclusivity(unchecked) private var lastHeads: [ReadyHead?] = []
    private var tileHeadBytes = 0
    private var bytes = 0
    private let tagRoom = UnsafeMutableRawBufferPointer.allocate(byteCount: KnownEntry.tagRoom, alignment: 16)

    /// Longer bodies are sent in pieces, which takes more than one write.
    static let largestBody = 256 << 10
    /// Longer targets are not kept.
    static let longestTarget = 4096
    /// The bytes that the tables of all event loops may take together.
    package static let budget = 32 << 20

    /// - Parameter bytes: The most that it may take; with 0 it answers nothing.
    package init(_ store: TileStore, time: LoopTime, bytes: Int = ReadyAnswers.budget) {
        self.store = store
        self.time = time
        bound = bytes
    }

    deinit { tagRoom.deallocate() }

    // MARK: Which requests

    /// What a request asks for, if a ready answer may serve it.
    private enum Wish {
        case whole
        /// The body, unless the client has it already: one `If-None-Match` and no other condition.
        case changed
    }

    @inline(__always)
    private func wish(_ request: RequestHead) -> Wish? {
        let present = request.fields.present
        guard request.method == .get || request.method == .head, request.body == .none,
            !request.fields.contains(.expect)
        else { return nil }
        let conditions = present.intersection(.conditions)
        if conditions.isEmpty { return .whole }
        guard conditions == FieldSet(.ifNoneMatch), request.fields.count(of: .ifNoneMatch) == 1 else { return nil }
        return .changed
    }

    // MARK: Tiles

    /// Answers a request for a tile; `nil`, with nothing written, if it has to take the long way.
    ///
    /// - Parameter isExpired: Whether others have said that a tile that was stored at a time is stale.
    @inline(__always)
    func answer(
        _ request: RequestHead, _ answering: borrowing Answering, _ key: KnownKey, of source: ServedSource,
        into buffer: inout ByteBuffer, unless isExpired: (_ storedAt: Timestamp) -> Bool = { _ in false }
    ) -> Answered? {
        guard bound > 0, let wish = wish(request) else { return nil }
        let now = time.now
        // What the store cannot tell at once is for the long way, errors included.
        guard var entry = try? store.find(key, at: Timestamp(seconds: now.seconds), tag: tagRoom),
            entry.size <= Self.largestBody, !isExpired(entry.storedAt), let head = head(of: &entry, key, source, now)
        else { return nil }
        return answer(request, answering, wish, entry, head, now, into: &buffer)
    }

    @inline(__always)
    private func head(
        of entry: inout KnownEntry, _ key: KnownKey, _ source: ServedSource, _ now: HTTPDate
    ) -> ReadyHead? {
        if source.index < lastHeads.count, let last = lastHeads[source.index], last.fields.identity == entry.fields {
            return last
        }
        return otherHead(of: &entry, key, source, now)
    }

    @inline(never)
    private func otherHead(
        of entry: inout KnownEntry, _ key: KnownKey, _ source: ServedSource, _ now: HTTPDate
    ) -> ReadyHead? {
        guard
            let head = heads[HeadKey(route: source.index, fields: entry.fields)]
                ?? makeHead(of: &entry, key, source, now)
        else { return nil }
        while lastHeads.count <= source.index { lastHeads.append(nil) }
        lastHeads[source.index] = head
        return head
    }

    private func makeHead(
        of entry: inout KnownEntry, _ key: KnownKey, _ source: ServedSource, _ now: HTTPDate
    ) -> ReadyHead? {
        guard let fields = fields(of: &entry, key, now) else { return nil }
        let head = ReadyHead(fields, of: source)
        headsMade += 1
        // Tiles that share no fields may not fill the table; their heads are made again when needed.
        if tileHeadBytes + head.cost > bound / 4 { dropTiles() }
        let place = HeadKey(route: source.index, fields: fields.identity)
        bytes += head.cost
        tileHeadBytes += head.cost
        if let former = heads.updateValue(head, forKey: place) {
            bytes -= former.cost
            tileHeadBytes -= former.cost
        }
        keepWithinBound()
        return head
    }

    /// The shared fields of an entry, and the entry found again while they are held.
    ///
    /// An identity is an address: between the look at the entry and one at its fields, others may have taken the place of
    /// both, at the same address. While the fields are held, no others can have theirs.
    /// - Returns: `nil` if the entry has other fields by now; then the long way tells.
    private func fields(of entry: inout KnownEntry, _ key: KnownKey, _ now: HTTPDate) -> ResponseFields? {
        // What the store cannot tell at once is for the long way, errors included.
        guard let fields = store.fields(under: key),
            let again = try? store.find(key, at: Timestamp(seconds: now.seconds), tag: tagRoom),
            again.fields == fields.identity
        else { return nil }
        entry = again
        return fields
    }

    /// Forgets the heads of all sources; called when the sources have changed.
    func dropTiles() {
        lastHeads = []
        heads = heads.filter { $0.key.route < 0 }
        bytes -= tileHeadBytes
        tileHeadBytes = 0
    }

    // MARK: Other resources

    /// Answers a request of the generic routes; `nil`, with nothing written, if it has to take the long way.
    ///
    /// - Parameters:
    ///   - via: This proxy's name in `Via`; a forwarding loop is for the long way.
    ///   - key: Makes the key of a request's URL; called for targets that the table does not have.
    @inline(__always)
    func answer(
        _ request: RequestHead, _ answering: borrowing Answering, via: [UInt8], into buffer: inout ByteBuffer,
        key: (RequestHead) -> TileKey?
    ) -> Answered? {
        guard bound > 0, let wish = wish(request), request.fields.present.isDisjoint(with: .cacheWishes),
            !request.fields.mayHave(via, in: .via)
        else { return nil }
        let target = find(request)
        guard let known = target?.key ?? key(request).flatMap(store.known) else { return nil }
        let now = time.now
        guard var entry = try? store.find(known, at: Timestamp(seconds: now.seconds), tag: tagRoom),
            entry.size <= Self.largestBody
        else { return nil }
        if let selection = target?.selection, !selection.holds(in: store) { return nil }
        if let target, target.head.fields.identity == entry.fields {
            if !target.isUsed { target.isUsed = true }
            return answer(request, answering, wish, entry, target.head, now, into: &buffer)
        }
        // A new target, or one whose entry has other fields now.
        guard let head = genericHead(of: &entry, known, via, now),
            let answered = answer(request, answering, wish, entry, head, now, into: &buffer)
        else { return nil }
        keep(known, target?.selection, head, for: request)
        return answered
    }

    @inline(never)
    private func genericHead(of entry: inout KnownEntry, _ key: KnownKey, _ via: [UInt8], _ now: HTTPDate) -> ReadyHead?
    {
        if let head = heads[HeadKey(route: -1, fields: entry.fields)] { return head }
        guard let fields = fields(of: &entry, key, now) else { return nil }
        headsMade += 1
        // The marker of a URL with variants makes an unusable head.
        return ReadyHead(fields, via: Via(receivedBy: String(decoding: via, as: UTF8.self)))
    }

    @inline(__always)
    private func find(_ request: RequestHead) -> ReadyTarget? {
        request.withTargetBytes { bytes in
            targets.find(ReadyTarget.hash(bytes)) { target in
                target.isFor(bytes) && target.selection?.matches(request.fields) ?? true
            }
        }
    }

    /// Remembers under which key the answer to a request is stored; the only way to find a variant.
    func keep(_ candidate: Candidate, for request: RequestHead, via: Via) {
        let metadata = candidate.entry.metadata
        guard bound > 0, candidate.length <= Self.largestBody, !metadata.response.noCache,
            let key = store.known(candidate.key)
        else { return }
        let selection = candidate.choice.flatMap { ReadySelection($0, request.fields, store) }
        guard candidate.choice == nil || selection != nil else { return }
        let head =
            heads[HeadKey(route: -1, fields: metadata.response.identity)] ?? ReadyHead(metadata.response, via: via)
        keep(key, selection, head, for: request)
    }

    private func keep(_ key: KnownKey, _ selection: ReadySelection?, _ head: ReadyHead, for request: RequestHead) {
        guard head.isUsable else { return }
        let target = request.withTargetBytes { bytes in
            bytes.count <= Self.longestTarget ? ReadyTarget(bytes, key, selection, head) : nil
        }
        guard let target else { return }
        while let former = targets.remove(target.hash, where: { $0.isReplaced(by: target) }) { forget(former) }
        if targets.count(of: target.hash) >= ReadyTargets.variants,
            let other = targets.remove(target.hash, where: { _ in true })
        {
            forget(other)
        }
        let place = HeadKey(route: -1, fields: head.fields.identity)
        if heads.updateValue(head, forKey: place) == nil { bytes += head.cost }
        head.uses += 1
        targets.insert(target)
        bytes += target.cost
        keepWithinBound()
    }

    private func forget(_ target: ReadyTarget) {
        bytes -= target.cost
        release(target.head)
    }

    private func release(_ head: ReadyHead) {
        head.uses -= 1
        guard head.uses == 0 else { return }
        heads[HeadKey(route: -1, fields: head.fields.identity)] = nil
        bytes -= head.cost
    }

    private func keepWithinBound() {
        while bytes > bound, let target = targets.dropOne() { forget(target) }
    }

    /// How many heads were made of an entry's fields, for tests.
    private(set) var headsMade = 0
    /// How much there is, for tests.
    var contents: (targets: Int, heads: Int, bytes: Int) { (targets.count, heads.count, bytes) }

    // MARK: The answer

    @inline(__always)
    private func answer(
        _ request: RequestHead, _ answering: borrowing Answering, _ wish: Wish, _ entry: KnownEntry, _ head: ReadyHead,
        _ now: HTTPDate, into buffer: inout ByteBuffer
    ) -> Answered? {
        guard head.isUsable, head.hasBody ?? entry.hasBody == entry.hasBody,
            !head.needsGzip || request.fields.permitsGzip, let tag = tag(of: entry, head)
        else { return nil }
        var isNotModified = false
        if wish == .changed {
            guard let isSame = isSame(request, tag, head) else { return nil }
            isNotModified = isSame
        }
        let isWithoutBody = request.method == .head || isNotModified || !entry.hasBody
        if head.mustNotBeGzip, isWithoutBody { return nil }
        let size = isWithoutBody ? 0 : entry.size
        guard answering.hasRoom(for: head.room + size + 64) else { return nil }
        let body = store.body(of: entry)
        let start = buffer.writerIndex
        buffer.reserveCapacity(minimumWritableBytes: head.room + size + 64)
        let values = ReadyHead.Values(entry: entry, freshness: StoredFreshness(entry), now: now, tag: tag)
        head.write(values, isNotModified: isNotModified, time, into: &buffer)
        answering.writeConnection(into: &buffer)
        buffer.writeStaticString("\r\n")
        let bodyStart = buffer.writerIndex
        guard size == 0 || buffer.write(body, size, from: store), !head.mustNotBeGzip || !buffer.isGzip(at: bodyStart)
        else {
            buffer.moveWriterIndex(to: start)
            return nil
        }
        return Answered(status: isNotModified ? 304 : head.status, bodyBytes: size, cache: .hit)
    }

    /// Whether the client's tag matches the entry's; `nil` if only the long way can tell.
    ///
    /// Both must be single well-formed tags. Weak comparison then compares their bytes without `W/` (RFC 9110 §8.8.3.2).
    private func isSame(_ request: RequestHead, _ tag: UnsafeRawBufferPointer, _ head: ReadyHead) -> Bool? {
        // Conditions count only where the answer would be a success (RFC 9110 §13.2.1).
        guard head.isSuccess else { return false }
        guard head.isRevalidatable else { return nil }
        return request.fields.withValue(of: .ifNoneMatch) { value -> Bool? in
            guard let theirs = value.opaqueTag else { return nil }
            if tag.isEmpty { return false }
            guard let own = tag.opaqueTag else { return nil }
            return theirs.count == own.count && theirs.elementsEqual(own)
        } ?? nil
    }

    /// An entry's tag as it is sent; `nil` if only the long way can tell.
    @inline(__always)
    private func tag(of entry: KnownEntry, _ head: ReadyHead) -> UnsafeRawBufferPointer? {
        if entry.tagLength > 0 {
            let tag = UnsafeRawBufferPointer(tagRoom).part(0, entry.tagLength)
            for byte in tag where byte < 0x21 || byte > 0x7E { return nil }
            return tag
        }
        guard head.makesTag, entry.hasBody else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        // As TileFields.tag(_:blob:isDecoded:) does: 32 digits in quotes.
        guard entry.spellDigest(to: UnsafeMutableRawBufferPointer(rebasing: tagRoom[1...])) else { return nil }
        tagRoom[0] = 0x22
        tagRoom[33] = 0x22
        return UnsafeRawBufferPointer(tagRoom).part(0, 34)
    }
}

extension ReadyTarget {
    /// Whether another target is for the same requests, or one of them for all.
    fileprivate func isReplaced(by other: ReadyTarget) -> Bool {
        guard hasTarget(of: other) else { return false }
        guard let own = selection, let their = other.selection else { return true }
        return own.equals(their)
    }
}

extension UnsafeRawBufferPointer {
    /// The quoted part of one well-formed entity tag; `nil` for anything else, such as a list.
    @inline(__always)
    fileprivate var opaqueTag: UnsafeRawBufferPointer? {
        let start = count > 2 && self[0] == UInt8(ascii: "W") && self[1] == UInt8(ascii: "/") ? 2 : 0
        guard count >= start + 2, self[start] == 0x22, self[count - 1] == 0x22 else { return nil }
        for i in (start + 1)..<(count - 1) where self[i] == 0x22 { return nil }
        return part(start, count)
    }
}

extension ByteBuffer {
    /// Whether what lies at a place is gzip.
    fileprivate func isGzip(at index: Int) -> Bool {
        getInteger(at: index, as: UInt16.self) == 0x1F8B
    }
}

extension HeadFields {
    /// Whether a field contains a text in any case; `true` as well if the field has more than one line.
    @inline(__always)
    fileprivate func mayHave(_ text: [UInt8], in field: KnownField) -> Bool {
        guard contains(field) else { return false }
        guard count(of: field) == 1 else { return true }
        return withValue(of: field) { value in
            guard value.count >= text.count else { return false }
            for start in 0...(value.count - text.count) {
                var at = 0
                while at < text.count, value[start + at].lowercased == text[at].lowercased { at += 1 }
                if at == text.count { return true }
            }
            return false
        } ?? false
    }
}
