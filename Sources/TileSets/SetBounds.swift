/// The bounds of the format: whatever a set says, nothing beyond them is read.
package enum SetBounds {
    /// Bytes of `set.json`.
    package static let document = 1 << 20
    /// Tiles of a chunk.
    package static let tilesOfChunk = 4096
    /// Bytes of a chunk's canonical JSON.
    package static let chunk = 4 << 20
    /// Chunks of a set.
    package static let chunks = 131_072
    /// Bytes of a root's canonical JSON.
    package static let root = 16 << 20
    /// Runs and removed keys of a delta.
    package static let changes = 131_072
    /// Bytes of a delta's canonical JSON.
    package static let delta = 32 << 20
    /// Bytes of a tile.
    package static let tile = 32 << 20
    /// Deltas that a set offers.
    package static let deltas = 8
    /// Former roots that stay reachable.
    package static let kept = 256

    /// How long the gzip of so many bytes may be.
    package static func stored(_ length: Int) -> Int { length + length / 512 + 1024 }
}
