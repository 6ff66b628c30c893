/// A selection made ready for comparing with records.
struct Matcher {
    private let selection: EntrySelection
    private let now: Timestamp
    private var spans: [Int: [TileSpan]] = [:]
    private var regions: [(source: SourceName, index: RegionIndex)] = []
    private var resources = Set<TileKey>()

    init(_ selection: EntrySelection, now: Timestamp) throws {
        self.selection = selection
        self.now = now
        regions = selection.region?.tiles.map { ($0.source, RegionIndex($0.spans)) } ?? []
        resources = Set(selection.region?.resources ?? [])
        if let box = selection.box {
            for zoom in 0...28 where selection.zooms?.contains(zoom) ?? true { spans[zoom] = try box.spans(zoom: zoom) }
        }
    }

    func matches(_ record: EntryRecord, _ tables: Tables) -> Bool {
        let key = record.key
        if let source = selection.source, tables.names.sources[Int(key.source)] != source { return false }
        if let zooms = selection.zooms {
            guard !key.isResource, zooms.contains(key.zoom) else { return false }
        }
        if selection.box != nil {
            guard !key.isResource,
                spans[key.zoom]?.contains(where: { $0.contains(z: key.zoom, x: key.column, y: key.row) }) ?? false
            else { return false }
        }
        if selection.region != nil {
            if key.isResource {
                guard !resources.isEmpty, let shared = tables.key(key).forAllVariants, resources.contains(shared)
                else { return false }
            } else {
                let source = tables.names.sources[Int(key.source)]
                guard let index = regions.first(where: { $0.source == source })?.index,
                    index.contains(z: key.zoom, x: key.column, y: key.row)
                else { return false }
            }
        }
        let isStale =
            Int64(record.expires) <= now.seconds || Int64(record.storedAt) > now.adding(seconds: 60).seconds
        if selection.stale, !isStale { return false }
        if let age = selection.staleFor, Int64(record.expires) > now.adding(seconds: -Int64(clamping: age)).seconds {
            return false
        }
        if let age = selection.unusedFor, Int64(record.lastUsed) > now.adding(seconds: -Int64(clamping: age)).seconds {
            return false
        }
        if let keys = selection.keys, !keys.contains(tables.key(key)) { return false }
        return true
    }
}

extension TileStore {
    /// In what order entries are visited.
    public enum EntryOrder: Sendable {
        /// By source, then zoom, column, row.
        case key
        /// Least recently used first.
        case recency
    }

    /// Visits entries without touching their blobs.
    ///
    /// Readers and writers go on meanwhile: each entry is visited as it is at that time, and one that is gone by then
    /// is left out.
    public func forEachEntry(
        in order: EntryOrder = .key, where selection: EntrySelection = EntrySelection(),
        _ body: (TileEntry) throws -> Void
    ) throws {
        try catchUp()
        let selected = try keys(selection, order)
        for i in selected.indices {
            let entry = tables.read { t, _ in selected.key(i, in: t).flatMap { t.find($0) }.map { t.entry($0) } }
            if let entry { try body(entry) }
        }
    }

    /// How many entries name a blob.
    public func references(to blob: BlobDigest) throws -> Int {
        try catchUp()
        return tables.read { t, _ in t.find(blob).map { Int(t.blobs[$0].pointee.references) } ?? 0 }
    }

    /// Walks the entries of some tables in slices, so that writers come in between.
    ///
    /// Slots are those of these tables: if a reload replaces them meanwhile, the walk goes on in the old ones, which
    /// nobody changes any more.
    func scan(_ t: Tables, _ body: (UInt32) -> Void) {
        var from: UInt32 = 0
        while true {
            let more = tables.read { _, _ -> Bool in
                let end = min(t.entries.count, from + 16384)
                for slot in from..<max(from, end) {
                    let record = t.entries[slot].pointee
                    guard record.isLive, record.blob == noSlot || t.blobs[record.blob].pointee.isLive else { continue }
                    body(slot)
                }
                from = max(from, end)
                return end < t.entries.count
            }
            if !more { return }
            giveWay()
        }
    }

    /// Lets writers, who need all of the tables' locks, in between two slices of a walk.
    ///
    /// A lock that is taken again at once is never had by those who wait for it.
    func giveWay() { environment.pause(20_000) }

    /// Walks the entries that are selected, in slices.
    private func scan(_ t: Tables, of selection: EntrySelection, _ body: (EntryRecord) -> Void) throws {
        let matcher = try Matcher(selection, now: environment.now())
        func visit(_ slot: UInt32) {
            let record = t.entries[slot].pointee
            if matcher.matches(record, t) { body(record) }
        }
        guard let tiles = selection.tiles else { return scan(t, visit) }
        scan(t, of: tiles, source: selection.source) { slot, _ in visit(slot) }
    }

    /// The keys of a selection that are looked up one by one, in no order; `nil` if it takes a walk to find its entries.
    private func fewKeys(_ selection: EntrySelection) -> SelectedKeys? {
        guard let few = selection.keys, few.count < 4096, selection.tiles == nil else { return nil }
        return tables.read { t, _ in SelectedKeys(few.compactMap { t.packed($0) }, of: t) }
    }

    private func keys(_ selection: EntrySelection, _ order: EntryOrder?) throws -> SelectedKeys {
        if order == nil, let few = fewKeys(selection) { return few }
        let t = tables.read { t, _ in t }
        if order == .recency {
            var found: [(recency: UInt64, key: PackedKey)] = []
            try scan(t, of: selection) { record in found.append((record.recency, record.key)) }
            found.sort { $0.recency < $1.recency }
            return SelectedKeys(found.map(\.key), of: t)
        }
        // Counted first: of a list of millions that grows as it is filled, two would be there at a time.
        var count = selection.tiles?.count ?? 0
        if selection.tiles == nil { try scan(t, of: selection) { _ in count += 1 } }
        var found: [PackedKey] = []
        found.reserveCapacity(count)
        try scan(t, of: selection) { record in found.append(record.key) }
        guard order == .key else { return SelectedKeys(found, of: t) }
        // Numbers of names say nothing about their order.
        let (sources, variants) = tables.read { _, _ in
            let variants = t.names.variants.ranks { ($0.scale, $0.format ?? "") < ($1.scale, $1.format ?? "") }
            return (t.names.sources.ranks(by: <), variants)
        }
        found.sort { p, q in
            if p.source != q.source { return sources[Int(p.source)] < sources[Int(q.source)] }
            if p.position != q.position { return p.position < q.position }
            return variants[Int(p.variant)] < variants[Int(q.variant)]
        }
        sortResources(&found, t)
        return SelectedKeys(found, of: t)
    }

    /// Resources are numbered as they came; among themselves they go by their names.
    private func sortResources(_ found: inout [PackedKey], _ t: Tables) {
        var from = 0
        while from < found.count {
            guard found[from].isResource else {
                from += 1
                continue
            }
            var to = from
            while to < found.count, found[to].isResource, found[to].source == found[from].source { to += 1 }
            let named = tables.read { _, _ in found[from..<to].map { (name: t.key($0), item: $0) } }
            found.replaceSubrange(from..<to, with: named.sorted { $0.name < $1.name }.map(\.item))
            from = to
        }
    }

    // MARK: Removing and expiring

    /// Removes entries by their keys; blobs that nothing refers to any more go with them.
    public func remove(_ keys: [TileKey], includingPinned: Bool = false) throws -> RemovalReport {
        var selection = EntrySelection()
        selection.keys = Set(keys)
        return try remove(selection, includingPinned: includingPinned)
    }

    /// Removes an entry if it is still in the state that the decision was made on, and no region pins it.
    ///
    /// - Returns: `false` if another one is there by now, none, or one that is pinned.
    package func remove(_ key: TileKey, from version: EntryVersion) throws -> Bool {
        try catchUpForChange()
        var selection = EntrySelection()
        selection.keys = [key]
        var isRemoved = false
        try change(selection) { chunk, matcher, ledger in
            let (keys, blobs) = tables.read { t, _ in
                let same = chunk.filter { packed in
                    t.find(packed).map { EntryVersion(t.entry($0, key: key)) == version } ?? false
                }
                return t.removable(same, matcher, includingPinned: false)
            }
            guard !keys.isEmpty else { return }
            var lines = LineBuffer()
            lines.gone(keys)
            try appendRemoval(lines, blobs, ledger)
            isRemoved = true
        }
        return isRemoved
    }

    /// Removes entries; blobs that nothing refers to any more go with them.
    ///
    /// In many short holds of the lock; an entry that does not match any more when its turn comes, stays. If pinned entries
    /// are included, a shared blob may lose its pin and then count for the capacity; what is evicted for that reason is not
    /// in the report.
    public func remove(_ selection: EntrySelection, includingPinned: Bool = false) throws -> RemovalReport {
        try catchUpForChange()
        var report = RemovalReport()
        try change(selection) { chunk, matcher, ledger in
            let (keys, blobs) = tables.read { t, _ in
                t.removable(chunk, matcher, includingPinned: includingPinned)
            }
            guard !keys.isEmpty else { return }
            var lines = LineBuffer()
            lines.gone(keys)
            try counting(into: &report) { try appendRemoval(lines, blobs, ledger) }
        }
        // A shared blob that loses its pin goes onto the account that has a limit.
        if includingPinned { try enforceLimits() }
        return report
    }

    /// What ``remove(_:includingPinned:)-(EntrySelection,_)`` would remove now, and would report.
    ///
    /// Changes nothing. Exact as long as nobody changes the cache and no selected entry turns stale; what is changed during
    /// the walk over the entries may be counted or not. Takes 4 bytes of memory a blob.
    public func removal(of selection: EntrySelection, includingPinned: Bool = false) throws -> RemovalReport {
        try catchUp()
        if let few = fewKeys(selection) {
            let matcher = try Matcher(selection, now: environment.now())
            return tables.read { t, _ in
                let (keys, blobs) = t.removable(
                    few.keys(few.indices, in: t), matcher, includingPinned: includingPinned)
                var report = RemovalReport()
                report.removedEntries = keys.count
                report.removedBlobs = blobs.count
                for digest in blobs {
                    if let slot = t.find(digest) { report.freedBytes += t.allocated(t.blobs[slot].pointee.size) }
                }
                return report
            }
        }
        var report = RemovalReport()
        // By slot: how many of a blob's entries would go.
        var leaving: [UInt32] = []
        let t = tables.read { t, _ in t }
        try scan(t, of: selection) { record in
            guard includingPinned || !record.isPinned else { return }
            report.removedEntries += 1
            guard record.blob != noSlot else { return }
            let blob = Int(record.blob)
            if blob >= leaving.count {
                // Others may add blobs between two slices of the walk.
                leaving.append(contentsOf: repeatElement(0, count: Int(t.blobs.count) - leaving.count))
            }
            leaving[blob] += 1
            guard leaving[blob] == t.blobs[record.blob].pointee.references else { return }
            report.removedBlobs += 1
            report.freedBytes += t.allocated(t.blobs[record.blob].pointee.size)
        }
        return report
    }

    /// Marks fresh entries as stale: they are revalidated at their next use.
    ///
    /// Returns how many were fresh.
    public func expire(_ selection: EntrySelection) throws -> Int {
        try catchUpForChange()
        var count = 0
        let now = environment.now()
        try change(selection) { chunk, matcher, ledger in
            let keys = tables.read { t, _ in
                chunk.compactMap { key -> TileKey? in
                    guard let slot = t.find(key) else { return nil }
                    let record = t.entries[slot].pointee
                    guard Int64(record.expires) > Int64(now.packed), matcher.matches(record, t) else { return nil }
                    return t.key(key)
                }
            }
            guard !keys.isEmpty else { return }
            var lines = LineBuffer()
            lines.expire(keys, at: now)
            try appendRecords(lines, ledger)
            count += keys.count
        }
        return count
    }

    private func catchUpForChange() throws {
        guard !isReadOnly else {
            throw StoreError(.readOnly, "\(files.location) is open for reading alone; nothing can be changed in it")
        }
        // Under the lock, so that what other processes have just written is selected from too.
        try hold { _ in }
    }

    private func change(
        _ selection: EntrySelection, _ body: ([PackedKey], Matcher, Ledger) throws -> Void
    ) throws {
        let matcher = try Matcher(selection, now: environment.now())
        let selected = try keys(selection, nil)
        var from = 0
        var work = beginLongWork()
        while from < selected.indices.upperBound {
            if from > 0 { work.letOthersIn() }
            let to = min(from + 256, selected.indices.upperBound)
            try hold { ledger in
                // Nobody replaces the tables during a hold, but between two holds they may be.
                let chunk = tables.read { t, _ in selected.keys(from..<to, in: t) }
                try body(chunk, matcher, ledger)
                if isCompactionDue(ledger) { maintenance?.scheduleCompaction() }
            }
            from = to
        }
    }
}

/// Keys that a walk over the entries has found, packed, together with the tables that they are valid in.
///
/// Others may replace the tables before the keys are used. In other tables the same numbers mean other names, so keys are
/// only handed out for the tables that they will be looked up in.
struct SelectedKeys {
    private let packed: [PackedKey]
    // Kept alive: so their address is theirs alone, and their names can be looked up after they were replaced.
    private let origin: Tables

    init(_ packed: [PackedKey], of tables: Tables) { (self.packed, origin) = (packed, tables) }

    var indices: Range<Int> { packed.indices }

    /// A key as some tables know it; `nil` if they have no such name.
    ///
    /// Only under the lock of these tables.
    @inline(__always)
    func key(_ i: Int, in tables: Tables) -> PackedKey? {
        tables === origin ? packed[i] : origin.knownKey(packed[i]).flatMap { tables.packed($0) }
    }

    /// Several keys as some tables know them.
    func keys(_ range: Range<Int>, in tables: Tables) -> [PackedKey] {
        tables === origin ? Array(packed[range]) : range.compactMap { key($0, in: tables) }
    }
}

extension Tables {
    /// Which of some entries may go, and the blobs that would go with them.
    func removable(
        _ packed: [PackedKey], _ matcher: Matcher, includingPinned: Bool
    ) -> (keys: [TileKey], blobs: [BlobDigest]) {
        var keys: [TileKey] = []
        var freed: [BlobDigest] = []
        var references: [UInt32: UInt32] = [:]
        for key in packed {
            guard let slot = find(key) else { continue }
            let record = entries[slot].pointee
            guard includingPinned || !record.isPinned, matcher.matches(record, self) else { continue }
            keys.append(self.key(key))
            guard record.blob != noSlot else { continue }
            let count = references[record.blob, default: blobs[record.blob].pointee.references] - 1
            references[record.blob] = count
            if count == 0 { freed.append(blobs[record.blob].pointee.digest) }
        }
        return (keys, freed)
    }
}

extension Array {
    /// The rank of each element in an order.
    fileprivate func ranks(by areInOrder: (Element, Element) -> Bool) -> [Int] {
        var ranks = [Int](repeating: 0, count: count)
        for (rank, i) in indices.sorted(by: { areInOrder(self[$0], self[$1]) }).enumerated() { ranks[i] = rank }
        return ranks
    }
}
