import ContentCoding
package import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A tile's bytes as an archive has them, and what they are.
public struct ArchivedTile: Sendable, Equatable {
    /// The bytes, exactly as stored.
    public var data: Data
    /// The media type by the bytes, else by what the archive says; `nil` where neither knows.
    public var mediaType: String?
    /// `gzip` and the like; `nil` for bytes as they are.
    public var contentEncoding: String?
    /// When a tile of a folder was written, in seconds since 1970; other archives have one time for all.
    public var modified: Int64?

    /// Describes a tile.
    public init(data: Data, mediaType: String? = nil, contentEncoding: String? = nil, modified: Int64? = nil) {
        self.data = data
        self.mediaType = mediaType
        self.contentEncoding = contentEncoding
        self.modified = modified
    }

    /// A strong entity tag, quotes included: 128 bits of the SHA-256 of the bytes.
    ///
    /// The same for equal bytes in whatever archive, so that a new edition of a map costs a client only the tiles that
    /// differ. Costs hashing: 0.2 µs and 0.7 µs a KiB.
    public var etag: String { Self.etag(of: data.withUnsafeBytes { BlobDigest(hashing: $0) }) }

    /// Why the bytes are no tile; `nil` if they may be one.
    var objection: String? {
        if data.isEmpty { return "it is empty" }
        // A picture's type was told from its bytes.
        if mediaType?.hasPrefix("image/") != true, TileContent.isWebPage(data) {
            return "it is a web page, not a tile"
        }
        return nil
    }

    /// The tag for bytes whose SHA-256 is known.
    package static func etag(of digest: BlobDigest) -> String { "\"\(digest.description.prefix(32))\"" }
}

/// One step of going through an archive.
public enum ArchiveStep: Sendable {
    /// A tile: its place (row 0 in the north), scale, the extension of its file if it has one, and its content.
    case tile(z: Int, x: Int, y: Int, scale: Int, fileExtension: String?, ArchivedTile)
    /// Something that is no usable tile, and why; `count` is how many there are of it.
    case skipped(what: String, why: String, count: Int)
    /// A file that may well be a tile and cannot be read: the system refused it, or the disk failed.
    case failed(what: String, why: String)
}

/// An archive of tiles that is open for reading: MBTiles, PMTiles, a folder or a published set.
///
/// Safe to use from any number of threads. Every function blocks on file operations for as long as the disk takes;
/// memory stays bounded whatever is in the file.
public protocol ArchiveReader: AnyObject, Sendable {
    /// The path it was opened with.
    var path: String { get }
    /// Which kind it is.
    var format: ArchiveFormat { get }
    /// What it says of itself; empty where it says nothing.
    var metadata: ArchiveMetadata { get }
    /// How many tiles it has; `nil` where only going through would tell.
    var tileCount: Int? { get }
    /// When the archive was last written, in seconds since 1970; `nil` where each tile has its own time.
    var modified: Int64? { get }
    /// What a user should know, such as a missing index that makes each look-up slow.
    var warnings: [String] { get }

    /// One tile; row 0 is in the north.
    ///
    /// - Returns: `nil` where the archive has no such tile, or nothing usable in its place.
    /// - Throws: ``ArchiveError`` where the file is damaged or cannot be read.
    func tile(z: Int, x: Int, y: Int) throws -> ArchivedTile?

    /// Goes through all tiles, in the order that costs least, until the body returns `false`.
    ///
    /// - Throws: ``ArchiveError`` where the file is damaged, and what the body throws.
    func forEachTile(_ body: (ArchiveStep) throws -> Bool) throws
}

/// What can be said of a tile without waiting for the disk.
package enum ArchiveGlance {
    case tile(ArchivedTile)
    case absent
    case mustWait
}

/// An archive that can tell whether a tile can be had without waiting for the disk.
package protocol GlancingReader: ArchiveReader {
    /// The tile, from memory and the page cache alone.
    func tileNow(z: Int, x: Int, y: Int) throws -> ArchiveGlance
}

/// An archive that counts its tiles without reading them.
package protocol CountingReader: ArchiveReader {
    /// Whether it has more tiles than that; `false` where damage is found before so many.
    func hasMoreTiles(than most: Int) -> Bool

    /// How many tiles it has, by its lists alone; `nil` if they are more than that.
    ///
    /// - Throws: ``ArchiveError`` where these are damaged.
    func tileCount(atMost most: Int) throws -> Int?
}

/// An archive that may go on for long without coming to a tile, and can be stopped then too.
package protocol StoppableReader: ArchiveReader {
    /// Goes through all tiles until the body returns `false` or `isStopped` says so, which is asked between tiles too.
    func forEachTile(unless isStopped: () -> Bool, _ body: (ArchiveStep) throws -> Bool) throws

    /// ``ArchiveReader/tileCount``, unless that takes too long or `isStopped` says that nobody wants it any more.
    func tileCount(unless isStopped: () -> Bool) -> Int?
}

extension ArchiveReader {
    /// Goes through all tiles; asks between tiles too whether to stop, where the archive can be stopped there.
    package func forEachTile(stoppedBy isStopped: () -> Bool, _ body: (ArchiveStep) throws -> Bool) throws {
        if let archive = self as? any StoppableReader {
            try archive.forEachTile(unless: isStopped, body)
        } else {
            try forEachTile(body)
        }
    }

    /// The same with the rank of a tile's file: of several of one place and scale a look-up finds the one with the lowest.
    ///
    /// 0 for all tiles of what is no folder.
    func forEachTile(
        stoppedBy isStopped: () -> Bool, _ body: (_ step: ArchiveStep, _ rank: Int) throws -> Bool
    ) throws {
        if let folder = self as? FolderReader {
            try folder.forEachFile(unless: isStopped, body)
        } else {
            try forEachTile(stoppedBy: isStopped) { try body($0, 0) }
        }
    }
}

/// The kinds of archive.
public enum ArchiveFormat: String, Sendable, CaseIterable, CustomStringConvertible {
    /// A folder of files `z/x/y.ext`.
    case folder
    /// An SQLite file: https://github.com/mapbox/mbtiles-spec/blob/master/1.3/spec.md.
    case mbtiles
    /// One file for range requests: https://github.com/protomaps/PMTiles/blob/main/spec/v3/spec.md.
    case pmtiles
    /// The folder of a published set, or its `set.json`; `set.json@1a2b3c4d` for a former version. It is only read.
    case set

    /// The kind that a path's ending names; ``folder`` for all others.
    ///
    /// A set is named by its `set.json`, a version that it keeps by `set.json@` and digits of its root.
    public init(path: String) {
        let path = path.lowercased()
        if path.hasSuffix(".mbtiles") {
            self = .mbtiles
        } else if path.hasSuffix(".pmtiles") {
            self = .pmtiles
        } else {
            self = SetReader.isDocument(path) ? .set : .folder
        }
    }

    /// Its name on the command line.
    public var description: String { rawValue }

    /// Opens an archive for reading.
    ///
    /// - Parameter path: A path; for ``folder`` also a template such as `tiles/{z}/{x}/{y}.png`, with `{-y}` for rows that
    ///   count from the south.
    /// - Throws: ``ArchiveError`` that says what the file is instead; `unsupported` for ``mbtiles`` where the package's trait
    ///   `MBTiles` is off.
    public func open(_ path: String) throws -> any ArchiveReader {
        switch self {
        case .folder: return try FolderReader(path)
        case .mbtiles:
            #if MBTiles
            return try MBTilesReader(path)
            #else
            throw ArchiveError.withoutMBTiles(path)
            #endif
        case .pmtiles: return try PMTilesReader(path)
        case .set: return try SetReader(path)
        }
    }

    /// Makes a package at a path; a folder is no package.
    func writer(_ path: String) throws -> any ArchiveWriter {
        switch self {
        case .pmtiles: return try PMTilesWriter(path)
        case .mbtiles:
            #if MBTiles
            return try MBTilesWriter(path)
            #else
            throw ArchiveError.withoutMBTiles(path)
            #endif
        case .folder, .set:
            throw ArchiveError(
                .invalidValue,
                "\(path): sets are made by 'tilegc publish'; name a folder, a .mbtiles or a .pmtiles file")
        }
    }
}
