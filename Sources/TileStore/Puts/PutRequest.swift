#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The bytes of a put.
enum PutBytes {
    /// A response without a body.
    case none
    case memory(Data)
    /// A file in `staging/` that is complete; its digest is known.
    case staged(StagedFile)
}

/// A put on its way: what is asked, what was prepared before the lock, and what came of it.
struct PutRequest {
    let key: TileKey
    let metadata: TileMetadata
    let bytes: PutBytes
    let size: Int
    var digest: BlobDigest?
    /// The path in `staging/` of a file with the bytes, to be renamed to the blob's place.
    ///
    /// `nil` if the blob looked live, or is to be written where it belongs.
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
    init(_ tile: borrowing TilePut) { self.init(tile.data, for: tile.key, tile.metadata) }

    @inline(__always)
    init(_ data: Data?, for key: TileKey, _ metadata: TileMetadata) {
        self.key = key
        self.metadata = metadata
        if let data {
            (bytes, size) = (.memory(data), data.count)
        } else {
            (bytes, size) = (.none, 0)
        }
    }

    init(_ body: HashedBody, for key: TileKey, _ metadata: TileMetadata) {
        (self.key, self.metadata) = (key, metadata)
        (bytes, size) = (.memory(body.data), body.data.count)
        digest = body.digest
    }

    init(_ file: StagedFile, _ digest: BlobDigest, size: Int, for key: TileKey, _ metadata: TileMetadata) {
        (self.key, self.metadata) = (key, metadata)
        (bytes, self.size) = (.staged(file), size)
        self.digest = digest
    }

    /// The bytes, if they are in memory.
    @inline(__always) var data: Data? { if case .memory(let data) = bytes { data } else { nil } }
}

extension UnsafeMutableBufferPointer<PutRequest> {
    /// Whether the records of all of them stand.
    @inline(__always) var areSettled: Bool {
        for i in indices where !self[i].isSettled { return false }
        return true
    }

    /// Whether any of them puts a file in a blob's place.
    @inline(__always) var bringBlobs: Bool {
        for i in indices where self[i].staged != nil || self[i].looksNew { return true }
        return false
    }
}
