/// How many cells a look-up in a store's indexes goes through on average: 1 where every key is in its first place.
package struct IndexProbes: Sendable {
    /// For a key that has an entry.
    package var entry: Double
    /// For a digest that has a blob.
    package var blob: Double
}

extension TileStore {
    /// How well the keys and digests that are there spread over the indexes.
    ///
    /// Looks every one of them up.
    package func indexProbes() -> IndexProbes {
        tables.read { t, _ in
            let (entries, blobs) = t.indexProbes()
            return IndexProbes(
                entry: Double(entries) / Double(max(1, t.entryAccount.count)),
                blob: Double(blobs) / Double(max(1, t.blobAccount.count)))
        }
    }
}
