/// An index image being written while others read and write.
///
/// First every segment of the tables is copied, each in a moment of its own, and what changes from then on is marked. Then
/// what is marked is copied again, in rounds, each of which finds less, because copying is faster than changing. The last
/// round is short and keeps writers out; so the image is the tables as they were at that moment. Nothing but a buffer and
/// the marks is held in memory. Holding `compact.lock` makes it the only one.
package final class IndexImageWriter {
    private let store: TileStore
    private let lock: CompactionLock
    private let temporary: String
    /// The checkpoint that it goes with: nobody makes another one meanwhile.
    private let generation: UInt64
    private let loads: Int
    private let tables: Tables
    private var file: OpenFile?
    private var buffer = LineBuffer(capacity: 1 << 19)
    private var names = LineBuffer(capacity: 1 << 12)
    private var blocks: [IndexImage.Block] = []
    private var length = IndexImage.headLength
    private var patched = 0
    private var phase = Phase.segments(.entries, 0)
    private var rounds = 0
    private var lastFound = 0
    private var isOver = false
    /// Whether it is given up when the store is closed.
    private let endsWithStore: Bool

    private enum Phase {
        case segments(IndexImage.Kind, Int)
        case sets(UInt32)
        case rounds
    }

    /// Parts that a slice copies at most: some hundred microseconds.
    private static let slice = 4096
    /// Parts that the last round may have: well below 5 ms.
    private static let last = 6000

    /// - Returns: `nil` if another process is at it, or compacting, or if something else than a file is in the image's place.
    fileprivate init?(_ store: TileStore, endsWithStore: Bool) throws {
        self.store = store
        self.endsWithStore = endsWithStore
        let files = store.files
        guard let lock = try CompactionLock(files, store.gate), let newest = try files.newestCheckpoint() else {
            return nil
        }
        // A folder of that name is not ours to empty; opening does without an image.
        guard try files.status(at: IndexImage.path(newest))?.kind != .folder else { return nil }
        self.lock = lock
        try StagingFolder.removeUnfinished(["index-"], in: files)
        generation = newest
        loads = try store.withLedger(within: lock) { $0.loads }
        temporary = "staging/index-\(String(store.environment.random(), radix: 16))"
        let file = try files.inStaging { [temporary] () throws(FileError) in
            try files.open(temporary, .createNew)
        }
        self.file = file
        var tables: Tables?
        store.tables.write { if $0.beginMarking() { tables = $0 } }
        guard let tables else {
            files.close(file)
            try files.unlink(temporary)
            throw FileError("allocate for", "manifest/index", Errno.noMemory)
        }
        self.tables = tables
        IndexImage.head(generation).withUnsafeBytes { pending.raw($0) }
    }

    deinit { abandon() }

    /// Goes on until about so many bytes are copied, each slice in a moment of its own.
    ///
    /// `false` when nothing is left but to ``finish()``.
    package func step(bytes most: Int = 1 << 18) throws -> Bool {
        let end = length + most
        while length < end { if try !advance() { return false } }
        return true
    }

    private func advance() throws -> Bool {
        guard !isOver else { return false }
        switch phase {
        case .segments(let kind, let next):
            let i = read { t in
                switch kind {
                case .entryIndex: t.entryIndex.segmentWithCells(from: next)
                case .blobIndex: t.blobIndex.segmentWithCells(from: next)
                default: next
                }
            }
            if try copySegment(kind, i) {
                phase = .segments(kind, i + 1)
            } else if let next = IndexImage.Kind(rawValue: kind.rawValue + 1), next != .resources {
                phase = .segments(next, 0)
            } else {
                phase = .sets(0)
            }
            return true
        case .sets(let slot):
            let count = read { t -> UInt32 in
                let count = t.sets.count
                for slot in slot..<max(slot, min(count, slot &+ 256)) { t.sets.write(slot, to: &buffer) }
                return count
            }
            try close(.sets, 0)
            phase = slot &+ 256 < count ? .sets(slot &+ 256) : .rounds
            return true
        case .rounds:
            guard rounds < 8 else { return false }
            lastFound = try round(most: Self.slice)
            rounds += 1
            return lastFound > Self.last / 2
        }
    }

    // MARK: Copying

    /// Readers go on; writers wait for as long as the body takes.
    private func read<R>(_ body: (Tables) -> R) -> R { store.tables.read { _, _ in body(tables) } }

    /// Copies a segment; `false` if there is none of that number.
    private func copySegment(_ kind: IndexImage.Kind, _ i: Int) throws -> Bool {
        let isThere = read { t -> Bool in
            switch kind {
            case .entries:
                guard i < t.entries.segments else { return false }
                t.entries.copy(segment: i) { buffer.raw(UnsafeRawBufferPointer($0)) }
            case .blobs:
                guard i < t.blobs.segments else { return false }
                t.blobs.copy(segment: i) { records in for i in records.indices { write(records[i]) } }
            case .details:
                guard i < t.details.segmentCount else { return false }
                t.details.copy(segment: i) { buffer.raw($0) }
            case .entryIndex:
                guard i < SlotIndex.segmentCount else { return false }
                t.entryIndex.copy(segment: i) { buffer.raw($0) }
            case .blobIndex:
                guard i < SlotIndex.segmentCount else { return false }
                t.blobIndex.copy(segment: i) { buffer.raw($0) }
            case .resources, .sets, .state: return false
            }
            return true
        }
        guard isThere else { return false }
        try close(kind, i)
        if kind == .entries { try copyNames(ofSegment: i) }
        return true
    }

    /// Copies the names of a segment's resources: those of entries that go meanwhile are not needed.
    private func copyNames(ofSegment i: Int) throws {
        let first = UInt32(i * Segments<EntryRecord>.perSegment)
        let end = first + UInt32(Segments<EntryRecord>.perSegment)
        for from in stride(from: first, to: end, by: 1024) {
            read { t in
                for slot in from..<max(from, min(from + 1024, t.entries.count)) { t.writeResource(slot, to: &names) }
            }
        }
        try closeNames()
    }

    /// A blob's record without what only this process knows: whether it has hashed and synced the file.
    private func write(_ blob: BlobRecord) {
        var blob = blob
        blob.flags &= ~(BlobRecord.verified | BlobRecord.synced)
        withUnsafeBytes(of: blob) { buffer.raw($0) }
    }

    private func number(_ part: Int) { withUnsafeBytes(of: UInt32(truncatingIfNeeded: part)) { buffer.raw($0) } }

    /// Copies once what has changed, and says how much it was.
    ///
    /// - Parameter most: How many parts are copied before readers and writers get a turn.
    private func round(most: Int) throws -> Int {
        var found = 0
        for kind in [IndexImage.Kind.entries, .blobs, .details, .entryIndex, .blobIndex] {
            for i in takeGrown(kind) {
                _ = try copySegment(kind, i)
                found += 1
            }
            var place = 0
            var more = true
            while more {
                more = read { takeChanges($0, kind, from: &place, most: most, &found) }
                try close(kind, 0, isPatch: true)
            }
        }
        store.tables.write { _ in
            let changed = tables.sets.takeChanges()
            found += changed.count
            for slot in changed { tables.sets.write(slot, to: &buffer) }
        }
        try close(.sets, 0)
        try closeNames()
        return found
    }

    private func takeGrown(_ kind: IndexImage.Kind) -> [Int] {
        guard kind == .entryIndex || kind == .blobIndex else { return [] }
        return store.tables.write { _ in
            kind == .entryIndex ? tables.entryIndex.takeGrown() : tables.blobIndex.takeGrown()
        }
    }

    private func takeChanges(
        _ t: Tables, _ kind: IndexImage.Kind, from place: inout Int, most: Int, _ found: inout Int
    ) -> Bool {
        var count = 0
        defer { found += count }
        switch kind {
        case .entries:
            return t.entries.takeChanges(from: &place, most: most) { slot, record in
                count += 1
                number(Int(slot))
                withUnsafeBytes(of: record.pointee) { buffer.raw($0) }
                t.writeResource(slot, to: &names)
            }
        case .blobs:
            return t.blobs.takeChanges(from: &place, most: most) { slot, record in
                count += 1
                number(Int(slot))
                write(record.pointee)
            }
        case .details:
            return t.details.takeChanges(from: &place, most: most) { part, bytes in
                count += 1
                number(part)
                buffer.raw(bytes)
            }
        case .entryIndex:
            return t.entryIndex.takeChanges(from: &place, most: most) { part, bytes in
                count += 1
                number(part)
                buffer.raw(bytes)
            }
        case .blobIndex:
            return t.blobIndex.takeChanges(from: &place, most: most) { part, bytes in
                count += 1
                number(part)
                buffer.raw(bytes)
            }
        case .resources, .sets, .state: return false
        }
    }

    // MARK: Blocks

    private func close(_ kind: IndexImage.Kind, _ number: Int, isPatch: Bool = false) throws {
        guard buffer.count > 0 else { return }
        if isPatch { patched += buffer.count }
        try append(kind, number, isPatch: isPatch, buffer.bytes)
        buffer.removeAll()
    }

    private func closeNames() throws {
        guard names.count > 0 else { return }
        try append(.resources, 0, isPatch: false, names.bytes)
        names.removeAll()
    }

    private func append(
        _ kind: IndexImage.Kind, _ number: Int, isPatch: Bool, _ bytes: UnsafeRawBufferPointer
    ) throws {
        blocks.append(
            IndexImage.Block(
                kind: kind, isPatch: isPatch, number: number, offset: length, length: bytes.count,
                checksum: LineChecksum.xxh64(bytes)))
        length += bytes.count
        pending.raw(bytes)
        if !holdsBack { try drain() }
    }

    // What is copied while writers are kept out is written afterwards.
    private var pending = LineBuffer(capacity: 1 << 19)
    private var holdsBack = false

    private func drain() throws {
        guard let file, pending.count > 0 else { return }
        do throws(FileError) { try store.files.writeAll(file, pending.bytes) } catch {
            throw StoreError(error, in: store.files.location)
        }
        pending.removeAll()
    }

    // MARK: The end

    /// Copies what is left, and puts the image in its place.
    ///
    /// `false` if it was given up: the tables were replaced, or change faster than they can be copied.
    package func finish() throws -> Bool {
        guard !isOver else { return false }
        defer { abandon() }
        let files = store.files
        do {
            while try step() {
                store.giveWay()
                if endsWithStore && store.isStopping || store.gate.isShut || patched > max(64 << 20, length / 2) {
                    return false
                }
            }
            guard lastFound <= Self.last, let position = try copyLastChanges() else { return false }
            try drain()
            try writeDirectory()
            if let file { files.close(file) }
            file = nil
            return try store.hold(within: lock) { ledger -> Bool in
                guard ledger.loads == loads, try files.newestCheckpoint() == generation else { return false }
                do throws(FileError) { try files.rename(temporary, to: IndexImage.path(generation)) } catch {
                    guard error.number == Errno.noEntry else { throw error }
                    // Another opening took the file for one left over: this process was asleep for an hour.
                    return false
                }
                ledger.chain.noteImage(position)
                return true
            }
        } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
    }

    /// The last round: with the journal at rest, so that the tables go with a place in it.
    private func copyLastChanges() throws -> ImagePosition? {
        let files = store.files
        guard
            let checkpoint = try store.withLedger(
                within: lock, { try $0.openIfThere(Ledger.checkpointPath(generation)) })
        else { return nil }
        defer { files.close(checkpoint) }
        var position = ImagePosition()
        try files.stamp(checkpoint, generation, &position)
        return try store.withLedger(within: lock) { ledger -> ImagePosition? in
            guard ledger.loads == loads, ledger.generation >= generation, !tables.hasUnswept,
                let position = ledger.restingPlace(position)
            else { return nil }
            holdsBack = true
            defer { holdsBack = false }
            guard try round(most: .max) <= Self.last * 4 else { return nil }
            var state = tables.imageState()
            state.position = position
            state.damagedLines = UInt64(ledger.damagedLines)
            state.write(to: &buffer)
            try close(.state, 0)
            return position
        }
    }

    private func writeDirectory() throws {
        for block in blocks { block.words.withUnsafeBytes { buffer.raw($0) } }
        pending.raw(buffer.bytes)
        let tail = IndexImage.tail(
            directory: length, blocks: blocks.count, checksum: LineChecksum.xxh64(buffer.bytes),
            generation: generation)
        tail.withUnsafeBytes { pending.raw($0) }
        try drain()
    }

    /// Gives up: what was there before stays.
    package func abandon() {
        guard !isOver else { return }
        isOver = true
        store.tables.write { _ in tables.endMarking() }
        if let file { store.files.close(file) }
        file = nil
        // Nobody reads it; what stays behind is swept when the cache is opened an hour later.
        _ = try? store.files.unlink(temporary)
        lock.release()
    }
}

extension TileStore {
    package func beginIndexImage(endsWithStore: Bool = true) throws -> IndexImageWriter? {
        guard !isReadOnly else { return nil }
        do { return try IndexImageWriter(self, endsWithStore: endsWithStore) } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
    }

    /// Writes the tables down as they are, so that the next opening need not read the manifest.
    ///
    /// Readers and writers go on meanwhile. Costs a write of about 120 bytes an entry.
    /// - Returns: `false` if there was no need or no chance.
    @discardableResult
    package func writeIndexImage(endsWithStore: Bool = true) throws -> Bool {
        try beginIndexImage(endsWithStore: endsWithStore)?.finish() ?? false
    }

    /// Writes an image if an opening would have to read much of the manifest.
    ///
    /// - Parameter atEnd: Whether it is the last chance, which is taken earlier.
    func writeImageIfDue(atEnd: Bool = false) throws {
        if commit.withLock({ !$0.isClosed && isImageDue($0, atEnd: atEnd) }) {
            try writeIndexImage(endsWithStore: !atEnd)
        }
    }

    /// Due when an eighth of the manifest, and 4 MiB, are not in the newest image: an image is half as large as the manifest,
    /// so that this costs as many bytes as a few times what the journal does.
    func isImageDue(_ ledger: Ledger, atEnd: Bool = false) -> Bool {
        switch configuration.indexImages {
        case .never: return false
        case .always: return ledger.bytesToRead > 0
        case .automatic:
            let all = ledger.chain.checkpointBytes + ledger.journalBytes
            return ledger.bytesToRead > (atEnd ? max(1 << 20, all / 32) : max(4 << 20, all / 8))
        }
    }

    /// Whether the store is being closed: work in the background that can be given up is.
    var isStopping: Bool { maintenance?.isStopped ?? false }
}
