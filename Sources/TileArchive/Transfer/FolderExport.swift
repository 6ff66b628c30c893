import ContentCoding
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Writes tiles into a folder, which is made if need be.
///
/// Each file appears whole or not at all; one that holds the same bytes already is left alone, so that running it again
/// completes what was stopped.
struct FolderExport {
    let tiles: any ExportedTiles
    let path: String
    let rowsFromSouth: Bool
    let observer: any TransferObserver

    private var report = TransferReport()
    /// Made with the first tile, so that an export of nothing leaves nothing.
    private var folder: FolderHandle?
    // The entries come column by column, so the last column's folder is nearly always the next one's, too.
    private var column: (zoom: Int, x: Int, folder: FolderHandle)?
    // Names written for the current tile: its formats may end in one file.
    private var written: (tile: String, names: Set<String>) = ("", [])

    private static let leftoverPrefix = ".tilegc-"
    private static let leftoverSuffix = ".part"
    private let temporary = "\(leftoverPrefix)\(UInt64.random(in: .min ... .max))\(leftoverSuffix)"

    private struct Stopped: Error {}

    init(
        tiles: any ExportedTiles, path: String, rowsFromSouth: Bool, observer: any TransferObserver
    ) throws {
        self.tiles = tiles
        self.path = path
        try OutputPlace.checkFolder(path)
        folder = try FolderHandle.open(path)
        self.rowsFromSouth = rowsFromSouth
        self.observer = observer
    }

    /// Exports what is selected, or as much as was done when the observer stopped it.
    mutating func run() throws -> TransferReport {
        // What a killed export has left; an hour keeps clear of one that is running.
        try folder?.sweep(olderThan: 3600) { name in
            name.hasPrefix(Self.leftoverPrefix) && name.hasSuffix(Self.leftoverSuffix)
        }
        do {
            try tiles.forEachTile { tile in
                try export(tile)
                if observer.wantsStop { throw Stopped() }
            }
        } catch is Stopped { report.wasStopped = true }
        return report
    }

    private mutating func skip(_ tile: TileAddress, _ why: String) {
        report.skipped += 1
        observer.skipped(tiles.name(of: tile), why, count: 1)
    }

    private mutating func fail(_ tile: TileAddress, _ why: String) {
        report.failed += 1
        observer.failed(tiles.name(of: tile), why)
    }

    private mutating func export(_ exported: ExportedTile?) throws {
        guard let exported else {
            // Remembered absence and other resources are a normal part of a cache, and need no words.
            report.skipped += 1
            return
        }
        let tile = exported.address
        let data: Data
        switch try tiles.bytes(of: tile, { $0 == exported.digest }) {
        case .bytes(let bytes, _): data = bytes
        case .gone: return skip(tile, "it was removed meanwhile")
        case .damaged: return fail(tile, "its bytes are damaged or missing")
        case .unreadable(let why): return fail(tile, why)
        }
        let format = tile.format ?? TileContent.format(ofMediaType: exported.response.mediaType, data: data)
        let content: Data
        switch FileContent(data, format: format, encoding: exported.response.contentEncoding) {
        case .bytes(let bytes): content = bytes
        case .unknownEncoding(let encoding):
            return skip(tile, "it is stored with the content encoding \(encoding), which a file cannot say")
        case .damaged: return fail(tile, "its gzip encoding is broken, or it is too large")
        }

        let row = rowsFromSouth ? (1 << tile.z) - 1 - tile.y : tile.y
        let name = "\(row)\(tile.scale == 1 ? "" : "@\(tile.scale)x").\(format)"
        let place = "\(tile.z)/\(tile.x)/\(row)"
        if written.tile != place { written = (place, []) }
        guard written.names.insert(name).inserted else {
            return skip(tile, "another entry's file has the name \(place).\(format)")
        }
        let root = try self.folder ?? FolderHandle.make(path)
        self.folder = root
        let folder = try columnFolder(root, zoom: tile.z, x: tile.x)
        switch folder.read(name, limit: content.count) {
        case .bytes(content): break
        case .link:
            throw ArchiveError(
                .io, "\(folder.path)/\(name) is a symbolic link, and nothing is written there: move it away")
        default: try root.write(content, as: temporary, thenTo: folder, name: name)
        }
        report.tiles += 1
        report.bytes += content.count
        observer.advanced(
            TransferProgress(tiles: report.tiles, total: nil, bytes: report.bytes, place: place))
    }

    private mutating func columnFolder(_ root: FolderHandle, zoom: Int, x: Int) throws -> FolderHandle {
        if let column, column.zoom == zoom, column.x == x { return column.folder }
        let opened = try root.makeSubfolder(String(zoom)).makeSubfolder(String(x))
        column = (zoom, x, opened)
        return opened
    }
}

/// A tile's bytes as a file has them, which cannot say how it is encoded.
///
/// Programs expect pictures and JSON plain, and tell by the first bytes whether a vector tile is gzip. Other encodings
/// cannot be told from bytes.
private enum FileContent {
    case bytes(Data)
    case unknownEncoding(String)
    case damaged

    init(_ data: Data, format: String, encoding: String?) {
        switch StoredCoding(encoding) {
        case .none: self = .bytes(data)
        case .gzip where !TileContent.isPlain(format: format): self = .bytes(data)
        case .gzip: self = Gzip.tile(data).map { .bytes($0) } ?? .damaged
        case .brotli, .zstd, .other: self = .unknownEncoding(encoding ?? "")
        }
    }
}
