/// Follows a cache that others use, and says now and then what is in it and what has happened since.
///
/// It only reads: it takes no lock and records no uses. For one thread.
package final class StoreWatch {
    /// What happened between two readings, beyond puts and evictions.
    package enum Event: String, Sendable {
        /// The manifest has a newer checkpoint.
        case compacted
        /// The store fell behind by more than a compaction and read the manifest anew: changes in between were not seen.
        case reloaded
        /// Lines of the manifest could not be read that could be before, or were not there.
        case damaged
    }

    /// The figures at one moment.
    package struct Reading: Sendable {
        package var figures = StoreStatistics()
        package var at: Timestamp
        /// When the entries were counted; blobs, bytes, limits and sizes of files are those of ``at``.
        package var countedAt: Timestamp
        /// Entries stored or refreshed since the last reading, by any process; `nil` if that is not known.
        package var puts: Int? = 0
        /// Blobs that evictions and removals have taken away since; `nil` if that is not known.
        package var evictedBlobs: Int? = 0
        /// Lines of the manifest that could not be read, in all.
        package var damagedLines = 0
        package var events: [Event] = []
    }

    private let store: TileStore
    private var counted: CountedFigures?
    /// What was counted: the tables and the place in the journal.
    private var countedPlace = OfTables.none(Place())
    /// Ticks at which the last walk ended, and how many it took.
    private var walk: (end: UInt64, ticks: UInt64) = (0, 0)
    private var last: (lines: OfTables<(puts: Int, removed: Int)>, damaged: Int, checkpoint: UInt64)?
    /// How often the entries were walked over.
    package private(set) var walks = 0

    private struct Place: Equatable {
        var generation: UInt64 = 0
        var offset: Int64 = -1
    }

    /// A twentieth of the time goes into walks at most.
    private static let rest: UInt64 = 20

    package init(_ store: TileStore) { self.store = store }

    /// Catches up and looks.
    ///
    /// Costs the lines that were appended since, and a walk over the entries if any of them can have changed; where walks
    /// take long, the entries' figures may be older than the rest.
    package func look() throws -> Reading {
        try store.catchUp()
        let now = store.environment.now()
        let manifest = try store.manifestFigures()
        let (journal, damaged) = store.commit.withLock { ledger in
            (Place(generation: ledger.generation, offset: ledger.offset), ledger.damagedLines)
        }
        let (tables, lines) = store.tables.read { t, _ in (t, (puts: t.putLines, removed: t.removedBlobs)) }
        let count = figures(at: journal, tables, now, manifest)
        var reading = Reading(at: now, countedAt: count.at)
        reading.figures = count.figures
        manifest.enter(&reading.figures)
        store.tables.read { t, _ in t.enterAccounts(&reading.figures) }
        reading.damagedLines = damaged
        if let last {
            let before = last.lines.value(in: tables)
            reading.puts = before.map { lines.puts &- $0.puts }
            reading.evictedBlobs = before.map { lines.removed &- $0.removed }
            if manifest.newest > last.checkpoint { reading.events.append(.compacted) }
            if before == nil { reading.events.append(.reloaded) }
            // Tables that are loaded anew count the damage that is left.
            if damaged > (before == nil ? 0 : last.damaged) { reading.events.append(.damaged) }
        } else if damaged > 0 {
            reading.events.append(.damaged)
        }
        last = (OfTables(lines, tables), damaged, manifest.newest)
        return reading
    }

    private func figures(
        at journal: Place, _ tables: Tables, _ now: Timestamp, _ manifest: ManifestFigures
    ) -> CountedFigures {
        let begin = store.environment.ticks()
        if let counted, let place = countedPlace.value(in: tables) {
            let isCurrent =
                place == journal && now.seconds >= counted.at.seconds && now.seconds < counted.nextChange
            if isCurrent { return CountedFigures(counted, at: now) }
            if begin &- walk.end < walk.ticks &* Self.rest { return counted }
        }
        let fresh = store.counted(manifest)
        let end = store.environment.ticks()
        (counted, countedPlace, walk) = (fresh, OfTables(journal, tables), (end, end &- begin))
        walks += 1
        return fresh
    }
}
