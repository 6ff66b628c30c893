import ArgumentParser
import TileArchive

/// What an archive is to say of itself.
struct MetadataOptions: ParsableArguments {
    @Option(
        name: .customLong("set"),
        help: ArgumentHelp(
            "Say this in the metadata: name, description, attribution, or any other name; nothing behind the = takes it out. "
                + "Repeatable.", valueName: "name=text"))
    var statements: [String] = []

    func validate() throws {
        var metadata = ArchiveMetadata()
        try apply(to: &metadata)
    }

    func apply(to metadata: inout ArchiveMetadata) throws {
        for statement in statements {
            guard let mark = statement.firstIndex(of: "="), mark != statement.startIndex else {
                throw ValidationError("--set \(statement): expected NAME=TEXT")
            }
            let name = String(statement[..<mark])
            guard metadata.set(name, to: String(statement[statement.index(after: mark)...])) else {
                throw ValidationError("--set \(name): this is told by the tiles")
            }
        }
    }
}
