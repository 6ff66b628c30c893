import ArgumentParser

/// What kind of archive a path names.
struct ArchiveOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The archive's format: folder.", valueName: "format"))
    var format: String?

    /// Refuses archives that this version cannot handle, instead of making a folder named like one.
    func check(path: String) throws {
        let lower = path.lowercased()
        let suffix = [".mbtiles", ".pmtiles"].first { lower.hasSuffix($0) }
        switch format?.lowercased() {
        case "folder": return
        case nil:
            guard let suffix else { return }
            throw ValidationError(
                "\(path): this version reads and writes z/x/y folders only, no \(suffix) files (for a folder of that "
                    + "name say --format folder)")
        case .some(let format):
            throw ValidationError("--format \(format): this version knows z/x/y folders only ('folder')")
        }
    }
}
