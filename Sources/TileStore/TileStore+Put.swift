#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Writers waiting for the lock; whoever comes first carries out the batch of all.
struct WriterQueue {
    var waiting: [PutRequest] = []
    var isLed = false
}

/// A put on its way: what is asked, what was prepared before the lock, and what came of it.
final class PutRequest: @unchecked Sendable {
    // The fields are written by the thread that made the request until it queues it, and by the leader afterwards; the
    // queue's lock orders the two.
    let key: TileKey
    let metadata: TileMetadata
    let digest: BlobDigest?
    /// The bytes, in case they must be staged under the lock after all.
    let data: Data?
    /// The file in `staging/` with the bytes; `nil` if the blob looked live.
    var staged: String?
    var isDone = false
    var outcome: Result<PutOutcome, any Error>?

    init(key: TileKey, metadata: TileMetadata, data: Data?, digest: BlobDigest?) {
        self.key = key
        self.metadata = metadata
        self.data = data
        self.digest = digest
    }

    var size: Int { data?.count ?? 0 }
}

extension TileStore {
    /// Stores a tile: its bytes if they are not there yet, and its whole new state under the key.
    ///
    /// When it returns, limits are kept, and another process sees the tile. With ``StoreConfiguration/Durability/durable``
    /// it is on the disk. What was stored under the key is replaced in one step.
    /// - Parameters:
    ///   - data: The bytes; `nil` for a response without a body.
    ///   - key: The key.
    ///   - metadata: Validators and times.
    /// - Throws: ``StoreError``; then nothing has changed, and the bytes are still the caller's to use.
    @discardableResult
    public func put(_ data: Data?, for key: TileKey, metadata: TileMetadata) throws -> PutOutcome {
        var staged: Set<BlobDigest> = []
        let request = try prepare(key, data, metadata, alreadyStaged: &staged)
        submit([request])
        return try outcome(of: request)
    }

    /// Stores several tiles in one hold of the lock, in their order.
    ///
    /// Limits are enforced once, at the end.
    ///
    /// - Throws: ``StoreError`` of the first tile that failed; those before it are stored.
    @discardableResult
    public func put(_ tiles: [TilePut]) throws -> [PutOutcome] {
        var requests: [PutRequest] = []
        requests.reserveCapacity(tiles.count)
        var staged: Set<BlobDigest> = []
        do {
            for tile in tiles {
                requests.append(try prepare(tile.key, tile.data, tile.metadata, alreadyStaged: &staged))
            }
        } catch {
            for request in requests { discard(request) }
            throw error
        }
        submit(requests)
        return try requests.map { try outcome(of: $0) }
    }

    /// Stores a tile whose bytes are in a file of the caller's, which stays as it is.
    @discardableResult
    public func put(fileAt path: String, for key: TileKey, metadata: TileMetadata) throws -> PutOutcome {
        let data: Data
        do { data = try Data(contentsOf: URL(fileURLWithPath: path), options: .mappedIfSafe) } catch {
            throw StoreError(.io, "\(path) cannot be read: \(error)", cause: error)
        }
        return try put(data, for: key, metadata: metadata)
    }

    /// Gives an entry new validators and times, as a 304 does.
    ///
    /// Its blob, its place in the order of use and the time of its last use stay.
    ///
    /// - Returns: `false` if the key no longer is in the state that the decision was made on, or has a later `Date`.
    public func refresh(_ key: TileKey, from version: EntryVersion, metadata: TileMetadata) throws -> Bool {
        try check(metadata, size: 0)
        return try hold { ledger in
            guard
                let entry = tables.read({ t, _ in t.packed(key).flatMap { t.find($0) }.map { t.entry($0, key: key) } }),
                EntryVersion(entry) == version, !isOlder(metadata, than: entry.metadata)
            else { return false }
            var lines = LineBuffer()
            var sets = PendingSets()
            let set = sets.number(for: metadata.response, tables, ledger, &lines)
            lines.put(
                key, blob: entry.blob, size: entry.size, set: set, metadata, recency: entry.recency,
                lastUsed: entry.lastUsed)
            try appendRecords(lines, ledger)
            return true
        }
    }

    // MARK: Before the lock

    private func outcome(of request: PutRequest) throws -> PutOutcome {
        guard let outcome = request.outcome else {
            throw StoreError(.io, "a put of \(request.key) was lost; try again")
        }
        return try outcome.get()
    }

    private func check(_ metadata: TileMetadata, size: Int) throws {
        guard size < Int(UInt32.max) else {
            throw StoreError(.invalidValue, "a blob of \(size) bytes is too large; the most is 4 GiB - 2")
        }
        guard (metadata.etag?.utf8.count ?? 0) <= TagArena.longest else {
            throw StoreError(.invalidValue, "an ETag of more than \(TagArena.longest) bytes cannot be kept")
        }
        let response = metadata.response
        guard (200...599).contains(response.status) else {
            throw StoreError(.invalidValue, "status \(response.status) is not final (200 to 599)")
        }
        let length =
            response.headers.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count + 8 }
            + (response.mediaType?.utf8.count ?? 0) + (response.contentEncoding?.utf8.count ?? 0)
        guard length <= 65536, response.staleIfError >= 0, response.staleWhileRevalidate >= 0 else {
            throw StoreError(.invalidValue, "response fields of \(length) bytes cannot be kept; the most is 65536")
        }
    }

    /// Hashes, and stages the bytes unless the blob looks live: its file is there and of the right length.
    private func prepare(
        _ key: TileKey, _ data: Data?, _ metadata: TileMetadata, alreadyStaged: inout Set<BlobDigest>
    ) throws -> PutRequest {
        try check(metadata, size: data?.count ?? 0)
        guard !isReadOnly else {
            throw StoreError(.readOnly, "\(files.location) is open for reading alone; \(key) cannot be stored")
        }
        guard let data else { return PutRequest(key: key, metadata: metadata, data: nil, digest: nil) }
        let digest = data.withUnsafeBytes { BlobDigest(hashing: $0) }
        let request = PutRequest(key: key, metadata: metadata, data: data, digest: digest)
        if alreadyStaged.contains(digest) { return request }
        do throws(FileError) {
            let live = tables.read { t, _ in t.find(digest) != nil }
            let now = environment.coarseTicks()
            if live, vouched.withLock({ $0.contains(digest, at: now) }) { return request }
            if live, let status = try files.status(at: digest.path), status.kind == .file,
                status.size == Int64(data.count)
            {
                vouched.withLock { $0.insert(digest, at: now) }
                alreadyStaged.insert(digest)
                return request
            }
            try stage(request, data)
            alreadyStaged.insert(digest)
            return request
        } catch { throw StoreError(error, in: files.location) }
    }

    private func stage(_ request: PutRequest, _ data: Data) throws(FileError) {
        let path = "staging/" + String(environment.random(), radix: 36)
        let durable = configuration.durability == .durable
        let result = data.withUnsafeBytes { bytes -> Result<Void, FileError> in
            do throws(FileError) {
                do throws(FileError) {
                    try files.createFile(path, bytes, sync: durable)
                } catch {
                    // The folder may be gone with the rest of a purged cache; anything else is the caller's to know.
                    guard error.number == Errno.noEntry, try files.makeFolder("staging") else { throw error }
                    try files.createFile(path, bytes, sync: durable)
                }
                return .success(())
            } catch { return .failure(error) }
        }
        try result.get()
        request.staged = path
    }

    private func discard(_ request: PutRequest) {
        guard let staged = request.staged else { return }
        request.staged = nil
        // What stays behind is swept when the cache is opened an hour later.
        _ = try? files.unlink(staged)
    }

    // MARK: The queue

    /// Has requests carried out: by this thread together with those that wait, or by the thread that is at it.
    private func submit(_ requests: [PutRequest]) {
        guard !requests.isEmpty else { return }
        queue.withLock { $0.waiting.append(contentsOf: requests) }
        while true {
            let batch: [PutRequest]? = queue.wait { queue in
                // They were queued together, so they are done together.
                if requests[requests.count - 1].isDone { return .some(nil) }
                guard !queue.isLed else { return nil }
                queue.isLed = true
                defer { queue.waiting = [] }
                return .some(queue.waiting)
            }
            guard let batch else { return }
            carryOut(batch)
            queue.withLock { queue in
                for request in batch { request.isDone = true }
                queue.isLed = false
            }
            queue.wakeAll()
        }
    }

    private func carryOut(_ batch: [PutRequest]) {
        do {
            try commit.withLock { ledger in
                var goal = EvictionGoal()
                try hold(ledger) { ledger in
                    try perform(batch, ledger)
                    goal = try evictToLimits(ledger)
                }
                while !goal.isReached { try hold(ledger) { goal = try evict(goal, $0) } }
                if isCompactionDue(ledger) { maintenance?.scheduleCompaction() }
            }
        } catch {
            for request in batch where request.outcome == nil { request.outcome = .failure(error) }
        }
        for request in batch { discard(request) }
    }

    // MARK: Under the lock

    /// Sets defined by lines that are not in the tables yet.
    struct PendingSets {
        private var numbers: [ResponseFields: UInt32] = [:]
        private var next: UInt32 = 0

        /// The number of a set, writing its definition if this journal has none.
        mutating func number(
            for fields: ResponseFields, _ tables: Striped<Tables, ReaderLocal>, _ ledger: Ledger,
            _ lines: inout LineBuffer
        ) -> UInt32 {
            if let last = ledger.lastSet, last.fields.storage === fields.storage, last.loads == ledger.loads,
                last.generation == ledger.generation
            {
                return last.number
            }
            if let known = tables.read({ t, _ in t.definedSet(fields) }) {
                ledger.lastSet = (fields, known, ledger.generation, ledger.loads)
                return known
            }
            if let pending = numbers[fields] { return pending }
            let (old, fresh) = tables.read { t, _ in (t.setNumbers[fields], t.nextSet) }
            let number = old ?? max(fresh, next)
            if old == nil { next = number + 1 }
            numbers[fields] = number
            lines.set(number, fields)
            return number
        }
    }

    private func isOlder(_ new: TileMetadata, than old: TileMetadata) -> Bool {
        guard let newDate = new.date, let oldDate = old.date else { return false }
        return newDate < oldDate
    }

    /// Carries out puts in their order: publishes blobs, appends records, unlinks what nothing refers to any more.
    private func perform(_ batch: [PutRequest], _ ledger: Ledger) throws {
        try flushIfEvictionIsNear(batch, ledger)
        var pending = PendingBatch()
        for request in batch {
            // Equal keys have equal marks; that others may have them too only costs an early append.
            let mark = batch.count == 1 ? 0 : request.key.mark
            if batch.count > 1, pending.keys.contains(mark) { try settle(&pending, ledger) }
            do {
                try decide(request, &pending, ledger)
                if batch.count > 1 { pending.keys.insert(mark) }
            } catch {
                try settle(&pending, ledger)
                throw error
            }
            if pending.lines.count > 1 << 18 { try settle(&pending, ledger) }
        }
        try settle(&pending, ledger)
    }

    /// Records that are not yet in the journal, and what was done for them already.
    private struct PendingBatch: ~Copyable {
        var lines = LineBuffer()
        var sets = PendingSets()
        var keys: Set<UInt64> = []
        var published: Set<BlobDigest> = []
        var requests: [(request: PutRequest, outcome: PutOutcome)] = []
        var recency: UInt64 = 0
    }

    private func decide(_ request: PutRequest, _ pending: inout PendingBatch, _ ledger: Ledger) throws {
        let look = tables.read { t, _ -> (exists: Bool, date: UInt32, isLive: Bool, capacity: Int?, next: UInt64) in
            let slot = t.packed(request.key, &ledger.names).flatMap { t.find($0) }
            return (
                slot != nil, slot.map { t.entries[$0].pointee.date } ?? Timestamp.absent,
                request.digest.map { t.find($0) != nil } ?? true, t.limits.capacity, t.nextSequence
            )
        }
        if let date = request.metadata.date, look.date != Timestamp.absent, date.packed < look.date {
            pending.requests.append((request, .olderThanStored))
            return
        }
        if let capacity = look.capacity, request.digest != nil, allocated(request.size) > capacity,
            !tables.read({ t, _ in t.isPinned(request.key) })
        {
            if look.exists {
                pending.lines.gone(CollectionOfOne(request.key))
            }
            pending.requests.append((request, .largerThanCapacity))
            return
        }
        var newBlob = false
        if let digest = request.digest, !pending.published.contains(digest) {
            newBlob = !look.isLive
            if newBlob || request.staged != nil {
                try publish(request, digest)
                pending.published.insert(digest)
            }
        }
        let set = pending.sets.number(
            for: request.metadata.response, tables, ledger, &pending.lines)
        pending.recency = max(pending.recency + 1, look.next)
        pending.lines.put(
            request.key, blob: request.digest, size: request.size, set: set, request.metadata, recency: pending.recency)
        pending.requests.append((request, .stored(blob: request.digest, newBlob: newBlob)))
    }

    private func publish(_ request: PutRequest, _ digest: BlobDigest) throws {
        // It looked live before the lock and is not: evicted meanwhile.
        if request.staged == nil, let data = request.data { try stage(request, data) }
        guard let staged = request.staged else { return }
        try prepareShard(digest.shard)
        do throws(FileError) {
            try files.rename(staged, to: digest.path)
        } catch {
            if error.number == Errno.noEntry {
                // The shard's folder went away (a purge, a person): make it again, once.
                shards.withLock { $0 = ShardSet() }
                try prepareShard(digest.shard)
                try files.rename(staged, to: digest.path)
            } else if let status = try files.status(at: digest.path), status.kind == .folder {
                try quarantine(digest.path)
                try files.rename(staged, to: digest.path)
            } else {
                throw error
            }
        }
        request.staged = nil
        memory.remove(digest)
        tables.write { t in
            // Fresh bytes in an old blob's place are checked anew when they are read.
            if let slot = t.find(digest) { t.blobs[slot].pointee.flags &= ~BlobRecord.verified }
        }
        if configuration.durability == .durable { try files.syncFolder(ShardSet.path(digest.shard)) }
    }

    private func settle(_ pending: inout PendingBatch, _ ledger: Ledger) throws {
        guard !pending.requests.isEmpty || !pending.published.isEmpty else { return }
        defer { pending = PendingBatch() }
        do {
            if pending.lines.count > 0 { try appendRecords(pending.lines, ledger) }
        } catch {
            // Whole lines that got through stand; blobs that were published for the others must go again.
            for digest in pending.published where !tables.read({ t, _ in t.find(digest) != nil }) {
                try files.unlink(digest.path)
            }
            throw error
        }
        for (request, outcome) in pending.requests { request.outcome = .success(outcome) }
    }

    func allocated(_ size: Int) -> Int { (size + files.blockSize - 1) / files.blockSize * files.blockSize }

    /// Appends records, with what has to come first, and unlinks the blobs whose count they brought to 0.
    func appendRecords(_ lines: borrowing LineBuffer, _ ledger: Ledger) throws {
        if let boot = environment.bootID, tables.read({ t, _ in t.boot == nil }) {
            var mark = LineBuffer(capacity: 128)
            mark.boot(boot)
            try ledger.append(mark, .live(tables))
        }
        defer { if ledger.hasReleased { forgetReleased(ledger) } }
        try ledger.append(lines, .live(tables))
        try unlinkReleased(ledger)
    }

    func forgetReleased(_ ledger: Ledger) {
        tables.write { $0.released.removeAll(keepingCapacity: true) }
        ledger.hasReleased = false
    }

    /// Unlinks blobs that nothing refers to any more.
    ///
    /// Under the lock, after the record.
    func unlinkReleased(_ ledger: Ledger) throws {
        guard ledger.hasReleased else { return }
        ledger.hasReleased = false
        let gone = tables.write { t -> [BlobDigest] in
            guard !t.released.isEmpty else { return [] }
            defer { t.released.removeAll(keepingCapacity: true) }
            return t.released.filter { t.find($0) == nil }
        }
        for digest in gone {
            memory.remove(digest)
            vouched.withLock { $0.remove(digest) }
            do throws(FileError) { try files.unlink(digest.path) } catch {
                // Something that cannot be unlinked is in the blob's place: a folder.
                guard let status = try files.status(at: digest.path), status.kind == .folder else { throw error }
                try quarantine(digest.path)
            }
        }
    }
}

extension Tables {
    /// Whether a region pins a key, be it there or not.
    func isPinned(_ key: TileKey) -> Bool {
        guard let tile = key.tile else { return false }
        return regions.values.contains { $0.source == key.source && $0.contains(z: tile.z, x: tile.x, y: tile.y) }
    }
}

extension TileKey {
    /// A number that equal keys share and that others hardly ever have.
    var mark: UInt64 {
        guard let tile else { return UInt64(bitPattern: Int64(hashValue)) }
        let place = UInt64(tile.z) << 56 | UInt64(tile.x) << 28 | UInt64(tile.y)
        let kind = UInt64(bitPattern: Int64(source.description.hashValue)) &+ UInt64(tile.scale) &* 0x9E37_79B9
        return place &* 0x9FB2_1C65_1E98_DF25 ^ kind ^ UInt64(tile.format?.utf8.first ?? 0) << 32
    }
}
