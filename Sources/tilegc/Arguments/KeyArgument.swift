import ArgumentParser
import TileStore

/// The one entry that a command is about.
struct KeyArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp("The entry: source/z/x/y[@2x][.ext] or source:path.", valueName: "key"),
        transform: ArgumentValues.key)
    var key: TileKey

    /// What to say where the cache has no such entry.
    var missing: Failure {
        Failure(.noInput, "\(key) is not in the cache ('tilegc ls --source \(key.source)' lists what is)")
    }
}
