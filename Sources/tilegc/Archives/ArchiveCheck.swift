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
    var problems: [String] = []
    var wasStopped = false
}

/// Reads all tiles of an archive and looks whether each is what it seems to be, and is found by a look-up.
struct ArchiveCheck {
    let archive: any ArchiveReader
    let progress: (_ tiles: Int, _ bytes: Int) -> Void

    /// After so many tiles one is looked up too.
    private static let lookedUp = 16

    func run() -> ArchiveCheckReport {
        var report = ArchiveCheckReport()
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
            try archive.forEachTile { step in
                switch step {
                case .skipped(let what, let why, let count):
                    report.skipped += count
                    // A file that may be anything is no damage; a tile out of its place is.
                    if archive.format != .folder { report.problems.append("\(what): \(why)") }
                case .failed(let what, let why): report.problems.append("\(what) cannot be read: \(why)")
                case .tile(let z, let x, let y, let scale, _, let tile):
                    report.tiles += 1
                    report.bytes += tile.data.count
                    if let objection = objection(to: tile, kind) {
                        report.problems.append("\(z)/\(x)/\(y) is \(objection)")
                    }
                    if scale == 1, report.tiles % Self.lookedUp == 1, looksUp {
                        try lookUp(z, x, y, tile, &report)
                    }
                    progress(report.tiles, report.bytes)
                }
                report.wasStopped = Interrupt.isRequested
                return !report.wasStopped
            }
        } catch let error as ArchiveError { report.problems.append(error.message) } catch {
            report.problems.append("\(archive.path): \(error)")
        }
        if !report.wasStopped, archive.format == .pmtiles, let said = archive.tileCount, said != report.tiles {
            report.problems.append(
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
        report.problems.append(
            "\(z)/\(x)/\(y) is \(found == nil ? "not found" : "another tile") when it is looked up: the archive has it twice, or its "
                + "index is damaged")
    }
}
