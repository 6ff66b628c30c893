#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A body on its way into a store, piece by piece, so that nobody has to hold the whole of it in memory.
///
/// Small bodies stay in memory, and their commit is a put. A body that grows past that is written to a file in `staging/` and
/// hashed as it comes; its commit renames the file to the blob's place. Until the commit nothing is recorded, and what
/// ends without one (an error, ``abort()``, the writer's end) leaves nothing behind.
///
/// One caller at a time appends and commits, on a thread that may block; ``abort()`` may come from another one meanwhile. What
/// has been appended can be read by anybody through ``body``, also after the end.
package final class BodyWriter: Sendable {
    private enum Phase { case open, busy, over }
    private struct State {
        var phase = Phase.open
        var isAborted = false
        // Of what is in the file; `nil` as long as there is none. Whoever has made the phase busy uses it outside the lock.
        var hash: SHA256.Stream?
    }

    private let store: TileStore
    private let limit: Int
    private let memoryLimit: Int
    private let state = Locked(State())

    /// What has been appended.
    package let body: StagedBody

    fileprivate init(_ store: TileStore, limit: Int, memoryLimit: Int) {
        self.store = store
        self.limit = limit
        self.memoryLimit = memoryLimit
        body = StagedBody(location: store.files.location)
    }

    deinit { if state.withLock({ $0.phase != .over }) { body.discard() } }

    /// Appends bytes; may block once the body is in a file.
    ///
    /// - Throws: ``StoreError``: `diskFull`, `io`, `closed`, or `invalidValue` if the body gets longer than its limit. Then the
    ///   body is given up: its file is gone, and only what was appended before can still be read.
    package func append(_ bytes: UnsafeRawBufferPointer) throws {
        try work { hash in
            try checkRoom(for: bytes.count)
            if body.append(bytes, upTo: memoryLimit) { return }
            let (memory, file) = body.place
            guard let file else { return try move(memory, and: bytes, &hash) }
            try file.append(bytes)
            hash?.update(bytes)
            body.grow(by: bytes.count)
        }
    }

    /// Appends bytes if they stay in memory, which needs no waiting; `false` if ``append(_:)`` has to.
    ///
    /// - Throws: As ``append(_:)``.
    package func appendNow(_ bytes: UnsafeRawBufferPointer) throws -> Bool {
        try work { _ in
            try checkRoom(for: bytes.count)
            return body.append(bytes, upTo: memoryLimit)
        }
    }

    /// Stores the body as a put of the same bytes would, and ends the writer.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - metadata: Validators and times.
    ///   - others: Tiles that are stored after it, in the same hold of the lock.
    /// - Returns: What became of the body, and then of the others.
    /// - Throws: ``StoreError`` as ``TileStore/put(_:)-([TilePut])`` does. The body's file is gone then, but what was appended can
    ///   still be read through ``body``.
    @discardableResult
    package func commit(
        for key: TileKey, metadata: TileMetadata, with others: [TilePut] = []
    ) throws -> [PutOutcome] {
        let hash = try begin()
        // The put removes the file unless it has become the blob.
        defer { state.withLock { $0.phase = .over } }
        let (memory, file) = body.place
        let first: PutRequest
        if let file, let hash {
            first = PutRequest(file, hash.finish(), size: body.count, for: key, metadata)
        } else {
            first = PutRequest(memory, for: key, metadata)
        }
        return try store.carryOut(first, others)
    }

    /// Gives the body up and removes its file; what was appended can still be read through ``body``.
    ///
    /// May block. Beside an ``append(_:)`` on another thread it waits for nothing: the file goes when that one returns. A commit
    /// that has begun, and a writer that has ended, stay as they are.
    package func abort() {
        let isDue = state.withLock { state in
            state.isAborted = true
            guard state.phase == .open else { return false }
            state.phase = .over
            return true
        }
        if isDue { body.discard() }
    }

    // MARK: One at a time

    private func begin() throws -> SHA256.Stream? {
        guard !store.isClosed else {
            abort()
            throw store.closedError
        }
        return try state.withLock { state in
            switch state.phase {
            case .open:
                state.phase = .busy
                return state.hash
            case .busy:
                throw StoreError(.busy, "two callers are at one body of \(store.files.location) at the same time")
            case .over:
                throw StoreError(.closed, "a body of \(store.files.location) was stored or given up; begin another one")
            }
        }
    }

    private func work<R>(_ body: (inout SHA256.Stream?) throws -> R) throws -> R {
        var hash = try begin()
        do {
            let result = try body(&hash)
            end(hash, isOver: false)
            return result
        } catch {
            end(nil, isOver: true)
            guard let error = error as? FileError else { throw error }
            throw StoreError(error, in: store.files.location)
        }
    }

    private func end(_ hash: SHA256.Stream?, isOver: Bool) {
        let isOver = state.withLock { state in
            state.hash = hash
            state.phase = isOver || state.isAborted ? .over : .open
            return state.phase == .over
        }
        if isOver { body.discard() }
    }

    private func checkRoom(for count: Int) throws {
        guard count <= limit - body.count else {
            throw StoreError(
                .invalidValue, "a body for \(store.files.location) is longer than the \(limit) bytes that it may have")
        }
    }

    /// Goes on in a file.
    private func move(_ memory: Data, and bytes: UnsafeRawBufferPointer, _ hash: inout SHA256.Stream?) throws {
        let file: StagedFile
        do throws(FileError) { file = try store.blobs.staging.begin() } catch {
            guard error.number == Errno.noEntry else { throw error }
            // The folder itself is gone: the one in its place is entered under the lock.
            try store.hold { _ in }
            file = try store.blobs.staging.begin()
        }
        do {
            let begun = SHA256.Stream()
            try memory.withUnsafeBytes { memory in
                for piece in [memory, bytes] where !piece.isEmpty {
                    try file.append(piece)
                    begun.update(piece)
                }
            }
            hash = begun
        } catch {
            file.discard()
            throw error
        }
        body.move(to: file, count: memory.count + bytes.count)
    }
}

/// The bytes of a ``BodyWriter``, as far as they have come: in memory, or in a file.
///
/// They can be read while more are appended, and after the end, whatever it was: a file stays readable when its name has gone.
/// The file is closed, and the disk has its space back, when the last reader and the writer have let go.
package final class StagedBody: Sendable {
    private struct Content {
        var count = 0
        var memory = Data()
        var file: StagedFile?
    }

    private let content = Locked(Content())
    private let location: String

    fileprivate init(location: String) { self.location = location }

    /// How many bytes there are by now.
    package var count: Int { content.withLock { $0.count } }

    /// All bytes that there are by now; `nil` if they are in a file.
    package var memory: Data? { content.withLock { $0.file == nil ? $0.memory : nil } }

    /// Reads a stretch of what is there; may block.
    ///
    /// - Throws: ``StoreError`` if the disk fails, or if the stretch goes beyond ``count``.
    package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws {
        guard let file = try copy(into: buffer, at: offset) else { return }
        do throws(FileError) {
            guard try file.read(into: buffer, at: offset) == buffer.count else { throw file.isTooShort }
        } catch { throw StoreError(error, in: location) }
    }

    /// Reads a stretch if it is in memory or in the system's page cache, so that nobody has to wait for the disk.
    ///
    /// - Returns: Whether the bytes are there; if not, ``read(into:at:)`` has to read them, or to say what is wrong.
    package func readNow(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) -> Bool {
        let file: StagedFile?
        // Ignored here: the blocking read reports the error.
        do { file = try copy(into: buffer, at: offset) } catch { return false }
        guard let file else { return true }
        var done = 0
        while done < buffer.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done...])
            guard let count = try? file.readIfCached(into: rest, at: offset + done), count > 0 else { return false }
            done += count
        }
        return true
    }

    /// Copies a stretch out of the memory; the file, if it is there instead.
    private func copy(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws -> StagedFile? {
        try content.withLock { content in
            guard offset >= 0, offset <= content.count, buffer.count <= content.count - offset else {
                throw StoreError(
                    .invalidValue,
                    "a body of \(location) has \(content.count) bytes so far, not \(buffer.count) from \(offset) on")
            }
            if let file = content.file { return file }
            content.memory.copyBytes(to: buffer, from: offset..<(offset + buffer.count))
            return nil
        }
    }

    // MARK: For the writer

    fileprivate var place: (memory: Data, file: StagedFile?) { content.withLock { ($0.memory, $0.file) } }

    /// Appends to the memory; `false` if it would get larger than its limit, or if the bytes are in a file.
    fileprivate func append(_ bytes: UnsafeRawBufferPointer, upTo limit: Int) -> Bool {
        content.withLock { content in
            guard content.file == nil, bytes.count <= limit - content.count else { return false }
            content.memory.append(contentsOf: bytes)
            content.count += bytes.count
            return true
        }
    }

    fileprivate func grow(by count: Int) { content.withLock { $0.count += count } }

    fileprivate func move(to file: StagedFile, count: Int) {
        content.withLock { $0 = Content(count: count, file: file) }
    }

    fileprivate func discard() { content.withLock { $0.file }?.discard() }
}

/// The body of a put, wherever its bytes are.
package enum PutBody: Sendable {
    /// A response without a body.
    case none
    case memory(Data)
    /// Bytes whose digest is known already.
    case hashed(HashedBody)
    /// What a writer has taken: in memory or in a file of `staging/`. The put ends the writer.
    case pieces(BodyWriter)
}

extension TileStore {
    /// Stores a body, and other tiles after it, in one hold of the lock.
    ///
    /// - Returns: What became of the body, and then of the others.
    /// - Throws: ``StoreError`` of the first that failed; those before it are stored.
    package func put(
        _ body: PutBody, for key: TileKey, metadata: TileMetadata, with others: [TilePut] = []
    ) throws -> [PutOutcome] {
        switch body {
        case .none: try carryOut(PutRequest(nil, for: key, metadata), others)
        case .memory(let data): try carryOut(PutRequest(data, for: key, metadata), others)
        case .hashed(let body): try carryOut(PutRequest(body, for: key, metadata), others)
        case .pieces(let writer): try writer.commit(for: key, metadata: metadata, with: others)
        }
    }

    /// Begins a body that comes in pieces.
    ///
    /// Does not block, and costs no file until the body is larger than what may stay in memory.
    /// - Parameters:
    ///   - limit: How long it may get at most, in bytes; whatever is given, no longer than a blob may be (4 GiB - 2).
    ///     ``largestBody(for:)`` tells what can be stored.
    ///   - memoryLimit: Up to what size it stays in memory.
    /// - Throws: ``StoreError`` if the store is closed or open for reading alone.
    package func beginBody(limit: Int, inMemoryUpTo memoryLimit: Int = 256 << 10) throws -> BodyWriter {
        guard !isReadOnly else {
            throw StoreError(.readOnly, "\(files.location) is open for reading alone; nothing can be stored in it")
        }
        guard !isClosed else { throw closedError }
        return BodyWriter(self, limit: min(max(0, limit), Self.largestBlob), memoryLimit: max(0, memoryLimit))
    }

    /// The size of the largest body that can be stored under a key, as the limits are now.
    ///
    /// What a region pins may be larger than the capacity.
    package func largestBody(for key: TileKey) -> Int {
        tables.read { t, _ in
            guard let capacity = t.limits.capacity, !t.isPinned(key) else { return Self.largestBlob }
            return min(Self.largestBlob, capacity / files.blockSize * files.blockSize)
        }
    }

    fileprivate var isClosed: Bool { tables.read { _, local in local.isClosed } }
}
