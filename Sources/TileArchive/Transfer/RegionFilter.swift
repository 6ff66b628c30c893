import TileStore

/// Whether tiles lie in a region, asked a million times.
struct RegionFilter {
    private var spans: [[TileSpan]] = Array(repeating: [], count: 29)

    init(_ region: PinnedRegion) {
        for span in region.spans { spans[span.zoom].append(span) }
    }

    func contains(_ key: TileKey) -> Bool {
        guard let tile = key.tile else { return false }
        return spans[tile.z].contains { $0.columns.contains(tile.x) && $0.rows.contains(tile.y) }
    }
}
