import ContentCoding
import Foundation
import Testing
import TileSets
import TileStore
import TileStoreTesting

/// Sets that are published, renewed and pulled, against a dictionary.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct PublishAndPullTests {
    @Test(arguments: Seeds.list(12))
    func whatIsPublishedIsPulledHoweverFarThePullLagsBehind(seed: UInt64) async throws {
        let lab = try SetLab(seed: seed)
        try lab.change(60)
        for _ in 0..<6 {
            let lag = 1 + lab.random.below(12)
            for _ in 0..<lag {
                try lab.change(1 + lab.random.below(15))
                try lab.publish()
            }
            let fetcher = CountingFetcher(lab.files())
            let report = try await lab.pull(fetcher)
            try lab.expectPulled()
            #expect(fetcher.counts.values.allSatisfy { $0 == 1 })
            #expect(report.requests == fetcher.counts.count)
            // Nothing new: one request.
            let again = try await lab.pull(fetcher)
            #expect(again.requests == 1)
            #expect(again.unchanged == lab.model.count)
        }
    }

    @Test func renewingWritesOnlyWhatIsNew() throws {
        let lab = try SetLab(seed: 3)
        try lab.change(200)
        let first = try lab.publish()
        #expect(first.newBlobs == first.blobs)
        let before = lab.folderDisk.clone()
        let again = try lab.publish()
        #expect(again.isUnchanged)
        #expect(again.newBlobs == 0 && again.newBytes == 0 && again.listBytes == 0)
        for shard in lab.folderDisk.names("objects") {
            #expect(lab.folderDisk.names("objects/\(shard)") == before.names("objects/\(shard)"))
        }
        try lab.put(Data("a tile that nobody has seen".utf8), TileAddress(z: 4, x: 7, y: 7))
        let third = try lab.publish()
        #expect(third.newBlobs == 1 && third.newBytes == 27)
    }

    /// Cut off at every file operation: a reader finds the old set or the new one, and the next publisher leaves no parts.
    @Test(arguments: Seeds.list(2))
    func aPublisherThatDiesAnywhereLeavesASetWhole(seed: UInt64) async throws {
        let lab = try SetLab(seed: seed)
        try lab.change(30)
        try lab.publish()
        let old = lab.model
        let published = lab.folderDisk.clone()
        try lab.change(12)
        var operation = 0
        while true {
            let disk = published.clone()
            let files = SimulatedFileSystem(disk, location: "/set")
            files.crash(at: operation, torn: operation % 2 == 0)
            var isDone = true
            do { try lab.publish(files) } catch { isDone = false }
            files.kill()
            // Read as it was left.
            let reader = try SetLab(seed: 1)
            try await reader.pull(CountingFetcher(SimulatedFileSystem(disk, location: "/set")))
            let found = try reader.contents(of: reader.puller)
            #expect(found == old || found == lab.model, "operation \(operation)")
            if isDone { break }
            // And gone on with.
            try lab.publish(SimulatedFileSystem(disk, location: "/set"))
            #expect(disk.names("staging").isEmpty)
            let later = try SetLab(seed: 1)
            try await later.pull(CountingFetcher(SimulatedFileSystem(disk, location: "/set")))
            #expect(try later.contents(of: later.puller) == lab.model, "operation \(operation)")
            operation += 1
        }
        #expect(operation > 20)
    }

    /// The power goes at every file operation: what was synced is there, and any part of the rest.
    @Test(arguments: Seeds.list(3))
    func aPowerCutAnywhereLeavesASetWhole(seed: UInt64) async throws {
        let lab = try SetLab(seed: seed, recordsChanges: true)
        try lab.change(20)
        try lab.publish()
        let old = lab.model
        let published = lab.folderDisk.clone()
        try lab.change(8)
        var operation = 0
        while true {
            let disk = published.clone()
            let files = SimulatedFileSystem(disk, location: "/set")
            files.crash(at: operation, torn: operation % 2 == 0)
            var isDone = true
            do { try lab.publish(files) } catch { isDone = false }
            files.kill()
            disk.powerCut(using: &lab.random)
            let reader = try SetLab(seed: 1)
            try await reader.pull(CountingFetcher(SimulatedFileSystem(disk, location: "/set")))
            let found = try reader.contents(of: reader.puller)
            #expect(isDone ? found == lab.model : found == old || found == lab.model, "operation \(operation)")
            if isDone { break }
            try lab.publish(SimulatedFileSystem(disk, location: "/set"))
            let later = try SetLab(seed: 1)
            try await later.pull(CountingFetcher(SimulatedFileSystem(disk, location: "/set")))
            #expect(try later.contents(of: later.puller) == lab.model, "operation \(operation)")
            operation += 1
        }
        #expect(operation > 20)
    }

    /// Every file operation fails once, for the publisher and for the puller's cache.
    @Test func whatTheDiskRefusesIsAnErrorAndNoDamage() async throws {
        let lab = try SetLab(seed: 21)
        try lab.change(25)
        try lab.publish()
        let old = lab.model
        let published = lab.folderDisk.clone()
        try lab.change(10)
        for number in [Int32(5), 28] {
            var operation = 0
            while true {
                let disk = published.clone()
                let files = SimulatedFileSystem(disk, location: "/set")
                files.fail(.init(at: operation, number: number))
                do { try lab.publish(files) } catch { #expect(error is FileError, "\(error)") }
                let isOver = !files.hasStruck
                files.fail(nil)
                let reader = try SetLab(seed: 1)
                try await reader.pull(CountingFetcher(SimulatedFileSystem(disk, location: "/set")))
                let found = try reader.contents(of: reader.puller)
                #expect(found == old || found == lab.model, "operation \(operation)")
                if isOver { break }
                try lab.publish(files)
                operation += 1
            }
            #expect(operation > 20)
        }
        try lab.publish()
        lab.puller.simulateKill()
        let before = lab.pullerDisk.clone()
        var operation = 0
        while true {
            let files = SimulatedFileSystem(before.clone())
            let store = try SetLab.store(files, lab.clock)
            let fetcher = CountingFetcher(lab.files())
            let puller = SetPuller(store: store, source: lab.source, from: fetcher, now: lab.clock.now)
            files.fail(.init(at: operation, number: 28))
            do { _ = try await puller.pull() } catch { #expect(error is StoreError, "\(error)") }
            let isOver = !files.hasStruck
            files.fail(nil)
            _ = try await puller.pull()
            #expect(try lab.contents(of: store) == lab.model, "operation \(operation)")
            #expect(try store.verify().ok)
            store.simulateKill()
            if isOver { break }
            operation += 1
        }
        #expect(operation > 20)
    }

    /// Cut off after every fetch: the next pull goes on, and nothing is fetched twice.
    @Test(arguments: Seeds.list(4))
    func aPullThatIsCutOffAnywhereFetchesNothingTwice(seed: UInt64) async throws {
        let lab = try SetLab(seed: seed)
        try lab.change(40)
        try lab.publish()
        let fetcher = CountingFetcher(lab.files())
        for _ in 0..<2 {
            var steps = 0
            while true {
                fetcher.allow(2)
                do {
                    try await lab.pull(fetcher, concurrency: 1)
                    break
                } catch let error as SetError { #expect(error.code == .unreachable) }
                try lab.restartPuller()
                steps += 1
                guard steps < 1000 else { break }
            }
            try lab.expectPulled()
            #expect(steps > 3)
            #expect(fetcher.counts.filter { $0.key != "set.json" }.values.allSatisfy { $0 == 1 })
            try lab.change(25)
            try lab.publish()
        }
    }

    /// The pulling process dies at every operation on its cache's files.
    @Test func aPullerThatDiesAnywhereGoesOn() async throws {
        let lab = try SetLab(seed: 11)
        try lab.change(30)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        try lab.change(10)
        try lab.publish()
        lab.puller.simulateKill()
        let before = lab.pullerDisk.clone()
        var operation = 0
        while true {
            let disk = before.clone()
            let files = SimulatedFileSystem(disk)
            let store = try SetLab.store(files, lab.clock)
            files.crash(at: operation, torn: operation % 2 == 0)
            var isDone = true
            do {
                _ = try await SetPuller(
                    store: store, source: lab.source, from: CountingFetcher(lab.files()), now: lab.clock.now
                ).pull()
            } catch { isDone = false }
            files.kill()
            store.simulateKill()
            let after = try SetLab.store(SimulatedFileSystem(disk), lab.clock)
            _ = try await SetPuller(
                store: after, source: lab.source, from: CountingFetcher(lab.files()), now: lab.clock.now
            ).pull()
            #expect(try lab.contents(of: after) == lab.model, "operation \(operation)")
            #expect(try after.verify().ok)
            after.simulateKill()
            if isDone { break }
            operation += 1
        }
        #expect(operation > 20)
    }

    @Test func pullsUseTheDeltaAndFetchNoLists() async throws {
        let lab = try SetLab(seed: 5)
        try lab.change(150)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        for _ in 0..<3 {
            try lab.change(2)
            try lab.publish()
        }
        let fetcher = CountingFetcher(lab.files())
        let report = try await lab.pull(fetcher)
        #expect(report.usedDelta)
        #expect(fetcher.counts.keys.filter { $0.hasSuffix(".gz") }.count == 1)
        try lab.expectPulled()
    }

    /// A delta of somebody else's making is passed over.
    @Test func aDeltaThatLeadsElsewhereIsNotBelieved() async throws {
        let lab = try SetLab(seed: 6)
        try lab.change(60)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        let old = try document(lab)
        try lab.change(9)
        try lab.publish()
        let new = try document(lab)
        let delta = try #require(new.deltas.first { $0.from == old.root })
        let path = SetPaths.list(delta.digest)
        lab.folderDisk.corrupt(path) { $0[$0.count / 2] ^= 1 }
        let report = try await lab.pull(CountingFetcher(lab.files()))
        #expect(!report.usedDelta)
        try lab.expectPulled()
    }

    private func document(_ lab: SetLab) throws -> SetDocument {
        try SetDocument(try #require(lab.folderDisk.contents("set.json")), at: "set.json")
    }

    @Test func tilesTurnStaleWhenTheSetSaysSo() async throws {
        let lab = try SetLab(seed: 8)
        try lab.change(30)
        var publisher = lab.publisher()
        publisher.lifetime = 3600
        _ = try publisher.publish(into: lab.files())
        try await lab.pull(CountingFetcher(lab.files()))
        let time = lab.clock.now
        try lab.puller.forEachEntry { entry in
            if entry.key.tile != nil { #expect(entry.metadata.expires == time.adding(seconds: 3600)) }
        }
        // The same tiles, made anew: they are fresh again.
        lab.clock.advance(seconds: 1000)
        publisher.now = lab.clock.now
        _ = try publisher.publish(into: lab.files())
        let report = try await lab.pull(CountingFetcher(lab.files()))
        #expect(report.fetchedBlobs == 0)
        try lab.puller.forEachEntry { entry in
            if entry.key.tile != nil { #expect(entry.metadata.expires == time.adding(seconds: 4600)) }
        }
    }

    @Test func whatTheSetDoesNotHaveGoes() async throws {
        let lab = try SetLab(seed: 9)
        try lab.change(30)
        try lab.publish()
        let now = lab.clock.now
        let there = try #require(lab.model.keys.sorted().first)
        for text in ["map/9/1/1", "map/9/2/2", "map/\(there)"] {
            let metadata = TileMetadata(response: ResponseFields(status: 404), storedAt: now, expires: now)
            try lab.puller.put(nil, for: TileKey(text), metadata: metadata)
        }
        let other = try TileKey("other/1/0/0")
        try lab.puller.put(Data("x".utf8), for: other, metadata: TileMetadata(storedAt: now, expires: now))
        let report = try await lab.pull(CountingFetcher(lab.files()))
        #expect(report.removed == 2)
        #expect(try lab.puller.entry(for: other) != nil)
        _ = try lab.puller.remove([other])
        try lab.expectPulled()
    }

    @Test func tilesThatWereRemovedSinceArePulledAgain() async throws {
        let lab = try SetLab(seed: 14)
        try lab.change(60)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        let gone = try lab.model.keys.sorted().prefix(2).map { try TileKey("map/\($0)") }
        #expect(try lab.puller.remove(gone, includingPinned: true).removedEntries == 2)
        let report = try await lab.pull(CountingFetcher(lab.files()))
        #expect(report.unchanged == lab.model.count - 2)
        #expect(report.fetchedBlobs <= 2)
        try lab.expectPulled()
    }

    // MARK: Sweeping

    @Test func aSweepRemovesWhatNoKeptRootNamesADayLater() async throws {
        let lab = try SetLab(seed: 10)
        func publish() throws {
            try lab.change(20)
            var publisher = lab.publisher()
            publisher.keep = 1
            _ = try publisher.publish(into: lab.files())
            lab.clock.advance(seconds: 5)
        }
        func sweep() throws -> Int { try SetSweep(now: lab.clock.now).run(lab.files(), unless: { false }).objects }
        for _ in 0..<5 { try publish() }
        // Somebody may be reading any of these.
        #expect(try document(lab).kept.count == 4)
        #expect(try sweep() == 0)
        lab.clock.advance(seconds: 86_500)
        try publish()
        #expect(try sweep() > 0)
        #expect(try sweep() == 0)
        let document = try document(lab)
        #expect(document.kept.count == 1)
        try await lab.pull(CountingFetcher(lab.files()))
        // The kept root is whole too.
        for item in try root(document.kept[0], lab).items {
            #expect(lab.folderDisk.kind(SetPaths.list(item.digest)) == .file)
        }
    }

    private func root(_ kept: SetDocument.Kept, _ lab: SetLab) throws -> SetRoot {
        let stored = try #require(lab.folderDisk.contents(SetPaths.list(kept.root)))
        return try SetRoot([UInt8](try #require(Gzip.decode(Data(stored), limit: kept.length))))
    }
}
