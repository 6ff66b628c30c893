import ArgumentParser
import Foundation
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The cache that a command works on.
struct CacheArgument: ParsableArguments {
    @Argument(help: "The cache's folder.")
    var cache: String

    /// Opens the cache for a command that changes it.
    ///
    /// - Parameter warns: Whether it says so where part of the manifest was lost.
    func open(createIfMissing: Bool = false, warns: Bool = true) throws -> TileStore {
        let store = try Self.open(cache, readOnly: false, createIfMissing: createIfMissing)
        if warns, try store.hasLosses {
            Message.print(
                "part of the manifest of \(cache) was lost, and entries with it; 'tilegc verify \(cache)' says what, and "
                    + "with --repair takes note of it".printable)
        }
        return store
    }

    /// Opens the cache for a command that only looks: it records no uses, so that looking does not change what is
    /// evicted next.
    func openForReading() throws -> TileStore { try Self.openForReading(cache) }

    /// The same for a path that may also name something else.
    static func openForReading(_ path: String) throws -> TileStore {
        try open(path, readOnly: true, createIfMissing: false)
    }

    private static func open(_ cache: String, readOnly: Bool, createIfMissing: Bool) throws -> TileStore {
        guard !cache.isEmpty else { throw Failure(.usage, "the cache's path is empty: give the cache's folder") }
        if let file = FileInPlaceOfCache(cache) { throw file.failure }
        var configuration = StoreConfiguration()
        configuration.createIfMissing = createIfMissing
        configuration.readOnly = readOnly
        // A command reads a tile once, if at all.
        configuration.memoryTierBytes = 0
        return try TileStore(at: cache, configuration: configuration)
    }
}

/// A file whose path was given as that of a cache.
private struct FileInPlaceOfCache {
    let failure: Failure

    /// `nil` for everything but a plain file.
    init?(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        var kind = "a file"
        if let file = FileHandle(forReadingAtPath: path) {
            // Only for the words: a file that cannot be read is a file all the same.
            let start = (try? file.read(upToCount: 16)) ?? Data()
            if start.starts(with: Data("SQLite format 3\0".utf8)) { kind = "an SQLite file (MBTiles?)" }
            if start.starts(with: Data("PMTiles".utf8)) { kind = "a PMTiles file" }
        }
        let advice = kind == "a file" ? "" : " ('tilegc import CACHE \(path) --source NAME' takes its tiles into one)"
        failure = Failure(.noInput, "\(path) is \(kind), not the folder of a tile cache\(advice)")
    }
}

/// How a report is written.
struct ReportOptions: ParsableArguments {
    @Flag(help: "Write the report as JSON.")
    var json = false
}
