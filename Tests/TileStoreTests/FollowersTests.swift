import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Several stores on one folder: two in one process, one in another and one that may only read, each of which falls behind.
///
/// They follow or load their tables anew after several compactions, given up or not; their durabilities differ; names run out of
/// numbers; the folder is replaced; in some scripts the journal is damaged while they follow it. Steps are done on several
/// threads, each of which has what it looked up last. `TILE_SEED=…` replays one seed, `TILE_SEEDS=n` runs n.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct FollowersTests {
    static let parts = 8

    @Test("Stores that fall behind find what was put, and nothing else", arguments: 0..<parts)
    func storesThatFallBehindAgree(part: Int) throws {
        try sweep(part, count: 800, FollowersSetting.init)
    }

    @Test("With a reload between any two steps every read is as the model says", arguments: 0..<parts)
    func readsBetweenReloads(part: Int) throws {
        try sweep(part, count: 120) { seed in
            var setting = FollowersSetting(seed: seed)
            (setting.isRestless, setting.damages) = (true, false)
            return setting
        }
    }

    // MARK: What they found

    /// Damages the line of the journal that begins so many bytes into it.
    private static func damage(_ lab: Lab, at offset: Int) { lab.disk.corrupt(lab.journal) { $0[offset + 8] ^= 1 } }

    private static func length(_ lab: Lab) throws -> Int { try #require(lab.disk.contents(lab.journal)).count }

    /// Another store had not read the definition before it was damaged, and gave the number to its own fields.
    @Test(arguments: [false, true])
    func aDamagedDefinitionOfFieldsGaveOtherTilesThoseOfTheNextOne(images: Bool) throws {
        var configuration = Lab.plain
        configuration.indexImages = images ? .always : .never
        let lab = try Lab(configuration)
        let other = try lab.another()
        try lab.put(0..<1)
        func metadata(_ coding: String) -> TileMetadata {
            var metadata = lab.metadata()
            metadata.response = ResponseFields(mediaType: "x/y", contentEncoding: coding)
            return metadata
        }
        try other.catchUp()
        let before = try Self.length(lab)
        try lab.store.put(lab.bytes(1), for: lab.key(1), metadata: metadata("gzip"))
        Self.damage(lab, at: before)
        try other.put(lab.bytes(2), for: lab.key(2), metadata: metadata("br"))
        try lab.store.catchUp()
        func check(_ store: TileStore) throws {
            #expect(try store.read(lab.key(1))?.entry.metadata.response.contentEncoding ?? "gzip" == "gzip")
            #expect(try store.read(lab.key(2))?.entry.metadata.response.contentEncoding == "br")
        }
        try check(lab.store)
        #expect(try lab.store.read(lab.key(1)) != nil)
        try lab.store.put(lab.bytes(3), for: lab.key(3), metadata: metadata("gzip"))
        for store in [lab.store, other] {
            try store.catchUp()
            #expect(try store.read(lab.key(3))?.entry.metadata.response.contentEncoding == "gzip")
            try check(store)
        }
        _ = try lab.store.compact()
        try lab.reopen()
        try check(lab.store)
        #expect(try lab.store.read(lab.key(1))?.entry.metadata.response.contentEncoding == "gzip")
        other.simulateKill()
    }

    /// They had got the number that the next definition in the journal was of, which was damaged as well.
    @Test func fieldsThatHadToGetAnotherNumberGotOneThatOthersUsed() throws {
        let lab = try Lab()
        let other = try lab.another()
        try lab.put(0..<1)
        func put(_ number: Int, _ coding: String) -> TilePut {
            var metadata = lab.metadata()
            metadata.response = ResponseFields(mediaType: "x/y", contentEncoding: coding)
            return TilePut(key: lab.key(number), data: lab.bytes(number), metadata: metadata)
        }
        try other.catchUp()
        let before = try Self.length(lab)
        try lab.store.put([put(1, "gzip")])
        Self.damage(lab, at: before)
        try other.put([put(2, "br")])
        let last = try Self.length(lab)
        try other.put([put(3, "zstd")])
        Self.damage(lab, at: last)
        try lab.store.catchUp()
        #expect(try lab.store.read(lab.key(1))?.entry.metadata.response.contentEncoding == "gzip")
        #expect(try lab.store.read(lab.key(2))?.entry.metadata.response.contentEncoding == "br")
        #expect(try lab.store.read(lab.key(3)) == nil, "whatever it was: it is not known")
        other.simulateKill()
    }

    /// It went on with journal after journal, without what the line said, until it was opened anew.
    @Test(arguments: [false, true])
    func aStoreThatSkippedADamagedLineNeverCaughtUp(readOnly: Bool) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        var configuration = Lab.plain
        configuration.readOnly = readOnly
        let follower = try lab.another(configuration)
        let before = try Self.length(lab)
        var metadata = lab.metadata()
        metadata.etag = "\"new\""
        try lab.store.put(lab.bytes(0), for: lab.key(0), metadata: metadata)
        Self.damage(lab, at: before)
        try lab.put(5..<6)
        try follower.catchUp()
        #expect(try follower.read(lab.key(5)) != nil)
        #expect(try follower.entry(for: lab.key(0))?.metadata.etag == nil)
        // The follower reads that a new journal has begun before there is a checkpoint of it.
        let compaction = try #require(try lab.store.beginCompaction())
        try follower.catchUp()
        _ = try compaction.finish()
        lab.clock.advance(nanoseconds: 50_000_000)
        #expect(try follower.read(lab.key(0))?.entry.metadata.etag == "\"new\"")
        #expect(difference(try follower.snapshot(), try lab.store.snapshot()) == nil)
        let loads = follower.commit.withLock { $0.loads }
        for number in 6..<9 {
            try lab.put(number..<number + 1)
            _ = try lab.store.compact()
            try follower.catchUp()
        }
        #expect(follower.commit.withLock { $0.loads } == loads, "it follows as others do again")
        follower.simulateKill()
    }

    private func sweep(_ part: Int, count: Int, _ setting: (UInt64) -> FollowersSetting) throws {
        for seed in Seeds.share(part, of: Self.parts, count: count) {
            let setting = setting(seed)
            var random = SplitMix64(seed: seed &+ 600_000)
            let script = (0..<60).flatMap { _ in FollowersStep.some(setting, &random) }
            guard let first = followersReplay(script, setting) else { continue }
            let smallest = shrink(script) { followersReplay($0, setting) != nil }
            let lines = smallest.map { "    .\($0)," }.joined(separator: "\n")
            Issue.record(
                """
                seed \(seed): \(followersReplay(smallest, setting) ?? "flaky, first: \(first)")
                followersReplay([
                \(lines)
                ], \(setting))
                """)
            return
        }
    }
}

/// How a script is run.
struct FollowersSetting: Equatable {
    /// The number of sources and variants that tables can have; there are more.
    var names = 65_535
    /// Bit by bit: whether the store of this number is durable.
    var durable = 0
    var images = false
    /// Whether the journal is damaged: then entries may be missing, or as they were before.
    var damages = false
    /// Whether other tables are there at each step.
    var isRestless = false

    init(seed: UInt64) {
        durable = Int(seed % 8)
        images = seed % 5 == 2
        names = seed % 3 == 1 ? 5 : 65_535
        damages = seed % 4 == 3
    }

    init(names: Int = 65_535, durable: Int = 0, images: Bool = false, damages: Bool = false, isRestless: Bool = false) {
        (self.names, self.durable, self.images) = (names, durable, images)
        (self.damages, self.isRestless) = (damages, isRestless)
    }
}

/// One step; stores are numbered 0 and 1 (one process), 2 (another one), 3 (may only read).
enum FollowersStep: Equatable {
    case put(Int, key: Int, lane: Int)
    case batch(Int, [Int])
    case remove(Int, [Int])
    case removeSource(Int, Int)
    case read(Int, key: Int, lane: Int)
    /// Reads without catching up.
    case glance(Int, key: Int, lane: Int)
    /// Keeps a key in the form without text, and looks it up with each `find`.
    case know(Int, key: Int)
    case find(Int, key: Int)
    case walk(Int, recency: Bool)
    case flush(Int)
    case compact(Int)
    case giveUp(Int, steps: Int)
    case image(Int)
    case reopen(Int)
    case crash(Int)
    /// Another process removes and puts some, so that names get other numbers, and compacts so often.
    case outrun(seed: Int, times: Int)
    /// The same when the store is about to take the lock.
    case ambush(Int, after: Int, seed: Int)
    /// Changes a byte of the line that is so many from the end of a journal.
    case damage(line: Int, byte: Int, older: Bool)
    case replaceFolder

    static func some(_ setting: FollowersSetting, _ random: inout SplitMix64) -> [FollowersStep] {
        let writer = random.below(3)
        let any = random.below(4)
        let lane = random.below(3)
        // Few at a time, so that they meet.
        let key = random.oneIn(3) ? random.below(FollowersBench.keys.count) : random.below(12)
        switch random.below(setting.damages ? 36 : 32) {
        case 0..<6: return [.put(writer, key: key, lane: lane)]
        case 6, 7: return [.batch(writer, (0..<(1 + random.below(6))).map { _ in random.below(16) })]
        case 8, 9: return [.remove(writer, (0..<(1 + random.below(3))).map { _ in random.below(12) })]
        case 10: return [.removeSource(writer, random.below(3))]
        case 11..<16: return [.read(any, key: key, lane: lane)]
        case 16..<19: return [.glance(any, key: key, lane: lane)]
        case 19: return [.know(any, key: key)]
        case 20, 21: return [.find(any, key: random.below(12))]
        case 22: return [.walk(any, recency: random.oneIn(2))]
        case 23: return [.flush(writer)]
        case 24: return (0..<(1 + random.below(3))).map { _ in .compact(writer) }
        case 25: return [.giveUp(writer, steps: random.below(3))]
        case 26: return [setting.images ? .image(writer) : .giveUp(writer, steps: 0)]
        case 27: return [random.oneIn(2) ? .reopen(any) : .crash(any)]
        case 28, 29: return [.outrun(seed: random.below(1000), times: 1 + random.below(4))]
        case 30: return [.ambush(writer, after: random.below(3), seed: random.below(1000))]
        case 31: return random.oneIn(4) ? [.replaceFolder] : [.outrun(seed: random.below(1000), times: 2)]
        default:
            return [.damage(line: random.below(5), byte: random.below(200), older: random.oneIn(3))]
        }
    }
}

/// Runs a script; returns the first thing that was wrong.
func followersReplay(_ steps: [FollowersStep], _ setting: FollowersSetting) -> String? {
    var at = -1
    do {
        let bench = try FollowersBench(setting)
        defer { bench.finish() }
        for (index, step) in steps.enumerated() {
            at = index
            if let wrong = try bench.apply(step) { return "step \(index), \(step): \(wrong)" }
            if setting.isRestless { try bench.outrun(seed: index, times: 2) }
        }
        at = steps.count
        return try bench.settle().map { "at the end: \($0)" }
    } catch {
        return "step \(at)\(steps.indices.contains(at) ? ", \(steps[at])" : ""): threw \(error)"
    }
}

final class FollowersBench {
    static let keys: [TileKey] = (0..<9).flatMap { source in
        ["s\(source)/9/1/0", "s\(source)/9/2/0", "s\(source):style.json", "s\(source)/9/1/0@2x.f\(source)"]
            .compactMap { try? TileKey($0) }
    }

    private let setting: FollowersSetting
    private let clock = ManualClock()
    private let disk: SimulatedDisk
    private var stores: [TileStore?] = [nil, nil, nil, nil]
    private var files: [SimulatedFileSystem?] = [nil, nil, nil]
    private var lanes: [Lane] = []
    private var known: [Int: [Int: KnownKey]] = [:]
    private var seed: UInt64 = 1
    /// The number of the next put: tells all of them apart.
    private var next = 1
    /// The numbers of the puts of each key into this folder, and the one that it has.
    private var puts: [Int: [Int]] = [:]
    private var latest: [Int: Int] = [:]
    /// The first number of this folder.
    private var first = 1
    private var isDamaged = false
    private var damaged: Set<String> = []
    private var hidden: String?

    init(_ setting: FollowersSetting) throws {
        self.setting = setting
        disk = SimulatedDisk(clock: clock, blockSize: 64)
        for number in 0..<4 { _ = try store(number) }
    }

    func finish() {
        for store in stores { store?.simulateKill() }
        for file in files { file?.kill() }
        for lane in lanes { lane.end() }
    }

    // MARK: Stores

    /// Of which process a store is.
    private func process(_ number: Int) -> Int { max(0, number - 1) }

    private func open(_ number: Int, _ files: SimulatedFileSystem) throws -> TileStore {
        seed += 1
        var configuration = Lab.plain
        configuration.durability = setting.durable >> number & 1 == 1 ? .durable : .relaxed
        configuration.indexImages = setting.images ? .always : .never
        configuration.readOnly = number == 3
        var environment = clock.environment(files, seed: seed)
        environment.bounds.names = setting.names
        return try TileStore(environment: environment, configuration: configuration)
    }

    private func store(_ number: Int) throws -> TileStore {
        if let store = stores[number] { return store }
        let process = process(number)
        let files = files[process] ?? SimulatedFileSystem(disk)
        self.files[process] = files
        let store = try open(number, files)
        stores[number] = store
        known[number] = [:]
        return store
    }

    private func on<R>(_ lane: Int, _ body: @escaping () throws -> R) throws -> R {
        guard lane > 0 else { return try body() }
        while lanes.count < lane { lanes.append(Lane()) }
        return try lanes[lane - 1].run(body)
    }

    // MARK: What is put

    private static func bytes(_ key: Int, _ version: Int) -> Data {
        // Some bytes are shared by several keys.
        version % 4 == 0
            ? Data("shared \(version % 8) \(String(repeating: "-", count: 100))".utf8)
            : Data("\(keys[key]) \(version) \(String(repeating: "-", count: 60 + version % 90))".utf8)
    }

    private static var start: Int64 { 1_600_000_000 }

    private static func fields(_ key: Int, _ version: Int) -> ResponseFields {
        ResponseFields(
            mediaType: "x/\(keys[key].source)", headers: [.init(name: "x-set", value: "\(version % 5)")])
    }

    private static func metadata(_ key: Int, _ version: Int) -> TileMetadata {
        TileMetadata(
            response: fields(key, version), etag: "\"\(keys[key]) \(version)\"",
            storedAt: Timestamp(seconds: start + Int64(version)), expires: .distantFuture)
    }

    private func tile(_ key: Int) -> (version: Int, put: TilePut) {
        let version = next
        next += 1
        puts[key, default: []].append(version)
        return (
            version,
            TilePut(key: Self.keys[key], data: Self.bytes(key, version), metadata: Self.metadata(key, version))
        )
    }

    /// Puts, unless names have run out, which only small bounds permit.
    private func put(_ tiles: [Int], by store: TileStore, lane: Int = 0) throws -> String? {
        let made = tiles.map { ($0, tile($0)) }
        do {
            _ = try on(lane) { try store.put(made.map(\.1.put)) }
            for (key, tile) in made { latest[key] = tile.version }
        } catch let error as StoreError where error.code == .tooMany && setting.names < 100 {
            // Those before the one that was refused are stored.
            for (key, tile) in made {
                guard let entry = try store.entry(for: Self.keys[key]) else { continue }
                if entry.metadata.storedAt.seconds - Self.start == tile.version { latest[key] = tile.version }
            }
        }
        return nil
    }

    // MARK: What is found

    private func wrong(_ key: Int, _ tile: StoredTile?, caughtUp: Bool) -> String? {
        guard let tile else {
            guard caughtUp, !isDamaged, let version = latest[key] else { return nil }
            return "\(Self.keys[key]) is absent, the model has put \(version)"
        }
        return wrong(key, tile.entry, tile.data, caughtUp: caughtUp)
    }

    private func wrong(_ key: Int, _ entry: TileEntry, _ data: Data?, caughtUp: Bool) -> String? {
        let version = Int(entry.metadata.storedAt.seconds - Self.start)
        let name = "\(Self.keys[key]), put \(version)"
        guard entry.key == Self.keys[key], puts[key]?.contains(version) ?? false else {
            return "\(Self.keys[key]) is \(entry), which was never put"
        }
        if entry.metadata.etag != Self.metadata(key, version).etag { return "\(name), has the tag of \(entry)" }
        if entry.metadata.response != Self.fields(key, version) { return "\(name), has the fields of \(entry)" }
        if let data, data != Self.bytes(key, version) { return "\(name), has other bytes" }
        guard caughtUp else { return nil }
        if version < first { return "\(name), is of a folder that is no more" }
        if !isDamaged, version != latest[key] {
            return "\(name), the model has \(latest[key].map { "\($0)" } ?? "nothing")"
        }
        return nil
    }

    private func read(_ number: Int, _ key: Int, lane: Int, catchingUp: Bool) throws -> String? {
        let store = try store(number)
        if catchingUp { try store.catchUp() }
        let tile = try on(lane) { try store.read(Self.keys[key]) }
        return wrong(key, tile, caughtUp: catchingUp)
    }

    // MARK: Steps

    func apply(_ step: FollowersStep) throws -> String? {
        // A store looks every 10 ms whether its files still have their names.
        clock.advance(nanoseconds: 20_000_000)
        if let wrong = try carryOut(step) { return wrong }
        return hidden
    }

    private func carryOut(_ step: FollowersStep) throws -> String? {
        switch step {
        case .put(let number, let key, let lane):
            if let wrong = try put([key], by: store(number), lane: lane) { return wrong }
            return try read(number, key, lane: lane, catchingUp: true)
        case .batch(let number, let keys): return try put(keys, by: store(number))
        case .remove(let number, let keys):
            try remove(keys, by: store(number)) { try $0.remove(keys.map { Self.keys[$0] }) }
        case .removeSource(let number, let source):
            var selection = EntrySelection()
            selection.source = try SourceName("s\(source)")
            let keys = Self.keys.indices.filter { Self.keys[$0].source == selection.source }
            try remove(keys, by: store(number)) { try $0.remove(selection) }
        case .read(let number, let key, let lane): return try read(number, key, lane: lane, catchingUp: true)
        case .glance(let number, let key, let lane): return try read(number, key, lane: lane, catchingUp: false)
        case .know(let number, let key):
            let store = try store(number)
            known[number]?[key] = store.known(Self.keys[key])
        case .find(let number, let key): return try find(number, key)
        case .walk(let number, let recency): return try walk(number, recency ? .recency : .key)
        case .flush(let number): try store(number).flush()
        case .compact(let number): _ = try store(number).compact()
        case .giveUp(let number, let steps):
            guard let begun = try store(number).beginCompaction() else { return "a compaction is under way" }
            for _ in 0..<steps { _ = try begun.step(entries: 3) }
            begun.abandon()
        case .image(let number): try store(number).writeIndexImage()
        case .reopen(let number):
            try store(number).close()
            stores[number] = nil
            _ = try store(number)
        case .crash(let number):
            // A process dies with all its stores.
            guard number < 3 else { return nil }
            let process = process(number)
            for other in 0..<3 where self.process(other) == process {
                stores[other]?.simulateKill()
                stores[other] = nil
            }
            files[process]?.forgetIntruder()
            files[process]?.kill()
            files[process] = nil
        case .outrun(let seed, let times): try outrun(seed: seed, times: times)
        case .ambush(let number, let after, let seed):
            _ = try store(number)
            files[process(number)]?.beforeLocking(after: after) { [unowned self] in
                do { try outrun(seed: seed, times: 2) } catch { hidden = "an ambush threw \(error)" }
            }
        case .damage(let line, let byte, let older): damage(line, byte, older)
        case .replaceFolder: try replaceFolder()
        }
        return nil
    }

    private func remove(_ keys: [Int], by store: TileStore, _ body: (TileStore) throws -> RemovalReport) throws {
        let before = next
        _ = try body(store)
        for key in keys {
            // What another process has put again since the keys were selected may stay.
            let version = try store.entry(for: Self.keys[key]).map { Int($0.metadata.storedAt.seconds - Self.start) }
            latest[key] = version.flatMap { $0 >= before ? $0 : nil }
        }
    }

    private func find(_ number: Int, _ key: Int) throws -> String? {
        let store = try store(number)
        guard let known = known[number]?[key] else { return nil }
        var room = [UInt8](repeating: 0, count: KnownEntry.tagRoom)
        let (found, tag) = try room.withUnsafeMutableBytes { room -> (KnownEntry?, [UInt8]) in
            let found = try store.find(known, at: clock.now, tag: room)
            return (found, Array(room.prefix(found?.tagLength ?? 0)))
        }
        guard let found else { return nil }
        let version = Int(found.storedAt.seconds - Self.start)
        guard puts[key]?.contains(version) ?? false, String(decoding: tag, as: UTF8.self).contains("\(Self.keys[key]) ")
        else { return "the known key of \(Self.keys[key]) found \(String(decoding: tag, as: UTF8.self))" }
        return nil
    }

    private func walk(_ number: Int, _ order: TileStore.EntryOrder) throws -> String? {
        let store = try store(number)
        try store.catchUp()
        let expected = Set(latest.keys)
        var wrongs: [String] = []
        var seen: Set<Int> = []
        try store.forEachEntry(in: order) { entry in
            guard let key = Self.keys.firstIndex(of: entry.key), seen.insert(key).inserted else {
                wrongs.append("\(entry) was visited twice, or is nobody's")
                return
            }
            if let wrong = self.wrong(key, entry, nil, caughtUp: true) { wrongs.append(wrong) }
        }
        if !isDamaged, seen != expected {
            wrongs.append("visited \(seen.sorted()), the model has \(expected.sorted())")
        }
        return wrongs.first
    }

    func outrun(seed: Int, times: Int) throws {
        var random = SplitMix64(seed: UInt64(seed))
        let files = SimulatedFileSystem(disk)
        let other = try open(random.below(2), files)
        defer {
            other.simulateKill()
            files.kill()
        }
        // What goes and comes again is numbered in the order in which it comes.
        let some = Array(latest.keys.sorted().shuffled(using: &random).prefix(5))
        _ = try other.remove(some.map { Self.keys[$0] })
        for key in some { latest[key] = nil }
        if random.oneIn(3) {
            let begun = try other.beginCompaction()
            begun?.abandon()
        }
        func compact() throws {
            // An ambush may come in the middle of another compaction.
            do { _ = try other.compact() } catch let error as StoreError where error.code == .busy {}
        }
        if random.oneIn(2) { try compact() }
        for key in some.shuffled(using: &random) { if let wrong = try put([key], by: other) { hidden = wrong } }
        for _ in 0..<times { try compact() }
        if setting.images, random.oneIn(2) { try other.writeIndexImage() }
    }

    /// One line in a journal: which fields a number stands for cannot be told where two definitions of it are damaged.
    private func damage(_ line: Int, _ byte: Int, _ older: Bool) {
        let journals = disk.names("manifest").filter { $0.hasPrefix("journal-") }
            .sorted { ($0.count, $0) < ($1.count, $1) }
        guard let name = older ? journals.first : journals.last, damaged.insert(name).inserted else { return }
        disk.corrupt("manifest/\(name)") { bytes in
            let ends = bytes.indices.filter { bytes[$0] == 0x0A }
            guard ends.count > line + 1 else { return }
            let last = ends.count - 1 - line
            let (from, to) = (ends[last - 1] + 1, ends[last])
            let at = from + byte % (to - from)
            bytes[at] ^= bytes[at] == 0x0B ? 2 : 1
            isDamaged = true
        }
    }

    private func replaceFolder() throws {
        disk.remove("")
        let files = SimulatedFileSystem(disk)
        let maker = try open(0, files)
        maker.simulateKill()
        files.kill()
        (latest, first, isDamaged, damaged) = ([:], next, false, [])
        // They find out with the next lock that they take, or when they look whether their files have names.
        clock.advance(nanoseconds: 20_000_000)
        for number in 0..<4 {
            guard let store = stores[number] else { continue }
            if number < 3 { try store.flush() } else { try store.catchUp() }
        }
    }

    // MARK: The end

    /// All stores agree, after a repair where there was damage, and the cache is sound.
    func settle() throws -> String? {
        clock.advance(nanoseconds: 20_000_000)
        for file in files { file?.forgetIntruder() }
        if isDamaged {
            // What was acknowledged is lost with a damaged line; all that is left has to be one state.
            for number in 0..<3 { _ = try store(number).flush() }
            _ = try store(2).verify(repair: true)
            _ = try store(2).compact()
            for number in 0..<4 {
                try stores[number]?.close()
                stores[number] = nil
            }
        }
        let snapshot = try store(0).snapshotCaughtUp()
        for number in 0..<4 {
            let other = try store(number)
            if let difference = difference(try other.snapshotCaughtUp(), snapshot) {
                return "store \(number): \(difference)"
            }
            let violations = try other.invariantViolations()
            if !violations.isEmpty { return "store \(number): \(violations)" }
            for key in Self.keys.indices {
                if let wrong = try read(number, key, lane: key % 3, catchingUp: true) {
                    return "store \(number): \(wrong)"
                }
            }
        }
        let report = try store(2).verify()
        return report.ok && report.orphans.isEmpty ? nil : "\(report)"
    }
}

extension TileStore {
    fileprivate func snapshotCaughtUp() throws -> StoreSnapshot {
        try catchUp()
        return try snapshot()
    }
}
