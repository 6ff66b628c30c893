extension TileStore {
    /// Keeps a region's tiles, present and future ones, whatever the limits say, on an account of their own.
    ///
    /// Another region of that name is replaced. Costs a pass over the entries.
    public func pin(_ region: PinnedRegion) throws {
        try hold { ledger in
            guard tables.read({ t, _ in t.regions[region.name] != region }) else { return }
            var lines = LineBuffer()
            lines.region(region)
            try appendRecords(lines, ledger)
        }
        try enforceLimits()
    }

    /// Gives a region's tiles back to eviction; limits are enforced at once.
    ///
    /// - Returns: `false` if there is no region of that name.
    public func unpin(_ name: String) throws -> Bool {
        let was = try hold { ledger -> Bool in
            guard tables.read({ t, _ in t.regions[name] != nil }) else { return false }
            var lines = LineBuffer(capacity: 128)
            lines.regionGone(name)
            try appendRemoval(lines, [], ledger)
            return true
        }
        if was { try enforceLimits() }
        return was
    }

    /// The pinned regions in the order of their names.
    public func regions() throws -> [PinnedRegion] {
        try catchUp()
        return tables.read { t, _ in t.regions.values.sorted { $0.name < $1.name } }
    }
}
