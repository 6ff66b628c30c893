package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Tiles that were fetched and could not be stored, kept in memory for a while: a full disk must not make every look a
/// request.
///
/// Bounded: in bytes together, whatever the size of each; at most 4,096 tiles, and five minutes each. The oldest go first.
///
/// It answers those who come later. Who waits already hears of the tile, stored or not, from its flight.
package final class HeldTiles: Sendable {
    private struct Held {
        var tile: StoredTile
        var number: UInt64
        var until: UInt64
        var bytes: Int
    }

    private struct State {
        var tiles: [TileKey: Held] = [:]
        /// The order in which they came; one that is no longer in `tiles` under its number is passed over.
        var line = Queue<(key: TileKey, number: UInt64)>()
        var last: UInt64 = 0
        var bytes = 0

        mutating func remove(_ key: TileKey) {
            if let held = tiles.removeValue(forKey: key) { bytes -= held.bytes }
            if tiles.isEmpty { line = Queue() }
        }

        /// Drops what has been held for long enough: not only what is asked for, which may never be.
        mutating func dropExpired(at now: UInt64) {
            while let next = line.first {
                if let held = tiles[next.key], held.number == next.number {
                    guard held.until <= now else { return }
                    remove(next.key)
                }
                _ = line.popFirst()
            }
        }

        /// Drops what has been replaced or removed since.
        mutating func shortenLine() {
            var shorter = Queue<(key: TileKey, number: UInt64)>()
            while let next = line.popFirst() {
                if tiles[next.key]?.number == next.number { shorter.append(next) }
            }
            line = shorter
        }
    }

    package static let mostTiles = 4096
    private let mostBytes: Int
    /// What a tile counts besides its bytes.
    private static let overhead = 512
    private static let nanoseconds: UInt64 = 300_000_000_000

    private let state = Locked(State())
    private let ticks: @Sendable () -> UInt64

    /// - Parameters:
    ///   - mostBytes: How many bytes they may take together; a tile that is larger is not held.
    ///   - ticks: Nanoseconds of a clock that never goes back.
    package init(mostBytes: Int = 16 << 20, ticks: @escaping @Sendable () -> UInt64) {
        self.mostBytes = mostBytes
        self.ticks = ticks
    }

    /// How many there are.
    package var count: Int { state.withLock { $0.tiles.count } }
    /// How many bytes they take.
    package var bytes: Int { state.withLock { $0.bytes } }

    /// A tile that could not be stored.
    package func tile(_ key: TileKey) -> StoredTile? {
        state.withLock { state -> StoredTile? in
            guard !state.tiles.isEmpty else { return nil }
            state.dropExpired(at: ticks())
            return state.tiles[key]?.tile
        }
    }

    /// Keeps a tile in place of any other under its key.
    package func hold(_ data: Data?, _ key: TileKey, _ metadata: TileMetadata) {
        let size = data?.count ?? 0
        let bytes = size + Self.overhead
        let entry = TileEntry(
            key: key, blob: data?.withUnsafeBytes { BlobDigest(hashing: $0) }, size: size, metadata: metadata,
            lastUsed: metadata.storedAt, recency: 0, isPinned: false)
        let tile = StoredTile(entry: entry, data: data, origin: .memory)
        let until = ticks() &+ Self.nanoseconds
        state.withLock { state in
            state.remove(key)
            guard bytes <= mostBytes else { return }
            while state.bytes + bytes > mostBytes || state.tiles.count >= Self.mostTiles,
                let oldest = state.line.popFirst()
            {
                if state.tiles[oldest.key]?.number == oldest.number { state.remove(oldest.key) }
            }
            state.last += 1
            state.tiles[key] = Held(tile: tile, number: state.last, until: until, bytes: bytes)
            state.bytes += bytes
            state.line.append((key, state.last))
            if state.line.count > 2 * Self.mostTiles { state.shortenLine() }
        }
    }

    /// Forgets a tile: it is stored now, or must not be kept.
    package func remove(_ key: TileKey) {
        state.withLock { if !$0.tiles.isEmpty { $0.remove(key) } }
    }

    /// Forgets all tiles of which a closure says so.
    package func remove(where isMeant: (TileKey) -> Bool) {
        state.withLock { state in for key in state.tiles.keys.filter(isMeant) { state.remove(key) } }
    }
}
