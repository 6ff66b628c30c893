import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Records and files that stand though what they belong to failed or died half-way, and anything in any order.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct HalfDoneTests {
    private static func configuration(
        durable: Bool, _ check: StoreConfiguration.DigestCheck = .always
    ) -> StoreConfiguration {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        configuration.digestCheck = check
        return configuration
    }

    private static func body(_ bytes: Data, in store: TileStore) throws -> BodyWriter {
        let writer = try store.beginBody(limit: 1 << 24, inMemoryUpTo: 0)
        try bytes.withUnsafeBytes { try writer.append($0) }
        return writer
    }

    // MARK: The mark of unsynced blobs

    enum Accident: CaseIterable { case killed, failed }

    /// The mark is written and not yet synced when its writer dies, or when the sync fails; whoever comes next must not take it for synced.
    @Test(arguments: Accident.allCases)
    func aMarkThatWasNotSyncedIsNotTakenForSynced(accident: Accident) throws {
        var wrong: [String] = []
        for operation in 0..<20 {
            for seed in 0..<40 as Range<UInt64> {
                let clock = ManualClock()
                let disk = SimulatedDisk(clock: clock, recordsChanges: true)
                let lab = try Lab(Self.configuration(durable: true, .never), disk: disk)
                let bytes = lab.bytes(1, size: 5000)
                try lab.store.put(bytes, for: lab.key(1), metadata: lab.metadata())
                let files = SimulatedFileSystem(disk)
                var relaxed = try TileStore(
                    environment: lab.clock.environment(files, seed: 3),
                    configuration: Self.configuration(durable: false, .never))
                _ = try relaxed.remove([lab.key(1)])
                switch accident {
                case .killed: files.crash(at: operation, torn: false)
                case .failed: files.fail(.init(at: operation, number: EIO))
                }
                var failure = ""
                do { try relaxed.put(bytes, for: lab.key(2), metadata: lab.metadata()) } catch { failure = "\(error)" }
                guard files.hasStruck else { break }
                if accident == .killed {
                    relaxed.simulateKill()
                    files.kill()
                    relaxed = try lab.another(Self.configuration(durable: false, .never))
                } else {
                    files.fail(nil)
                }
                try relaxed.put(bytes, for: lab.key(3), metadata: lab.metadata())
                relaxed.simulateKill()
                var random = SplitMix64(seed: seed)
                disk.powerCut(using: &random)
                try lab.reopen(bootID: "boot-2")
                for number in 1...3 {
                    if let tile = try lab.store.read(lab.key(number)), tile.data != bytes {
                        wrong.append("operation \(operation), seed \(seed), key \(number), \(failure)")
                    }
                }
            }
        }
        #expect(wrong == [])
    }

    // MARK: Durable stores after one of them died

    enum Housekeeper: CaseIterable { case put, refused, verify, sweep, same }

    /// A durable store dies between writing a record and syncing it, or its sync fails.
    ///
    /// If what that record replaced is unlinked, and the power goes before the record is synced, what was acknowledged before
    /// is lost.
    @Test(arguments: Housekeeper.allCases)
    func noBlobIsUnlinkedForARecordThatIsNotSynced(by housekeeper: Housekeeper) throws {
        var lost: [String] = []
        for operation in 0..<30 {
            for seed in 0..<30 as Range<UInt64> {
                let clock = ManualClock()
                let disk = SimulatedDisk(clock: clock, recordsChanges: true)
                let lab = try Lab(Self.configuration(durable: true), disk: disk)
                let dated = TileMetadata(
                    storedAt: lab.clock.now, date: lab.clock.now, expires: lab.clock.now.adding(seconds: 3600))
                try lab.store.put(lab.bytes(1), for: lab.key(1), metadata: dated)
                try lab.store.put(lab.bytes(7), for: lab.key(7), metadata: dated)
                let files = SimulatedFileSystem(disk)
                let second = try lab.another()
                let first = try TileStore(
                    environment: lab.clock.environment(files, seed: 33), configuration: lab.configuration)
                if housekeeper == .same {
                    files.fail(.init(at: operation, number: EIO))
                } else {
                    files.crash(at: operation, torn: false)
                }
                do { try first.put(lab.bytes(2), for: lab.key(1), metadata: dated) } catch {}
                guard files.hasStruck else { break }
                first.simulateKill()
                files.kill()
                var random = SplitMix64(seed: seed)
                switch housekeeper {
                case .refused:
                    // Says nothing but that something later is stored: nothing is appended.
                    let older = TileMetadata(
                        storedAt: lab.clock.now, date: lab.clock.now.adding(seconds: -100),
                        expires: lab.clock.now.adding(seconds: 3600))
                    #expect(try second.put(lab.bytes(3), for: lab.key(7), metadata: older) == .olderThanStored)
                case .put:
                    // Bytes that are there: nothing is to be staged.
                    do {
                        lab.files.crash(at: 2 + random.below(12), torn: false)
                        try lab.store.put(lab.bytes(7), for: lab.key(8), metadata: dated)
                    } catch {}
                case .verify: _ = try second.verify(repair: true)
                case .sweep: _ = try second.evict()
                case .same: break
                }
                second.simulateKill()
                disk.powerCut(using: &random)
                try lab.reopen(bootID: "boot-2")
                let tile = try lab.store.read(lab.key(1))
                if tile?.data != lab.bytes(1), tile?.data != lab.bytes(2) {
                    lost.append("operation \(operation), seed \(seed)")
                }
            }
        }
        #expect(lost == [])
    }

    /// What a durable store was asked to keep, and found there already, by a store whose records are not synced.
    @Test(arguments: ["limits", "region"])
    func whatADurableStoreFoundThereIsOnTheDisk(what: String) throws {
        var lost: [UInt64] = []
        for seed in 0..<40 as Range<UInt64> {
            let clock = ManualClock()
            let disk = SimulatedDisk(clock: clock, recordsChanges: true)
            let lab = try Lab(Self.configuration(durable: true), disk: disk)
            try lab.put(0..<1)
            let relaxed = try lab.another(Self.configuration(durable: false))
            let span = try TileSpan(zoom: 3, columns: 0...2, rows: 0...2)
            let region = try PinnedRegion(name: "r", source: lab.key(0).source, spans: [span])
            let limits = StoreLimits(capacity: 1 << 20, entryLimit: 77)
            for store in [relaxed, lab.store] {
                if what == "limits" { try store.setLimits(limits) } else { try store.pin(region) }
            }
            relaxed.simulateKill()
            var random = SplitMix64(seed: seed)
            disk.powerCut(using: &random)
            try lab.reopen(bootID: "boot-2")
            let isKept = try what == "limits" ? lab.store.limits() == limits : lab.store.regions() == [region]
            if !isKept { lost.append(seed) }
        }
        #expect(lost == [])
    }

    // MARK: Blobs that go without a record

    /// On a full disk blobs go before their record, which then fails too: a batch that was prepared before must not count on
    /// them.
    @Test(arguments: [false, true])
    func aBlobThatWentWithoutARecordIsNotTakenForThere(durable: Bool) throws {
        let lab = try Lab(Self.configuration(durable: durable))
        try lab.put(0..<1)
        let bytes = lab.bytes(0)
        let batch = try PutInSteps(
            [TilePut(key: lab.key(6), data: bytes, metadata: lab.metadata())], into: lab.store)
        _ = try batch.stage(known: [])
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        do { _ = try lab.store.evict(toBytes: 0) } catch {}
        lab.files.fail(nil)
        _ = try batch.record()
        #expect(try lab.store.invariantViolations().filter { $0.hasPrefix("I2") } == [])
        #expect(try lab.store.read(lab.key(6))?.data == bytes)
    }

    // MARK: What a failed put leaves

    /// Records that stand although their append failed.
    @Test(arguments: [false, true], [true, false])
    func aBatchWhoseAppendFailedKeepsTheLimits(durable: Bool, short: Bool) throws {
        var wrong: [String] = []
        for operation in 0..<400 {
            let lab = try Lab(Self.configuration(durable: durable))
            try lab.store.setLimits(StoreLimits(capacity: nil, entryLimit: 2))
            try lab.put(0..<2)
            let batch = (10..<16).map { TilePut(key: lab.key($0), data: lab.bytes($0), metadata: lab.metadata()) }
            lab.files.fail(.init(at: operation, number: short ? ENOSPC : EIO, short: short))
            var failure = "returned"
            do { try lab.store.put(batch) } catch { failure = "\(error)" }
            let struck = lab.files.hasStruck
            lab.files.fail(nil)
            guard struck else { break }
            let found = try lab.store.invariantViolations().filter { $0.hasPrefix("I1") }
            if !found.isEmpty { wrong.append("operation \(operation): \(found[0]); \(failure)") }
        }
        #expect(wrong == [])
    }

    /// "Throws: then nothing has changed", but for the sync of a durable store.
    @Test(arguments: [EIO, ENOSPC])
    func aPutThatThrewHasChangedNothing(number: Int32) throws {
        var wrong: [String] = []
        for operation in 0..<200 {
            let lab = try Lab(Self.configuration(durable: false))
            try lab.put(0..<2)
            let before = try lab.store.snapshot()
            lab.files.fail(.init(at: operation, number: number))
            var failure: String?
            do { try lab.store.put(lab.bytes(9), for: lab.key(1), metadata: lab.metadata()) } catch {
                failure = "\(error)"
            }
            let struck = lab.files.hasStruck
            lab.files.fail(nil)
            guard struck else { break }
            if let failure, try lab.store.snapshot() != before { wrong.append("operation \(operation): \(failure)") }
        }
        #expect(wrong == [])
    }

    /// A look at the folder that fails leaves the cache's lock held by a store that does nothing.
    @Test(arguments: [EIO, ENOSPC])
    func aFailureGivesTheLockBack(number: Int32) throws {
        var wrong: [String] = []
        for operation in 0..<60 {
            let lab = try Lab(Self.configuration(durable: false))
            try lab.put(0..<2)
            let other = try lab.another()
            lab.clock.advance(seconds: 1)
            lab.files.fail(.init(at: operation, number: number))
            var failure = "returned"
            do { try lab.store.put(lab.bytes(9), for: lab.key(9), metadata: lab.metadata()) } catch {
                failure = "\(error)"
            }
            let struck = lab.files.hasStruck
            lab.files.fail(nil)
            guard struck else { break }
            do { try other.put(lab.bytes(5), for: lab.key(5), metadata: lab.metadata()) } catch {
                wrong.append("operation \(operation): \(error), after \(failure)")
            }
        }
        #expect(wrong == [])
    }

    /// Whatever fails, no file stays open or keeps its room.
    @Test(arguments: [false, true], [EIO, ENOSPC, EMFILE])
    func nothingKeepsItsRoom(durable: Bool, number: Int32) throws {
        for size in [0, 1, 4096, 5000, 140_000, 300_000] {
            for operation in 0..<200 {
                let lab = try Lab(Self.configuration(durable: durable))
                try lab.put(0..<2)
                lab.files.fail(.init(at: operation, number: number, short: operation % 2 == 0))
                let bytes = lab.bytes(9, size: size)
                do {
                    let (a, b) = (
                        try lab.store.beginBody(limit: size, inMemoryUpTo: 4096),
                        try lab.store.beginBody(limit: size, inMemoryUpTo: 4095)
                    )
                    try bytes.withUnsafeBytes { try a.append($0) }
                    try bytes.withUnsafeBytes { try b.append($0) }
                    try a.commit(
                        for: lab.key(9), metadata: lab.metadata(),
                        with: [TilePut(key: lab.key(1), data: bytes, metadata: lab.metadata())])
                    try b.commit(for: lab.key(0), metadata: lab.metadata())
                } catch {}
                let struck = lab.files.hasStruck
                lab.files.fail(nil)
                let sum = lab.disk.files.reduce(0) { $0 + (lab.disk.contents($1)?.count ?? 0) }
                #expect(lab.disk.used == sum, "size \(size), operation \(operation)")
                let wrong = try lab.store.invariantViolations().filter { !$0.hasPrefix("I4") && !$0.hasPrefix("I1:") }
                #expect(wrong == [], "size \(size), operation \(operation)")
                try lab.reopen()
                #expect(lab.disk.names("staging").isEmpty, "size \(size), operation \(operation)")
                _ = try lab.store.evict()
                #expect(try lab.store.invariantViolations() == [], "size \(size), operation \(operation)")
                guard struck else { break }
            }
        }
    }

    /// Descriptors of the real disk, whatever becomes of bodies.
    @Test func bodiesOfTheRealDiskGiveTheirDescriptorsBack() throws {
        let folder = TemporaryFolder()
        let lab = try Lab()
        let store = try TileStore(at: folder.path, configuration: Self.configuration(durable: false))
        func mine() throws -> Int {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").filter {
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
                return target?.contains(folder.path) ?? false
            }.count
        }
        try store.put(lab.bytes(1), for: lab.key(1), metadata: lab.metadata())
        let before = try mine()
        for size in [0, 4096, 4097, 300_000] {
            for end in 0..<6 {
                let writer = try store.beginBody(limit: size, inMemoryUpTo: 4096)
                try lab.bytes(2, size: size).withUnsafeBytes { try writer.append($0) }
                switch end {
                case 0: writer.abort()
                case 1: #expect(throws: StoreError.self) { try Data([1]).withUnsafeBytes { try writer.append($0) } }
                case 2: if size > 4096 { try FileManager.default.removeItem(atPath: folder.path + "/staging") }
                case 3: break
                default: try writer.commit(for: lab.key(2 + end), metadata: lab.metadata())
                }
                if end == 2, size > 4096 {
                    #expect(throws: StoreError.self) {
                        try writer.commit(for: lab.key(2 + end), metadata: lab.metadata())
                    }
                }
            }
            #expect(try mine() == before, "size \(size)")
        }
        #expect(try store.invariantViolations() == [])
        try store.close()
    }

    /// A pipe in the place of the caller's file: to open it as a file is opened waits for a writer who never comes.
    @Test func aPutOfAPipeIsRefused() throws {
        let folder = TemporaryFolder()
        let lab = try Lab()
        try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
        let path = folder.path + "/pipe"
        #expect(mkfifo(path, 0o600) == 0)
        #expect(throws: StoreError.self) { try lab.store.put(fileAt: path, for: lab.key(1), metadata: lab.metadata()) }
        #expect(throws: StoreError.self) {
            try lab.store.put(fileAt: "/dev/zero", for: lab.key(1), metadata: lab.metadata())
        }
        #expect(try lab.store.entry(for: lab.key(1)) == nil)
    }

    /// What an eviction has removed counts, though it failed in its middle.
    @Test func whatAnEvictionRemovedBeforeItFailedIsCounted() throws {
        var wrong: [String] = []
        for operation in 0..<60 {
            let lab = try Lab(Self.configuration(durable: false))
            try lab.put(0..<6)
            lab.files.fail(.init(at: operation, number: EIO))
            do { _ = try lab.store.evict(toBytes: 4096) } catch {}
            let struck = lab.files.hasStruck
            lab.files.fail(nil)
            guard struck else { break }
            let gone = try 6 - lab.store.snapshot().entries.count
            let counted = lab.store.evictedHere.removedEntries
            if gone != counted { wrong.append("operation \(operation): \(gone) are gone, \(counted) counted") }
        }
        #expect(wrong == [])
    }

    // MARK: Anything, in any order

    @Test(arguments: 0..<8)
    func anything(part: Int) throws {
        for seed in Seeds.share(part, of: 8, count: 160) {
            var random = SplitMix64(seed: seed &+ 770_000)
            let bench = AnythingBench(images: seed % 4 == 3, seed: seed)
            for round in 1...4 {
                let isCut = random.oneIn(2)
                for _ in 0..<(4 + random.below(30)) { bench.step(&random, depth: 0) }
                var wrong = try bench.look()
                if wrong.isEmpty {
                    if isCut { bench.powerCut(&random) } else { bench.killAll() }
                    wrong = try bench.check(durable: random.oneIn(2), isCut: isCut)
                }
                #expect(wrong == [], "seed \(seed), round \(round)")
                guard wrong.isEmpty else {
                    print("seed \(seed)\n" + bench.log.suffix(60).joined(separator: "\n"))
                    return
                }
            }
        }
    }
}

/// What is known of keys: states of which a key has one; nothing where anything may be.
private struct Promises {
    struct State: Equatable {
        var payload: Int?
        var expires: Timestamp?
    }
    var keys: [UInt8: [State]] = [:]

    mutating func begin(_ changes: [(UInt8, State)], counts: Bool) {
        for (key, state) in changes {
            if counts { keys[key]?.append(state) } else { keys[key] = nil }
        }
    }

    mutating func end(_ changes: [(UInt8, State)], counts: Bool) {
        guard counts else { return begin(changes, counts: false) }
        for (key, state) in changes { keys[key] = [state] }
    }
}

/// Two durable and two relaxed stores on one folder; operations fail, processes die and go on anew, others come in between.
private final class AnythingBench {
    private let clock = ManualClock()
    private let disk: SimulatedDisk
    private let images: Bool
    private var stores: [(store: TileStore, files: SimulatedFileSystem)?] = [nil, nil, nil, nil]
    private var compactions: [Compaction?] = [nil, nil, nil, nil]
    private var bodies: [[(writer: BodyWriter, payload: Int, sent: Int)]] = [[], [], [], []]
    private var seed: UInt64
    private var boot = 1
    private var durable = Promises()
    private var all = Promises()
    private(set) var log: [String] = []

    init(images: Bool, seed: UInt64) {
        disk = SimulatedDisk(clock: clock, blockSize: 64, recordsChanges: true)
        self.images = images
        self.seed = seed &* 1000
    }

    deinit { killAll() }

    private func open(_ who: Int) throws -> TileStore {
        if let known = stores[who] { return known.store }
        var configuration = StoreConfiguration()
        configuration.durability = who % 2 == 0 ? .durable : .relaxed
        configuration.digestCheck = .never
        configuration.memoryTierBytes = 0
        configuration.indexImages = images ? .always : .never
        configuration.lockWait = 0.01
        seed += 1
        let files = SimulatedFileSystem(disk)
        let store = try TileStore(
            environment: clock.environment(files, seed: seed, bootID: "boot-\(boot)"), configuration: configuration)
        stores[who] = (store, files)
        return store
    }

    private func kill(_ who: Int) {
        stores[who]?.files.kill()
        stores[who]?.store.simulateKill()
        compactions[who] = nil
        stores[who] = nil
        bodies[who] = []
    }

    func killAll() { for who in 0...3 { kill(who) } }

    private func change(_ who: Int, _ changes: [(UInt8, Promises.State)], _ body: () throws -> Bool) rethrows {
        durable.begin(changes, counts: who % 2 == 0)
        all.begin(changes, counts: true)
        do {
            if try body() {
                durable.end(changes, counts: who % 2 == 0)
                all.end(changes, counts: true)
            }
        } catch {
            // Others may have come in between.
            durable.begin(changes, counts: who % 2 == 0)
            all.begin(changes, counts: true)
            throw error
        }
    }

    func step(_ random: inout SplitMix64, depth: Int, besides outer: Int? = nil) {
        let who = outer.map { ($0 + 1 + random.below(3)) % 4 } ?? random.below(4)
        let mark = String(repeating: "  ", count: depth) + (who % 2 == 0 ? "durable \(who)" : "relaxed \(who)")
        var accident = 0
        do {
            _ = try open(who)
            let files = stores[who]?.files
            var inner = SplitMix64(seed: random.next())
            if depth == 0, random.oneIn(3) {
                let after = random.below(3)
                files?.beforeLocking(after: after) { [unowned self] in
                    for _ in 0...inner.below(2) { step(&inner, depth: 1, besides: who) }
                }
            }
            if depth == 0 {
                switch random.below(10) {
                case 0, 1:
                    accident = 1
                    files?.crash(at: random.below(25), torn: random.oneIn(2))
                case 2:
                    accident = 2
                    files?.fail(
                        .init(at: random.below(25), number: random.pick([EIO, ENOSPC]), short: random.oneIn(2)))
                default: break
                }
            }
            try perform(who, mark, &random)
        } catch { log.append("\(mark): \(error)") }
        guard let files = stores[who]?.files else { return }
        if depth == 0 { files.forgetIntruder() }
        if accident == 1 {
            if files.hasStruck {
                log.append("\(mark) has died")
                kill(who)
            } else {
                files.crash(at: .max, torn: false)
            }
        }
        if accident == 2 {
            if files.hasStruck { log.append("\(mark) had a failure") }
            files.fail(nil)
        }
    }

    private func perform(_ who: Int, _ mark: String, _ random: inout SplitMix64) throws {
        let key = UInt8(random.below(8))
        let payload = 2 + random.below(5)
        let metadata = TileMetadata(
            storedAt: clock.now, expires: clock.now.adding(seconds: Int64(10 + random.below(1000))))
        func state(_ payload: Int?) -> Promises.State {
            Promises.State(payload: payload, expires: payload == nil ? nil : metadata.expires)
        }
        func note(_ text: String) { log.append("\(mark) \(text)") }
        let store = try open(who)
        switch random.below(26) {
        case 0..<7:
            note("put \(key) \(payload)")
            try change(who, [(key, state(payload))]) {
                try store.put(Universe.payloads[payload], for: Universe.key(key), metadata: metadata)
                return true
            }
        case 7, 8:
            let keys = (0..<(2 + random.below(6))).map { _ in UInt8(random.below(8)) }
            let payloads = keys.map { _ in 2 + random.below(5) }
            note("batch \(zip(keys, payloads).map { "\($0) \($1)" })")
            try change(who, zip(keys, payloads).map { ($0, state($1)) }) {
                try store.put(
                    zip(keys, payloads).map {
                        TilePut(key: Universe.key($0), data: Universe.payloads[$1], metadata: metadata)
                    })
                return true
            }
        case 9..<12 where !bodies[who].isEmpty:
            let body = bodies[who].remove(at: random.below(bodies[who].count))
            let others = random.oneIn(2) ? [] : [(key + 1, payload), (key, 2), (key + 1, body.payload), (key, 3)]
            note("commit \(key) \(body.payload) with \(others)")
            let tiles = others.map { key, payload in
                TilePut(key: Universe.key(key % 8), data: Universe.payloads[payload], metadata: metadata)
            }
            try Universe.payloads[body.payload].dropFirst(body.sent).withUnsafeBytes { try body.writer.append($0) }
            let changes = [(key, state(body.payload))] + others.map { ($0.0 % 8, state($0.1)) }
            try change(who, changes) {
                try body.writer.commit(for: Universe.key(key), metadata: metadata, with: tiles)
                return true
            }
        case 9..<14:
            note("body of \(payload)")
            let writer = try store.beginBody(limit: 1 << 20, inMemoryUpTo: random.pick([0, 0, 64]))
            let sent = random.below(Universe.payloads[payload].count + 1)
            try Universe.payloads[payload].prefix(sent).withUnsafeBytes { try writer.append($0) }
            bodies[who].append((writer, payload, sent))
        case 14 where !bodies[who].isEmpty:
            note("abort")
            let body = bodies[who].removeLast()
            body.writer.abort()
            var bytes = Data(count: body.sent)
            try bytes.withUnsafeMutableBytes { try body.writer.body.read(into: $0, at: 0) }
            if bytes != Universe.payloads[body.payload].prefix(body.sent) { note("WRONG BYTES IN A BODY") }
        case 14, 15:
            note("refresh \(key)")
            try store.catchUp()
            guard let entry = try store.entry(for: Universe.key(key)) else { return }
            let payload = entry.blob.flatMap { Universe.digests.firstIndex(of: $0) }
            try change(who, [(key, state(payload))]) {
                try store.refresh(Universe.key(key), from: EntryVersion(entry), metadata: metadata)
            }
        case 16, 17:
            note("remove \(key)")
            try change(who, [(key, Promises.State())]) {
                try store.remove([Universe.key(key)]).removedEntries > 0
            }
        case 18:
            note("evict")
            defer { (durable, all) = (Promises(), Promises()) }
            _ = try store.evict(toBytes: 64 * random.below(30))
        case 19:
            note("verify")
            defer { (durable, all) = (Promises(), Promises()) }
            _ = try store.verify(repair: true)
        case 20:
            note("compact")
            compactions[who] = nil
            do { _ = try store.compact() } catch let error as StoreError where error.code == .busy {}
        case 21, 22:
            note("compaction in steps")
            if let begun = compactions[who] {
                compactions[who] = nil
                _ = try begun.finish()
            } else if let begun = try store.beginCompaction() {
                compactions[who] = begun
                _ = try begun.step(entries: 1 + random.below(4))
            }
        case 23:
            note("close")
            compactions[who] = nil
            bodies[who] = []
            defer { kill(who) }
            try store.close()
        case 24:
            note("kill")
            kill(who)
        default:
            note("read \(key)")
            _ = try store.read(Universe.key(key))
            clock.advance(seconds: Int64(random.below(3)))
            if random.oneIn(2) { try store.flush() }
        }
    }

    /// What is wrong now, in any store's eyes.
    func look() throws -> [String] {
        var wrong = log.filter { $0.contains("WRONG") }
        for case let (store, _)? in stores {
            wrong += try store.invariantViolations().filter { !$0.hasPrefix("I4") && !$0.hasPrefix("I1:") }
        }
        return wrong
    }

    func powerCut(_ random: inout SplitMix64) {
        log.append("power cut")
        disk.powerCut(using: &random)
        killAll()
        boot += 1
    }

    func check(durable isDurable: Bool, isCut: Bool) throws -> [String] {
        let store = try open(isDurable ? 0 : 1)
        var wrong: [String] = []
        let promises = isCut ? durable : all
        for (key, states) in promises.keys.sorted(by: { $0.key < $1.key }) {
            let entry = try store.entry(for: Universe.key(key))
            let tile = try store.read(Universe.key(key))
            let isFine = states.contains { state in
                tile?.data == state.payload.map { Universe.payloads[$0] }
                    && tile?.entry.metadata.expires == state.expires
            }
            if !isFine {
                wrong.append("key \(key) should be one of \(states), has an entry: \(entry != nil), \(tile != nil)")
            }
        }
        var entries: [TileEntry] = []
        try store.forEachEntry { entries.append($0) }
        for entry in entries {
            if let tile = try store.read(entry.key), let blob = tile.entry.blob,
                tile.data != Universe.payloadByDigest[blob]
            {
                wrong.append("\(entry.key) has wrong bytes")
            }
        }
        let bodies = disk.names("staging").filter { $0.hasSuffix(".body") }
        if !bodies.isEmpty { wrong.append("left: \(bodies)") }
        _ = try store.verify(repair: true)
        _ = try store.evict()
        wrong += try store.invariantViolations()
        // What was one of several is what it is now.
        (durable, all) = (Promises(), Promises())
        return wrong
    }
}
