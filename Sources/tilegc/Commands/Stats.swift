import ArgumentParser
import TileStore

/// `tilegc stats`.
struct Stats: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stats",
        abstract: "Says what is in a cache.",
        discussion: """
            Bytes are those of the blobs, each counted once; logical bytes are the sum over the entries, as if nothing \
            were shared. The limits count blobs and entries that no region pins, in the disk's blocks. The manifest is \
            not part of them: its checkpoint, the journal of what has changed since, and the index image, which only \
            makes opening fast.

            Of each source, the bytes on disk are exclusive if only its entries refer to them: removing the source frees \
            those. They are shared if entries of other sources refer to them as well, and then count with each of them.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try cache.openForReading()
        let statistics = try store.statistics()
        let output = StandardOutput()
        if report.json {
            try output.line(.object(statistics.fields))
        } else {
            for line in statistics.lines(cache: cache.cache) { try output.line(line) }
        }
        try output.finish()
        try store.close()
    }
}
