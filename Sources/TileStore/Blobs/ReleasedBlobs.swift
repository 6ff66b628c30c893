/// Blobs whose files may be unlinked.
///
/// The functions in this file are the only ones that make such a value: they say who decides it.
struct ReleasedBlobs {
    let digests: [BlobDigest]

    fileprivate init(_ digests: [BlobDigest]) { self.digests = digests }
}

/// Blobs whose count fell to 0 since this was last emptied: their files are to be unlinked by whoever wrote the record.
struct ReleasedList {
    fileprivate var digests: [BlobDigest] = []

    @inline(__always)
    var isEmpty: Bool { digests.isEmpty }

    mutating func add(_ digest: BlobDigest) { digests.append(digest) }

    /// Forgets them: their files are no longer there, or stay behind as orphans.
    mutating func forget() { digests.removeAll(keepingCapacity: true) }
}

extension Tables {
    /// The blobs whose count has fallen to 0 since the last call and which have not come back.
    ///
    /// Under the lock, caught up. Before, a blob may be released in these tables and named by a line that was not read yet.
    func takeReleased() -> ReleasedBlobs {
        guard !released.isEmpty else { return ReleasedBlobs([]) }
        // The memory of a long list, as a removal of very many leaves it, is given back.
        defer { released.digests.removeAll(keepingCapacity: released.digests.count <= 4096) }
        return ReleasedBlobs(released.digests.filter { find($0) == nil })
    }

    /// Those of some blobs that no entry names: their files were put in place and their records not written.
    ///
    /// Under the lock, caught up.
    func unnamed(_ digests: some Sequence<BlobDigest>) -> ReleasedBlobs {
        ReleasedBlobs(digests.filter { find($0) == nil })
    }
}

/// Blobs that were unlinked to make room and whose record could not be written after all.
struct UnrecordedBlobs {
    private var digests: Set<BlobDigest> = []

    /// A blob that goes before its record, since the disk has no room for that: an entry without its blob is a miss.
    ///
    /// It is noted, as its record may fail again: puts that are on their way must not count on the file.
    mutating func giveUp(_ digest: BlobDigest) -> ReleasedBlobs {
        digests.insert(digest)
        return ReleasedBlobs([digest])
    }

    /// Whether a blob that an entry names may have no file.
    @inline(__always)
    func mayLack(_ digest: BlobDigest) -> Bool { !digests.isEmpty && digests.contains(digest) }

    mutating func putBack(_ digest: BlobDigest) { if !digests.isEmpty { digests.remove(digest) } }

    mutating func recorded(_ blobs: [BlobDigest]) { digests.subtract(blobs) }
}
