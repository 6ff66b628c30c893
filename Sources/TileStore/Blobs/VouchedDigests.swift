/// Blobs whose files were seen to be there within the last second: a few hundred, in fixed places.
///
/// Spares the look at the file when the same bytes are put again and again, as ocean tiles are.
struct VouchedDigests {
    private var places = [(digest: BlobDigest, at: UInt64)?](repeating: nil, count: 256)

    private func place(_ digest: BlobDigest) -> Int { Int(truncatingIfNeeded: digest.b & 255) }

    func contains(_ digest: BlobDigest, at now: UInt64) -> Bool {
        guard let known = places[place(digest)], known.digest == digest else { return false }
        return now &- known.at < 1_000_000_000
    }

    mutating func insert(_ digest: BlobDigest, at now: UInt64) { places[place(digest)] = (digest, now) }

    mutating func remove(_ digest: BlobDigest) {
        if places[place(digest)]?.digest == digest { places[place(digest)] = nil }
    }
}
