package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What a step gave back, by the store or by the model.
package enum Outcome: Equatable, Sendable {
    case nothing
    case put([PutOutcome])
    case tile(TileEntry?, Data?)
    case flag(Bool)
    case removal(RemovalReport)
    case count(Int)
}

/// Where a bench's cache lies.
package enum BenchPlace: Sendable {
    case simulated(SimulatedDisk)
    /// A folder on the real disk; it must be empty or absent.
    case folder(String)
}

/// One cache, up to two stores on it, and the model of what they should do.
package final class StoreBench {
    /// One store with what belongs to it alone.
    package struct Process {
        package var store: TileStore
        package var files: SimulatedFileSystem?
        package var uses = StoreModel.Uses()
        package var compaction: Compaction?
        /// From where in the history the store's view may be.
        var viewSince = 0
    }

    package let clock: ManualClock
    package let place: BenchPlace
    package let setting: ScriptSetting
    package var model: StoreModel
    package var processes: [Process?] = [nil, nil]
    package var current = 0
    /// A store that may only read, if one is open.
    private var reader: (store: TileStore, files: SimulatedFileSystem?)?
    private var seed: UInt64 = 1000
    private var history: [StoreModel] = []
    private var bootID = "boot-1"

    /// Makes a new cache.
    package init(
        place: BenchPlace, clock: ManualClock, setting: ScriptSetting, model: StoreModel? = nil,
        bootID: String = "boot-1"
    ) throws {
        self.place = place
        self.clock = clock
        self.setting = setting
        self.bootID = bootID
        let blockSize =
            switch place {
            case .simulated(let disk): disk.blockSize
            case .folder(let path): DiskFileSystem(location: path).blockSize
            }
        self.model = model ?? StoreModel(limits: StoreLimits(capacity: nil), blockSize: blockSize)
        processes[0] = try openProcess()
        if model == nil, let store = processes[0]?.store {
            self.model = StoreModel(limits: try store.limits(), blockSize: blockSize)
        }
    }

    /// The files of a new process.
    package func makeFiles() -> any FileSystem {
        switch place {
        case .simulated(let disk): SimulatedFileSystem(disk)
        case .folder(let path): DiskFileSystem(location: path)
        }
    }

    package func configuration() -> StoreConfiguration {
        var configuration = StoreConfiguration()
        configuration.durability = setting.durable ? .durable : .relaxed
        configuration.digestCheck = setting.memoryTier ? .first : .always
        configuration.memoryTierBytes = setting.memoryTier ? 1500 : 0
        return configuration
    }

    package func open(
        _ files: any FileSystem, readOnly: Bool = false, limits: (capacity: Int?, entryLimit: Int?) = (nil, nil)
    ) throws -> TileStore {
        seed += 1
        var configuration = configuration()
        configuration.readOnly = readOnly
        (configuration.capacity, configuration.entryLimit) = limits
        return try TileStore(
            environment: clock.environment(files, seed: seed, bootID: bootID), configuration: configuration)
    }

    private func openProcess(limits: (capacity: Int?, entryLimit: Int?) = (nil, nil)) throws -> Process {
        let files = makeFiles()
        var process = Process(store: try open(files, limits: limits), files: files as? SimulatedFileSystem)
        process.viewSince = history.count
        return process
    }

    package var store: TileStore {
        get throws {
            if let process = processes[current] { return process.store }
            let process = try openProcess()
            processes[current] = process
            return process.store
        }
    }

    package var uses: StoreModel.Uses {
        get { processes[current]?.uses ?? StoreModel.Uses() }
        set { processes[current]?.uses = newValue }
    }

    // MARK: Steps

    /// The version that a step names: that of the entry as it is, or one that it does not have.
    private func version(_ key: TileKey, right: Bool) -> EntryVersion {
        guard let entry = model.entry(key) else { return EntryVersion(blob: nil, etag: "\"none\"", lastModified: nil) }
        var version = EntryVersion(entry)
        if !right {
            version.blob = version.blob == Universe.digests[2] ? Universe.digests[3] : Universe.digests[2]
        }
        return version
    }

    private func tiles(_ steps: [PutStep]) -> [TilePut] {
        steps.map {
            TilePut(
                key: Universe.key($0.key), data: Universe.payload($0.payload),
                metadata: Universe.metadata($0.metadata, now: clock.now))
        }
    }

    private func limits(_ blocks: Int, _ entries: Int) -> StoreLimits {
        StoreLimits(
            capacity: blocks < 0 ? nil : blocks * model.blockSize + (blocks % 2 == 0 ? 0 : model.blockSize / 3),
            entryLimit: entries)
    }

    /// Does a step in the model; `nil` for one that has no effect there but opens and closes stores.
    package func applyToModel(_ step: Step) -> Outcome? {
        let now = clock.now
        switch step {
        case .put(let put): return .put(model.put(tiles([put]), uses: &uses, now: now))
        case .batch(let puts): return .put(model.put(tiles(puts), uses: &uses, now: now))
        case .get(let number):
            let key = Universe.key(number)
            guard let entry = model.entry(key) else { return .tile(nil, nil) }
            uses.add(StoreModel.Use(key: key, blob: entry.blob))
            return .tile(entry, entry.blob.flatMap { Universe.payloadByDigest[$0] })
        case .look(let number): return .tile(model.entry(Universe.key(number)), nil)
        case .refresh(let number, let metadata, let right):
            let key = Universe.key(number)
            return .flag(
                model.refresh(
                    key, from: version(key, right: right), metadata: Universe.metadata(metadata, now: now)))
        case .touch(let number, let right):
            let key = Universe.key(number)
            if model.entry(key) != nil {
                uses.add(StoreModel.Use(key: key, blob: version(key, right: right).blob))
            }
            return .nothing
        case .expire(let number): return .count(model.expire(Universe.selection(number), now: now))
        case .remove(let numbers, let pinned):
            return .removal(model.remove(numbers.map(Universe.key), includingPinned: pinned, uses: &uses, now: now))
        case .removeSelected(let number, let pinned):
            return .removal(
                model.remove(
                    Universe.selection(number), includingPinned: pinned, uses: &uses, now: now))
        case .pin(let name, let area):
            if let region = Universe.region(name: name, area: area) { model.pin(region, uses: &uses, now: now) }
            return .nothing
        case .unpin(let number):
            guard let region = Universe.region(name: number, area: 0) else { return .nothing }
            return .flag(model.unpin(region.name, uses: &uses, now: now))
        case .evict(let blocks, let entries):
            return .removal(
                model.evict(
                    toBytes: blocks < 0 ? nil : blocks * model.blockSize, entries: entries < 0 ? nil : entries,
                    uses: &uses, now: now))
        case .limit(let blocks, let entries):
            model.setLimits(limits(blocks, entries), uses: &uses, now: now)
            return .nothing
        case .flush:
            model.flush(&uses, now: now)
            return .nothing
        default: return nil
        }
    }

    /// Does a step in the store.
    ///
    /// To be called before ``applyToModel(_:)``: what a step
    /// names, such as a version, is taken from the model as it was.
    package func applyToStore(_ step: Step) throws -> Outcome? {
        let store = try self.store
        switch step {
        case .put(let put):
            let tile = tiles([put])[0]
            return .put([try store.put(tile.data, for: tile.key, metadata: tile.metadata)])
        case .batch(let puts): return .put(try store.put(tiles(puts)))
        case .get(let number):
            try store.catchUp()
            let tile = try store.read(Universe.key(number))
            return .tile(tile?.entry, tile?.data)
        case .look(let number):
            try store.catchUp()
            return .tile(try store.entry(for: Universe.key(number)), nil)
        case .refresh(let number, let metadata, let right):
            let key = Universe.key(number)
            return .flag(
                try store.refresh(
                    key, from: version(key, right: right), metadata: Universe.metadata(metadata, now: clock.now)))
        case .touch(let number, let right):
            try store.catchUp()
            let key = Universe.key(number)
            if model.entry(key) != nil { try store.touch(key, version(key, right: right)) }
            return .nothing
        case .expire(let number): return .count(try store.expire(Universe.selection(number)))
        case .remove(let numbers, let pinned):
            return .removal(try store.remove(numbers.map(Universe.key), includingPinned: pinned))
        case .removeSelected(let number, let pinned):
            return .removal(try store.remove(Universe.selection(number), includingPinned: pinned))
        case .pin(let name, let area):
            if let region = Universe.region(name: name, area: area) { try store.pin(region) }
            return .nothing
        case .unpin(let number):
            guard let region = Universe.region(name: number, area: 0) else { return .nothing }
            return .flag(try store.unpin(region.name))
        case .evict(let blocks, let entries):
            return .removal(
                try store.evict(
                    toBytes: blocks < 0 ? nil : blocks * model.blockSize, entries: entries < 0 ? nil : entries))
        case .limit(let blocks, let entries):
            try store.setLimits(limits(blocks, entries))
            return .nothing
        case .flush:
            try store.flush()
            return .nothing
        default: return nil
        }
    }

    /// Does a step in both; returns what they disagree on.
    package func apply(_ step: Step) throws -> String? {
        switch step {
        case .glance(let number): return try glance(Universe.key(number))
        case .compact:
            // Another holder has the lock: then it is refused, and that is all.
            let busy = processes.contains { $0?.compaction != nil }
            do {
                _ = try store.compact()
                return busy ? "compacted while another compaction was under way" : nil
            } catch let error as StoreError where error.code == .busy && busy {
                return nil
            }
        case .compactBegin:
            let busy = processes.contains { $0?.compaction != nil }
            let begun = try store.beginCompaction()
            if (begun == nil) != busy { return "beginCompaction gave \(begun == nil ? "none" : "one"), busy: \(busy)" }
            if let begun { processes[current]?.compaction = begun }
        case .compactStep(let count): _ = try processes[current]?.compaction?.step(entries: count)
        case .compactFinish:
            _ = try processes[current]?.compaction?.finish()
            processes[current]?.compaction = nil
        case .compactAbandon:
            processes[current]?.compaction?.abandon()
            processes[current]?.compaction = nil
        case .reopen:
            try closeProcess(current)
            _ = try store
            return try checkFresh()
        case .reopenLimited(let blocks, let entries):
            try closeProcess(current)
            try reopen(blocks, entries)
            return try checkFresh()
        case .crash:
            kill(current)
            _ = try store
            return try checkFresh()
        case .restart:
            finish()
            bootID += "+"
            _ = try store
            return try checkFresh()
        case .follow(let number): return try follow(Universe.key(number))
        case .use(let number):
            current = number % 2
            _ = try store
        case .closeOther: try closeProcess(1 - current)
        case .clock(let seconds): clock.advance(seconds: Int64(seconds))
        case .damage(let payload, let damage): return try self.damage(payload, damage)
        case .verify(let quick, let repair):
            _ = try store
            let report = try store.verify(quick: quick, repair: repair)
            if !report.ok || !report.orphans.isEmpty || report.entries != model.entries.count {
                return "verify: \(report); the model has \(model.entries.count) entries"
            }
        default:
            // What a dry run foretells must be what happens.
            var foretold: RemovalReport?
            _ = try store
            switch step {
            case .removeSelected(let number, let pinned):
                foretold = try store.removal(of: Universe.selection(number), includingPinned: pinned)
            case .evict(let blocks, let entries) where uses.list.isEmpty:
                foretold = try store.eviction(
                    toBytes: blocks < 0 ? nil : blocks * model.blockSize, entries: entries < 0 ? nil : entries)
            default: break
            }
            let before = model
            let observed = try applyToStore(step)
            let expected = applyToModel(step)
            remember()
            // Uses of a resource that is removed and put again before they are written down may or may not count.
            switch step {
            case .get(let number), .touch(let number, _):
                if Universe.key(number).tile == nil { try flushBoth() }
            default: break
            }
            let agreed = observed.flatMap { mine in expected.map { agree(mine, $0, before) } } ?? (observed == expected)
            if !agreed { return "the store gave \(shown(observed)), the model \(shown(expected))" }
            if let foretold, expected != .removal(foretold) {
                return "the dry run gave \(foretold), the model \(shown(expected))"
            }
        }
        return nil
    }

    /// Whether outcomes agree.
    ///
    /// In a batch that replaces the last use of a blob and then puts the blob again, its bytes may count as new or not.
    package func agree(_ observed: Outcome, _ expected: Outcome, _ before: StoreModel) -> Bool {
        guard case .put(let mine) = observed, case .put(let theirs) = expected, mine.count == theirs.count else {
            return observed == expected
        }
        var known = Set(before.blobs.keys)
        for (a, b) in zip(mine, theirs) {
            defer { if case .stored(let digest?, _) = b { known.insert(digest) } }
            guard a != b else { continue }
            guard case .stored(let p?, _) = a, case .stored(let q?, _) = b, p == q, known.contains(p) else {
                return false
            }
        }
        return true
    }

    private func shown(_ outcome: Outcome?) -> String {
        guard case .tile(let entry, let data) = outcome else { return outcome.map { "\($0)" } ?? "nothing" }
        return "\(entry.map { "\($0)" } ?? "no entry") with \(data.map { "\($0.count) bytes" } ?? "no bytes")"
    }

    /// Notes the state for those who have not seen it yet.
    private func remember() {
        guard processes[1 - current] != nil else {
            history = []
            processes[current]?.viewSince = 0
            return
        }
        history.append(model)
        processes[current]?.viewSince = history.count - 1
    }

    private func glance(_ key: TileKey) throws -> String? {
        let store = try self.store
        let since = processes[current]?.viewSince ?? 0
        let tile = try store.read(key)
        var possible = history.dropFirst(max(0, since)).map { $0.entry(key) }
        possible.append(model.entry(key))
        guard possible.contains(tile?.entry) else {
            return "a glance at \(key) gave \(tile.map { "\($0.entry)" } ?? "nothing"), which it never was"
        }
        if let tile {
            let bytes = tile.entry.blob.flatMap { Universe.payloadByDigest[$0] }
            if tile.data != bytes { return "a glance at \(key) gave other bytes than its entry names" }
            uses.add(StoreModel.Use(key: key, blob: tile.entry.blob))
        }
        // What was found first may have been older than what was returned; that use must not count later.
        if possible.count > 1 || key.tile == nil { try flushBoth() }
        return nil
    }

    /// Opens the store with limits in its configuration; where only a capacity is given, the entry limit follows it.
    private func reopen(_ blocks: Int, _ entries: Int) throws {
        let wanted: (capacity: Int?, entryLimit: Int?) = (
            blocks < 0 ? nil : blocks * model.blockSize, entries < 0 ? nil : entries
        )
        processes[current] = try openProcess(limits: wanted)
        let known = model.limits
        guard wanted.capacity != nil || wanted.entryLimit != nil else { return }
        model.setLimits(
            StoreLimits(
                capacity: wanted.capacity ?? known.capacity,
                entryLimit: wanted.entryLimit ?? (wanted.capacity == nil ? known.entryLimit : nil)),
            uses: &uses, now: clock.now)
        remember()
    }

    /// Has the store that may only read catch up: it must see what the model has, and note no use.
    private func follow(_ key: TileKey) throws -> String? {
        if reader == nil {
            let files = makeFiles()
            reader = (try open(files, readOnly: true), files as? SimulatedFileSystem)
        }
        guard let reader else { return nil }
        try reader.store.catchUp()
        if let difference = difference(try reader.store.snapshot(), model.snapshot()) { return "reader: \(difference)" }
        let tile = try reader.store.read(key)
        guard tile?.entry == model.entry(key), tile?.data == tile?.entry.blob.flatMap({ Universe.payloadByDigest[$0] })
        else { return "the reader gave \(shown(.tile(tile?.entry, tile?.data))) for \(key)" }
        return nil
    }

    private func flushBoth() throws {
        try store.flush()
        model.flush(&uses, now: clock.now)
        remember()
    }

    private func closeProcess(_ number: Int) throws {
        guard let process = processes[number] else { return }
        process.compaction?.abandon()
        processes[number]?.compaction = nil
        try process.store.close()
        var uses = process.uses
        model.flush(&uses, now: clock.now)
        processes[number] = nil
        process.files?.kill()
        remember()
    }

    /// Kills a process: its store is gone with the uses that it had not recorded.
    package func kill(_ number: Int) {
        guard let process = processes[number] else { return }
        process.store.simulateKill()
        process.files?.kill()
        processes[number] = nil
    }

    private func damage(_ payload: UInt8, _ damage: Damage) throws -> String? {
        let digest = Universe.digests[Int(payload) % Universe.digests.count]
        let size = Universe.payloads[Int(payload) % Universe.payloads.count].count
        let keys = model.entries.filter { $0.value.blob == digest }.keys.sorted()
        guard let key = keys.first, size > 0 || (damage != .truncate && damage != .alter) else { return nil }
        switch place {
        case .simulated(let disk):
            switch damage {
            case .truncate: disk.corrupt(digest.path) { $0.removeLast() }
            case .alter: disk.corrupt(digest.path) { $0[$0.count / 2] ^= 0x10 }
            case .grow: disk.corrupt(digest.path) { $0.append(7) }
            case .delete: disk.remove(digest.path)
            case .folder: disk.plantFolder(digest.path)
            case .link: disk.plantLink(digest.path, to: "/tilecache.json")
            }
        case .folder(let folder):
            let path = "\(folder)/\(digest.path)"
            var bytes = Universe.payloads[Int(payload) % Universe.payloads.count]
            try FileManager.default.removeItem(atPath: path)
            switch damage {
            case .truncate: try bytes.dropLast().write(to: URL(fileURLWithPath: path))
            case .alter:
                bytes[bytes.count / 2] ^= 0x10
                try bytes.write(to: URL(fileURLWithPath: path))
            case .grow: try (bytes + [7]).write(to: URL(fileURLWithPath: path))
            case .delete: break
            case .folder: try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
            case .link:
                try FileManager.default.createSymbolicLink(
                    atPath: path, withDestinationPath: "\(folder)/tilecache.json")
            }
        }
        let store = try self.store
        try store.catchUp()
        if let tile = try store.read(key) {
            return "a read of \(key) gave \(tile.data?.count ?? 0) bytes of a blob that was damaged (\(damage))"
        }
        model.drop(digest)
        remember()
        // The read that found the damage may count as a use if the blob comes back, or not.
        try flushBoth()
        for key in keys where try store.entry(for: key) != nil {
            return "the entry \(key) outlived its blob, which was damaged (\(damage))"
        }
        return nil
    }

    // MARK: Checks

    /// Compares the store that is in use with the model, and checks the invariants.
    package func check(thoroughly: Bool) throws -> String? {
        let store = try self.store
        try store.catchUp()
        let violations = try store.invariantViolations()
        if !violations.isEmpty { return "invariants: \(violations)" }
        let expected = model.snapshot()
        if let difference = difference(try store.snapshot(), expected) { return difference }
        if model.isOverLimits { return "the model is over its limits" }
        guard thoroughly else { return nil }
        if let difference = try checkFigures(store) { return difference }
        if let other = processes[1 - current] {
            try other.store.catchUp()
            processes[1 - current]?.viewSince = history.count
            if let difference = difference(try other.store.snapshot(), expected) { return "other store: \(difference)" }
        }
        return try checkFresh()
    }

    /// What a newly opened store has must be what the model has.
    package func checkFresh() throws -> String? {
        let files = makeFiles()
        let fresh = try open(files, readOnly: true)
        defer {
            fresh.simulateKill()
            (files as? SimulatedFileSystem)?.kill()
        }
        return difference(try fresh.snapshot(), model.snapshot()).map { "freshly opened store: \($0)" }
    }

    private func checkFigures(_ store: TileStore) throws -> String? {
        let figures = try store.statistics()
        let entries = model.entries.values
        let now = clock.now
        let pairs: [(String, Int, Int)] = [
            ("entries", figures.entries, entries.count),
            ("blobs", figures.blobs, model.blobs.count),
            ("bytes", figures.bytes, model.blobs.values.reduce(0) { $0 + $1.size }),
            ("allocatedBytes", figures.allocatedBytes, model.blobs.values.reduce(0) { $0 + model.allocated($1.size) }),
            ("logicalBytes", figures.logicalBytes, entries.reduce(0) { $0 + $1.size }),
            ("fresh", figures.fresh, entries.filter { !$0.metadata.isStale(at: now) }.count),
            ("stale", figures.stale, entries.filter { $0.metadata.isStale(at: now) }.count),
            ("pinnedEntries", figures.pinnedEntries, entries.filter(\.isPinned).count),
            (
                "pinnedBytes", figures.pinnedBytes,
                model.blobs.values.reduce(0) { $0 + ($1.pins > 0 ? model.allocated($1.size) : 0) }
            ),
        ]
        for (name, mine, theirs) in pairs where mine != theirs {
            return "statistics: \(name) is \(mine), the model has \(theirs)"
        }
        var order: [TileKey] = []
        try store.forEachEntry(in: .recency) { order.append($0.key) }
        let expected = model.entries.sorted { $0.value.recency < $1.value.recency }.map(\.key)
        if order != expected { return "entries in order of use: \(order), the model has \(expected)" }
        for (digest, blob) in model.blobs where try store.references(to: digest) != blob.references {
            return "references to \(digest): the model has \(blob.references)"
        }
        return nil
    }

    /// Kills all processes.
    package func finish() {
        for number in 0..<2 { kill(number) }
        reader?.store.simulateKill()
        reader?.files?.kill()
        reader = nil
    }
}

/// What two snapshots differ in, or `nil`.
package func difference(_ mine: StoreSnapshot, _ theirs: StoreSnapshot) -> String? {
    if mine == theirs { return nil }
    if mine.limits != theirs.limits { return "limits \(mine.limits), the model has \(theirs.limits)" }
    if mine.regions != theirs.regions { return "regions \(mine.regions), the model has \(theirs.regions)" }
    var lines: [String] = []
    let (a, b) = (
        Dictionary(mine.entries.map { ($0.key, $0) }) { x, _ in x },
        Dictionary(theirs.entries.map { ($0.key, $0) }) { x, _ in x }
    )
    for key in Set(a.keys).union(b.keys).sorted() where a[key] != b[key] {
        lines.append("\(key): \(a[key].map { "\($0)" } ?? "absent") / model \(b[key].map { "\($0)" } ?? "absent")")
    }
    let (p, q) = (
        Dictionary(mine.blobs.map { ($0.digest, $0) }) { x, _ in x },
        Dictionary(theirs.blobs.map { ($0.digest, $0) }) { x, _ in x }
    )
    for digest in Set(p.keys).union(q.keys).sorted() where p[digest] != q[digest] {
        lines.append("\(p[digest].map { "\($0)" } ?? "absent") / model \(q[digest].map { "\($0)" } ?? "absent")")
    }
    if mine.nextSequence != theirs.nextSequence {
        lines.append("nextSequence \(mine.nextSequence) / model \(theirs.nextSequence)")
    }
    return lines.isEmpty ? "the order of entries or blobs" : lines.prefix(6).joined(separator: "; ")
}

/// Runs a script on a store and on the model; returns the first thing they disagree on.
package func replay(_ steps: [Step], setting: ScriptSetting, folder: String? = nil) -> String? {
    let clock = ManualClock()
    var at = -1
    do {
        let place: BenchPlace = folder.map { .folder($0) } ?? .simulated(SimulatedDisk(clock: clock, blockSize: 64))
        let bench = try StoreBench(place: place, clock: clock, setting: setting)
        defer { bench.finish() }
        for (index, step) in steps.enumerated() {
            at = index
            if let difference = try bench.apply(step) { return "step \(index), \(step): \(difference)" }
            clock.advance(nanoseconds: 3_000_000)
            switch step {
            case .use, .glance, .follow: continue
            default: break
            }
            if let difference = try bench.check(thoroughly: index % 16 == 15 || index == steps.count - 1) {
                return "after step \(index), \(step): \(difference)"
            }
        }
        return nil
    } catch {
        return "step \(at)\(at >= 0 ? ", \(steps[at])" : ""): threw \(error)"
    }
}
