/// Records that a holder of the lock is putting together, to be appended in one write.
///
/// Kept from one hold to the next for its memory. Belongs to the holder of the ledger.
final class PendingRecords {
    /// The lines.
    @exclusivity(unchecked) var lines = LineBuffer()
    /// Those of the lines whose content is known in full, in their order.
    @exclusivity(unchecked) private(set) var puts: ContiguousArray<KnownPut> = []
    // Tags that do not stand in the lines as they are.
    @exclusivity(unchecked) private var tags = LineBuffer(capacity: 64)

    /// Requests whose outcome stands once the lines do.
    @exclusivity(unchecked) var requests: ContiguousArray<UnsafeMutablePointer<PutRequest>> = []
    /// Blobs that were put in place for these lines.
    @exclusivity(unchecked) var published: Set<BlobDigest> = []
    /// The greatest sequence number given out.
    @exclusivity(unchecked) var recency: UInt64 = 0
    /// Sets that these lines define.
    @exclusivity(unchecked) var sets = PendingSets()
    @exclusivity(unchecked) private var keys = MarkSet()

    /// Takes note of a key's mark; `false` if it is known already.
    @inline(__always)
    func insert(_ mark: UInt64) -> Bool { keys.insert(mark) }

    /// Adds the line of a put.
    ///
    /// - Parameter packed: The key's packed form, if the tables have its names; else the line will be read back.
    @inline(__always)
    func add(_ request: UnsafeMutablePointer<PutRequest>, _ packed: PackedKey?, set: UInt32) {
        let start = lines.count
        let metadata = request.pointee.metadata
        var tag = lines.put(
            request.pointee.key, blob: request.pointee.digest, size: request.pointee.size, set: set, metadata,
            recency: recency)
        // Resources are rare, and their names come and go.
        guard let packed, !packed.isResource else { return }
        if tag.form == .verbatim, case .text(var text) = metadata.tag {
            (tag.at, tag.count) = (tags.count, text.utf8.count)
            text.withUTF8 { tags.raw(UnsafeRawBufferPointer($0)) }
        }
        puts.append(
            KnownPut(
                start: start, end: lines.count, key: packed, blob: request.pointee.digest,
                size: request.pointee.digest == nil ? 0 : UInt32(clamping: request.pointee.size), set: set, tag: tag,
                lastModified: metadata.lastModified?.packed ?? Timestamp.absent,
                date: metadata.date?.packed ?? Timestamp.absent,
                initialAge: LineBuffer.kept(initialAge: metadata.initialAge), storedAt: metadata.storedAt.packed,
                expires: metadata.expires.packed, recency: recency))
    }

    /// The tag of a known put.
    @inline(__always)
    func tag(_ place: TagPlace, in bytes: UnsafeRawBufferPointer) -> TagBytes {
        switch place.form {
        case .none: TagBytes()
        case .verbatim:
            TagBytes(
                .verbatim, UnsafeRawBufferPointer(rebasing: tags.bytes[place.at..<(place.at &+ place.count)]))
        case .hex, .weakHex:
            TagBytes(place.form, UnsafeRawBufferPointer(rebasing: bytes[place.at..<(place.at &+ place.count)]))
        }
    }

    /// Empties it.
    func removeAll() {
        lines.removeAll()
        puts.removeAll(keepingCapacity: true)
        if tags.count > 0 { tags.removeAll() }
        requests.removeAll(keepingCapacity: true)
        if !published.isEmpty { published = [] }
        if !sets.isEmpty { sets = PendingSets() }
        recency = 0
        keys.removeAll()
    }
}

/// What the line of a put says, as far as it has to be known to carry it out.
struct KnownPut {
    /// Where the line begins and ends, its newline included.
    var start: Int
    var end: Int
    var key: PackedKey
    var blob: BlobDigest?
    var size: UInt32
    var set: UInt32
    var tag: TagPlace
    var lastModified: UInt32
    var date: UInt32
    var initialAge: UInt32
    var storedAt: UInt32
    var expires: UInt32
    var recency: UInt64
}

/// Sets defined by lines that are not in the tables yet.
struct PendingSets {
    private var numbers: [ResponseFields: UInt32] = [:]
    private var last: UInt32 = 0

    var isEmpty: Bool { numbers.isEmpty }

    /// The number of a set, writing its definition if this journal has none; `nil` if there is no number left.
    @inline(__always)
    mutating func number(
        for fields: ResponseFields, _ tables: Tables, _ ledger: Ledger, _ lines: inout LineBuffer
    ) -> UInt32? {
        if let last = ledger.lastSet?.value(in: tables), last.fields == fields, last.generation == ledger.generation {
            return last.number
        }
        return otherNumber(for: fields, tables, ledger, &lines)
    }

    private mutating func otherNumber(
        for fields: ResponseFields, _ tables: Tables, _ ledger: Ledger, _ lines: inout LineBuffer
    ) -> UInt32? {
        if let known = tables.sets.definedNumber(of: fields) {
            ledger.lastSet = OfTables((fields, known, ledger.generation), tables)
            return known
        }
        if let pending = numbers[fields] { return pending }
        var known = tables.sets.number(of: fields)
        if known == nil {
            known = tables.sets.freeNumber(after: last) { Set(numbers.values) }
            last = max(last, known ?? 0)
        }
        guard let number = known else { return nil }
        numbers[fields] = number
        lines.set(number, fields)
        return number
    }
}

/// A set of 64-bit marks that is filled and emptied over and over.
struct MarkSet {
    // Open addressing; 0 stands for an empty place.
    private var places: ContiguousArray<UInt64> = []
    private var count = 0

    @inline(__always)
    mutating func insert(_ mark: UInt64) -> Bool {
        if count &* 2 >= places.count { grow() }
        let mark = mark == 0 ? 1 : mark
        let mask = places.count &- 1
        var at = Int(truncatingIfNeeded: (mark &* 0x9FB2_1C65_1E98_DF25) >> 32) & mask
        while places[at] != 0 {
            if places[at] == mark { return false }
            at = (at &+ 1) & mask
        }
        places[at] = mark
        count &+= 1
        return true
    }

    private mutating func grow() {
        let old = places
        places = ContiguousArray(repeating: 0, count: max(64, old.count * 2))
        count = 0
        for mark in old where mark != 0 { _ = insert(mark) }
    }

    mutating func removeAll() {
        guard count > 0 else { return }
        count = 0
        // A large one is let go: emptying it would cost the small batches that follow.
        if places.count > 4096 { places = [] }
        for i in places.indices { places[i] = 0 }
    }
}

extension Tables {
    /// Carries out the line of a put without reading it; `false` if the line is one that readers refuse.
    @inline(__always)
    func apply(_ pending: PendingRecords, _ number: Int, _ bytes: UnsafeRawBufferPointer) -> Bool {
        let put = pending.puts[number]
        guard let set = sets.slot(put.set), isPlausible(put.recency) else { return false }
        let details = EntryDetails(
            tag: pending.tag(put.tag, in: bytes), lastModified: put.lastModified, date: put.date,
            initialAge: put.initialAge)
        let state = NewState(
            blob: put.blob, size: put.size, set: set, details: details, storedAt: put.storedAt, expires: put.expires,
            recency: put.recency, lastUsed: put.storedAt)
        assert(readsBack(UnsafeRawBufferPointer(rebasing: bytes[put.start..<(put.end - 1)]), put.key, state))
        return self.put(put.key, state)
    }

    /// Whether a line says what is to be carried out in its place.
    private func readsBack(_ line: UnsafeRawBufferPointer, _ key: PackedKey, _ state: NewState) -> Bool {
        var put = PutLine()
        let reader = LineReader()
        guard let body = LineReader.body(of: line) else { return false }
        if !reader.readPut(body, &put) {
            guard case .put(let read) = reader.readAny(body) else { return false }
            put = read
        }
        let (mine, read) = (state.details, put.details)
        return packed(put.key) == key && put.blob == state.blob && put.size == state.size
            && sets.slot(put.set) == state.set && put.storedAt == state.storedAt && put.expires == state.expires
            && put.recency == state.recency && put.lastUsed ?? put.storedAt == state.lastUsed
            && mine.tag.form == read.tag.form && mine.tag.bytes.elementsEqual(read.tag.bytes)
            && mine.lastModified == read.lastModified && mine.date == read.date && mine.initialAge == read.initialAge
    }
}
