// Copying the tables out of a store in use, and putting them together again.
extension Tables {
    /// Begins to mark what changes; `false` without memory for it.
    func beginMarking() -> Bool {
        sets.beginMarking()
        let all = [
            entries.beginMarking(), blobs.beginMarking(), details.beginMarking(), entryIndex.beginMarking(),
            blobIndex.beginMarking(),
        ]
        if all.contains(false) { endMarking() }
        return !all.contains(false)
    }

    func endMarking() {
        sets.endMarking()
        entries.endMarking()
        blobs.endMarking()
        details.endMarking()
        entryIndex.endMarking()
        blobIndex.endMarking()
    }

    /// All that is small, apart from where in the journal it is.
    func imageState() -> ImageState {
        var state = ImageState()
        state.hashSeed = hashSeed
        state.blockSize = UInt64(blobAccount.blockSize)
        state.entrySlots = UInt64(entries.count)
        state.blobSlots = UInt64(blobs.count)
        state.freeEntry = UInt64(freeEntry)
        state.freeBlob = UInt64(freeBlob)
        state.firstEntry = UInt64(entryOrder.first)
        state.lastEntry = UInt64(entryOrder.last)
        state.firstBlob = UInt64(blobOrder.first)
        state.lastBlob = UInt64(blobOrder.last)
        state.nextResource = names.nextResource
        state.nextSet = UInt64(sets.nextNumber)
        state.setSlots = UInt64(sets.count)
        state.generation = sets.generation
        state.nextSequence = nextSequence
        state.entryCount = UInt64(entryAccount.count)
        state.unpinnedEntries = UInt64(entryAccount.unpinned)
        state.blobCount = UInt64(blobAccount.count)
        state.blobBytes = UInt64(blobAccount.bytes)
        state.logicalBytes = UInt64(blobAccount.logicalBytes)
        state.allocatedUnpinned = UInt64(blobAccount.allocatedUnpinned)
        state.allocatedPinned = UInt64(blobAccount.allocatedPinned)
        state.detailSegments = UInt64(details.segmentCount)
        state.detailsUsed = UInt64(details.used)
        state.freeDetails = details.free
        state.entryCells = (0..<SlotIndex.segmentCount).map { entryIndex.count(ofSegment: $0) }
        state.blobCells = (0..<SlotIndex.segmentCount).map { blobIndex.count(ofSegment: $0) }
        state.sources = names.sources.map(\.description)
        state.variants = names.variants
        var lines = LineBuffer()
        lines.limits(limits)
        if let boot { lines.boot(boot) }
        for region in regions.values.sorted(by: { $0.name < $1.name }) { lines.region(region) }
        state.lines = Array(lines.bytes)
        return state
    }

    /// The name of a resource's entry, for an image.
    func writeResource(_ slot: UInt32, to out: inout LineBuffer) {
        let record = entries[slot].pointee
        guard record.isLive, record.key.isResource else { return }
        let number = record.key.resourceNumber
        guard let name = names.resource(number) else { return }
        out.word(number)
        out.word(UInt64(name.source))
        out.counted(name.text)
    }
}

// Putting them together.
extension Tables {
    /// Empty tables with room for what an image's blocks hold; `nil` if its state is none that tables can have.
    static func restoring(_ state: ImageState, _ bounds: TableBounds) -> Tables? {
        let slots = UInt64(Segments<EntryRecord>.limit)
        let links = [
            state.freeEntry, state.freeBlob, state.firstEntry, state.lastEntry, state.firstBlob, state.lastBlob,
        ]
        let (entrySlots, blobSlots) = (state.entrySlots, state.blobSlots)
        guard entrySlots <= slots, blobSlots <= slots, links.allSatisfy({ $0 <= UInt64(UInt32.max) }),
            state.detailSegments < 1 << 18, state.detailsUsed <= UInt64(DetailArena.segmentWords),
            state.freeDetails.count == DetailArena.sizes, state.entryCells.count == SlotIndex.segmentCount,
            state.blobCells.count == SlotIndex.segmentCount, state.sources.count <= bounds.names,
            state.variants.count <= bounds.names, state.variants.first?.scale == 1,
            state.nextSet <= UInt64(TableBounds.sets), state.generation <= Ledger.lastGeneration,
            state.nextResource <= TableBounds.resources, state.setSlots <= slots, state.nextSequence > 0,
            state.nextSequence <= recencyEnd
        else { return nil }
        let tables = Tables(blockSize: Int(state.blockSize), hashSeed: state.hashSeed, bounds: bounds)
        guard tables.entries.restore(count: UInt32(entrySlots)), tables.blobs.restore(count: UInt32(blobSlots)) else {
            return nil
        }
        tables.details.restore(
            segments: Int(state.detailSegments), used: Int(state.detailsUsed), free: state.freeDetails)
        tables.freeEntry = UInt32(state.freeEntry)
        tables.freeBlob = UInt32(state.freeBlob)
        tables.entryOrder = RecencyList(first: UInt32(state.firstEntry), last: UInt32(state.lastEntry))
        tables.blobOrder = RecencyList(first: UInt32(state.firstBlob), last: UInt32(state.lastBlob))
        tables.sets.begin(state.generation, nextNumber: UInt32(state.nextSet))
        tables.sets.reserve(slots: Int(state.setSlots))
        tables.nextSequence = state.nextSequence
        tables.entryAccount.restore(state)
        tables.blobAccount.restore(state)
        guard tables.names.restore(state) else { return nil }
        return tables.restoreLines(state.lines) ? tables : nil
    }

    private func restoreLines(_ lines: [UInt8]) -> Bool {
        let reader = LineReader()
        for line in lines.split(separator: 0x0A) {
            let parsed = Array(line).withUnsafeBytes { LineReader.body(of: $0).flatMap { reader.readAny($0) } }
            switch parsed {
            case .limits(let limits): self.limits = limits
            case .boot(let id): boot = id
            case .region(let region):
                guard region.sources.allSatisfy({ names.source($0.description) != nil }) else { return false }
                regions[region.name] = region
            default: return false
            }
        }
        // What they pin is marked in the records already.
        indexRegions()
        return true
    }

    func restoreResources(_ block: UnsafeRawBufferPointer) -> Bool {
        var scan = ImageScan(block)
        while !scan.isAtEnd {
            guard let number = scan.word(), number < names.nextResource, let source = scan.word(),
                source < UInt64(names.sources.count), let text = scan.counted()
            else { return false }
            // An entry that went while the image was written left its name behind.
            let key = PackedKey(
                position: PackedKey.resourceZoom << 56 | number, source: UInt16(source), variant: 0)
            if findPhysical(key) != nil { names.restore(resource: number, UInt16(source), text) }
        }
        return true
    }
}
