import ArgumentParser
import TileArchive

/// What kind of archive a path names.
struct ArchiveOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The archive's format: folder, mbtiles or pmtiles (default: by the path's ending).", valueName: "format"))
    var format: String?

    func validate() throws { _ = try kind(of: "") }

    /// The kind that the user names, else the one that the path's ending does.
    func kind(of path: String) throws -> ArchiveFormat {
        guard let format else { return ArchiveFormat(path: path) }
        guard let kind = ArchiveFormat(rawValue: format.lowercased()) else {
            throw ValidationError("--format \(format): expected folder, mbtiles or pmtiles")
        }
        return kind
    }
}
