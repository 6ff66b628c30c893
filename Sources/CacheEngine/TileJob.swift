package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What is written to the store about one tile; carried out on a thread that may wait.
package enum TileJob: Sendable {
    /// A tile; without a body the knowledge that there is none.
    case put(PutBody, TileMetadata)
    /// What the origin has confirmed: it is brought up to date, or removed if it may not be kept any longer.
    ///
    /// - Parameter isHeld: Whether it is only held in memory; the store has something older, or nothing.
    case update(Candidate, AnswerRecord, isHeld: Bool)
    /// What was asked about has been answered by something that must not be kept: it must not come back when the origin is
    /// away. Only in the state that was asked about: the fill may have been given up since, and the next one have stored a
    /// newer tile. A region's tile stays, as somebody relies on it.
    case drop(Candidate, isHeld: Bool)

    /// What became of a job.
    package struct Outcome: Sendable {
        /// What another has stored meanwhile, which counts in place of what was confirmed.
        package var current: StoredTile?
        /// A large body that was put, as a file to be read in pieces: who reads it slowly need not hold it in memory.
        package var file: OpenedTile?
        /// The name of the bytes that were put.
        package var blob: BlobDigest?
        /// Why the tile is not stored; then it is held in memory, unless it must not be kept, or is more than its source may hold.
        package var failure: (any Error)?
        /// Why what must not be kept any longer is still stored.
        package var failedRemoval: (any Error)?
        /// Whether the store has nothing of it, because it must not be kept.
        package var isGone = false
        /// Whether what is stored is later by its origin's `Date`, and stays.
        package var isOlder = false
    }

    /// Carries it out; a tile that cannot be stored is held in memory, but for one that its source's capacity keeps out.
    package func perform(_ key: TileKey, _ store: TileStore, _ held: HeldTiles) -> Outcome {
        do {
            switch self {
            case .put(let body, let metadata):
                let outcome = try Self.put(body, metadata, key, store)
                held.remove(key)
                return outcome
            case .drop(let candidate, let isHeld): return Self.remove(candidate, isHeld: isHeld, key, store)
            case .update(let candidate, let record, let isHeld):
                guard record.isStorable else {
                    // It still holds, but is not to be kept any longer. A region's tile stays as it is: it was stored when
                    // that was allowed, and somebody relies on it.
                    held.remove(key)
                    return Self.remove(candidate, isHeld: isHeld, key, store)
                }
                let outcome = try Self.update(candidate, record.intent.metadata, isHeld: isHeld, key, store)
                held.remove(key)
                return outcome
            }
        } catch {
            hold(key, held)
            return Outcome(failure: error)
        }
    }

    private static func remove(
        _ candidate: Candidate, isHeld: Bool, _ key: TileKey, _ store: TileStore
    ) -> Outcome {
        do {
            var version = EntryVersion(candidate.entry)
            // Where it is held in memory only, the store has something older, which must not come back either.
            if isHeld, let entry = try store.entry(for: key),
                entry.metadata.storedAt <= candidate.entry.metadata.storedAt
            {
                version = EntryVersion(entry)
            }
            _ = try store.remove(key, from: version)
            return Outcome(isGone: try store.entry(for: key) == nil)
        } catch { return Outcome(failedRemoval: error) }
    }

    private static func put(
        _ body: PutBody, _ metadata: TileMetadata, _ key: TileKey, _ store: TileStore
    ) throws -> Outcome {
        let size = body.data?.count ?? 0
        switch try store.put(body, for: key, metadata: metadata).first ?? .olderThanStored {
        case .largerThanCapacity: throw tooLarge(key, size)
        case .largerThanSourceCapacity: return Outcome(failure: tooLargeForSource(key, size))
        case .stored(let blob, _):
            // If the file cannot be opened, what is in memory serves as well.
            guard size > Candidate.wholeUpTo, let opened = try? store.open(key, wholeUpTo: Candidate.wholeUpTo),
                opened.entry.blob == blob
            else { return Outcome(blob: blob) }
            return Outcome(file: opened, blob: blob)
        case .olderThanStored: return Outcome(isOlder: true)
        }
    }

    private static func update(
        _ candidate: Candidate, _ metadata: TileMetadata, isHeld: Bool, _ key: TileKey, _ store: TileStore
    ) throws -> Outcome {
        if !isHeld {
            if try store.refresh(key, from: EntryVersion(candidate.entry), metadata: metadata) { return Outcome() }
            if let current = try store.read(key) {
                // What is there is what was asked about: then the confirmation is older than it.
                let isSame = EntryVersion(current.entry) == EntryVersion(candidate.entry)
                return isSame ? Outcome(isOlder: true) : Outcome(current: current)
            }
        }
        // Evicted or removed meanwhile; its bytes are still at hand, and good.
        let data = try candidate.body.data()
        let size = data?.count ?? 0
        switch try store.put(data, for: key, metadata: metadata) {
        case .largerThanCapacity: throw tooLarge(key, size)
        case .largerThanSourceCapacity: return Outcome(failure: tooLargeForSource(key, size))
        case .stored, .olderThanStored: return Outcome()
        }
    }

    private static func tooLarge(_ key: TileKey, _ size: Int) -> StoreError {
        StoreError(.invalidValue, "\(key) has \(size) bytes, more than the cache's whole capacity; raise it")
    }

    private static func tooLargeForSource(_ key: TileKey, _ size: Int) -> StoreError {
        StoreError(
            .invalidValue,
            "\(key) has \(size) bytes, more than its source may hold; raise the capacity of source \(key.source)")
    }

    /// The same job with the digest of its bytes, so that they are hashed once.
    package var hashed: TileJob {
        guard case .put(.memory(let data), let metadata) = self else { return self }
        return .put(.hashed(HashedBody(data)), metadata)
    }

    /// The name of the bytes that the tile has when the job is done; `nil` if it has none then, or that is not known yet.
    package var blob: BlobDigest? {
        switch self {
        case .put(.hashed(let body), _): body.digest
        case .update(let candidate, let record, _) where record.isStorable: candidate.entry.blob
        case .put, .update, .drop: nil
        }
    }

    private func hold(_ key: TileKey, _ held: HeldTiles) {
        switch self {
        case .put(let body, let metadata): held.hold(body.data, key, metadata)
        case .drop: break
        case .update(let candidate, let record, _):
            // One whose file cannot be read either is fetched again.
            guard record.isStorable, let data = try? candidate.body.data() else { return }
            held.hold(data, key, record.intent.metadata)
        }
    }
}

extension PutBody {
    /// The bytes of a tile, which is in memory as a whole; `nil` if there are none.
    fileprivate var data: Data? {
        switch self {
        case .memory(let data): data
        case .hashed(let body): body.data
        case .none, .pieces: nil
        }
    }
}

extension StoredBody {
    /// All of its bytes; `nil` if there is none.
    ///
    /// May block.
    package func data() throws -> Data? {
        switch self {
        case .none: return nil
        case .memory(let data): return data
        case .file(let file):
            var data = Data(count: file.size)
            try data.withUnsafeMutableBytes { try file.read(into: $0, at: 0) }
            return data
        }
    }
}

extension Candidate {
    /// A stored tile with all of its bytes.
    ///
    /// - Parameter owner: What accounts for them.
    package convenience init(_ tile: StoredTile, _ owner: HeldBody? = nil) {
        let body = tile.data.map { StoredBody.memory($0) } ?? .none
        self.init(key: tile.entry.key, OpenedTile(entry: tile.entry, body: body), nil, owner: owner)
    }
}
