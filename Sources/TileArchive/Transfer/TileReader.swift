package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
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
        /// The disk fails where its file lies, and says so in these words; elsewhere it may be well.
        case unreadable(String)
    }

    /// Reads the bytes that are stored under a key now.
    ///
    /// - Parameter wasExpected: Whether a blob is the one that the key was seen with.
    package func bytes(of key: TileKey, _ wasExpected: (BlobDigest) -> Bool) throws -> Outcome {
        var expected: BlobDigest?
        while true {
            let found: StoredTile?
            do { found = try store.read(key) } catch let error as StoreError where error.isOfDisk {
                return .unreadable(error.message)
            }
            if let tile = found {
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

extension StoreError {
    /// Whether the disk could not read a file: its sector is bad.
    package var isOfDisk: Bool { (cause as? FileError)?.number == EIO }
}
