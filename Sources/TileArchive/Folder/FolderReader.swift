import ContentCoding
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reads a folder of files `z/x/y.ext` or `z/x/y@2x.ext`, zoom by zoom and column by column.
///
/// Everything is reached through open folders and never through a symbolic link in them.
package final class FolderReader: StoppableReader {
    private static let largestTile = 64 << 20
    /// What a look-up without a template tries, one after another.
    private static let usualEndings = [
        ".png", ".jpg", ".pbf", ".webp", ".mvt", ".jpeg", ".avif", ".gif", ".pbf.gz", ".json", ".bin",
    ]
    /// More kinds of names than these are no folder of tiles.
    private static let mostEndings = 256

    /// The file in which a folder says what it is.
    static let metadataName = "metadata.json"
    private static let mostMetadata = 4 << 20

    package let path: String
    package let metadata: ArchiveMetadata
    package let warnings: [String]
    private let folder: FolderHandle
    private let rowsFromSouth: Bool
    /// What follows the row in a template: `.png`, `@2x.png`.
    private let ending: String?
    /// What a look-up tries, one after another: what is usual, then what else was met on the way through the folder.
    private let endings = Locked(FolderReader.usualEndings)

    /// Opens a folder, or the folder of a template such as `tiles/{z}/{x}/{y}.png`.
    ///
    /// - Parameters:
    ///   - path: The folder that holds the zooms, or a template; `{-y}` in it counts rows from the south.
    ///   - rowsFromSouth: Whether rows are counted from the south (TMS).
    /// - Throws: ``ArchiveError``; `notFound` where there is nothing.
    package init(_ path: String, rowsFromSouth: Bool = false) throws {
        guard !path.isEmpty else {
            throw ArchiveError(.invalidValue, "the path of the tiles is empty: name a folder or a file")
        }
        self.path = path
        var root = path
        var south = rowsFromSouth
        var ending: String?
        for (mark, isSouth) in [("{z}/{x}/{y}", false), ("{z}/{x}/{-y}", true)] {
            let parts = path.components(separatedBy: mark)
            guard parts.count == 2 else { continue }
            root = parts[0].isEmpty ? "." : parts[0]
            ending = parts[1]
            south = south || isSouth
        }
        if ending == nil, path.contains("{") {
            throw ArchiveError(
                .invalidValue,
                "\(path): expected a folder, or a template that ends in {z}/{x}/{y}.ext or {z}/{x}/{-y}.ext")
        }
        if let ending, TileFileName("0" + ending) == nil {
            throw ArchiveError(.invalidValue, "\(path): what follows the row must be .ext or @2x.ext")
        }
        guard let folder = try FolderHandle.open(root) else {
            throw ArchiveError(
                .notFound, "there is no folder \(root): give the folder that holds the zoom folders 0, 1, 2 …")
        }
        (metadata, warnings) = try Self.metadata(of: folder)
        self.folder = folder
        self.rowsFromSouth = south
        self.ending = ending
    }

    /// What a folder says of itself; without it, it still has all its tiles.
    private static func metadata(of folder: FolderHandle) throws -> (ArchiveMetadata, warnings: [String]) {
        let why: String
        switch folder.read(metadataName, limit: mostMetadata) {
        case .absent: return (ArchiveMetadata(), [])
        case .bytes(let said):
            if JSON(said)?.members != nil { return (ArchiveMetadata(sourceJSON: said), []) }
            why = "it is no JSON object"
        case .link: why = "symbolic links are not followed"
        case .notAFile: why = "it is not a file"
        case .tooLarge: why = "it is larger than \(mostMetadata >> 20) MiB"
        case .refused(let reason): why = reason
        }
        return (ArchiveMetadata(), ["\(folder.path)/\(metadataName) is not used: \(why)"])
    }

    package var format: ArchiveFormat { .folder }
    package var tileCount: Int? { nil }
    package func tileCount(unless isStopped: () -> Bool) -> Int? { nil }
    package var modified: Int64? { nil }

    /// Whether the folder has at least one zoom in it.
    package func holdsZooms() throws -> Bool {
        for name in try folder.names() where Self.zoom(name) != nil {
            if try folder.subfolder(name) != nil { return true }
        }
        return false
    }

    private static func zoom(_ name: String) -> Int? { TileFileName.number(name).flatMap { $0 <= 28 ? $0 : nil } }

    /// The place of a file's ending among those that a look-up tries, which it is one of from now on.
    ///
    /// `nil` if there are too many already.
    private func rank(of file: TileFileName) -> Int? {
        let ending = String(file.name.drop { $0 != "." })
        return endings.withLock { endings in
            if let known = endings.firstIndex(of: ending) { return known }
            guard endings.count < Self.mostEndings else { return nil }
            endings.append(ending)
            return endings.count - 1
        }
    }

    package func tile(z: Int, x: Int, y: Int) throws -> ArchivedTile? {
        try tile(z: z, x: x, y: y, scale: 1)
    }

    /// One tile of a scale; a template has those of its own scale alone.
    ///
    /// - Parameter isMeant: What does not pass is passed over for a file with another ending.
    func tile(
        z: Int, x: Int, y: Int, scale: Int, where isMeant: (ArchivedTile) -> Bool = { _ in true }
    ) throws -> ArchivedTile? {
        guard (0...28).contains(z), (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y),
            let column = try folder.subfolder(String(z))?.subfolder(String(x))
        else { return nil }
        let row = rowsFromSouth ? (1 << z) - 1 - y : y
        let names =
            ending.map { ["\(row)\($0)"] }
            ?? endings.withLock { $0 }.map { scale == 1 ? "\(row)\($0)" : "\(row)@\(scale)x\($0)" }
        for name in names {
            switch column.read(name, limit: Self.largestTile) {
            case .bytes(let data) where !data.isEmpty:
                let found = tile(data, format: TileFileName(name)?.format, modified: column.modified(name))
                if isMeant(found) { return found }
            case .refused(let why): throw ArchiveError(.io, "cannot read \(column.path)/\(name): \(why)")
            case .bytes, .absent, .link, .notAFile, .tooLarge: continue
            }
        }
        return nil
    }

    private func tile(_ data: Data, format: String?, modified: Int64?) -> ArchivedTile {
        let content = TileContent(of: data, format: format)
        return ArchivedTile(
            data: data, mediaType: content.mediaType, contentEncoding: content.contentEncoding, modified: modified)
    }

    package func forEachTile(_ body: (ArchiveStep) throws -> Bool) throws {
        try forEachTile(unless: { false }, body)
    }

    package func forEachTile(unless isStopped: () -> Bool, _ body: (ArchiveStep) throws -> Bool) throws {
        try forEachFile(unless: isStopped) { step, _ in try body(step) }
    }

    /// Goes through all files; of several of one place and scale ``tile(z:x:y:scale:where:)`` finds the one with the lowest rank.
    func forEachFile(
        unless isStopped: () -> Bool, _ body: (_ step: ArchiveStep, _ rank: Int) throws -> Bool
    ) throws {
        let skipping: (ArchiveStep) throws -> Bool = { try body($0, 0) }
        for zoom in try numbered(folder, below: 29, skipping) ?? [] {
            guard let columns = try folder.subfolder(String(zoom)) else {
                guard try skip("\(folder.path)/\(zoom)", Self.noFolder, skipping) else { return }
                continue
            }
            for column in try numbered(columns, below: 1 << zoom, skipping) ?? [] {
                // A folder may have any number of columns without a file in them.
                if isStopped() { return }
                guard let rows = try columns.subfolder(String(column)) else {
                    guard try skip("\(columns.path)/\(column)", Self.noFolder, skipping) else { return }
                    continue
                }
                guard try visit(rows, zoom: zoom, column: column, body) else { return }
            }
        }
    }

    private static let noFolder = "not a folder (symbolic links are not followed)"

    private func skip(_ what: String, _ why: String, _ body: (ArchiveStep) throws -> Bool) throws -> Bool {
        try body(.skipped(what: what, why: why, count: 1))
    }

    /// The numbers among a folder's names, in order; other names are skipped.
    ///
    /// `nil` once the body wants no more.
    private func numbered(
        _ folder: FolderHandle, below end: Int, _ body: (ArchiveStep) throws -> Bool
    ) throws -> [Int]? {
        var numbers: [Int] = []
        for name in try folder.names() {
            if let number = TileFileName.number(name), number < end {
                numbers.append(number)
            } else if name != Self.metadataName || folder.path != self.folder.path {
                let why = "expected a folder named 0 to \(end - 1)"
                guard try skip("\(folder.path)/\(name)", why, body) else { return nil }
            }
        }
        return numbers.sorted()
    }

    /// Visits the files of a column; `false` once the body wants no more.
    private func visit(
        _ rows: FolderHandle, zoom: Int, column: Int, _ body: (ArchiveStep, Int) throws -> Bool
    ) throws -> Bool {
        var files: [TileFileName] = []
        for name in try rows.names() {
            if let file = TileFileName(name), file.row < 1 << zoom {
                if ending.map({ name.hasSuffix($0) && name == "\(file.row)\($0)" }) ?? true { files.append(file) }
            } else {
                let why = "expected y.ext or y@2x.ext with y from 0 to \((1 << zoom) - 1)"
                guard try skip("\(rows.path)/\(name)", why, { try body($0, 0) }) else { return false }
            }
        }
        for file in files.sorted() {
            let step: ArchiveStep
            guard let rank = ending == nil ? rank(of: file) : 0 else {
                let why = "names in the folder have more than \(Self.mostEndings) different endings"
                guard try body(skipped(rows, file, why), 0) else { return false }
                continue
            }
            switch rows.read(file.name, limit: Self.largestTile) {
            case .bytes(let data):
                let row = rowsFromSouth ? (1 << zoom) - 1 - file.row : file.row
                step = .tile(
                    z: zoom, x: column, y: row, scale: file.scale, fileExtension: file.format,
                    tile(data, format: file.format, modified: rows.modified(file.name)))
            case .absent: step = skipped(rows, file, "it was removed meanwhile")
            case .link: step = skipped(rows, file, "symbolic links are not followed")
            case .notAFile: step = skipped(rows, file, "not a file")
            case .tooLarge: step = skipped(rows, file, "larger than \(Self.largestTile >> 20) MiB, which is no tile")
            case .refused(let why): step = .failed(what: "\(rows.path)/\(file.name)", why: why)
            }
            guard try body(step, rank) else { return false }
        }
        return true
    }

    private func skipped(_ folder: FolderHandle, _ file: TileFileName, _ why: String) -> ArchiveStep {
        .skipped(what: "\(folder.path)/\(file.name)", why: why, count: 1)
    }
}
