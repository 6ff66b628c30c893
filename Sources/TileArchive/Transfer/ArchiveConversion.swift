import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Writes the tiles of one archive into another one, without a cache.
///
/// The archive is read twice: once to hash its tiles, so that equal ones are written once, and again for their bytes. Memory stays
/// bounded whatever the number of tiles. A package appears when it is complete; a folder is filled file by file.
package struct ArchiveConversion {
    private let archive: any ArchiveReader
    /// What is said of the map; zooms, bounds and format are filled in from the tiles.
    package var metadata: ArchiveMetadata
    /// An archive with more tiles is refused.
    package var mostTiles = 10_000_000
    /// Whether rows in a folder are counted from the south (TMS).
    package var rowsFromSouth = false

    package init(_ archive: any ArchiveReader) {
        self.archive = archive
        metadata = archive.metadata
    }

    /// Converts.
    ///
    /// - Parameters:
    ///   - path: A file, or for ``ArchiveFormat/folder`` a folder. What is there is replaced.
    ///   - format: The kind of archive.
    /// - Throws: ``ArchiveError``.
    package func run(
        to path: String, format: ArchiveFormat, observer: any TransferObserver
    ) throws -> TransferReport {
        let listing = ArchiveListing(archive: archive, mostTiles: mostTiles, observer: observer)
        let tiles = ArchivedTilesToExport(listing)
        var export = TileExport(tiles: tiles, name: Self.name(of: archive.path), observer: observer)
        export.metadata = metadata
        export.regions = { [metadata] in metadata.regions }
        export.rowsFromSouth = rowsFromSouth
        var report = try export.run(to: path, format: format)
        report.skipped += tiles.others.skipped
        report.failed += tiles.others.failed
        report.wasStopped = report.wasStopped || tiles.others.wasStopped
        if format == .folder, report.tiles > 0, !report.wasStopped, metadata != ArchiveMetadata() {
            try OutputFile.write(metadata.sourceJSON, to: "\(path)/\(FolderReader.metadataName)")
        }
        return report
    }

    /// A file's name without its ending, and of a template that of its folder.
    private static func name(of path: String) -> String {
        let path = path.components(separatedBy: "{z}")[0]
        let name = path.split(separator: "/").last.map(String.init) ?? path
        return name.lastIndex(of: ".").flatMap { $0 > name.startIndex ? String(name[..<$0]) : nil } ?? name
    }
}

extension ArchiveMetadata {
    /// Says something else, or with an empty text nothing any more.
    ///
    /// A text that begins with `[` or `{` is read as JSON if it is. Zooms, bounds, centre and regions are not to be said so: they are what
    /// the tiles are.
    /// - Returns: `false` for such a name.
    package mutating func set(_ name: String, to text: String) -> Bool {
        let value: String? = text.isEmpty ? nil : text
        switch name {
        case "name": self.name = value
        case "description": description = value
        case "attribution": attribution = value
        case "format", "minzoom", "maxzoom", "bounds", "center", "json", Self.regionsName: return false
        case _ where Self.aboutTheFile.contains(name): return false
        default:
            others.removeAll { $0.name == name }
            guard let value else { break }
            let structure = value.first == "[" || value.first == "{" ? JSON(Data(value.utf8)) : nil
            take([JSON.Member(name, structure ?? .string(value))])
        }
        return true
    }
}
