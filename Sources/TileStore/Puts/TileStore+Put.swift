#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// Outside of the type, whose own functions have these names.
private func openWithoutWaiting(_ path: String) -> Int32 { open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) }
private func closeFile(_ descriptor: Int32) { close(descriptor) }

extension TileStore {
    /// Stores a tile: its bytes if they are not there yet, and its whole new state under the key.
    ///
    /// When it returns, limits are kept, and another process sees the tile. With ``StoreConfiguration/Durability/durable``
    /// it is on the disk. What was stored under the key is replaced in one step.
    /// - Parameters:
    ///   - data: The bytes; `nil` for a response without a body.
    ///   - key: The key.
    ///   - metadata: Validators and times.
    /// - Throws: `StoreError`; then nothing has changed, and the bytes are still the caller's to use. One exception: where a
    ///   durable store's journal could not be synced, the record stands and is served, but may go in a power cut.
    @discardableResult
    public func put(_ data: Data?, for key: TileKey, metadata: TileMetadata) throws -> PutOutcome {
        var request = PutRequest(data, for: key, metadata)
        return try withUnsafeMutablePointer(to: &request) { request in
            try carryOut(UnsafeMutableBufferPointer(start: request, count: 1))
            return request.pointee.outcome
        }
    }

    /// Stores several tiles in one hold of the lock, in their order.
    ///
    /// Limits are enforced once, at the end.
    ///
    /// - Throws: `StoreError` of the first tile that failed; those before it are stored.
    @discardableResult
    public func put(_ tiles: [TilePut]) throws -> [PutOutcome] {
        guard !tiles.isEmpty else { return [] }
        return try carryOut(nil, tiles)
    }

    /// Stores a tile whose bytes are in a file of the caller's, which stays as it is.
    ///
    /// The file is read in pieces, and takes no memory of its size. One that changes meanwhile does no harm: what is stored is
    /// what was hashed.
    @discardableResult
    public func put(fileAt path: String, for key: TileKey, metadata: TileMetadata) throws -> PutOutcome {
        func failure(_ operation: String) -> StoreError {
            let error = FileError(operation, path, errno)
            return StoreError(.io, "a file to be stored cannot be read: \(error)", cause: error)
        }
        // Not to wait where it is a pipe; of a file it changes nothing.
        let descriptor = openWithoutWaiting(path)
        guard descriptor >= 0 else { throw failure("open") }
        guard let file = fdopen(descriptor, "rb") else {
            let error = failure("open")
            closeFile(descriptor)
            throw error
        }
        defer { fclose(file) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure("look at") }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw StoreError(.io, "a file to be stored cannot be read: \(path) is no file")
        }
        let writer = try beginBody(limit: Self.largestBlob)
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)
        defer { room.deallocate() }
        while true {
            let count = fread(room.baseAddress, 1, room.count, file)
            try writer.append(UnsafeRawBufferPointer(rebasing: room[..<count]))
            guard count == room.count else { break }
        }
        guard ferror(file) == 0 else { throw failure("read") }
        return try writer.commit(for: key, metadata: metadata)[0]
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
                EntryVersion(entry) == version, !metadata.isOlder(than: entry.metadata)
            else { return false }
            // What a durable store has acknowledged is on the disk, whoever wrote the bytes.
            if isDurable, let blob = entry.blob,
                tables.read({ t, _ in t.find(blob).map { t.mayBeUnsynced($0) } ?? false }),
                try !syncLive(blob, entry.size)
            {
                return false
            }
            var lines = LineBuffer()
            var sets = PendingSets()
            guard let set = tables.read({ t, _ in sets.number(for: metadata.response, t, ledger, &lines) }) else {
                throw TableBound.sets.error(storing: "\(key)", in: files.location, environment.bounds)
            }
            lines.put(
                key, blob: entry.blob, size: entry.size, set: set, metadata, recency: entry.recency,
                lastUsed: entry.lastUsed)
            try appendRecords(lines, ledger)
            return true
        }
    }

    /// Prepares requests and has them settled: by this thread, or by the one that leads those that wait.
    private func carryOut(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        defer { discard(requests) }
        try prepare(requests)
        try settle(requests)
    }

    /// Carries out puts in their order, in one hold of the lock; returns what became of them.
    ///
    /// - Parameter first: One whose request is made already.
    func carryOut(_ first: PutRequest?, _ others: [TilePut]) throws -> [PutOutcome] {
        let before = first == nil ? 0 : 1
        let requests = UnsafeMutableBufferPointer<PutRequest>.allocate(capacity: before + others.count)
        defer { requests.deallocate() }
        if let first { requests.initializeElement(at: 0, to: first) }
        for i in others.indices { requests.initializeElement(at: before + i, to: PutRequest(others[i])) }
        defer { requests.deinitialize() }
        try carryOut(requests)
        return requests.map(\.outcome)
    }

    /// Has prepared requests settled.
    func settle(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        let failure = submit(requests)
        // The records are appended; a failed eviction is retried by the next put.
        if requests.areSettled { return }
        throw failure ?? StoreError(.io, "a put of \(requests[0].key) was lost; try again")
    }
}
