import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Writes a store's tiles into a folder.
struct FolderExporter {
    let store: TileStore
    let folder: FolderHandle
    let rowsFromSouth: Bool

    private var report = TransferReport()
    private var skips = Skips()
    private var failures = Skips()
    private var progress = Progress()
    // The entries come column by column, so the last column's folder is nearly always the next one's, too.
    private var column: (zoom: Int, x: Int, folder: FolderHandle)?
    // Names written for the current tile: its formats may end in one file.
    private var written: (tile: String, names: Set<String>) = ("", [])

    private static let leftoverPrefix = ".tilegc-"
    private static let leftoverSuffix = ".part"
    private let temporary = "\(leftoverPrefix)\(UInt64.random(in: .min ... .max))\(leftoverSuffix)"

    private struct Interrupted: Error {}

    init(store: TileStore, folder: FolderHandle, rowsFromSouth: Bool) {
        self.store = store
        self.folder = folder
        self.rowsFromSouth = rowsFromSouth
    }

    /// Exports what is selected, or as much as was done when the user interrupted it.
    mutating func run(_ selection: EntrySelection) throws -> TransferReport {
        defer { progress.clear() }
        // What a killed export has left; an hour keeps clear of one that is running.
        try folder.sweep(olderThan: 3600) { name in
            name.hasPrefix(Self.leftoverPrefix) && name.hasSuffix(Self.leftoverSuffix)
        }
        do {
            try store.forEachEntry(in: .key, where: selection) { entry in
                try export(entry)
                if Interrupt.isRequested { throw Interrupted() }
            }
        } catch is Interrupted {}
        progress.clear()
        skips.summarize()
        failures.summarize()
        report.skipped = skips.count
        report.failed = failures.count
        return report
    }

    private mutating func export(_ entry: TileEntry) throws {
        guard let tile = entry.key.tile, entry.blob != nil else {
            // Remembered absence and other resources are a normal part of a cache.
            skips.addQuietly()
            return
        }
        let data: Data
        switch try TileReader(store: store).bytes(of: entry) {
        case .bytes(let bytes): data = bytes
        case .gone:
            skips.add(entry.key.description, "it was removed meanwhile")
            return
        case .damaged:
            failures.add(entry.key.description, "its bytes are damaged or missing")
            return
        }
        let format = tile.format ?? TileContent.format(ofMediaType: entry.metadata.response.mediaType, data: data)
        guard let content = plain(data, format: format, of: entry) else { return }

        let row = rowsFromSouth ? (1 << tile.z) - 1 - tile.y : tile.y
        let name = "\(row)\(tile.scale == 1 ? "" : "@\(tile.scale)x").\(format)"
        let place = "\(tile.z)/\(tile.x)/\(row)"
        if written.tile != place { written = (place, []) }
        guard written.names.insert(name).inserted else {
            skips.add(entry.key.description, "another entry's file has the name \(place).\(format)")
            return
        }
        let folder = try columnFolder(zoom: tile.z, x: tile.x)
        switch folder.read(name, limit: content.count) {
        case .bytes(content): break
        case .link:
            throw Failure(
                .inputOutput, "\(folder.path)/\(name) is a symbolic link, and nothing is written there: move it away")
        default: try self.folder.write(content, as: temporary, thenTo: folder, name: name)
        }
        report.tiles += 1
        report.bytes += content.count
        let (tiles, bytes) = (report.tiles, report.bytes)
        progress.show("\(Figure.count(tiles, "tile")), \(Figure.size(bytes)), at \(place)")
    }

    /// The bytes for the file: pictures without their content encoding.
    private mutating func plain(_ data: Data, format: String, of entry: TileEntry) -> Data? {
        guard TileContent.isRaster(format: format), let encoding = entry.metadata.response.contentEncoding,
            encoding.lowercased() != "identity"
        else { return data }
        guard ["gzip", "x-gzip"].contains(encoding.lowercased()) else {
            skips.add(entry.key.description, "it is stored with the content encoding \(encoding.printable)")
            return nil
        }
        guard let picture = Gzip.decode(data, limit: 64 << 20) else {
            failures.add(entry.key.description, "its gzip encoding is broken, or it is too large")
            return nil
        }
        return picture
    }

    private mutating func columnFolder(zoom: Int, x: Int) throws -> FolderHandle {
        if let column, column.zoom == zoom, column.x == x { return column.folder }
        let opened = try folder.makeSubfolder(String(zoom)).makeSubfolder(String(x))
        column = (zoom, x, opened)
        return opened
    }
}
