import ArgumentParser
import TileStore

/// The cache that a command works on.
struct CacheArgument: ParsableArguments {
    @Argument(help: "The cache's folder.")
    var cache: String

    /// Opens the cache for a command that changes it.
    func open(createIfMissing: Bool = false) throws -> TileStore {
        try open(readOnly: false, createIfMissing: createIfMissing)
    }

    /// Opens the cache for a command that only looks: it records no uses, so that looking does not change what is
    /// evicted next.
    func openForReading() throws -> TileStore { try open(readOnly: true, createIfMissing: false) }

    private func open(readOnly: Bool, createIfMissing: Bool) throws -> TileStore {
        guard !cache.isEmpty else { throw Failure(.usage, "the cache's path is empty: give the cache's folder") }
        var configuration = StoreConfiguration()
        configuration.createIfMissing = createIfMissing
        configuration.readOnly = readOnly
        // A command reads a tile once, if at all.
        configuration.memoryTierBytes = 0
        return try TileStore(at: cache, configuration: configuration)
    }
}

/// How a report is written.
struct ReportOptions: ParsableArguments {
    @Flag(help: "Write the report as JSON.")
    var json = false
}
