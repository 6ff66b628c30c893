import ContentCoding
package import TileSets
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reads a published set in a folder: the version that its `set.json` names, or one that it keeps.
///
/// What `set.json` says is read once; a set that is renewed later is read by a reader that is opened then. Every list and every tile is
/// checked by its name before it counts.
package final class SetReader: CountingReader, GlancingReader {
    package let path: String
    /// What the set says of itself.
    package let document: SetDocument
    /// The root of the version that is read.
    package let version: BlobDigest
    package let metadata: ArchiveMetadata

    private let files: any FileSystem
    private let listing: SetListing

    /// Opens a set.
    ///
    /// - Parameters:
    ///   - path: The set's folder, or its `set.json`, or `set.json@ID` for the version whose root begins with these digits.
    ///   - version: The root of a version that is kept; `nil` for what the path says.
    /// - Throws: ``ArchiveError``.
    package convenience init(_ path: String, version: BlobDigest? = nil) throws {
        // Where a link leads now: another folder that it leads to later is another set.
        let folder = URL(fileURLWithPath: Self.folder(of: path)).resolvingSymlinksInPath().path
        try self.init(path, DiskFileSystem(location: folder), version: version)
    }

    /// The same with files of any kind.
    package init(_ path: String, _ files: any FileSystem, version: BlobDigest? = nil) throws {
        self.path = path
        self.files = files
        let place = "\(files.location)/\(SetDocument.path)"
        document = try Self.document(files)
        let roots = [(document.root, document.rootLength)] + document.former.map { ($0.root, $0.length) }
        let digits = version?.description ?? Self.version(in: path) ?? roots[0].0.description
        let found = roots.filter { digits.utf8.count >= Self.fewestDigits && $0.0.description.hasPrefix(digits) }
        guard found.count == 1, let (digest, length) = found.first else {
            throw ArchiveError(
                .notFound,
                "\(place) has \(found.isEmpty ? "no" : "more than one") version \(quoted(digits)): give at least "
                    + "\(Self.fewestDigits) digits of \(document.root), or of a former root that it keeps")
        }
        self.version = digest
        let listing = try Self.checked { SetListing(try SetRoot(try Self.list(digest, length: length, files))) }
        self.listing = listing
        guard digest != document.root || listing.tiles == document.tiles else {
            throw ArchiveError(.damaged, "\(place) says that it has \(document.tiles) tiles, and its lists have others")
        }
        var ends: (first: SetTile, last: SetTile)?
        if let first = listing.items.first, let last = listing.items.last {
            let tiles = try Self.checked { try (Self.chunk(first, files), Self.chunk(last, files)) }
            if let first = tiles.0.first, let last = tiles.1.last {
                guard first.key <= last.key else { throw Self.misplaced(last.key, files) }
                ends = (first, last)
            }
        }
        var said = ArchiveMetadata(of: document, version: digest, ends: ends)
        if said.tileFormat == nil, let first = ends?.first { said.tileFormat = Self.format(of: first, files) }
        metadata = said
    }

    /// What a set that is made of this version says of its source.
    package var statements: [String: JSONValue] {
        guard version != document.root else { return document.metadata }
        return document.metadata.filter { $0.key != "bounds" && $0.key != "center" }
    }

    /// The chunks of its list.
    package var items: [SetRoot.Item] { listing.items }
    /// The folder, where links have led when it was opened.
    package var location: String { files.location }
    package var format: ArchiveFormat { .set }
    package var tileCount: Int? { listing.tiles }
    package var modified: Int64? { document.time.seconds }
    package var warnings: [String] { [] }
    package func hasMoreTiles(than most: Int) -> Bool { (tileCount ?? 0) > most }
    package func tileCount(atMost most: Int) -> Int? { tileCount.flatMap { $0 > most ? nil : $0 } }

    /// What the set in a folder says of itself.
    ///
    /// - Throws: ``ArchiveError``.
    package static func document(of path: String) throws -> SetDocument {
        try document(DiskFileSystem(location: folder(of: path)))
    }

    private static func document(_ files: any FileSystem) throws -> SetDocument {
        let place = "\(files.location)/\(SetDocument.path)"
        return try checked {
            guard let bytes = try files.wholeFile(SetDocument.path, limit: SetBounds.document) else {
                throw ArchiveError(
                    .notFound, "there is no \(place): give the folder of a published set, or its set.json")
            }
            return try SetDocument(bytes, at: place)
        }
    }

    /// So many digits name a version at least.
    package static let fewestDigits = 8

    /// Whether a path is that of a `set.json`, with or without a version.
    package static func isDocument(_ path: String) -> Bool {
        guard let name = path.split(separator: "/", omittingEmptySubsequences: false).last?.lowercased() else {
            return false
        }
        return name == SetDocument.path || name.hasPrefix("\(SetDocument.path)@")
    }

    /// The folder that a path names, which may be that of the folder's `set.json`.
    package static func folder(of path: String) -> String {
        guard isDocument(path) else { return path }
        let folder = path.lastIndex(of: "/").map { path[...$0] } ?? "."
        return String(folder)
    }

    /// The digits behind a path that name a version.
    private static func version(in path: String) -> String? {
        guard isDocument(path), let mark = path.lastIndex(of: "@"), !path[mark...].contains("/") else { return nil }
        return String(path[path.index(after: mark)...])
    }

    /// Looks whether all lists are there, without reading them: of a set that is still being copied some are not.
    ///
    /// - Throws: ``ArchiveError``.
    package func checkLists() throws {
        for item in items {
            let path = SetPaths.list(item.digest)
            let status = try Self.checked { try files.status(at: path) }
            guard let status, status.kind == .file, status.size > 0 else {
                throw ArchiveError(
                    .damaged, "\(files.location)/\(path) is missing: it is still being copied, or publish the set again"
                )
            }
        }
    }

    // MARK: Tiles

    package func tile(z: Int, x: Int, y: Int) throws -> ArchivedTile? {
        guard let tile = try listed(z: z, x: x, y: y) else { return nil }
        return try content(of: tile)
    }

    package func tileNow(z: Int, x: Int, y: Int) throws -> ArchiveGlance {
        guard let key = SetKey(z: z, x: x, y: y) else { return .absent }
        var search = SetSearch(key, in: listing)
        switch search.next() {
        case .chunk: return .mustWait
        case .tile(let tile) where tile.key.isAtPlace(of: key):
            // One byte more, so that a file that has grown is seen.
            var bytes = Data(count: tile.size + 1)
            let count: Int?
            do throws(FileError) {
                count = try Self.readCached(SetPaths.blob(tile.blob), into: &bytes, files)
            } catch {
                // Whatever it is, the slow way says it.
                return .mustWait
            }
            guard count == tile.size else { return .mustWait }
            bytes.removeLast()
            guard bytes.withUnsafeBytes({ BlobDigest(hashing: $0) }) == tile.blob else { return .mustWait }
            return .tile(Self.archived(tile, bytes))
        case .tile, .none: return .absent
        }
    }

    package func forEachTile(_ body: (ArchiveStep) throws -> Bool) throws {
        var last: (blob: BlobDigest, content: ArchivedTile)?
        try forEachChunk { tiles in
            for tile in tiles {
                let address = tile.key.tile
                let content: ArchivedTile
                if let last, last.blob == tile.blob {
                    content = Self.archived(tile, last.content.data)
                } else {
                    content = try self.content(of: tile)
                }
                last = (tile.blob, content)
                guard
                    try body(
                        .tile(
                            z: address.z, x: address.x, y: address.y, scale: address.scale,
                            fileExtension: address.format, content))
                else { return false }
            }
            return true
        }
    }

    /// Goes through the tiles without reading their bytes, in the order of their keys, each key once.
    ///
    /// - Throws: ``ArchiveError``, and what the body throws.
    package func forEachListed(_ body: (SetTile) throws -> Void) throws {
        try forEachChunk { tiles in
            try tiles.forEach(body)
            return true
        }
    }

    /// Goes through the chunks until the body returns `false`; their tiles follow each other.
    private func forEachChunk(_ body: ([SetTile]) throws -> Bool) throws {
        var last: SetKey?
        for item in items {
            let tiles = try Self.checked { try Self.chunk(item, files) }
            if let last, let first = tiles.first, first.key <= last { throw Self.misplaced(first.key, files) }
            last = tiles.last?.key
            guard try body(tiles) else { return }
        }
    }

    private static func misplaced(_ key: SetKey, _ files: any FileSystem) -> ArchiveError {
        ArchiveError(
            .damaged,
            "\(files.location): tile \(key.text) of the set is not in its place, or is there twice: publish the set again"
        )
    }

    /// The tile with just this key; `nil` where the set has none.
    func tile(_ address: TileAddress) throws -> ArchivedTile? {
        let key = SetKey(address)
        guard let tile = try first(from: key), tile.key == key else { return nil }
        return try content(of: tile)
    }

    /// The bytes of a tile that the set names.
    package func content(of tile: SetTile) throws -> ArchivedTile { try Self.content(of: tile, files) }

    private static func content(of tile: SetTile, _ files: any FileSystem) throws -> ArchivedTile {
        let path = SetPaths.blob(tile.blob)
        let bytes = try checked { try files.wholeFile(path, limit: tile.size) }
        guard let bytes, bytes.count == tile.size, bytes.digest == tile.blob else {
            throw ArchiveError(
                .damaged,
                "\(files.location)/\(path) is \(bytes == nil ? "missing" : "damaged"): publish the set again, or copy it again"
            )
        }
        return archived(tile, Data(bytes))
    }

    /// The format that a tile has by its bytes.
    private static func format(of tile: SetTile, _ files: any FileSystem) -> String? {
        do { return ArchiveMetadata.format(of: try content(of: tile, files).mediaType) } catch {
            // Whoever reads the tile is told that its bytes are missing or damaged.
            return nil
        }
    }

    private static func archived(_ tile: SetTile, _ data: Data) -> ArchivedTile {
        let type = TileContent.mediaType(stored: tile.kind.type, of: data, format: tile.key.tile.format)
        return ArchivedTile(data: data, mediaType: type, contentEncoding: tile.kind.coding)
    }

    // MARK: Lists

    /// A chunk's tiles, read anew.
    func tiles(of item: SetRoot.Item) throws -> [SetTile] { try Self.checked { try Self.chunk(item, files) } }

    /// A delta that the set in a folder names.
    ///
    /// - Throws: ``ArchiveError`` if it is missing or damaged.
    static func delta(_ named: SetDocument.Delta, of path: String) throws -> SetDelta {
        let files = DiskFileSystem(location: folder(of: path))
        return try checked { try SetDelta(try list(named.digest, length: named.length, files)) }
    }

    /// The tile of scale 1 at a place, as the set's list has it: the one without a format, else the first by format.
    private func listed(z: Int, x: Int, y: Int) throws -> SetTile? {
        guard let key = SetKey(z: z, x: x, y: y), let tile = try first(from: key) else { return nil }
        return tile.key.isAtPlace(of: key) ? tile : nil
    }

    /// The first tile that is not before a key.
    private func first(from key: SetKey) throws -> SetTile? {
        var search = SetSearch(key, in: listing)
        while true {
            switch search.next() {
            case .tile(let tile): return tile
            case .none: return nil
            case .chunk(let number):
                let tiles = try tiles(of: items[number])
                listing.keep(tiles, as: number)
                search.take(tiles, as: number)
            }
        }
    }

    private static func chunk(_ item: SetRoot.Item, _ files: any FileSystem) throws -> [SetTile] {
        try SetList.decode(try list(item.digest, length: item.length, files), of: item)
    }

    private static func list(_ digest: BlobDigest, length: Int, _ files: any FileSystem) throws -> [UInt8] {
        let path = SetPaths.list(digest)
        guard let stored = try files.wholeFile(path, limit: SetBounds.stored(length)) else {
            throw ArchiveError(
                .damaged, "\(files.location)/\(path) is missing: publish the set again, or copy it again")
        }
        guard let bytes = SetList.unpacked(stored, digest, length: length) else {
            throw ArchiveError(
                .damaged, "\(files.location)/\(path) is damaged: publish the set again, or copy it again")
        }
        return bytes
    }

    // MARK: Files

    private static func readCached(
        _ path: String, into bytes: inout Data, _ files: any FileSystem
    ) throws(FileError) -> Int? {
        var failure: FileError?
        let count = bytes.withUnsafeMutableBytes { room -> Int? in
            path.withCString { name in
                do throws(FileError) { return try files.readCachedFile(name, into: room) } catch {
                    failure = error
                    return nil
                }
            }
        }
        if let failure { throw failure }
        return count
    }

    /// Has errors of sets and files thrown as those of archives.
    private static func checked<R>(_ body: () throws -> R) throws -> R {
        do { return try body() } catch let error as SetError {
            let code: ArchiveError.Code =
                switch error.code {
                case .notASet: .notAnArchive
                case .unreachable, .busy: .io
                default: .damaged
                }
            throw ArchiveError(code, error.message, cause: error)
        } catch let error as FileError {
            throw ArchiveError(.io, "\(error)", cause: error)
        }
    }
}

extension ArchiveMetadata {
    /// What is known of a version of a set.
    ///
    /// - Parameter ends: Its first tile and its last one, if it has tiles.
    package init(of document: SetDocument, version: BlobDigest, ends: (first: SetTile, last: SetTile)?) {
        self.init(setMembers: document.metadata)
        // What is said is said of the latest version, and where another one is only its tiles know.
        if version != document.root { (bounds, center) = (nil, nil) }
        if let ends {
            zooms = min(ends.first.key, ends.last.key).tile.z...max(ends.first.key, ends.last.key).tile.z
            tileFormat = tileFormat ?? Self.format(of: ends.first.kind.type)
        }
        name = name ?? document.name
    }

    /// The format that a tile's type names; `nil` if it names none.
    fileprivate static func format(of type: String?) -> String? {
        type.flatMap { TileContent.isFormat(mediaType: $0) ? TileContent.format(ofMediaType: $0) : nil }
    }

    /// What a set says of its source.
    package init(setMembers: [String: JSONValue]) {
        self.init(sourceJSON: Data(JSONValue.object(setMembers).canonicalText.utf8))
    }
}
