import ArgumentParser
import TileStore

/// `tilegc gc`.
struct Collect: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gc",
        abstract: "Evicts what has not been used for longest, or what is old.",
        discussion: """
            Ages come first: an entry goes if it was not used for --unused-for, or has been stale for --stale-for. Then \
            the least recently used go until the limits hold. Nothing that a region pins is touched, and a blob stays \
            as long as an entry names it.

            The limits hold for this run; 'tilegc limit' sets lasting ones, and without any option those are enforced.
            """)

    @OptionGroup var cache: CacheArgument

    @Option(
        help: ArgumentHelp("Evict down to so much on disk: 200MB, 1.5GiB.", valueName: "size"),
        transform: ArgumentValues.size)
    var maxBytes: Int?

    @Option(
        help: ArgumentHelp("Evict down to so many entries.", valueName: "count"),
        transform: ArgumentValues.count)
    var maxEntries: Int?

    @Option(
        help: ArgumentHelp("Remove what was not used for so long: 30d, 12h, 90s.", valueName: "age"),
        transform: ArgumentValues.age)
    var unusedFor: Int?

    @Option(
        help: ArgumentHelp("Remove what has been stale for so long.", valueName: "age"),
        transform: ArgumentValues.age)
    var staleFor: Int?

    @Flag(help: "Change nothing; say what would be removed.")
    var dryRun = false

    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try dryRun ? cache.openForReading() : cache.open()
        let removal = try dryRun ? plan(store) : collect(store)
        var after = try store.statistics()
        if dryRun {
            after.entries -= removal.removedEntries
            after.blobs -= removal.removedBlobs
            after.allocatedBytes -= removal.freedBytes
        }
        try store.close()

        let output = StandardOutput()
        if report.json {
            try output.line(
                .object(
                    removal.fields + [
                        ("entries", .integer(after.entries)),
                        ("blobs", .integer(after.blobs)),
                        ("allocatedBytes", .integer(after.allocatedBytes)),
                    ]))
        } else {
            try output.line(
                "\(removal.sentence(planned: dryRun)).\n\(dryRun ? "Would leave" : "Left") "
                    + "\(Figure.count(after.entries, "entry", "entries")) and \(Figure.count(after.blobs, "blob")), "
                    + "\(Figure.size(after.allocatedBytes)) on disk.")
        }
        try output.finish()
    }

    /// What each age option selects.
    private var aged: [EntrySelection] {
        var selections: [EntrySelection] = []
        if let unusedFor {
            var selection = EntrySelection()
            selection.unusedFor = unusedFor
            selections.append(selection)
        }
        if let staleFor {
            var selection = EntrySelection()
            selection.staleFor = staleFor
            selections.append(selection)
        }
        return selections
    }

    /// Whether the least recently used are evicted: not if only ages were asked for.
    private var evicts: Bool { maxBytes != nil || maxEntries != nil || aged.isEmpty }

    private func collect(_ store: TileStore) throws -> RemovalReport {
        var total = RemovalReport()
        for selection in aged { total += try store.remove(selection) }
        if evicts { total += try store.evict(toBytes: maxBytes, entries: maxEntries) }
        return total
    }

    /// The store plans one removal at a time, which is exact while there is only one.
    private func plan(_ store: TileStore) throws -> RemovalReport {
        guard let first = aged.first else { return try store.eviction(toBytes: maxBytes, entries: maxEntries) }
        if aged.count == 1, !evicts { return try store.removal(of: first) }

        // An entry may be both unused and stale, and what is evicted depends on what has gone before.
        var union: Set<TileKey> = []
        for selection in aged {
            try store.forEachEntry(where: selection) { entry in
                if !entry.isPinned { union.insert(entry.key) }
            }
        }
        var selection = EntrySelection()
        selection.keys = union
        var total = try store.removal(of: selection)
        guard evicts else { return total }
        var simulation = EvictionPlan(blockSize: DiskFileSystem(location: cache.cache).blockSize)
        try store.forEachEntry { entry in
            if !union.contains(entry.key) { simulation.add(entry) }
        }
        let limits = try store.limits()
        total += simulation.evict(toBytes: maxBytes ?? limits.capacity, entries: maxEntries ?? limits.entryLimit)
        return total
    }
}
