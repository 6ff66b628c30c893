// Copying the tables out of a store in use, and putting them together again.
extension Tables {
    /// Begins to mark what changes; `false` without memory for it.
    func beginMarking() -> Bool {
        marksSets = true
        changedSets = []
        let all = [
            entries.beginMarking(), blobs.beginMarking(), details.beginMarking(), entryIndex.beginMarking(),
            blobIndex.beginMarking(),
        ]
        if all.contains(false) { endMarking() }
        return !all.contains(false)
    }

    func endMarking() {
        marksSets = false
        changedSets = []
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
        state.blockSize = UInt64(blockSize)
        state.entrySlots = UInt64(entries.count)
        state.blobSlots = UInt64(blobs.count)
        state.freeEntry = UInt64(freeEntry)
        state.freeBlob = UInt64(freeBlob)
        state.firstEntry = UInt64(entryOrder.first)
        state.lastEntry = UInt64(entryOrder.last)
        state.firstBlob = UInt64(blobOrder.first)
        state.lastBlob = UInt64(blobOrder.last)
        state.nextResource = nextResource
        state.nextSet = UInt64(nextSet)
        state.setSlots = UInt64(sets.count)
        state.generation = generation
        state.nextSequence = nextSequence
        state.entryCount = UInt64(entryCount)
        state.unpinnedEntries = UInt64(unpinnedEntries)
        state.blobCount = UInt64(blobCount)
        state.blobBytes = UInt64(blobBytes)
        state.logicalBytes = UInt64(logicalBytes)
        state.allocatedUnpinned = UInt64(allocatedUnpinned)
        state.allocatedPinned = UInt64(allocatedPinned)
        state.detailSegments = UInt64(details.segmentCount)
        state.detailsUsed = UInt64(details.used)
        state.freeDetails = details.free
        state.entryCells = (0..<SlotIndex.segmentCount).map { entryIndex.count(ofSegment: $0) }
        state.blobCells = (0..<SlotIndex.segmentCount).map { blobIndex.count(ofSegment: $0) }
        state.sources = sources.map(\.description)
        state.variants = variants
        var lines = LineBuffer()
        lines.limits(limits)
        if let boot { lines.boot(boot) }
        for region in regions.values.sorted(by: { $0.name < $1.name }) { lines.region(region) }
        state.lines = Array(lines.bytes)
        return state
    }

    /// A set by its slot, for an image; an empty line where there is none.
    func writeSet(_ slot: UInt32, to out: inout LineBuffer) {
        guard Int(slot) < sets.count else { return }
        let set = sets[Int(slot)]
        out.word(UInt64(slot))
        out.word(UInt64(set?.number ?? 0))
        out.word(UInt64(bitPattern: Int64(set?.uses ?? 0)))
        out.word(set?.definedIn ?? 0)
        var line = LineBuffer(capacity: 512)
        if let set { line.set(set.number, set.fields) }
        out.word(UInt64(line.count))
        out.raw(line.bytes)
    }

    /// The name of a resource's entry, for an image.
    func writeResource(_ slot: UInt32, to out: inout LineBuffer) {
        let record = entries[slot].pointee
        guard record.isLive, record.key.isResource else { return }
        let number = record.key.position & 0xFF_FFFF_FFFF_FFFF
        guard let name = resourceNames[number] else { return }
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
        tables.nextResource = state.nextResource
        tables.nextSet = UInt32(state.nextSet)
        tables.generation = state.generation
        tables.nextSequence = state.nextSequence
        tables.entryCount = Int(clamping: state.entryCount)
        tables.unpinnedEntries = Int(clamping: state.unpinnedEntries)
        tables.blobCount = Int(clamping: state.blobCount)
        tables.blobBytes = Int(clamping: state.blobBytes)
        tables.logicalBytes = Int(clamping: state.logicalBytes)
        tables.allocatedUnpinned = Int(clamping: state.allocatedUnpinned)
        tables.allocatedPinned = Int(clamping: state.allocatedPinned)
        for source in state.sources {
            let number = Array(source.utf8).withUnsafeBytes { tables.sourceNumber($0) }
            guard number == UInt16(tables.sources.count - 1) else { return nil }
        }
        for variant in state.variants.dropFirst() {
            let format = variant.format.map { Array($0.utf8) }
            let number =
                format?.withUnsafeBytes { tables.enteredVariant(variant.scale, $0) }
                ?? tables.enteredVariant(variant.scale, nil)
            guard number == UInt16(tables.variants.count - 1) else { return nil }
        }
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
                guard sourceNumbers[region.source.description] != nil else { return false }
                regions[region.name] = region
            default: return false
            }
        }
        // What they pin is marked in the records already.
        for source in Set(regions.values.map(\.source)) { _ = indexRegions(of: source) }
        return true
    }

    func restoreSets(_ block: UnsafeRawBufferPointer) -> Bool {
        let reader = LineReader()
        var scan = ImageScan(block)
        while !scan.isAtEnd {
            guard let slot = scan.word(), slot < UInt64(sets.count), let number = scan.word(), number <= UInt32.max,
                let uses = scan.word(), let definedIn = scan.word(), let length = scan.count(of: 1),
                let line = scan.take(length)
            else { return false }
            guard length > 0 else {
                sets[Int(slot)] = nil
                continue
            }
            guard let body = LineReader.body(of: UnsafeRawBufferPointer(rebasing: line.dropLast())),
                case .set(UInt32(number), let fields) = reader.readAny(body)
            else { return false }
            sets[Int(slot)] = SharedSet(
                number: UInt32(number), fields: fields, uses: Int(Int64(bitPattern: uses)), definedIn: definedIn)
        }
        return true
    }

    /// Enters what is known of sets by their numbers and fields.
    func finishSets() {
        for (slot, set) in sets.enumerated() {
            guard let set else {
                freeSets.append(UInt32(slot))
                continue
            }
            setSlots[set.number] = UInt32(slot)
            // Of equal ones the latest is referred to.
            setNumbers[set.fields] = max(setNumbers[set.fields] ?? 0, set.number)
        }
    }

    func restoreResources(_ block: UnsafeRawBufferPointer) -> Bool {
        var scan = ImageScan(block)
        while !scan.isAtEnd {
            guard let number = scan.word(), number < nextResource, let source = scan.word(),
                source < UInt64(sources.count), let text = scan.counted()
            else { return false }
            // An entry that went while the image was written left its name behind.
            let key = PackedKey(
                position: PackedKey.resourceZoom << 56 | number, source: UInt16(source), variant: 0)
            guard findPhysical(key) != nil else { continue }
            let name = ResourceName(source: UInt16(source), text: text)
            resourceNames[number] = name
            resources[name] = number
        }
        return true
    }
}
