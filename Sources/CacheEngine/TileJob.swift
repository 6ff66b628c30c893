package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What is written to the store about one tile; carried out on a thread that may wait.
package enum TileJob: Sendable {
    /// A tile; without bytes the knowledge that there is none.
    case put(Data?, TileMetadata)
    /// What the origin has confirmed: it is brought up to date, or removed if it may not be kept any longer.
    ///
    /// - Parameter isHeld: Whether it is only held in memory; the store has something older, or nothing.
    case update(Candidate, AnswerRecord, isHeld: Bool)
    /// What was asked about has been answered by something that must not be kept: it must not come back when the origin is
    /// away. A region's tile stays, as somebody relies on it.
    case drop

    /// What became of a job.
    package struct Outcome: Sendable {
        /// What another has stored meanwhile, which counts in place of what was confirmed.
        package var current: StoredTile?
        /// A large body that was put, as a file to be read in pieces: who reads it slowly need not hold it in memory.
        package var file: OpenedTile?
        /// The name of the bytes that were put.
        package var blob: BlobDigest?
        /// Why the tile is not stored; then it is held in memory, unless it must not be kept.
        package var failure: (any Error)?
        /// Whether the store has nothing of it, because it must not be kept.
        package var isGone = false
        /// Whether what is stored is later by its origin's `Date`, and stays.
        package var isOlder = false
    }

    /// Carries it out; a tile that cannot be stored is held in memory.
    package func perform(_ key: TileKey, _ store: TileStore, _ held: HeldTiles) -> Outcome {
        do {
            let outcome = try write(key, store)
            held.remove(key)
            return outcome
        } catch {
            hold(key, held)
            return Outcome(failure: error)
        }
    }

    private func write(_ key: TileKey, _ store: TileStore) throws -> Outcome {
        switch self {
        case .put(let body, let metadata):
            switch try store.put(body, for: key, metadata: metadata) {
            case .largerThanCapacity:
                throw StoreError(
                    .invalidValue,
                    "\(key) has \(body?.count ?? 0) bytes, more than the cache's whole capacity; raise it")
            case .stored(let blob, _):
                // If the file cannot be opened, what is in memory serves as well.
                guard let body, body.count > Candidate.wholeUpTo,
                    let opened = try? store.open(key, wholeUpTo: Candidate.wholeUpTo), opened.entry.blob == blob
                else { return Outcome(blob: blob) }
                return Outcome(file: opened, blob: blob)
            case .olderThanStored: return Outcome(isOlder: true)
            }
        case .drop:
            _ = try store.remove([key], includingPinned: false)
            return Outcome(isGone: true)
        case .update(let candidate, let record, let isHeld):
            guard record.isStorable else {
                // It still holds, but is not to be kept any longer. A region's tile stays as it is: it was stored when that
                // was allowed, and somebody relies on it.
                _ = try store.remove([key], includingPinned: false)
                return Outcome(isGone: try store.entry(for: key) == nil)
            }
            let metadata = record.intent.metadata
            if !isHeld {
                if try store.refresh(key, from: EntryVersion(candidate.entry), metadata: metadata) { return Outcome() }
                if let current = try store.read(key) {
                    // What is there is what was asked about: then the confirmation is older than it.
                    let isSame = EntryVersion(current.entry) == EntryVersion(candidate.entry)
                    return isSame ? Outcome(isOlder: true) : Outcome(current: current)
                }
            }
            // Evicted or removed meanwhile; its bytes are still at hand, and good.
            try store.put(try candidate.body.data(), for: key, metadata: metadata)
            return Outcome()
        }
    }

    private func hold(_ key: TileKey, _ held: HeldTiles) {
        switch self {
        case .put(let body, let metadata): held.hold(body, key, metadata)
        case .drop: held.remove(key)
        case .update(let candidate, let record, _):
            // One whose file cannot be read either is fetched again.
            guard record.isStorable, let data = try? candidate.body.data() else { return }
            held.hold(data, key, record.intent.metadata)
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
    package convenience init(_ tile: StoredTile) {
        let body = tile.data.map { StoredBody.memory($0) } ?? .none
        self.init(key: tile.entry.key, OpenedTile(entry: tile.entry, body: body), nil)
    }
}
