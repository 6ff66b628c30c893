import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Puts a folder's tiles into a store, a bounded batch at a time, zoom by zoom and column by column.
struct FolderImporter {
    let store: TileStore
    let source: SourceName
    /// One time for the whole import: it tells its entries from others.
    let now: Timestamp
    let lifetime: Int
    let rowsFromSouth: Bool
    let keepsFormat: Bool

    private static let largestTile = 64 << 20
    private static let batchCount = 256
    private static let batchBytes = 8 << 20

    private var report = TransferReport()
    private var skips = Skips()
    private var progress = Progress()
    private var batch: [TilePut] = []
    private var bytesInBatch = 0
    // Tiles of one kind share one value, which the store then keeps once.
    private var responses: [TileContent: ResponseFields] = [:]

    init(
        store: TileStore, source: SourceName, now: Timestamp, lifetime: Int, rowsFromSouth: Bool, keepsFormat: Bool
    ) {
        self.store = store
        self.source = source
        self.now = now
        self.lifetime = lifetime
        self.rowsFromSouth = rowsFromSouth
        self.keepsFormat = keepsFormat
    }

    /// Whether a folder has anything that could be a zoom.
    static func holdsZooms(_ folder: FolderHandle) throws -> Bool {
        for name in try folder.names() where zoom(name) != nil {
            if try folder.subfolder(name) != nil { return true }
        }
        return false
    }

    /// Imports everything, or as much as was done when the user interrupted it.
    mutating func run(_ folder: FolderHandle) throws -> TransferReport {
        defer { progress.clear() }
        for zoom in try numbered(folder, below: 29) {
            guard let columns = try folder.subfolder(String(zoom)) else {
                skips.add("\(folder.path)/\(zoom)", "not a folder (symbolic links are not followed)")
                continue
            }
            for column in try numbered(columns, below: 1 << zoom) {
                guard let rows = try columns.subfolder(String(column)) else {
                    skips.add("\(columns.path)/\(column)", "not a folder (symbolic links are not followed)")
                    continue
                }
                try importColumn(rows, zoom: zoom, column: column)
                if Interrupt.isRequested { break }
            }
            if Interrupt.isRequested { break }
        }
        try putBatch()
        progress.clear()
        skips.summarize()
        report.skipped = skips.count
        return report
    }

    /// How many of the imported entries the store still has: its limits may have taken some at once.
    func countOfKept() throws -> Int {
        var selection = EntrySelection()
        selection.source = source
        var kept = 0
        try store.forEachEntry(where: selection) { entry in
            if entry.metadata.storedAt == now { kept += 1 }
        }
        return kept
    }

    private static func zoom(_ name: String) -> Int? { TileFileName.number(name).flatMap { $0 <= 28 ? $0 : nil } }

    /// The numbers among a folder's names, in order; other names are skipped.
    private mutating func numbered(_ folder: FolderHandle, below end: Int) throws -> [Int] {
        var numbers: [Int] = []
        for name in try folder.names() {
            if let number = TileFileName.number(name), number < end {
                numbers.append(number)
            } else {
                skips.add("\(folder.path)/\(name)", "expected a folder named 0 to \(end - 1)")
            }
        }
        return numbers.sorted()
    }

    private mutating func importColumn(_ folder: FolderHandle, zoom: Int, column: Int) throws {
        var files: [TileFileName] = []
        for name in try folder.names() {
            if let file = TileFileName(name), file.row < 1 << zoom {
                files.append(file)
            } else {
                skips.add("\(folder.path)/\(name)", "expected y.ext or y@2x.ext with y from 0 to \((1 << zoom) - 1)")
            }
        }
        files.sort()
        var last: (key: TileKey, name: String)?
        for file in files {
            let row = rowsFromSouth ? (1 << zoom) - 1 - file.row : file.row
            let address = try TileAddress(
                z: zoom, x: column, y: row, scale: file.scale, format: keepsFormat ? file.format : nil)
            let key = TileKey(source: source, tile: address)
            if let last, last.key == key {
                skips.add(
                    "\(folder.path)/\(file.name)",
                    "the same key as \(last.name)\(keepsFormat ? "" : " (--with-format keeps both)")")
                continue
            }
            guard try take(file, key, in: folder) else { continue }
            last = (key, file.name)
        }
        let (tiles, bytes) = (report.tiles + batch.count, report.bytes)
        progress.show("\(Figure.count(tiles, "tile")), \(Figure.size(bytes)), at \(zoom)/\(column)")
    }

    /// Reads one file into the batch; `false` if it was skipped.
    private mutating func take(_ file: TileFileName, _ key: TileKey, in folder: FolderHandle) throws -> Bool {
        let path = "\(folder.path)/\(file.name)"
        let data: Data
        switch folder.read(file.name, limit: Self.largestTile) {
        case .bytes(let bytes): data = bytes
        case .absent: return skip(path, "it was removed meanwhile")
        case .link: return skip(path, "symbolic links are not followed")
        case .notAFile: return skip(path, "not a file")
        case .tooLarge: return skip(path, "larger than \(Figure.size(Self.largestTile)), which is no tile")
        case .refused(let why): return skip(path, why)
        }
        if data.isEmpty { return skip(path, "it is empty") }
        if TileContent.isWebPage(data) { return skip(path, "it is a web page, not a tile") }

        let content = TileContent(of: data, format: file.format)
        let response =
            responses[content]
            ?? ResponseFields(mediaType: content.mediaType, contentEncoding: content.contentEncoding)
        responses[content] = response
        let metadata = TileMetadata(
            response: response, storedAt: now, expires: now.adding(seconds: Int64(lifetime)))
        batch.append(TilePut(key: key, data: data, metadata: metadata))
        bytesInBatch += data.count
        report.bytes += data.count
        if batch.count >= Self.batchCount || bytesInBatch >= Self.batchBytes { try putBatch() }
        return true
    }

    private mutating func skip(_ path: String, _ why: String) -> Bool {
        skips.add(path, why)
        return false
    }

    private mutating func putBatch() throws {
        guard !batch.isEmpty else { return }
        for (put, outcome) in zip(batch, try store.put(batch)) {
            switch outcome {
            case .stored(_, let newBlob):
                report.tiles += 1
                if newBlob { report.newBlobs += 1 }
            case .olderThanStored: skips.add(put.key.description, "the cache has a newer one")
            case .largerThanCapacity: skips.add(put.key.description, "larger than the cache's whole capacity")
            }
        }
        batch.removeAll(keepingCapacity: true)
        bytesInBatch = 0
    }
}
