import ArgumentParser
import TileArchive

/// What kind of archive a path names.
struct ArchiveOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The archive's format: folder, mbtiles or pmtiles; set to read a published set (default: by the path's ending).",
            valueName: "format"))
    var format: String?

    func validate() throws { _ = try kind(of: "") }

    /// Endings of files that no folder of tiles has by intention.
    private static let otherEndings: Set<String> = [
        "png", "jpg", "jpeg", "webp", "avif", "gif", "tif", "tiff", "svg", "pdf", "pbf", "mvt", "json", "geojson",
        "csv", "txt",
        "zip", "gz", "tgz", "tar", "zst", "br", "7z", "gpkg", "sqlite", "sqlite3", "db", "mbtile", "pmtile", "html",
    ]

    /// Refuses a name that looks like a file's, which would become a folder.
    func checkTarget(_ path: String) throws {
        let name = path.split(separator: "/").last ?? ""
        guard format == nil, !path.hasSuffix("/"), let point = name.lastIndex(of: "."), point != name.startIndex,
            Self.otherEndings.contains(name[name.index(after: point)...].lowercased())
        else { return }
        throw ValidationError(
            "\(path) looks like a file of another kind: name a folder, a .mbtiles or a .pmtiles file, or say --format")
    }

    /// The kind that the user names, else the one that the path's ending does.
    func kind(of path: String) throws -> ArchiveFormat {
        guard let format else { return ArchiveFormat(path: path) }
        guard let kind = ArchiveFormat(rawValue: format.lowercased()) else {
            throw ValidationError("--format \(format): expected folder, mbtiles, pmtiles or set")
        }
        return kind
    }
}
