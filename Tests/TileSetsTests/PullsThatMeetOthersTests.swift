import Foundation
import Testing
import TileStore
import TileStoreTesting

@testable import TileSets

/// Pulls beside other pulls, after other writers, and over lines that answer wrongly.
@Suite("Pulls that meet others")
struct PullsThatMeetOthersTests {
    private func document(_ lab: SetLab) throws -> SetDocument {
        try SetDocument(try #require(lab.folderDisk.contents("set.json")), at: "set.json")
    }

    /// A pull of the next set dies at every operation on its cache's files, then the first one is pulled again.
    @Test func aSetIsPulledWholeAfterThePullOfAnotherOneWasInterrupted() async throws {
        let lab = try SetLab(seed: 21)
        try lab.change(30)
        try lab.publish()
        let (first, model) = (try #require(lab.folderDisk.contents("set.json")), lab.model)
        let firstRoot = try document(lab).root
        try await lab.pull(CountingFetcher(lab.files()))
        try lab.change(15)
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
            // Whoever finds the state finds the tiles of that set.
            if let state = try PulledSource(store: after, source: lab.source, region: "map").state() {
                lab.toleratesParts = true
                #expect(try lab.contents(of: after) == (state.root == firstRoot ? model : lab.model), "\(operation)")
                lab.toleratesParts = false
            }
            let fetcher = CountingFetcher(lab.files()) { $0 == "set.json" ? .some(first) : .none }
            _ = try await SetPuller(store: after, source: lab.source, from: fetcher, now: lab.clock.now).pull()
            #expect(try lab.contents(of: after) == model, "operation \(operation)")
            after.simulateKill()
            if isDone { break }
            operation += 1
        }
        #expect(operation > 20)
    }

    @Test func tilesOfOthersAreNotTakenForThoseOfTheSet() async throws {
        let lab = try SetLab(seed: 22)
        try lab.change(40)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        let now = lab.clock.now
        // As many come as go.
        let there = try lab.model.keys.sorted().map { try TileKey("map/\($0)") }
        _ = try lab.puller.remove([there[0]], includingPinned: true)
        try lab.puller.put(
            Data("x".utf8), for: TileKey("map/9/1/1"), metadata: TileMetadata(storedAt: now, expires: now))
        try lab.puller.put(
            Data("another's".utf8), for: there[1], metadata: TileMetadata(storedAt: now, expires: now))
        var selection = EntrySelection()
        selection.keys = [there[2]]
        #expect(try lab.puller.expire(selection) == 1)
        let report = try await lab.pull(CountingFetcher(lab.files()))
        #expect(report.removed == 1)
        try lab.expectPulled()
        try lab.puller.forEachEntry { #expect($0.metadata.expires == .distantFuture, "\($0.key)") }
        #expect(try await lab.pull(CountingFetcher(lab.files())).requests == 1)
    }

    @Test func anotherNameForTheRegionTakesThePlaceOfTheFirst() async throws {
        let lab = try SetLab(seed: 23)
        try lab.change(20)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        var puller = SetPuller(
            store: lab.puller, source: lab.source, from: CountingFetcher(lab.files()), now: lab.clock.now)
        puller.region = "other"
        _ = try await puller.pull()
        #expect(try lab.puller.regions().map(\.name) == ["other"])
        try lab.expectPulled()
        puller.region = "no / name"
        await #expect(throws: StoreError.self) { _ = try await puller.pull() }
        #expect(try lab.puller.regions().map(\.name) == ["other"])
    }

    @Test func ofTwoPullsOfOneSourceAtOnceOneIsRefused() async throws {
        let lab = try SetLab(seed: 24)
        try lab.change(20)
        try lab.publish()
        let lock = try #require(try lab.puller.lockPulls(of: lab.source))
        let fetcher = CountingFetcher(lab.files())
        let error = await #expect(throws: SetError.self) { try await lab.pull(fetcher) }
        #expect(error?.code == .busy)
        #expect(fetcher.counts.isEmpty)
        #expect(try lab.puller.lockPulls(of: SourceName("other")) != nil)
        lock.release()
        try await lab.pull(fetcher)
        try lab.expectPulled()
    }

    /// Something else answers from some request on: what was fetched before is kept.
    @Test(arguments: [1, 4, 7, 10])
    func aPageThatIsAnsweredInsteadOfASetThrowsNothingAway(count: Int) async throws {
        let lab = try SetLab(seed: 25)
        try lab.change(60)
        try lab.publish()
        let page = [UInt8]("<html>Please log in to use this network.</html>".utf8)
        let left = Locked(count)
        let fetcher = CountingFetcher(lab.files()) { _ in
            left.withLock { left in
                left -= 1
                return left < 0 ? .some(page) : .none
            }
        }
        let error = await #expect(throws: SetError.self) { try await lab.pull(fetcher, concurrency: 1) }
        #expect(error?.code == .unreachable)
        let kept = Set(fetcher.counts.keys)
        let again = CountingFetcher(lab.files())
        try await lab.pull(again, concurrency: 1)
        try lab.expectPulled()
        // The last one was the page's.
        let twice = kept.intersection(again.counts.keys).subtracting(["set.json"])
        #expect(twice.count <= 1, "\(twice)")
    }

    @Test func anObjectThatIsWrongOnceIsAskedForAgain() async throws {
        let lab = try SetLab(seed: 26)
        try lab.change(40)
        try lab.publish()
        for wrong in ["a list", "a blob"] {
            let isFirst = Locked(true)
            let fetcher = CountingFetcher(lab.files()) { path in
                guard path != "set.json", path.hasSuffix(".gz") == (wrong == "a list") else { return .none }
                return isFirst.withLock { first in
                    defer { first = false }
                    return first ? .some([1, 2, 3]) : .none
                }
            }
            try await lab.pull(fetcher)
            try lab.expectPulled()
            _ = try lab.puller.removeRegion("map")
            _ = try lab.puller.remove(lab.model.keys.map { try TileKey("map/\($0)") }, includingPinned: true)
        }
    }

    /// A fetcher that a server refuses deltas.
    private struct WithoutDeltas: SetFetcher {
        let fetcher: CountingFetcher
        let delta: String
        let code: SetError.Code
        var place: String { fetcher.place }

        func fetch(_ path: String, limit: Int) async throws -> [UInt8]? {
            if path == delta { throw SetError(code, "not for you") }
            return try await fetcher.fetch(path, limit: limit)
        }
    }

    @Test(arguments: [SetError.Code.refused, .unreachable, .damaged])
    func aDeltaThatCannotBeHadIsPassedOver(code: SetError.Code) async throws {
        let lab = try SetLab(seed: 27)
        try lab.change(60)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        try lab.change(9)
        try lab.publish()
        let delta = try #require(try document(lab).deltas.first)
        let fetcher = WithoutDeltas(
            fetcher: CountingFetcher(lab.files()), delta: SetPaths.list(delta.digest), code: code)
        let report = try await SetPuller(store: lab.puller, source: lab.source, from: fetcher, now: lab.clock.now)
            .pull()
        #expect(!report.usedDelta)
        try lab.expectPulled()
    }

    @Test func whatWasFetchedIsCountedOnce() async throws {
        let lab = try SetLab(seed: 28)
        try lab.change(60)
        try lab.publish()
        let fetcher = CountingFetcher(lab.files())
        let offer = try await SetPuller.offer(of: fetcher)
        let report = try await SetPuller(store: lab.puller, source: lab.source, from: fetcher, now: lab.clock.now)
            .pull(offer)
        #expect(fetcher.counts["set.json"] == 1)
        #expect(report.requests == fetcher.counts.values.reduce(0, +))
        let bytes = fetcher.counts.keys.reduce(0) { $0 + (lab.folderDisk.contents($1)?.count ?? 0) }
        #expect(report.fetchedBytes == bytes)
    }
}
