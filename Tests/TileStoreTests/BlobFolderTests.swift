import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// The blobs' folder alone: what is in place stays whole whatever fails, and only what was released goes.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct BlobFolderTests {
    /// Runs a script with a fault, and looks at the folder after it.
    private static func run(
        _ steps: [BlobStep], durable: Bool, fault: SweepFault, at operation: Int
    ) throws -> SweepEnd {
        let bench = try BlobBench(durable: durable)
        fault.strike(bench.files, at: operation)
        for step in steps {
            do { try bench.apply(step) } catch {
                guard error is FileError || error is StoreError else { return .failed("\(step): \(error)") }
                guard bench.files.hasStruck else { return .failed("\(step): threw \(error) without a fault") }
            }
            guard bench.files.hasStruck else { continue }
            if case .kill = fault { try bench.restart() } else { bench.files.fail(nil) }
            if let difference = try bench.difference() { return .failed("\(step): \(difference)") }
            if let left = try bench.leftovers() { return .failed("\(step): \(left)") }
            // It goes on to work.
            for blob in BlobBench.payloads.indices { try bench.apply(.publish(blob)) }
            if let difference = try bench.difference() { return .failed("\(step), afterwards: \(difference)") }
            return .fine
        }
        // The fault has still to come: another process looks.
        try bench.restart()
        if let difference = try bench.difference() { return .failed("without a fault: \(difference)") }
        return .notReached
    }

    private static func sweep(_ fault: SweepFault, seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 31_000)
        let steps = BlobStep.script(30, &random)
        let failure = try SweepFault.everywhere { try run(steps, durable: seed % 2 == 1, fault: fault, at: $0) }
        #expect(failure == nil, "seed \(seed)\n\(steps)")
    }

    @Test(arguments: 0..<6 as Range<UInt64>, [false, true])
    func killedAnywhereBlobsAreWholeOrOrphans(seed: UInt64, torn: Bool) throws {
        try Self.sweep(.kill(torn: torn), seed: seed)
    }

    @Test(arguments: 0..<4 as Range<UInt64>, FaultSweepTests.kinds)
    func whateverFailsBlobsAreWhole(seed: UInt64, kind: FaultSweepTests.Kind) throws {
        try Self.sweep(
            .fail(number: kind.number, scope: kind.scope, persistent: kind.persistent, short: kind.short), seed: seed)
    }

    @Test(arguments: 0..<60 as Range<UInt64>)
    func aPowerCutTakesNoBlobThatWasSynced(seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 32_000)
        let bench = try BlobBench(durable: true, recordsChanges: true)
        // What somebody removes or damages behind the store's back may come back.
        for step in BlobStep.script(5 + random.below(30), &random) {
            switch step {
            case .loseShard, .loseStaging, .damage, .unlink: continue
            default: try bench.apply(step)
            }
        }
        bench.disk.powerCut(using: &random)
        try bench.restart()
        #expect(try bench.difference() == nil)
        #expect(try bench.leftovers() == nil)
    }

    // MARK: Publishing

    @Test func whatIsInABlobsPlaceIsNotOverwrittenByPlacing() throws {
        let bench = try BlobBench()
        let digest = BlobBench.digests[1]
        bench.disk.plant(digest.path, [1, 2, 3])
        try bench.blobs.shards.prepare(digest.shard)
        let isPlaced = try BlobBench.payloads[1].withUnsafeBytes { try bench.blobs.place($0, as: digest, bench.hold()) }
        #expect(!isPlaced)
        #expect(bench.disk.contents(digest.path) == [1, 2, 3])
        try bench.apply(.publish(1))
        #expect(try bench.difference() == nil)
    }

    @Test func aFolderInABlobsPlaceIsSetAside() throws {
        let bench = try BlobBench()
        bench.disk.plant(BlobBench.digests[1].path + "/within", [1])
        try bench.apply(.publish(1))
        #expect(try bench.difference() == nil)
        bench.disk.plant(BlobBench.digests[2].path + "/within", [2])
        try bench.apply(.unlink([2]))
        #expect(bench.disk.kind(BlobBench.digests[2].path) == nil)
        // One with nothing in it is not kept.
        bench.disk.plantFolder(BlobBench.digests[3].path)
        try bench.apply(.unlink([3]))
        #expect(bench.disk.kind(BlobBench.digests[3].path) == nil)
        let names = bench.disk.names("").filter { $0.hasPrefix("set-aside-") }
        #expect(Set(names.map { bench.disk.contents("\($0)/within") }) == [[1], [2]])
        #expect(bench.disk.names("quarantine").isEmpty)
    }

    /// It counted as one file of 4096 bytes, whatever was in it, and was moved by a walk through all of it.
    @Test func aFolderInABlobsPlaceMadeTheQuarantineLargerThanItsBound() throws {
        let bench = try BlobBench()
        try bench.apply(.publish(2))
        let path = BlobBench.digests[1].path
        for i in 0..<100 { bench.disk.plant("\(path)/\(i)", [UInt8](repeating: 1, count: 300_000)) }
        let before = bench.files.operations
        try bench.apply(.publish(1))
        #expect(bench.files.operations - before < 60)
        let kept = bench.disk.files.filter { $0.hasPrefix("quarantine/") }
        #expect(kept.count <= 64 && kept.reduce(0) { $0 + (bench.disk.contents($1)?.count ?? 0) } <= 16_000_000)
        #expect(bench.disk.files.count { $0.hasPrefix("set-aside-") } == 100)
    }

    /// To remove it the store went down into it, so far and no farther, and the repair ended there.
    @Test func aDeepFolderInTheQuarantineStoppedTheRepair() throws {
        let lab = try Lab()
        try lab.put(0..<4)
        lab.disk.plant("quarantine/deep" + String(repeating: "/x", count: 40) + "/file", [1])
        for i in 0..<63 { lab.disk.plant("quarantine/q\(i)", [1]) }
        for number in [0, 2, 3] { lab.disk.corrupt(lab.digest(number).path) { $0[0] ^= 1 } }
        let report = try lab.store.verify(repair: true)
        #expect(report.damaged.count == 3 && report.repaired)
        let found = try lab.store.verify()
        #expect(found.ok && found.entries == 1)
        #expect(found.foreign.count == 1 && found.foreign.allSatisfy { $0.hasPrefix("set-aside-deep-") })
        #expect(lab.disk.names("quarantine").count == 64)
        #expect(lab.disk.files.contains { $0.hasPrefix("set-aside-deep-") && $0.hasSuffix("/x/file") })
    }

    @Test func aShardThatIsALinkIsRefused() throws {
        let bench = try BlobBench()
        bench.disk.plantLink("objects/" + BlobBench.digests[3].description.prefix(2), to: "/elsewhere")
        let error = #expect(throws: StoreError.self) { try bench.apply(.publish(3)) }
        #expect(error?.code == .damaged)
    }

    @Test func thereIsNoHoldOfAFolderThatWasReplaced() throws {
        let bench = try BlobBench()
        bench.disk.remove("")
        try CacheFolder.makeFolders(bench.files)
        // Looked at once in each hold: this is the first look.
        #expect(throws: FileError.self) { _ = try bench.hold() }
    }

    // MARK: What is known

    @Test func whatIsUnlinkedOrSetAsideIsNotVouchedFor() throws {
        let bench = try BlobBench()
        for (blob, step) in [(1, BlobStep.unlink([1])), (2, .damage(2))] {
            try bench.apply(.publish(blob))
            bench.blobs.vouch(for: BlobBench.digests[blob], at: 5)
            #expect(bench.blobs.isVouched(BlobBench.digests[blob], at: 6))
            #expect(!bench.blobs.isVouched(BlobBench.digests[blob], at: 2_000_000_000))
            try bench.apply(step)
            #expect(!bench.blobs.isVouched(BlobBench.digests[blob], at: 6))
        }
    }

    // MARK: Judging

    enum Harm: CaseIterable { case none, missing, short, long, changed, folder, link }

    @Test(arguments: Harm.allCases, [40, 3 << 20])
    func damageIsJudgedByTheReaderAlone(harm: Harm, size: Int) throws {
        let bench = try BlobBench()
        let bytes = Data(repeating: 7, count: size)
        let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
        bench.disk.plant(digest.path, Array(bytes))
        switch harm {
        case .none: break
        case .missing: bench.disk.remove(digest.path)
        case .short: bench.disk.corrupt(digest.path) { $0.removeLast() }
        case .long: bench.disk.corrupt(digest.path) { $0.append(1) }
        case .changed: bench.disk.corrupt(digest.path) { $0[size / 2] ^= 1 }
        case .folder: bench.disk.plantFolder(digest.path)
        case .link: bench.disk.plantLink(digest.path, to: "/tilecache.json")
        }
        let reader = bench.blobs.reader
        #expect(try reader.isIntact(digest, size: size) == (harm == .none))
        #expect(reader.equals(bytes, digest) == (harm == .none))
        #expect(try (reader.open(digest, size: size, hashes: true) != nil) == (harm == .none))
        let damaged = try reader.damage(of: digest, size: size)
        #expect((damaged == nil) == (harm == .none))
        #expect(damaged?.isThere ?? true == (harm != .missing))
        #expect(try reader.isThere(digest, size: size) == [.none, .changed].contains(harm))
        #expect(try (reader.damage(of: digest, size: size, quick: true) == nil) == [.none, .changed].contains(harm))
        guard let damaged else { return }
        try bench.blobs.setAside(damaged, bench.hold())
        #expect(bench.disk.kind(digest.path) == nil)
        // A folder with nothing in it is nothing to be kept.
        #expect(bench.disk.names("quarantine").count == ([.missing, .folder].contains(harm) ? 0 : 1))
    }

    /// To make room for it all that was kept was removed, and then it was not kept itself.
    @Test func aFileTooLargeForTheQuarantineEmptiedIt() throws {
        let bench = try BlobBench()
        for blob in [1, 2] {
            try bench.apply(.publish(blob))
            try bench.apply(.damage(blob))
        }
        let large = BlobBench.digests[3]
        bench.disk.plant(large.path, [UInt8](repeating: 1, count: 16_000_001))
        let damaged = try #require(try bench.blobs.reader.damage(of: large, size: BlobBench.payloads[3].count))
        try bench.blobs.setAside(damaged, bench.hold())
        #expect(bench.disk.kind(large.path) == nil)
        #expect(bench.disk.names("quarantine").count == 2)
    }

    @Test func whatNoEntryNamesIsAnOrphan() throws {
        let tables = Tables(blockSize: 64, hashSeed: 1)
        #expect(tables.addBlob(BlobBench.digests[0], 1) != nil)
        #expect(tables.orphan(at: BlobBench.digests[0].path) == nil)
        let other = BlobBench.digests[1]
        let wrongShard = "objects/zz/\(BlobBench.digests[0])"
        for path in [other.path, wrongShard, "objects/ab", "objects/stranger", BlobBench.digests[0].path + "/x"] {
            #expect(tables.orphan(at: path)?.path == path)
        }
        #expect(tables.unnamed(BlobBench.digests.prefix(2)).digests == [other])
    }
}
