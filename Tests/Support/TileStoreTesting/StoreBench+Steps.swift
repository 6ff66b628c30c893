import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

// Carrying steps out, on the model and on the store.
extension StoreBench {
    /// The version that a step names: that of the entry as it is, or one that it does not have.
    func version(_ key: TileKey, right: Bool) -> EntryVersion {
        guard let entry = model.entry(key) else { return EntryVersion(blob: nil, etag: "\"none\"", lastModified: nil) }
        var version = EntryVersion(entry)
        if !right {
            version.blob = version.blob == Universe.digests[2] ? Universe.digests[3] : Universe.digests[2]
        }
        return version
    }

    func tiles(_ steps: [PutStep]) -> [TilePut] {
        steps.map {
            TilePut(
                key: Universe.key($0.key), data: Universe.payload($0.payload),
                metadata: Universe.metadata($0.metadata, now: clock.now))
        }
    }

    func limits(_ blocks: Int, _ entries: Int) -> StoreLimits {
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
        case .bodyBegin, .bodyAppend, .bodyAbort: return .nothing
        case .bodyCommit(let number, let key, let metadata, let others):
            guard let body = processes[current]?.bodies[number] else { return .nothing }
            let first = TilePut(
                key: Universe.key(key), data: body.payload, metadata: Universe.metadata(metadata, now: now))
            return .put(model.put([first] + tiles(others), uses: &uses, now: now))
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
        for (number, body) in processes[current]?.bodies ?? [:] where body.isOver {
            processes[current]?.bodies[number] = nil
        }
        switch step {
        case .bodyBegin, .bodyAppend, .bodyCommit, .bodyAbort: return try applyBody(step, store)
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

    /// Does a step of a body that comes in pieces; a flag says that other bytes were read than were appended.
    private func applyBody(_ step: Step, _ store: TileStore) throws -> Outcome {
        func append(_ number: UInt8, _ count: Int) throws -> Bool {
            guard let body = processes[current]?.bodies[number] else { return true }
            let rest = body.payload.dropFirst(body.appended)
            let piece = rest.prefix(max(0, count))
            // With each other piece what needs no waiting is tried first.
            let isDone = try piece.withUnsafeBytes { try count % 2 == 0 && body.writer.appendNow($0) }
            if !isDone { try piece.withUnsafeBytes { try body.writer.append($0) } }
            processes[current]?.bodies[number]?.appended += piece.count
            return try isReadBack(body.writer.body, body.payload.prefix(body.appended + piece.count))
        }
        switch step {
        case .bodyBegin(let number, let payload, let memory):
            let bytes = Universe.payloads[Int(payload) % Universe.payloads.count]
            let writer = try store.beginBody(limit: bytes.count, inMemoryUpTo: memory)
            processes[current]?.bodies[number] = BegunBody(writer: writer, payload: bytes, memory: memory)
        case .bodyAppend(let number, let count): return try append(number, count) ? .nothing : .flag(false)
        case .bodyCommit(let number, let key, let metadata, let others):
            guard let body = processes[current]?.bodies[number] else { return .nothing }
            let isRight = try append(number, .max - 1)
            processes[current]?.bodies[number]?.isOver = true
            let outcomes = try body.writer.commit(
                for: Universe.key(key), metadata: Universe.metadata(metadata, now: clock.now), with: tiles(others))
            return try isRight && isReadBack(body.writer.body, body.payload) ? .put(outcomes) : .flag(false)
        default:
            guard case .bodyAbort(let number) = step, let body = processes[current]?.bodies[number] else { break }
            processes[current]?.bodies[number]?.isOver = true
            body.writer.abort()
        }
        return .nothing
    }

    private func isReadBack(_ body: StagedBody, _ bytes: Data) throws -> Bool {
        guard body.count == bytes.count else { return false }
        // From the middle on, and from the start, by the two ways to read.
        for from in [bytes.count / 2, 0] {
            var buffer = [UInt8](repeating: 0, count: bytes.count - from)
            let isThere = buffer.withUnsafeMutableBytes { from > 0 && body.readNow(into: $0, at: from) }
            if !isThere { try buffer.withUnsafeMutableBytes { try body.read(into: $0, at: from) } }
            guard buffer.elementsEqual(bytes.dropFirst(from)) else { return false }
        }
        return true
    }

    /// Files of bodies in `staging/`; `nil` where the disk is a real one.
    package var stagedFiles: [String]? {
        guard case .simulated(let disk) = place else { return nil }
        return disk.names("staging").filter { $0.hasSuffix(".body") }
    }

    /// Does a step in both; returns what they disagree on.
    package func apply(_ step: Step) throws -> String? {
        switch step {
        case .glance(let number): return try glance(Universe.key(number))
        case .compact:
            // Another holder has the lock: then it is refused, and that is all.
            let busy = processes.contains { $0?.isCompacting ?? false }
            do {
                _ = try store.compact()
                return busy ? "compacted while another compaction was under way" : nil
            } catch let error as StoreError where error.code == .busy && busy {
                return nil
            }
        case .compactBegin:
            let busy = processes.contains { $0?.isCompacting ?? false }
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
        case .imageBegin:
            let busy = processes.contains { $0?.isCompacting ?? false }
            let begun = try store.beginIndexImage()
            if (begun == nil) != busy { return "beginIndexImage gave \(begun == nil ? "none" : "one"), busy: \(busy)" }
            if let begun { processes[current]?.image = begun }
        case .imageStep(let bytes): _ = try processes[current]?.image?.step(bytes: bytes)
        case .imageFinish:
            _ = try processes[current]?.image?.finish()
            processes[current]?.image = nil
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
        case .mend(let payload, let damage): return try mend(payload, damage)
        case .overtake:
            try overtake()
            try store.catchUp()
        case .ambush(let count):
            _ = try store
            processes[current]?.files?.beforeLocking(after: count) { [unowned self] in
                do { try overtake() } catch { hiddenFailure = "an ambush threw \(error)" }
            }
        case .thread(let number): try useThread(number)
        case .replaceFolder: try replaceFolder()
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
            let observed = try onLane { [self] in try applyToStore(step) }
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

    func shown(_ outcome: Outcome?) -> String {
        guard case .tile(let entry, let data) = outcome else { return outcome.map { "\($0)" } ?? "nothing" }
        return "\(entry.map { "\($0)" } ?? "no entry") with \(data.map { "\($0.count) bytes" } ?? "no bytes")"
    }

    /// Notes the state for those who have not seen it yet.
    func remember() {
        guard processes[1 - current] != nil else {
            history = []
            processes[current]?.viewSince = 0
            return
        }
        history.append(model)
        processes[current]?.viewSince = history.count - 1
    }

    func glance(_ key: TileKey) throws -> String? {
        let store = try self.store
        let since = processes[current]?.viewSince ?? 0
        let tile = try onLane { try store.read(key) }
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
    func reopen(_ blocks: Int, _ entries: Int) throws {
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
    func follow(_ key: TileKey) throws -> String? {
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

    func flushBoth() throws {
        try store.flush()
        model.flush(&uses, now: clock.now)
        remember()
    }

    func closeReader() {
        reader?.store.simulateKill()
        reader?.files?.kill()
        reader = nil
    }

    func closeProcess(_ number: Int) throws {
        guard let process = processes[number] else { return }
        process.compaction?.abandon()
        processes[number]?.compaction = nil
        process.image?.abandon()
        processes[number]?.image = nil
        for body in process.bodies.values { body.writer.abort() }
        try process.store.close()
        var uses = process.uses
        model.flush(&uses, now: clock.now)
        processes[number] = nil
        process.files?.forgetIntruder()
        process.files?.kill()
        remember()
    }

    /// Kills a process: its store is gone with the uses that it had not recorded.
    package func kill(_ number: Int) {
        guard let process = processes[number] else { return }
        process.store.simulateKill()
        process.files?.forgetIntruder()
        process.files?.kill()
        processes[number] = nil
    }

    // MARK: Other processes

    /// Has a process of its own compact twice, unless one is at it.
    func overtake() throws {
        guard !processes.contains(where: { $0?.isCompacting ?? false }) else { return }
        let files = makeFiles()
        let other = try open(files)
        defer {
            other.simulateKill()
            (files as? SimulatedFileSystem)?.kill()
        }
        for _ in 0..<2 { _ = try other.beginCompaction()?.finish() }
        if setting.images { try other.writeIndexImage() }
    }

    /// Removes the cache and makes a new one in its place; both stores find out with the next lock that they take.
    func replaceFolder() throws {
        _ = try store
        for number in processes.indices {
            processes[number]?.compaction?.abandon()
            processes[number]?.image?.abandon()
            processes[number]?.compaction = nil
            processes[number]?.image = nil
            processes[number]?.bodies = [:]
        }
        closeReader()
        switch place {
        case .simulated(let disk): disk.remove("")
        case .folder(let path): try FileManager.default.removeItem(atPath: path)
        }
        let files = makeFiles()
        let maker = try open(files)
        model = StoreModel(limits: try maker.limits(), blockSize: model.blockSize)
        maker.simulateKill()
        (files as? SimulatedFileSystem)?.kill()
        for number in processes.indices {
            try processes[number]?.store.flush()
            processes[number]?.uses = StoreModel.Uses()
            processes[number]?.viewSince = 0
        }
        history = [model]
    }

    /// Does something on the thread in use.
    func onLane<R>(_ body: @escaping () throws -> R) throws -> R {
        guard lane > 0 else { return try body() }
        let thread = lanes[lane] ?? Lane()
        lanes[lane] = thread
        return try thread.run(body)
    }

    /// Goes on on another thread.
    ///
    /// Uses are recorded thread by thread: those of one thread are recorded before another one begins.
    private func useThread(_ number: Int) throws {
        guard lane != number else { return }
        let inUse = current
        defer { current = inUse }
        for other in [1 - inUse, inUse] where processes[other] != nil {
            current = other
            try flushBoth()
        }
        lane = number
    }

    /// Damages a blob and puts its bytes again under a key that has them: all its keys must have them then.
    func mend(_ payload: UInt8, _ damage: Damage) throws -> String? {
        let digest = Universe.digests[Int(payload) % Universe.digests.count]
        let named = Universe.keys.indices.filter { model.entry(Universe.keys[$0])?.blob == digest }
        guard let first = named.first, let last = named.last else { return nil }
        // A file that was seen within the last second is not looked at again.
        clock.advance(seconds: 2)
        // One without a date replaces any.
        let metadata = (0..<80).first { Universe.metadata($0, now: clock.now).date == nil } ?? 0
        let step = PutStep(UInt8(first), payload, metadata)
        // What is larger than the capacity is not stored, and mends nothing.
        var (trial, none) = (model, StoreModel.Uses())
        guard case .stored = trial.put(tiles([step]), uses: &none, now: clock.now).first else { return nil }
        guard try spoil(payload, damage) else { return nil }
        if let difference = try apply(.put(step)) { return difference }
        return try apply(.get(UInt8(last)))
    }

    func damage(_ payload: UInt8, _ damage: Damage) throws -> String? {
        let digest = Universe.digests[Int(payload) % Universe.digests.count]
        let keys = model.entries.filter { $0.value.blob == digest }.keys.sorted()
        guard let key = keys.first, try spoil(payload, damage) else { return nil }
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

    /// Damages the file of a payload's blob; `false` if it cannot be damaged so.
    private func spoil(_ payload: UInt8, _ damage: Damage) throws -> Bool {
        let digest = Universe.digests[Int(payload) % Universe.digests.count]
        let size = Universe.payloads[Int(payload) % Universe.payloads.count].count
        guard size > 0 || (damage != .truncate && damage != .alter) else { return false }
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
        return true
    }
}
