import ContentCoding
import HTTPCaching

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A tile as the cache gives it: bytes, and what is known about them.
///
/// A tile that the server says does not exist is one too: ``isAbsent`` is true and ``data`` is `nil`. A tile that nobody
/// could get is no tile but an error, or `nil` with `LoadMode.cacheOnly`.
public struct CachedTile: Sendable {
    /// Under which key the cache has it.
    public let key: TileKey
    /// The bytes as the server sent them; `nil` if the tile is absent.
    public let data: Data?
    /// The status that the server answered with.
    public let status: Int
    /// The `Content-Type`.
    public let mediaType: String?
    /// The `Content-Encoding` of ``data``; `nil` for none.
    public let contentEncoding: String?
    /// The entity tag, verbatim.
    public let etag: String?
    /// When the server says that the tile was last changed.
    public let lastModified: Timestamp?
    /// Where this copy came from.
    public let origin: TileOrigin
    /// Until when it is fresh; in the past for a stale one.
    public let freshUntil: Timestamp

    /// Why it came from the server and is not in the cache; `nil` if it is, or was not meant to be.
    package var notStored: (any Error)?
    /// What is noted of a part of a file; `nil` for a tile.
    var ofPart: PartNote?

    /// Whether the server says that there is no such tile (204, 404, 410).
    public var isAbsent: Bool { data == nil }

    /// The bytes without their content coding, as a decoder of pictures or vector tiles wants them.
    ///
    /// Servers name gzip and sometimes apply it twice, or apply it without a name; all of it is taken off.
    /// - Parameter limit: No larger result is made.
    /// - Returns: `nil` if the tile is absent.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/badBody`` if the coding is another, the bytes are damaged,
    ///   or the result would be larger than the limit.
    public func decodedData(limit: Int = 64 << 20) throws -> Data? {
        guard var data else { return nil }
        // What was stored before may still name what is no coding.
        let codings = ContentCodings.applied(contentEncoding)
        guard codings.allSatisfy({ $0 == "gzip" || $0 == "x-gzip" }) else {
            throw TileCacheError(
                .badBody, "\(key): cannot decode the content coding \(codings.joined(separator: ", "))", key: key)
        }
        for _ in 0..<2 where Gzip.isMarked(data) {
            guard let plain = Gzip.decode(data, limit: limit) else {
                throw TileCacheError(
                    .badBody, "\(key): its gzip is damaged, or holds more than \(limit) bytes", key: key)
            }
            data = plain
        }
        return data
    }

    package init(
        key: TileKey, data: Data?, status: Int, mediaType: String?, contentEncoding: String?, etag: String?,
        lastModified: Timestamp?, origin: TileOrigin, freshUntil: Timestamp
    ) {
        self.key = key
        self.data = data
        self.status = status
        self.mediaType = mediaType
        self.contentEncoding = contentEncoding
        self.etag = etag
        self.lastModified = lastModified
        self.origin = origin
        self.freshUntil = freshUntil
    }

    /// A stored tile as it is, for one who asks the store himself.
    package init(stored: StoredTile) { self.init(stored, origin: stored.origin == .memory ? .memory : .disk) }

    /// A stored tile, from somewhere.
    @inline(__always)
    init(_ stored: StoredTile, origin: TileOrigin) {
        self.init(key: stored.entry.key, data: stored.data, stored.entry.metadata, origin: origin)
    }

    /// The same as a part of a file.
    init(part stored: StoredTile, origin: TileOrigin) {
        self.init(stored, origin: origin)
        ofPart = PartNote(stored.entry.metadata, stored.entry.blob)
    }

    /// Bytes with what is stored about them.
    @inline(__always)
    package init(key: TileKey, data: Data?, _ metadata: TileMetadata, origin: TileOrigin) {
        self.init(
            key: key, data: data, status: metadata.response.status, mediaType: metadata.response.mediaType,
            contentEncoding: metadata.response.contentEncoding, etag: metadata.etag,
            lastModified: metadata.lastModified, origin: origin, freshUntil: metadata.expires)
    }
}
