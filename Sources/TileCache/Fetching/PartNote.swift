import TileStore

/// What is noted of a part of a file at a server, with its bytes.
///
/// A class, so that tiles, which have none, are no larger for it.
final class PartNote: Sendable {
    let metadata: TileMetadata
    /// The name of the bytes, if it is known.
    let blob: BlobDigest?

    init(_ metadata: TileMetadata, _ blob: BlobDigest?) { (self.metadata, self.blob) = (metadata, blob) }
}
