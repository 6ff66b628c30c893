import TileStore

// What is in a cache, as `stats` and `watch` report it.
extension StoreStatistics {
    /// How often a byte is shared on average; 1 in an empty cache.
    fileprivate var dedupeRatio: Double { bytes > 0 ? Double(logicalBytes) / Double(bytes) : 1 }

    /// The fields of `stats --json`.
    var fields: [(String, JSON)] {
        [
            ("entries", .integer(entries)),
            ("blobs", .integer(blobs)),
            ("bytes", .integer(bytes)),
            ("allocatedBytes", .integer(allocatedBytes)),
            ("logicalBytes", .integer(logicalBytes)),
            ("dedupeRatio", .real(dedupeRatio)),
            ("manifestBytes", .integer(manifestBytes)),
            ("checkpointBytes", .integer(checkpointBytes)),
            ("journalBytes", .integer(journalBytes)),
            ("imageBytes", .integer(imageBytes)),
            ("fresh", .integer(fresh)),
            ("stale", .integer(stale)),
            ("negative", .integer(negative)),
            ("pinnedEntries", .integer(pinnedEntries)),
            ("pinnedBytes", .integer(pinnedBytes)),
            ("capacity", .optional(limits.capacity)),
            ("entryLimit", .integer(limits.entryLimit)),
            (
                "sources",
                .array(
                    sources.map { source in
                        .object([
                            ("name", .string(source.name.description)),
                            ("entries", .integer(source.entries)),
                            ("bytes", .integer(source.bytes)),
                            ("exclusiveBytes", .integer(source.exclusiveBytes)),
                            ("sharedBytes", .integer(source.sharedBytes)),
                            (
                                "zooms",
                                source.zooms.map { .array([.integer($0.lowerBound), .integer($0.upperBound)]) } ?? .null
                            ),
                        ])
                    })
            ),
        ]
    }

    /// The report for people, one row a line.
    func lines(cache: String) -> [String] {
        let unpinned = allocatedBytes - pinnedBytes
        let space =
            limits.capacity.map {
                "\(Figure.size(unpinned)) of \(Figure.size($0)) used (\(Figure.percent(unpinned, of: $0)))"
            } ?? "\(Figure.size(unpinned)) used, no limit"
        let counted = entries - pinnedEntries
        let rows: [(String, String)] = [
            ("Cache", cache.printable),
            (
                "Entries",
                "\(Figure.count(entries)): \(Figure.count(fresh)) fresh, \(Figure.count(stale)) stale; "
                    + "\(Figure.count(negative)) negative among them"
            ),
            ("Blobs", "\(Figure.count(blobs)): \(Figure.size(bytes)), \(Figure.size(allocatedBytes)) on disk"),
            (
                "Sharing",
                "\(Figure.size(logicalBytes)) of tiles in \(Figure.size(bytes)): "
                    + "ratio \(Figure.decimal(dedupeRatio, 2)), \(Figure.size(logicalBytes - bytes)) saved"
            ),
            (
                "Manifest",
                "\(Figure.size(manifestBytes)): checkpoint \(Figure.size(checkpointBytes)), journal "
                    + "\(Figure.size(journalBytes)), index image \(Figure.size(imageBytes))"
            ),
            ("Capacity", space),
            (
                "Entry limit",
                "\(Figure.count(counted)) of \(Figure.count(limits.entryLimit)) used "
                    + "(\(Figure.percent(counted, of: limits.entryLimit)))"
            ),
            ("Pinned", "\(Figure.count(pinnedEntries, "entry", "entries")), \(Figure.size(pinnedBytes)) on disk"),
        ]
        var lines = rows.map { "\($0.0.left(13))\($0.1)" }
        guard !sources.isEmpty else { return lines }
        let width = max(6, sources.map { $0.name.description.count }.max() ?? 0)
        lines.append("")
        lines.append("Source".left(width) + "     entries       bytes   exclusive      shared  zooms")
        for source in sources {
            let zooms =
                source.zooms.map {
                    $0.lowerBound == $0.upperBound ? "\($0.lowerBound)" : "\($0.lowerBound)-\($0.upperBound)"
                } ?? "-"
            lines.append(
                source.name.description.left(width) + Figure.count(source.entries).right(12)
                    + Figure.size(source.bytes).right(12) + Figure.size(source.exclusiveBytes).right(12)
                    + Figure.size(source.sharedBytes).right(12) + "  " + zooms)
        }
        return lines
    }
}
