import Foundation
import TileArchive
import TileCache
import TileStore

/// What a check of an archive has found.
struct ArchiveCheckReport {
    var tiles = 0
    var bytes = 0
    /// Files and rows that are no tiles.
    var skipped = 0
    /// What is wrong, one line each.
    var problems = ArchiveProblems()
    var wasStopped = false
}

/// Reads all tiles of an archive and looks whether each is what it seems to be, and is found by a look-up.
struct ArchiveCheck {
    let archive: any ArchiveReader
    /// An archive with more tiles is refused: a small file can claim billions.
    let mostTiles: Int
    let progress: (_ tiles: Int, _ bytes: Int) -> Void

    /// After so many tiles one is looked up too.
    private static let lookedUp = 16

    /// Checks.
    ///
    /// - Throws: ``ArchiveError`` where there are too many tiles.
    func run() throws -> ArchiveCheckReport {
        if let counting = archive as? any CountingReader, counting.hasMoreTiles(than: mostTiles) {
            throw tooManyTiles(archive, mostTiles)
        }
        var report = ArchiveCheckReport()
        var seen = 0
        let kind: TileKind =
            switch archive.metadata.tileFormat {
            case "pbf", "mvt": .vector
            case "json", "geojson": .json
            case "png", "jpg", "webp", "avif", "gif": .image
            default: .any
            }
        // Folders are what a look-up reads; where there is no index it reads a whole table each time.
        let looksUp = archive.format != .folder && archive.warnings.isEmpty
        do {
            try archive.forEachTile(stoppedBy: { Interrupt.isRequested }) { step in
                seen += 1
                guard seen <= mostTiles else { throw tooManyTiles(archive, mostTiles) }
                switch step {
                case .skipped(let what, let why, let count):
                    report.skipped += count
                    // A file that may be anything is no damage; a tile out of its place is.
                    if archive.format != .folder { report.problems.add("\(what): \(why)") }
                case .failed(let what, let why): report.problems.add("\(what) cannot be read: \(why)")
                case .tile(let z, let x, let y, let scale, _, let tile):
                    report.tiles += 1
                    report.bytes += tile.data.count
                    if let objection = objection(to: tile, kind) {
                        report.problems.add("\(z)/\(x)/\(y) is \(objection)")
                    }
                    if scale == 1, report.tiles % Self.lookedUp == 1, looksUp {
                        try lookUp(z, x, y, tile, &report)
                    }
                    progress(report.tiles, report.bytes)
                }
                return !Interrupt.isRequested
            }
        } catch let error as ArchiveError where error.code == .tooMany { throw error } catch let error as ArchiveError {
            report.problems.add(error.message)
        } catch {
            report.problems.add("\(archive.path): \(error)")
        }
        report.wasStopped = Interrupt.isRequested
        if !report.wasStopped, archive.format == .pmtiles, let said = archive.tileCount, said != report.tiles {
            report.problems.add(
                "\(archive.path): its header says that it has \(said) tiles; it has \(report.tiles)")
        }
        return report
    }

    private func objection(to tile: ArchivedTile, _ kind: TileKind) -> String? {
        kind.objection(to: tile.data, mediaType: tile.mediaType, contentEncoding: tile.contentEncoding)
    }

    private func lookUp(
        _ z: Int, _ x: Int, _ y: Int, _ tile: ArchivedTile, _ report: inout ArchiveCheckReport
    ) throws {
        let found = try archive.tile(z: z, x: x, y: y)
        if found?.data == tile.data { return }
        report.problems.add(
            "\(z)/\(x)/\(y) is \(found == nil ? "not found" : "another tile") when it is looked up: the archive has it twice, or its "
                + "index is damaged")
    }
}
