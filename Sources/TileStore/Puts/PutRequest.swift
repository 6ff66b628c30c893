/// A put on its way: what is asked, what was prepared before the lock, and what came of it.
struct PutRequest {
    let tile: TilePut
    var digest: BlobDigest?
    /// The file in `staging/` with the bytes; `nil` if the blob looked live, or is to be written where it belongs.
    var staged: String?
    /// Whether its blob looked new, and is to be written where it belongs.
    var looksNew = false
    /// What will have come of it when the records stand.
    var outcome = PutOutcome.olderThanStored
    /// Whether they do.
    var isSettled = false
    /// Whether its key was noted among those of the batch.
    var isNoted = false
    /// Whether its bytes were written where the blob belongs, before its turn came.
    var isPlaced = false
    /// Whether its bytes were put in the blob's place, and it was its turn.
    var isPublisher = false

    @inline(__always)
    init(_ tile: TilePut) { self.tile = tile }

    @inline(__always) var size: Int { tile.data?.count ?? 0 }
}
