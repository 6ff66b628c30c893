extension TileStore {
    /// Keeps what a region covers, what is there and what will be, whatever the limits say, on an account of their own.
    ///
    /// Another region of that name is replaced. Costs a pass over the entries.
    public func pin(_ region: PinnedRegion) throws { try pin(region, stagedPlan: nil) }

    /// The same.
    ///
    /// - Parameter stagedPlan: Where a plan for it is staged. Without one, a plan for another region of that name goes.
    func pin(_ region: PinnedRegion, stagedPlan: String?) throws {
        try enforcingLimits { try hold { try pin(region, stagedPlan, $0) } }
    }

    private func pin(_ region: PinnedRegion, _ stagedPlan: String?, _ ledger: Ledger) throws {
        guard let folder = try ledger.confirmFolder() else { throw replacedMeanwhile(region.name) }
        let plans = PlanFolder(files)
        // What is in the plan's way must not be noticed only when the region's record stands.
        if stagedPlan != nil { try plans.prepare(for: region.name) }
        let (isNew, hasRoom) = tables.read { t, _ in
            (t.regions[region.name] != region, t.names.hasRoom(for: region.sources))
        }
        guard hasRoom else {
            throw TableBound.sources.error(
                storing: "region \(region.name)", in: files.location, environment.bounds)
        }
        // As with limits: the record that is there may not be on the disk.
        if isNew || isDurable {
            var lines = LineBuffer()
            lines.region(region)
            try appendRecords(lines, ledger)
        }
        // Last: a plan counts with the region that it is for, and with no other.
        if let stagedPlan {
            try plans.place(stagedPlan, of: region.name, folder)
        } else if isNew {
            try plans.remove(region.name, folder)
        }
    }

    /// Gives what a region covers back to eviction; limits are enforced at once.
    ///
    /// - Returns: `false` if there is no region of that name.
    public func unpin(_ name: String) throws -> Bool { try enforcingLimits { try release(name) } }

    /// Gives what a region covers back to eviction, and leaves the limits to the caller.
    private func release(_ name: String) throws -> Bool {
        try hold { ledger -> Bool in
            guard tables.read({ t, _ in t.regions[name] != nil }) else { return false }
            guard let folder = try ledger.confirmFolder() else { throw replacedMeanwhile(name) }
            var lines = LineBuffer(capacity: 128)
            lines.regionGone(name)
            try appendRemoval(lines, [], ledger)
            // Without its region it counts no more.
            try PlanFolder(files).remove(name, folder)
            return true
        }
    }

    private func replacedMeanwhile(_ region: String) -> StoreError {
        StoreError(.busy, "\(files.location) was replaced while region \(region) was changed; try again")
    }

    /// The pinned regions in the order of their names.
    public func regions() throws -> [PinnedRegion] {
        try catchUp()
        return tables.read { t, _ in t.regions.values.sorted { $0.name < $1.name } }
    }

    /// Gives a region up together with its tiles and resources, except those that another region pins; space is free at once.
    ///
    /// - Returns: What was removed; `nil` if there is no region of that name.
    /// - Throws: `StoreError`. The region itself is gone first, so that what remains of an interrupted removal can be
    ///   evicted.
    public func removeRegion(_ name: String) throws -> RemovalReport? {
        guard let region = try regions().first(where: { $0.name == name }) else { return nil }
        // The limits come last: before the tiles are gone, others would be evicted to make room for them.
        return try enforcingLimits {
            guard try release(name) else { return nil }
            var selection = EntrySelection()
            selection.region = region
            return try remove(selection)
        }
    }

    /// How much of each pinned region is there, in the order of their names.
    ///
    /// Costs a pass over the entries for each region.
    public func regionStatistics() throws -> [RegionStatistics] {
        try regions().map { region in
            var figures = RegionStatistics(region: region, tiles: region.tileCount)
            var blobs = Set<BlobDigest>()
            var resources = Set<TileKey>()
            var selection = EntrySelection()
            selection.region = region
            try forEachEntry(where: selection) { entry in
                guard let blob = entry.blob else { return }
                if let resource = entry.key.forAllVariants {
                    resources.insert(resource)
                } else {
                    figures.present += 1
                }
                if blobs.insert(blob).inserted { figures.bytes += entry.size }
            }
            figures.presentResources = resources.count
            return figures
        }
    }
}
