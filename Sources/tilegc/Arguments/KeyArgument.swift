import ArgumentParser
import TileStore

/// The one entry that a command is about.
struct KeyArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp("The entry: source/z/x/y[@2x][.ext] or source:path.", valueName: "key"),
        transform: ArgumentValues.key)
    var key: TileKey

    /// What to say where the cache has no such entry.
    func missing(in store: TileStore) throws -> Failure {
        if let complaint = try store.complaint(about: key.source) { return Failure(.noInput, complaint) }
        var other: TileKey?
        if let tile = key.tile, tile.format != nil {
            let plain = TileKey(
                source: key.source, tile: try TileAddress(z: tile.z, x: tile.x, y: tile.y, scale: tile.scale))
            if try store.entry(for: plain) != nil { other = plain }
        }
        return Failure(
            .noInput,
            "\(key) is not in the cache"
                + (other.map { ", but \($0) is" } ?? " ('tilegc ls --source \(key.source)' lists what is)"))
    }
}
