import Foundation
import Testing
import TileStore
import TileStoreTesting

/// What befalls a cache from outside: cut and damaged files, foreign folders, links, clocks, other processes.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct AccidentTests {
    // MARK: The manifest

    @Test("A journal cut at any byte opens with a state that the cache once had", arguments: [false, true])
    func cutJournal(closed: Bool) throws {
        let clock = ManualClock()
        let disk = SimulatedDisk(clock: clock, blockSize: 64)
        let bench = try StoreBench(place: .simulated(disk), clock: clock, setting: ScriptSetting())
        var states = [bench.model.snapshot()]
        var random = SplitMix64(seed: 31)
        var count = 0
        while count < 40 {
            for step in Step.script(count: 50, setting: ScriptSetting(), using: &random) where count < 40 {
                switch step {
                case .put, .refresh, .flush, .touch: break
                case .pin where count % 3 == 0: break
                default: continue
                }
                bench.model.trail = []
                let observed = try bench.applyToStore(step)
                #expect(observed == bench.applyToModel(step))
                states += bench.model.trail ?? []
                count += 1
            }
        }
        if closed {
            bench.model.trail = []
            var uses = bench.uses
            bench.model.flush(&uses, now: clock.now)
            states += bench.model.trail ?? []
            try bench.store.close()
        }
        bench.finish()
        let name = try #require(disk.names("manifest").first { $0.hasPrefix("journal-") })
        let path = "manifest/\(name)"
        let length = try #require(disk.contents(path)?.count)
        var last = 0
        for cut in 0...length {
            let copy = disk.clone()
            copy.corrupt(path) { $0.removeLast(length - cut) }
            let store = try TileStore(
                environment: clock.environment(SimulatedFileSystem(copy), seed: 2), configuration: Lab.plain)
            defer { store.simulateKill() }
            let snapshot = try store.snapshot()
            guard let position = states[last...].firstIndex(of: snapshot) else {
                Issue.record("cut at \(cut) of \(length): \(difference(snapshot, states[last]) ?? "")")
                return
            }
            last = position
            if cut % 97 == 0 {
                // Blobs have gone since then.
                _ = try store.verify(repair: true)
                #expect(try workOn(store, clock: clock) == nil, "cut at \(cut)")
            }
        }
        #expect(last == states.count - 1)
    }

    @Test("A damaged line in the middle of the journal costs that line alone; verify says so and mends it")
    func damagedJournalLine() throws {
        // The last line would be a torn tail, which is no damage.
        for victim in 0..<9 {
            let lab = try Lab()
            try lab.put(0..<10)
            lab.kill()
            let line = try #require(Self.line(of: lab.key(victim), in: lab.disk, lab.journal))
            lab.disk.corrupt(lab.journal) { $0[line.lowerBound + line.count / 2] ^= 0x01 }
            try Self.checkDamage(lab, lost: victim, of: 10)
        }
    }

    @Test("A damaged line in the checkpoint costs that line alone; verify says so and mends it")
    func damagedCheckpointLine() throws {
        for victim in 0..<10 {
            let lab = try Lab()
            try lab.put(0..<10)
            _ = try lab.store.compact()
            lab.kill()
            let line = try #require(Self.line(of: lab.key(victim), in: lab.disk, lab.checkpoint))
            lab.disk.corrupt(lab.checkpoint) { bytes in
                for i in (line.lowerBound + 3)..<(line.lowerBound + 12) { bytes[i] = 0 }
            }
            for name in lab.disk.names("manifest") where name.hasPrefix("index-") {
                lab.disk.remove("manifest/\(name)")
            }
            try Self.checkDamage(lab, lost: victim, of: 10)
        }
    }

    private static func line(of key: TileKey, in disk: SimulatedDisk, _ path: String) -> Range<Int>? {
        guard let bytes = disk.contents(path) else { return nil }
        let text = Array("\"\(key)\"".utf8)
        for start in bytes.indices where bytes[start...].starts(with: text) {
            let lower = (bytes[..<start].lastIndex(of: 10) ?? -1) + 1
            return lower..<(bytes[start...].firstIndex(of: 10) ?? bytes.count)
        }
        return nil
    }

    private static func checkDamage(_ lab: Lab, lost: Int, of count: Int) throws {
        try lab.reopen()
        for number in 0..<count {
            #expect((try lab.store.read(lab.key(number)) != nil) == (number != lost), "\(number), lost: \(lost)")
        }
        let report = try lab.store.verify()
        #expect(report.journalDamage > 0)
        #expect(!report.ok)
        #expect(report.orphans == [lab.digest(lost).path])
        _ = try lab.store.verify(repair: true)
        let second = try lab.store.verify()
        #expect(second.ok && second.orphans.isEmpty, "\(second)")
        let snapshot = try lab.store.snapshot()
        #expect(snapshot.entries.count == count - 1)
        try lab.reopen()
        #expect(try lab.store.verify().ok)
        #expect(try lab.store.snapshot() == snapshot)
        #expect(try lab.store.invariantViolations() == [])
        #expect(try workOn(lab.store, clock: lab.clock) == nil)
    }

    @Test("Without its index, or with a damaged one, a cache opens the same")
    func damagedIndex() throws {
        let lab = try Lab()
        try lab.put(0..<30)
        _ = try lab.store.compact()
        try lab.put(30..<40)
        try lab.store.close()
        let disk = lab.disk.clone()
        try lab.reopen()
        let expected = try lab.store.snapshot()
        let indexes = disk.names("manifest").filter { $0.hasPrefix("index-") }
        for name in indexes {
            let size = disk.contents("manifest/\(name)")?.count ?? 0
            for at in stride(from: 0, to: size, by: max(1, size / 200)) {
                let copy = disk.clone()
                copy.corrupt("manifest/\(name)") { at % 2 == 0 ? $0.removeLast(size - at) : ($0[at] ^= 0xFF) }
                let store = try Lab(disk: copy)
                #expect(try store.store.snapshot() == expected, "\(name) damaged at \(at)")
            }
            disk.remove("manifest/\(name)")
        }
        #expect(try Lab(disk: disk).store.snapshot() == expected)
    }

    @Test("Leftovers in staging go after an hour, not before; those of live writers stay")
    func staleStaging() throws {
        let lab = try Lab()
        try lab.put(0..<2)
        lab.disk.plant("staging/leftover", [1, 2, 3])
        try lab.reopen()
        #expect(lab.disk.names("staging") == ["leftover"])
        lab.clock.advance(seconds: 2 * 3600)
        lab.disk.plant("staging/young", [1])
        try lab.reopen()
        #expect(lab.disk.names("staging") == ["young"])
    }

    // MARK: Foreign folders

    @Test("A folder with other things in it is not taken for a cache")
    func notACache() {
        let disk = SimulatedDisk(clock: ManualClock())
        disk.plant("photo.jpg", [1, 2, 3])
        let error = #expect(throws: StoreError.self) { try Lab(disk: disk) }
        #expect(error?.code == .notACache)
        #expect(disk.files == ["photo.jpg"])
    }

    @Test("Without a cache, and not to make one, there is an error and nothing is made")
    func noSuchCache() {
        let disk = SimulatedDisk(clock: ManualClock())
        var configuration = Lab.plain
        configuration.createIfMissing = false
        let error = #expect(throws: StoreError.self) { try Lab(configuration, disk: disk) }
        #expect(error?.code == .noSuchCache)
        #expect(disk.files == [] && disk.names("") == [])
    }

    @Test(
        "A format that is not known is refused, and nothing is touched",
        arguments: ["{\"format\":99,\"salt\":\"00\"}\n", "{\"format\":2}", "{\"salt\":\"00\",\"format\":1000000}"])
    func unknownFormat(text: String) throws {
        let lab = try Lab()
        try lab.put(0..<3)
        lab.kill()
        lab.disk.plant("tilecache.json", Array(text.utf8))
        let before = lab.disk.files.map { [$0: lab.disk.contents($0)] }
        let error = #expect(throws: StoreError.self) { try lab.reopen() }
        #expect(error?.code == .unknownFormat)
        #expect(lab.disk.files.map { [$0: lab.disk.contents($0)] } == before)
    }

    @Test(
        "A damaged tilecache.json is an error, not a crash",
        arguments: ["", "{", "[]", "nonsense", "{\"format\":\"1\"}"])
    func damagedFormatFile(text: String) throws {
        let lab = try Lab()
        try lab.put(0..<3)
        lab.kill()
        lab.disk.plant("tilecache.json", Array(text.utf8))
        #expect(throws: StoreError.self) { try lab.reopen() }
        #expect(lab.disk.contents("tilecache.json") == Array(text.utf8))
    }

    @Test("Who may not write can read, and is told so when trying to write")
    func readOnly() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        lab.kill()
        let before = lab.disk.files.map { [$0: lab.disk.contents($0)] }
        for byConfiguration in [false, true] {
            let files = SimulatedFileSystem(lab.disk)
            var configuration = Lab.plain
            configuration.readOnly = byConfiguration
            files.setWritable(byConfiguration)
            let store = try TileStore(environment: lab.clock.environment(files), configuration: configuration)
            #expect(store.isReadOnly)
            #expect(try store.read(lab.key(1))?.data == lab.bytes(1))
            #expect(try store.verify().ok)
            let attempts: [() throws -> Void] = [
                { try store.put(lab.bytes(5), for: lab.key(5), metadata: lab.metadata()) },
                { _ = try store.remove([lab.key(0)]) },
                { _ = try store.evict(toBytes: 0) },
                { try store.setLimits(StoreLimits(capacity: 5)) },
                { _ = try store.expire(EntrySelection()) },
                { _ = try store.unpin("a") },
                { _ = try store.compact() },
                { _ = try store.verify(repair: true) },
            ]
            for (index, attempt) in attempts.enumerated() {
                let error = #expect(throws: StoreError.self, "attempt \(index)") { try attempt() }
                #expect(error?.code == .readOnly, "attempt \(index)")
            }
            try store.close()
        }
        #expect(lab.disk.files.map { [$0: lab.disk.contents($0)] } == before)
    }

    @Test("A reader who may not write sees what others write, across compactions")
    func readOnlyFollows() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        var configuration = Lab.plain
        configuration.readOnly = true
        let reader = try lab.another(configuration)
        for round in 1..<6 {
            try lab.put((round * 10)..<(round * 10 + 5))
            if round % 2 == 0 { _ = try lab.store.compact() }
            if round % 3 == 0 { _ = try lab.store.compact() }
            try reader.catchUp()
            #expect(try reader.snapshot() == lab.store.snapshot(), "round \(round)")
            #expect(try reader.read(lab.key(round * 10))?.data == lab.bytes(round * 10))
        }
    }

    // MARK: Blobs

    @Test(
        "A blob that is damaged or gone is a miss with all its entries, and can be put again",
        arguments: [
            Damage.truncate, .alter, .grow, .delete, .folder, .link,
        ])
    func damagedBlob(damage: Damage) throws {
        let lab = try Lab()
        for number in 0..<4 { try lab.store.put(lab.bytes(0), for: lab.key(number), metadata: lab.metadata()) }
        try lab.put(10..<12)
        let path = lab.digest(0).path
        switch damage {
        case .truncate: lab.disk.corrupt(path) { $0.removeLast(5) }
        case .alter: lab.disk.corrupt(path) { $0[7] ^= 1 }
        case .grow: lab.disk.corrupt(path) { $0.append(0) }
        case .delete: lab.disk.remove(path)
        case .folder: lab.disk.plant(path + "/inside", [1])
        case .link: lab.disk.plantLink(path, to: "/\(lab.digest(10).path)")
        }
        let report = try lab.store.verify()
        #expect(report.damaged + report.missing == [lab.digest(0)])
        for number in 0..<4 { #expect(try lab.store.read(lab.key(number)) == nil) }
        for number in 0..<4 { #expect(try lab.store.entry(for: lab.key(number)) == nil) }
        #expect(try lab.store.read(lab.key(10))?.data == lab.bytes(10))
        #expect(try lab.store.verify().ok)
        try lab.store.put(lab.bytes(0), for: lab.key(2), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(2))?.data == lab.bytes(0))
        #expect(lab.disk.kind(path) == .file)
        #expect(try lab.store.invariantViolations() == [])
        try lab.reopen()
        #expect(try lab.store.read(lab.key(2))?.data == lab.bytes(0))
    }

    @Test(
        "Verify --repair drops what is damaged without anybody reading it",
        arguments: [
            Damage.truncate, .alter, .delete, .folder, .link,
        ])
    func verifyRepairs(damage: Damage) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        let path = lab.digest(2).path
        switch damage {
        case .truncate: lab.disk.corrupt(path) { $0.removeLast(5) }
        case .alter: lab.disk.corrupt(path) { $0[7] ^= 1 }
        case .delete: lab.disk.remove(path)
        case .folder: lab.disk.plantFolder(path)
        default: lab.disk.plantLink(path, to: "/etc/passwd")
        }
        let report = try lab.store.verify(repair: true)
        #expect(report.damaged + report.missing == [lab.digest(2)])
        #expect(try lab.store.verify().ok)
        #expect(try lab.store.entry(for: lab.key(2)) == nil)
        #expect(try lab.store.snapshot().entries.count == 4)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A put of bytes whose blob has been damaged in place stores them anew")
    func putOverDamage() throws {
        let lab = try Lab()
        try lab.put(0..<2)
        lab.disk.corrupt(lab.digest(0).path) { $0.removeLast(5) }
        try lab.store.put(lab.bytes(0), for: lab.key(5), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(5))?.data == lab.bytes(0))
        lab.disk.remove(lab.digest(1).path)
        try lab.store.put(lab.bytes(1), for: lab.key(6), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(6))?.data == lab.bytes(1))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test(
        "A put of the right bytes over a damaged blob of the same length mends it for all its keys",
        arguments: [StoreConfiguration.DigestCheck.first, .always], [1000, 200_000])
    func putOverDamageOfTheSameLength(check: StoreConfiguration.DigestCheck, size: Int) throws {
        var configuration = Lab.plain
        configuration.digestCheck = check
        let lab = try Lab(configuration)
        let bytes = lab.bytes(0, size: size)
        let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
        try lab.store.put(bytes, for: lab.key(0), metadata: lab.metadata())
        for round in 1..<4 {
            // By this process, and by one that has not seen the file yet.
            if round == 2 { try lab.reopen() }
            lab.disk.corrupt(digest.path) { $0[size / 2] ^= 1 }
            let outcome = try lab.store.put(bytes, for: lab.key(round), metadata: lab.metadata())
            #expect(outcome == .stored(blob: digest, newBlob: false))
            for number in 0...round { #expect(try lab.store.read(lab.key(number))?.data == bytes) }
            if check == .first { try lab.reopen() }
        }
        #expect(try lab.store.verify().ok)
    }

    @Test("A put mends a damaged blob that another process has put since this one last looked")
    func putOverDamageOfABlobThatLookedNew() throws {
        let lab = try Lab()
        let other = try lab.another()
        try lab.store.put(lab.bytes(0), for: lab.key(0), metadata: lab.metadata())
        lab.disk.remove(lab.digest(0).path)
        let outcome = try other.put(lab.bytes(0), for: lab.key(1), metadata: lab.metadata())
        #expect(outcome == .stored(blob: lab.digest(0), newBlob: false))
        for number in 0..<2 { #expect(try other.read(lab.key(number))?.data == lab.bytes(0)) }
        #expect(try other.verify().ok)
    }

    @Test("Quarantine stays bounded")
    func quarantine() throws {
        let lab = try Lab()
        for number in 0..<100 {
            try lab.store.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata())
            lab.disk.corrupt(lab.digest(number).path) { $0[0] ^= 1 }
            #expect(try lab.store.read(lab.key(number)) == nil)
        }
        #expect((1...64).contains(lab.disk.names("quarantine").count))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("An object that no entry names is an orphan, and goes when it is asked for")
    func orphans() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        let path = lab.digest(50).path
        lab.disk.plant(path, Array(lab.bytes(50)))
        let report = try lab.store.verify()
        #expect(report.ok && report.orphans == [path])
        _ = try lab.store.verify(repair: true)
        #expect(lab.disk.contents(path) == nil)
        lab.disk.plant(path, Array(lab.bytes(50)))
        _ = try lab.store.evict()
        #expect(lab.disk.contents(path) == nil)
        // One with wrong bytes is overwritten by a put, never counted as the blob.
        lab.disk.plant(path, [1, 2, 3])
        try lab.store.put(lab.bytes(50), for: lab.key(50), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(50))?.data == lab.bytes(50))
    }

    @Test("An orphan of the right length with wrong bytes does not become a tile")
    func wrongOrphan() throws {
        let lab = try Lab()
        lab.disk.plant(lab.digest(0).path, Array(lab.bytes(1)))
        try lab.put(0..<1)
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A link planted in objects/ is not followed and not written through")
    func plantedLinks() throws {
        let lab = try Lab()
        lab.disk.plant("victim", [9, 9, 9])
        lab.disk.plantLink(lab.digest(0).path, to: "/victim")
        try lab.put(0..<1)
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        #expect(lab.disk.contents("victim") == [9, 9, 9])
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A shard that is a link is an error for its puts and a miss for its reads; the others work")
    func shardIsLink() throws {
        let lab = try Lab()
        try lab.put(0..<40)
        let shard = String(lab.digest(0).path.prefix(10))
        lab.disk.plantLink(shard, to: "/elsewhere")
        for number in 0..<40 where !lab.digest(number).path.hasPrefix(shard) {
            #expect(try lab.store.read(lab.key(number))?.data == lab.bytes(number))
        }
        // Either a miss or an error, but no bytes and no crash.
        if let tile = try? lab.store.read(lab.key(0)) { #expect(tile.data == nil) }
        _ = try? lab.store.put(lab.bytes(0), for: lab.key(0), metadata: lab.metadata())
        lab.disk.plantFolder(shard)
        try lab.store.put(lab.bytes(0), for: lab.key(0), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        _ = try lab.store.verify(repair: true)
        #expect(try lab.store.invariantViolations() == [])
    }

    // MARK: The folder, clocks and other processes

    @Test("When the folder is removed while it is open, the store goes on with a new one or says why not")
    func folderRemoved() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        lab.disk.remove("")
        var tile: StoredTile?
        do { tile = try lab.store.read(lab.key(0)) } catch { #expect(error is StoreError) }
        if let data = tile?.data { #expect(data == lab.bytes(0)) }
        do {
            try lab.store.put(lab.bytes(1), for: lab.key(1), metadata: lab.metadata())
            #expect(try lab.store.read(lab.key(1))?.data == lab.bytes(1))
        } catch {
            #expect(error is StoreError, "\(error)")
        }
        try lab.reopen()
        try lab.put(7..<9)
        #expect(try lab.store.read(lab.key(7))?.data == lab.bytes(7))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("Clocks that go back change neither the order of eviction nor what is there")
    func clockGoesBack() throws {
        let lab = try Lab()
        try lab.put(0..<10)
        lab.clock.advance(seconds: -100_000)
        try lab.put(10..<20)
        _ = try lab.store.read(lab.key(0))
        lab.clock.advance(seconds: -1_600_000_000)
        _ = try lab.store.read(lab.key(1))
        #expect(try lab.store.evict(entries: 12).removedEntries == 8)
        #expect(try lab.store.entry(for: lab.key(0)) != nil)
        #expect(try lab.store.entry(for: lab.key(1)) != nil)
        #expect(try lab.store.entry(for: lab.key(2)) == nil)
        let snapshot = try lab.store.snapshot()
        try lab.reopen()
        #expect(try lab.store.snapshot() == snapshot)
    }

    @Test("Two stores see each other's puts, removals and limits")
    func twoStores() throws {
        let lab = try Lab()
        let other = try lab.another()
        try lab.put(0..<3)
        lab.clock.advance(nanoseconds: 50_000_000)
        #expect(try other.read(lab.key(1))?.data == lab.bytes(1))
        _ = try other.remove([lab.key(1)])
        lab.clock.advance(nanoseconds: 50_000_000)
        #expect(try lab.store.read(lab.key(1)) == nil)
        try other.setLimits(StoreLimits(capacity: 4096, entryLimit: 1000))
        try lab.put(5..<6)
        #expect(try lab.store.limits() == StoreLimits(capacity: 4096, entryLimit: 1000))
        #expect(try lab.store.snapshot().entries.map(\.key) == [lab.key(5)])
        try other.catchUp()
        #expect(try other.snapshot() == lab.store.snapshot())
        #expect(try other.read(lab.key(0)) == nil)
    }

    @Test("A look-up that finds a damaged line does not wait for who holds the lock")
    func damageIsNotWaitedFor() throws {
        let lab = try Lab()
        try lab.put(0..<1)
        let other = try lab.another()
        for number in 1..<4 { try other.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata()) }
        let line = try #require(Self.line(of: lab.key(2), in: lab.disk, lab.journal))
        lab.disk.corrupt(lab.journal) { $0[line.lowerBound + line.count / 2] ^= 0x01 }
        let intruder = SimulatedFileSystem(lab.disk)
        #expect(try intruder.tryLock(try intruder.open("lock", .append)))
        lab.clock.advance(nanoseconds: 50_000_000)
        let before = lab.clock.ticks
        #expect(try lab.store.entry(for: lab.key(0)) != nil)
        #expect(lab.clock.ticks == before)
        intruder.kill()
        lab.clock.advance(nanoseconds: 50_000_000)
        #expect(try lab.store.entry(for: lab.key(3)) != nil && lab.store.entry(for: lab.key(2)) == nil)
    }

    @Test("While another process holds the lock, a put gives up after its wait")
    func lockIsHeld() throws {
        let lab = try Lab()
        try lab.put(0..<1)
        let intruder = SimulatedFileSystem(lab.disk)
        let file = try intruder.open("lock", .append)
        #expect(try intruder.tryLock(file))
        let error = #expect(throws: StoreError.self) { try lab.put(1..<2) }
        #expect(error?.code == .locked)
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        intruder.kill()
        try lab.put(1..<2)
        #expect(try lab.store.read(lab.key(1))?.data == lab.bytes(1))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A closed store says so")
    func closed() throws {
        let lab = try Lab()
        try lab.put(0..<1)
        try lab.store.close()
        let error = #expect(throws: StoreError.self) { try lab.store.read(lab.key(0)) }
        #expect(error?.code == .closed)
        #expect(throws: StoreError.self) { try lab.put(1..<2) }
    }

    @Test("Uses are written at a close and lost at a kill")
    func usesAtClose() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        _ = try lab.store.read(lab.key(0))
        lab.kill()
        try lab.reopen()
        #expect(try lab.store.entry(for: lab.key(0))?.recency == 1)
        _ = try lab.store.read(lab.key(0))
        try lab.store.close()
        try lab.reopen()
        #expect(try lab.store.entry(for: lab.key(0))?.recency == 4)
    }
}
