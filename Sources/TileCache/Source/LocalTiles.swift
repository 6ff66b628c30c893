public import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Tiles that this machine has already: those of an archive, of an app's bundle, or drawn on the spot.
///
/// The product `TileCacheArchive` has one for MBTiles, PMTiles and folders. Such tiles are given out as they are and never
/// copied into the cache.
public protocol LocalTiles: AnyObject, Sendable {
    /// One tile; row 0 is in the north.
    ///
    /// May block: it is called on threads that are there for this, from several of them at once.
    /// - Returns: `nil` where there is no such tile.
    /// - Throws: Whatever tells why it cannot be had; it becomes the ``TileCacheError/cause`` of a
    ///   ``TileCacheError/Code/noAnswer``.
    func tile(_ address: TileAddress) throws -> LocalTile?

    /// The same tile, if it can be had without waiting for a disk or for others; asked first, on any thread.
    ///
    /// Without an implementation everything waits.
    func tileNow(_ address: TileAddress) throws -> ImmediateTile
}

extension LocalTiles {
    /// Nothing is known without waiting.
    public func tileNow(_ address: TileAddress) throws -> ImmediateTile { .mustWait }
}

/// What ``LocalTiles/tileNow(_:)`` found.
public enum ImmediateTile: Sendable, Hashable {
    /// The tile.
    case tile(LocalTile)
    /// There is no such tile.
    case absent
    /// It takes a disk, or somebody else, to know.
    case mustWait
}

/// A tile as this machine has it.
public struct LocalTile: Sendable, Hashable {
    /// The bytes.
    public var data: Data
    /// The media type, if it is known.
    public var mediaType: String?
    /// The content coding of the bytes, such as `gzip`; `nil` for none.
    public var contentEncoding: String?
    /// An entity tag, quotes included, that changes when the bytes do; `nil` for one that is made from them.
    public var etag: String?

    /// Describes a tile.
    public init(data: Data, mediaType: String? = nil, contentEncoding: String? = nil, etag: String? = nil) {
        self.data = data
        self.mediaType = mediaType
        self.contentEncoding = contentEncoding
        self.etag = etag
    }
}

extension BlobDigest {
    /// A strong entity tag, quotes included: 128 bits of the digest.
    package var entityTag: String { "\"\(description.prefix(32))\"" }
}
