package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Reads the bytes under keys that were just looked up, and tells damage from an eviction in between.
///
/// For a store that is open for reading alone: another one drops damaged entries, so that they look evicted.
package struct TileReader {
    private let store: TileStore

    package init(store: TileStore) { self.store = store }

    package enum Outcome {
        case bytes(Data, of: BlobDigest)
        /// Another process has removed it since.
        case gone
        /// Its file is absent or holds other bytes.
        case damaged
    }

    /// Reads the bytes that are stored under a key now.
    ///
    /// - Parameter wasExpected: Whether a blob is the one that the key was seen with.
    package func bytes(of key: TileKey, _ wasExpected: (BlobDigest) -> Bool) throws -> Outcome {
        var expected: BlobDigest?
        while true {
            if let tile = try store.read(key) {
                guard let data = tile.data, let blob = tile.entry.blob else { return .gone }
                return .bytes(data, of: blob)
            }
            // A failed read has caught up with other processes: an entry that is still there has lost its file.
            guard let blob = try store.entry(for: key)?.blob else { return .gone }
            if blob == expected || expected == nil && wasExpected(blob) { return .damaged }
            expected = blob
        }
    }
}
