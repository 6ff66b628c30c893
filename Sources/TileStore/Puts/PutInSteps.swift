/// A batch of tiles on its way into a store, one step at a time, so that several batches can be at different steps.
///
/// The same as `TileStore.put(_:)`, taken apart: it is hashed when it is made, then ``stage(known:)``, then ``record()``.
/// What was not recorded leaves nothing behind.
package final class PutInSteps: @unchecked Sendable {
    // One thread at a time has it; whoever hands it on to another one orders the two.
    private let store: TileStore
    private let requests: UnsafeMutableBufferPointer<PutRequest>

    /// The bytes of its tiles.
    package let size: Int

    /// Hashes a batch.
    ///
    /// - Throws: `StoreError` if one of its tiles cannot be stored.
    package init(_ tiles: [TilePut], into store: TileStore) throws {
        self.store = store
        size = tiles.reduce(0) { $0 + ($1.data?.count ?? 0) }
        requests = .allocate(capacity: tiles.count)
        _ = requests.initialize(from: tiles.lazy.map { PutRequest($0) })
        try store.hash(requests)
    }

    deinit {
        store.discard(requests)
        requests.deinitialize()
        requests.deallocate()
    }

    /// Writes the blobs that the store has not got to its staging folder, but for those that ``record()`` writes where they
    /// belong: in relaxed mode all but large ones.
    ///
    /// - Parameter known: Blobs of batches that will be recorded before this one.
    /// - Returns: The blobs that this batch brings.
    package func stage(known: [Set<BlobDigest>]) throws -> Set<BlobDigest> {
        try store.stage(requests, known: known)
    }

    /// Begins to record many batches, which takes a twenty-fifth longer by it at most: those who wait have 100 ms to wait.
    package func beginLongWork() -> LongWork { store.beginLongWork(stretch: 100) }

    /// What came of a batch.
    package struct Summary: Sendable {
        /// How many tiles were stored.
        package var stored = 0
        /// How many blobs are new.
        package var newBlobs = 0
        /// Tiles that were not stored, and why.
        package var refused: [(key: TileKey, outcome: PutOutcome)] = []
    }

    /// Puts the blobs in their places, or writes them there, and records the tiles, in one hold of the lock.
    ///
    /// - Throws: `StoreError` of the first tile that failed; those before it are stored.
    package func record() throws -> Summary {
        var summary = Summary()
        guard !requests.isEmpty else { return summary }
        // What was refused, or turned out to be there, need not wait for this value to go.
        defer { store.discard(requests) }
        try store.settle(requests)
        for request in requests {
            if case .stored(_, let newBlob) = request.outcome {
                summary.stored += 1
                if newBlob { summary.newBlobs += 1 }
            } else {
                summary.refused.append((request.key, request.outcome))
            }
        }
        return summary
    }
}
