import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reads the bytes of entries that were just looked up, and tells damage from an eviction in between.
///
/// For a store that is open for reading alone: another one drops damaged entries, so that they look evicted.
struct TileReader {
    let store: TileStore

    enum Outcome {
        case bytes(Data)
        /// Another process has removed or replaced it since.
        case gone
        /// Its file is absent or holds other bytes.
        case damaged
    }

    /// Reads the bytes that are stored under the entry's key now.
    func bytes(of entry: TileEntry) throws -> Outcome {
        var blob = entry.blob
        while true {
            if let tile = try store.read(entry.key) { return tile.data.map { .bytes($0) } ?? .gone }
            // A failed read has caught up with other processes: an entry that is still there has lost its file.
            guard let now = try store.entry(for: entry.key), now.blob != nil else { return .gone }
            if now.blob == blob { return .damaged }
            blob = now.blob
        }
    }
}
