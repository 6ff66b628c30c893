import Foundation
import Testing
import TileStore
import TileStoreTesting

@testable import TileSets

/// What publishing does with a folder that is not as it has left it, and with a cache that changes meanwhile.
@Suite("Folders that sets are published into")
struct PublishingFolderTests {
    @Test(arguments: ["tilecache.json", "notes.txt", "objects.old/a"])
    func aFolderThatIsSomebodyElsesIsRefused(path: String) throws {
        let lab = try SetLab(seed: 31)
        try lab.change(10)
        if path.contains("/") { lab.folderDisk.plantFolder("objects.old") }
        lab.folderDisk.plant(path, [1])
        let error = #expect(throws: SetError.self) { try lab.publish() }
        #expect(error?.code == .invalid)
        #expect(lab.folderDisk.names("").count == 1)
    }

    #if os(Linux)
    /// A child process has all descriptors of its parent until it runs its program.
    @Test func aChildThatIsBeingStartedDoesNotKeepThePublishersLock() throws {
        let path = NSTemporaryDirectory() + "publishers-lock-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        defer { #expect(throws: Never.self) { try FileManager.default.removeItem(atPath: path) } }
        var folder: SetFolder? = try SetFolder(DiskFileSystem(location: path))
        let error = #expect(throws: SetError.self) { try SetFolder(DiskFileSystem(location: path)) }
        #expect(error?.code == .busy && folder != nil)
        let own = (0..<65536 as Range<Int32>).first { number in
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)")) == path + "/lock"
        }
        let inherited = dup(try #require(own))
        defer { close(inherited) }
        folder = nil
        #expect(throws: Never.self) { try SetFolder(DiskFileSystem(location: path)) }
    }
    #endif

    @Test func aSetMayHaveOtherFilesBesideIt() throws {
        let lab = try SetLab(seed: 32)
        try lab.change(10)
        lab.folderDisk.plant(".hidden", [1])
        try lab.publish()
        lab.folderDisk.plant("index.html", [1])
        try lab.change(10)
        try lab.publish()
        // But it is no set in a cache.
        lab.folderDisk.plant("tilecache.json", [1])
        #expect(throws: SetError.self) { try lab.publish() }
        #expect(throws: SetError.self) { try SetSweep(now: lab.clock.now).run(lab.files(), unless: { false }) }
    }

    @Test func filesThatNoPublisherHasMadeAreLeftAlone() throws {
        let lab = try SetLab(seed: 33)
        try lab.change(10)
        try lab.publish()
        let digest = Data("anything".utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        let theirs = [
            "staging/draft.txt", "staging/1.part.bak", "objects/ab/notes", "objects/zz/\(digest)", "objects/\(digest)",
        ]
        for folder in ["objects/ab", "objects/zz"] { lab.folderDisk.plantFolder(folder) }
        for path in theirs { lab.folderDisk.plant(path, [1]) }
        lab.folderDisk.plant("staging/7.part", [1])
        lab.folderDisk.plant(SetPaths.blob(digest), [1])
        lab.folderDisk.plant(SetPaths.list(digest), [1])
        lab.clock.advance(seconds: 200_000)
        try lab.publish()
        #expect(lab.folderDisk.contents("staging/7.part") == nil)
        let swept = try SetSweep(now: lab.clock.now.adding(seconds: 200_000)).run(lab.files(), unless: { false })
        #expect(swept.objects == 2)
        for path in theirs { #expect(lab.folderDisk.contents(path) == [1], "\(path)") }
    }

    private func objects(_ lab: SetLab) -> [String] {
        lab.folderDisk.names("objects").flatMap { shard in
            lab.folderDisk.names("objects/\(shard)").map { "objects/\(shard)/\($0)" }
        }
    }

    /// Each object is lost or cut in turn, each list damaged too; publishing the same tiles writes it anew.
    @Test func whatASetHasLostIsPublishedAnew() throws {
        let lab = try SetLab(seed: 34)
        try lab.change(60)
        try lab.publish()
        let paths = objects(lab)
        #expect(paths.count > 10)
        for path in paths {
            let whole = try #require(lab.folderDisk.contents(path))
            let harms: [(inout [UInt8]) -> Void] = [{ $0.removeLast() }, { $0.removeAll() }, { $0[$0.count / 2] ^= 1 }]
            for harm in path.hasSuffix(".gz") ? harms : Array(harms.dropLast()) {
                lab.folderDisk.corrupt(path, harm)
                try lab.publish()
                #expect(lab.folderDisk.contents(path) == whole, "\(path)")
            }
            lab.folderDisk.remove(path)
            let report = try lab.publish()
            #expect(report.isUnchanged)
            #expect(report.newBlobs == (path.hasSuffix(".gz") ? 0 : 1))
            #expect(lab.folderDisk.contents(path) == whole, "\(path)")
        }
    }

    @Test func aFormerVersionWhoseListsAreGoneHoldsUpNoSweep() throws {
        let lab = try SetLab(seed: 35)
        try lab.change(40)
        try lab.publish()
        let old = try SetDocument(try #require(lab.folderDisk.contents("set.json")), at: "")
        try lab.change(40)
        try lab.publish()
        lab.folderDisk.remove(SetPaths.list(old.root))
        func sweep() throws { _ = try SetSweep(now: lab.clock.now).run(lab.files(), unless: { false }) }
        #expect(throws: SetError.self) { try sweep() }
        try lab.publish()
        try sweep()
        let new = try SetDocument(try #require(lab.folderDisk.contents("set.json")), at: "")
        #expect(!new.kept.contains { $0.root == old.root })
    }

    /// Tiles go and change after they were listed, again and again.
    @Test(arguments: Seeds.list(6))
    func aCacheThatIsInUseIsPublished(seed: UInt64) async throws {
        // It is called on this thread.
        nonisolated(unsafe) let lab = try SetLab(seed: seed)
        try lab.change(80)
        var publisher = lab.publisher()
        let rounds = Locked(0)
        publisher.progress.wantsStop = {
            let round = rounds.withLock { round in
                round += 1
                return round
            }
            // Before the first, and now and then one of the next blobs is copied.
            if round == 1 || round % 7 == 0, round < 40 {
                do { try lab.change(10) } catch { Issue.record(error) }
            }
            return false
        }
        _ = try publisher.publish(into: lab.files())
        // What was changed after it was copied may be in the set as it was.
        try await lab.pull(CountingFetcher(lab.files()))
        let report = try lab.publish()
        #expect(report.tiles == lab.model.count)
        try await lab.pull(CountingFetcher(lab.files()))
        try lab.expectPulled()
    }

    @Test func aDocumentThatNobodyCouldReadIsNotPublished() throws {
        let lab = try SetLab(seed: 36)
        try lab.change(10)
        try lab.publish()
        let before = lab.folderDisk.contents("set.json")
        var deep = JSONValue.string("deep")
        for _ in 0..<100 { deep = .array([deep]) }
        var publisher = lab.publisher()
        publisher.metadata = ["deep": deep]
        #expect(throws: SetError.self) { try publisher.publish(into: lab.files()) }
        #expect(lab.folderDisk.contents("set.json") == before)
        try lab.publish()
    }

    private func document(_ lab: SetLab) throws -> SetDocument {
        try SetDocument(try #require(lab.folderDisk.contents("set.json")), at: "set.json")
    }

    /// The roots from which whole deltas lead to the set's own.
    private func rootsWithDeltas(_ lab: SetLab) throws -> [BlobDigest] {
        let document = try document(lab)
        return try document.deltas.map { named in
            let file = try #require(lab.folderDisk.contents(SetPaths.list(named.digest)))
            let delta = try SetDelta(try #require(SetList.unpacked(file, named.digest, length: named.length)))
            #expect(delta.from == named.from && delta.to == document.root)
            return named.from
        }
    }

    /// Each delta is lost, cut, made longer or damaged in turn; publishing makes it anew, whether tiles have changed or not.
    @Test(arguments: [false, true])
    func aDeltaThatIsDamagedIsMadeAnew(withNewTiles: Bool) async throws {
        let lab = try SetLab(seed: 5)
        try lab.change(150)
        try lab.publish()
        for _ in 0..<3 {
            try lab.change(5)
            try lab.publish()
        }
        let harms: [(inout [UInt8]) -> Void] = [
            { $0.removeLast() }, { $0.removeAll() }, { $0[$0.count / 2] ^= 1 },
            { $0 += [UInt8](repeating: 0, count: 9999) },
        ]
        for harm in harms.indices.map(Optional.some) + [nil] {
            let roots = try rootsWithDeltas(lab)
            #expect(roots.count >= 3)
            for named in try document(lab).deltas {
                let path = SetPaths.list(named.digest)
                if let harm { lab.folderDisk.corrupt(path, harms[harm]) } else { lab.folderDisk.remove(path) }
            }
            let root = try document(lab).root
            if withNewTiles { try lab.change(5) }
            let isUnchanged = try lab.publish().isUnchanged
            #expect(isUnchanged || withNewTiles)
            #expect(try rootsWithDeltas(lab) == Array(((isUnchanged ? [] : [root]) + roots).prefix(8)))
        }
        // They lead where they should.
        try await lab.pull(CountingFetcher(lab.files()))
        let last = try #require(rootsWithDeltas(lab).last)
        #expect(try document(lab).kept.contains { $0.root == last })
        try lab.expectPulled()
    }

    @Test func aDeltaThatCannotBeMadeAnewIsNoLongerNamed() throws {
        let lab = try SetLab(seed: 5)
        try lab.change(150)
        try lab.publish()
        for _ in 0..<3 {
            try lab.change(5)
            try lab.publish()
        }
        let before = try document(lab)
        #expect(before.deltas.count >= 2)
        let lost = try #require(before.deltas.last)
        lab.folderDisk.remove(SetPaths.list(lost.digest))
        lab.folderDisk.remove(SetPaths.list(lost.from))
        try lab.publish()
        #expect(try rootsWithDeltas(lab) == before.deltas.dropLast().map(\.from))
    }
}
