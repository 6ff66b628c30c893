import ArgumentParser

/// The command line of the caching tile proxy.
@main
struct TileProxy: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tileproxy",
        abstract: "Serves map tiles, styles, fonts and sprites from a cache, and fetches what is missing or stale.",
        version: "tileproxy 0.1.0",
        subcommands: [Serve.self])
}
