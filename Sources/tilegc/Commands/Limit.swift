import ArgumentParser
import TileStore

/// `tilegc limit`.
struct Limit: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "limit",
        abstract: "Shows or sets the lasting limits of a cache.",
        discussion: """
            The limits are part of the cache: every process that uses it keeps them, and what is over them is evicted \
            at once. They count what no region pins. Unless --entries was ever given, the entry limit follows the \
            capacity: one entry for each 2 KiB, at least 100,000.

            A tileproxy whose configuration names capacity or entries (or that is started with --max-bytes) sets these \
            limits again at its next start: change them there too.
            """)

    @OptionGroup var cache: CacheArgument

    @Option(
        help: ArgumentHelp("The capacity on disk: 200MB, 1.5GiB, or none.", valueName: "size"),
        transform: ArgumentValues.sizeOrNone)
    var bytes: SizeLimit?

    @Option(
        help: ArgumentHelp("The most entries.", valueName: "count"),
        transform: ArgumentValues.count)
    var entries: Int?

    @OptionGroup var report: ReportOptions

    func run() throws {
        let changes = bytes != nil || entries != nil
        let store = try changes ? cache.open() : cache.openForReading()
        var limits = try store.limits()
        if changes {
            let before = try store.statistics()
            limits = changed(limits)
            try store.setLimits(limits)
            let gone = before.entries - (try store.statistics()).entries
            if gone > 0 {
                Message.print("\(Figure.count(gone, "entry was", "entries were")) evicted to keep the new limits")
            }
        }
        try store.close()

        let output = StandardOutput()
        if report.json {
            try output.line(
                .object([
                    ("capacity", .optional(limits.capacity)),
                    ("entryLimit", .integer(limits.entryLimit)),
                ]))
        } else {
            let capacity = limits.capacity.map { "\(Figure.size($0)) (\($0) B)" } ?? "none"
            try output.line("Capacity     \(capacity)")
            try output.line("Entry limit  \(Figure.count(limits.entryLimit))")
        }
        try output.finish()
    }

    private func changed(_ old: StoreLimits) -> StoreLimits {
        let capacity: Int? =
            switch bytes {
            case nil: old.capacity
            case .unlimited: nil
            case .bytes(let bytes): bytes
            }
        // A derived entry limit goes on being derived; one that was set stays.
        let isDerived = old == StoreLimits(capacity: old.capacity)
        return StoreLimits(capacity: capacity, entryLimit: entries ?? (isDerived ? nil : old.entryLimit))
    }
}
