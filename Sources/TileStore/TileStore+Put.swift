#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Writers waiting for the lock; whoever comes first carries out the batch of all.
struct WriterQueue {
    var waiting: [PutBatch] = []
    var isLed = false
}

/// Requests that one thread waits for together.
final class PutBatch: @unchecked Sendable {
    // Everything is written by the thread that made the batch until it queues it, and by the leader afterwards, until it
    // is done; the queue's lock orders the two. The requests are memory of the waiting thread's.
    let requests: UnsafeMutableBufferPointer<PutRequest>
    var isDone = false
    /// Why those that are not settled are not.
    var failure: (any Error)?

    init(_ requests: UnsafeMutableBufferPointer<PutRequest>) { self.requests = requests }
}

/// A put on its way: what is asked, what was prepared before the lock, and what came of it.
struct PutRequest {
    let tile: TilePut
    var digest: BlobDigest?
    /// The file in `staging/` with the bytes; `nil` if the blob looked live.
    var staged: String?
    /// What will have come of it when the records stand.
    var outcome = PutOutcome.olderThanStored
    /// Whether they do.
    var isSettled = false
    /// Whether its key was noted among those of the batch.
    var isNoted = false
    /// Whether its bytes were put in the blob's place.
    var isPublisher = false

    @inline(__always)
    init(_ tile: TilePut) { self.tile = tile }

    @inline(__always) var size: Int { tile.data?.count ?? 0 }
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
        var request = PutRequest(TilePut(key: key, data: data, metadata: metadata))
        return try withUnsafeMutablePointer(to: &request) { request in
            try carryOut(UnsafeMutableBufferPointer(start: request, count: 1))
            return request.pointee.outcome
        }
    }

    /// Stores several tiles in one hold of the lock, in their order.
    ///
    /// Limits are enforced once, at the end.
    ///
    /// - Throws: ``StoreError`` of the first tile that failed; those before it are stored.
    @discardableResult
    public func put(_ tiles: [TilePut]) throws -> [PutOutcome] {
        guard !tiles.isEmpty else { return [] }
        let requests = UnsafeMutableBufferPointer<PutRequest>.allocate(capacity: tiles.count)
        defer { requests.deallocate() }
        _ = requests.initialize(from: tiles.lazy.map { PutRequest($0) })
        defer { requests.deinitialize() }
        try carryOut(requests)
        return requests.map(\.outcome)
    }

    /// Stores a tile whose bytes are in a file of the caller's, which stays as it is.
    ///
    /// The file is read into memory as a whole, so that one that changes meanwhile does no harm: what is stored is what was
    /// hashed.
    @discardableResult
    public func put(fileAt path: String, for key: TileKey, metadata: TileMetadata) throws -> PutOutcome {
        let data: Data
        do { data = try Data(contentsOf: URL(fileURLWithPath: path)) } catch {
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
            let set = tables.read { t, _ in sets.number(for: metadata.response, t, ledger, &lines) }
            lines.put(
                key, blob: entry.blob, size: entry.size, set: set, metadata, recency: entry.recency,
                lastUsed: entry.lastUsed)
            try appendRecords(lines, ledger)
            return true
        }
    }

    // MARK: Before the lock

    /// Prepares requests and has them settled: by this thread, or by the one that leads those that wait.
    private func carryOut(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        defer { discard(requests) }
        try prepare(requests)
        try settle(requests)
    }

    /// Has prepared requests settled.
    func settle(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        let failure = submit(requests)
        // What stands, stands: that an eviction failed afterwards is made up for by the next one.
        if requests.allSatisfy(\.isSettled) { return }
        throw failure ?? StoreError(.io, "a put of \(requests[0].tile.key) was lost; try again")
    }

    @inline(__always)
    private func check(_ metadata: borrowing TileMetadata, size: Int) throws {
        var length = 0
        if case .text(let text) = metadata.tag { length = text.utf8.count }
        guard size < Int(UInt32.max), length <= TagBytes.longest, metadata.response.storage.isStorable else {
            throw refusal(copy metadata, size, tagLength: length)
        }
    }

    private func refusal(_ metadata: TileMetadata, _ size: Int, tagLength: Int) -> StoreError {
        if size >= Int(UInt32.max) {
            return StoreError(.invalidValue, "a blob of \(size) bytes is too large; the most is 4 GiB - 2")
        }
        if tagLength > TagBytes.longest {
            return StoreError(.invalidValue, "an ETag of more than \(TagBytes.longest) bytes cannot be kept")
        }
        let response = metadata.response
        if !(200...599).contains(response.status) {
            return StoreError(.invalidValue, "status \(response.status) is not final (200 to 599)")
        }
        let (length, most) = (response.storage.length, ResponseFields.Storage.longest)
        return StoreError(
            .invalidValue, "response fields of \(length) bytes cannot be kept; the most is \(most)")
    }

    /// Hashes, and stages the bytes of those whose blob does not look live: its file is there and of the right length.
    private func prepare(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        try hash(requests)
        _ = try stage(requests, known: [])
    }

    /// Refuses what cannot be stored, and hashes the rest.
    func hash(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        for i in requests.indices {
            try check(requests[i].tile.metadata, size: requests[i].size)
            guard !isReadOnly else {
                throw StoreError(
                    .readOnly, "\(files.location) is open for reading alone; \(requests[i].tile.key) cannot be stored")
            }
            requests[i].digest = requests[i].tile.data.map { $0.withUnsafeBytes { BlobDigest(hashing: $0) } }
        }
    }

    /// Stages the bytes of those whose blob does not look live.
    ///
    /// - Parameter known: Blobs that will be live by then. One that is not after all is staged under the lock.
    /// - Returns: The blobs of these requests that will be.
    func stage(
        _ requests: UnsafeMutableBufferPointer<PutRequest>, known: [Set<BlobDigest>]
    ) throws -> Set<BlobDigest> {
        var ready: Set<BlobDigest> = []
        let now = environment.coarseTicks()
        var last: BlobDigest?
        for i in requests.indices {
            // Equal ones often follow each other.
            guard let digest = requests[i].digest, digest != last else { continue }
            last = digest
            if known.contains(where: { $0.contains(digest) }) { continue }
            let live = tables.read { t, _ in t.find(digest) != nil }
            if !live || !vouched.withLock({ $0.contains(digest, at: now) }), ready.insert(digest).inserted {
                do throws(FileError) { try provide(&requests[i], digest, looksLive: live, now) } catch {
                    throw StoreError(error, in: files.location)
                }
            }
        }
        return ready
    }

    /// Sees to it that a blob's bytes are in its place, or staged.
    private func provide(
        _ request: inout PutRequest, _ digest: BlobDigest, looksLive: Bool, _ now: UInt64
    ) throws(FileError) {
        if looksLive, let status = try files.status(at: digest.path), status.kind == .file,
            status.size == Int64(request.size)
        {
            vouched.withLock { $0.insert(digest, at: now) }
        } else {
            try stage(&request)
        }
    }

    private func stage(_ request: inout PutRequest) throws(FileError) {
        guard let data = request.tile.data else { return }
        let path = stagingNames.next()
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

    /// Removes what was staged and has not been put in place.
    func discard(_ requests: UnsafeMutableBufferPointer<PutRequest>) {
        for i in requests.indices {
            guard let staged = requests[i].staged else { continue }
            requests[i].staged = nil
            // What stays behind is swept when the cache is opened an hour later.
            _ = try? files.unlink(staged)
        }
    }

    // MARK: The queue

    /// Has requests carried out: by this thread together with those that wait, or by the thread that is at it.
    ///
    /// - Returns: Why some were not.
    private func submit(_ requests: UnsafeMutableBufferPointer<PutRequest>) -> (any Error)? {
        // Mostly nobody else is at it, and then there is nothing to wait for and nobody to wake.
        if queue.withLock({ !$0.isLed && $0.waiting.isEmpty }) {
            let batch = CollectionOfOne(requests)
            if let failure = commit.tryWithLock({ ledger -> (any Error)? in perform(batch, ledger) }) {
                return failure
            }
        }
        let batch = PutBatch(requests)
        queue.withLock { $0.waiting.append(batch) }
        while true {
            let leads = queue.wait { queue -> Bool? in
                if batch.isDone { return false }
                guard !queue.isLed else { return nil }
                queue.isLed = true
                return true
            }
            guard leads else { return batch.failure }
            commit.withLock { ledger in
                let batches = queue.withLock { queue in
                    defer { queue.waiting = [] }
                    return queue.waiting
                }
                let failure = perform(batches.map(\.requests), ledger)
                queue.withLock { queue in
                    for batch in batches {
                        if !batch.requests.allSatisfy(\.isSettled) { batch.failure = failure }
                        batch.isDone = true
                    }
                    queue.isLed = false
                }
            }
            queue.wakeAll()
        }
    }

    /// Carries out requests, and evicts what has become too much.
    private func perform(
        _ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>, _ ledger: Ledger
    ) -> (any Error)? {
        do {
            // Where blobs are to be put in place it must be certain which folder that is.
            let appendsOnly = batches.allSatisfy { $0.allSatisfy { $0.staged == nil } }
            var goal = EvictionGoal()
            try hold(ledger, appendsOnly: appendsOnly) { ledger in
                try record(batches, ledger)
                if ledger.glance.exceedsLimits { goal = try evictToLimits(ledger) }
            }
            while !goal.isReached { try hold(ledger) { goal = try evict(goal, $0) } }
            if isCompactionDue(ledger) {
                maintenance?.scheduleCompaction()
            } else if isImageDue(ledger) {
                maintenance?.scheduleImage()
            }
            return nil
        } catch { return error }
    }

    // MARK: Under the lock

    private func isOlder(_ new: TileMetadata, than old: TileMetadata) -> Bool {
        guard let newDate = new.date, let oldDate = old.date else { return false }
        return newDate < oldDate
    }

    /// Carries out puts in their order: publishes blobs, appends records, unlinks what nothing refers to any more.
    private func record(
        _ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>, _ ledger: Ledger
    ) throws {
        try flushIfEvictionIsNear(batches, ledger)
        let pending = ledger.pending
        let isAlone = batches.count == 1 && batches.allSatisfy { $0.count == 1 }
        for requests in batches {
            var next = 0
            while next < requests.count {
                var halt = Halt.none
                // In slices: who changes the tables for a reader's sake waits meanwhile.
                tables.read { t, _ in
                    let end = min(next + 64, requests.count)
                    while next < end, halt == .none {
                        guard let request = requests.baseAddress.map({ $0 + next }) else { return }
                        halt = decide(request, isAlone: isAlone, t, pending, ledger)
                        if halt == .none { next += 1 }
                    }
                }
                switch halt {
                case .none: if pending.lines.count > 1 << 18 { try settle(pending, ledger) }
                case .settle: try settle(pending, ledger)
                case .publish:
                    do { try publish(&requests[next], pending, ledger) } catch {
                        try settle(pending, ledger)
                        throw error
                    }
                }
            }
        }
        try settle(pending, ledger)
    }

    /// What keeps a request from being decided on.
    private enum Halt { case none, settle, publish }

    @inline(__always)
    private func decide(
        _ request: UnsafeMutablePointer<PutRequest>, isAlone: Bool, _ t: Tables, _ pending: PendingRecords,
        _ ledger: Ledger
    ) -> Halt {
        if !isAlone, !request.pointee.isNoted {
            // Equal keys have equal marks; that others may have them too only costs an early append.
            guard pending.insert(request.pointee.tile.key.mark) else { return .settle }
            request.pointee.isNoted = true
        }
        let packed = t.packed(request.pointee.tile.key, &ledger.names)
        let slot = packed.flatMap { t.find($0) }
        let digest = request.pointee.digest
        let date = slot.map { t.details.date(t.entries[$0].pointee.details) } ?? Timestamp.absent
        let isOld = date != Timestamp.absent && request.pointee.tile.metadata.date.map { $0.packed < date } ?? false
        let isTooLarge =
            t.limits.capacity.map { digest != nil && t.allocated(request.pointee.size) > $0 } ?? false
            && !t.isPinned(request.pointee.tile.key)
        var isNew = false
        if !isOld, !isTooLarge, let digest, pending.published.isEmpty || !pending.published.contains(digest) {
            isNew = t.find(digest) == nil
            if isNew || request.pointee.staged != nil { return .publish }
        }
        pending.requests.append(request)
        if isOld {
            request.pointee.outcome = .olderThanStored
        } else if isTooLarge {
            if slot != nil { pending.lines.gone(CollectionOfOne(request.pointee.tile.key)) }
            request.pointee.outcome = .largerThanCapacity
        } else {
            let set = pending.sets.number(
                for: request.pointee.tile.metadata.response, t, ledger, &pending.lines)
            pending.recency = max(pending.recency &+ 1, t.nextSequence)
            pending.add(request, packed, set: set)
            // A blob that was put in place for this request is new to the tables.
            let newBlob = digest.map { request.pointee.isPublisher && t.find($0) == nil } ?? false
            request.pointee.outcome = .stored(blob: digest, newBlob: newBlob)
        }
        return .none
    }

    /// Puts a blob in its place.
    private func publish(_ request: inout PutRequest, _ pending: PendingRecords, _ ledger: Ledger) throws {
        guard let digest = request.digest else { return }
        guard try ledger.confirmFolder() else {
            throw StoreError(.busy, "\(files.location) was replaced while a tile was put into it; try again")
        }
        // It looked live before the lock and is not: evicted meanwhile.
        if request.staged == nil {
            do throws(FileError) { try stage(&request) } catch { throw StoreError(error, in: files.location) }
        }
        guard let staged = request.staged else { return }
        try prepareShard(digest.shard)
        let path = digest.path
        do throws(FileError) {
            try files.rename(staged, to: path)
        } catch {
            if error.number == Errno.noEntry {
                // The shard's folder went away (a purge, a person): make it again, once.
                shards.withLock { $0 = ShardSet() }
                try prepareShard(digest.shard)
                try files.rename(staged, to: path)
            } else if let status = try files.status(at: path), status.kind == .folder {
                try quarantine(path)
                try files.rename(staged, to: path)
            } else {
                throw error
            }
        }
        request.staged = nil
        request.isPublisher = true
        pending.published.insert(digest)
        memory.remove(digest)
        // Fresh bytes in an old blob's place are checked anew when they are read.
        if tables.read({ t, _ in t.find(digest) != nil }) {
            tables.write { t in
                if let slot = t.find(digest) { t.blobs.change(slot).pointee.flags &= ~BlobRecord.verified }
            }
        }
        if configuration.durability == .durable { try files.syncFolder(ShardSet.path(digest.shard)) }
    }

    private func settle(_ pending: PendingRecords, _ ledger: Ledger) throws {
        defer { pending.removeAll() }
        do {
            if pending.lines.count > 0 { try appendRecords(pending.lines, knowing: pending, ledger) }
        } catch {
            // Whole lines that got through stand; blobs that were published for the others must go again.
            for digest in pending.published where !tables.read({ t, _ in t.find(digest) != nil }) {
                try files.unlink(digest.path)
            }
            throw error
        }
        for request in pending.requests { request.pointee.isSettled = true }
    }

    func allocated(_ size: Int) -> Int { (size + files.blockSize - 1) / files.blockSize * files.blockSize }

    /// Appends records, with what has to come first, and unlinks the blobs whose count they brought to 0.
    ///
    /// - Parameter known: Whose lines they are, if some of them need not be read back.
    func appendRecords(
        _ lines: borrowing LineBuffer, knowing known: PendingRecords? = nil, _ ledger: Ledger
    ) throws {
        if !ledger.glance.hasBoot, let boot = environment.bootID {
            var mark = LineBuffer(capacity: 128)
            mark.boot(boot)
            try ledger.append(mark, .live(tables))
        }
        defer { if ledger.hasReleased { forgetReleased(ledger) } }
        try ledger.append(lines, knowing: known, .live(tables))
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
        // In a folder that has taken this one's place the same names may mean tiles that are in use.
        guard try gone.isEmpty || ledger.confirmFolder() else { return }
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
