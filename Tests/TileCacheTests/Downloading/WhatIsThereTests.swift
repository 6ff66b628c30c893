import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

/// What a download says at its end is what is there.
@Suite(.timeLimit(.minutes(60)))
struct WhatIsThereTests {
    private func world(_ source: TileSource, _ zooms: ClosedRange<Int> = 0...2) throws -> TileCoverage {
        try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: zooms)
    }

    /// Each path has a picture of its own, so that each tile has a file of its own.
    private func serve(_ lab: CacheLab) {
        lab.transport.script { request in
            .answer(
                200, [.cacheControl: "max-age=864000"],
                body: Picture.png((request.head.path?.hashValue ?? 0) & 0xFFFF_FFFF, size: 5000))
        }
    }

    private func removeFiles(_ lab: CacheLab, most: Int = .max) -> Int {
        let files = lab.bytesOnDisk().keys.filter { $0.hasPrefix("objects/") }.sorted().prefix(most)
        for file in files { lab.disk.remove(file) }
        return files.count
    }

    /// Entries were counted: 100 % was told, though the system had removed files.
    @Test func aRegionWhoseFilesAreGoneIsNotComplete() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestBudget = 10
        options.concurrency = 1
        _ = try await lab.cache.download(source, world(source), named: "world", options: options).report()
        let unfinished = try #require(try await lab.cache.downloads().first)
        options.requestBudget = nil
        // The files go while the last tiles come, after the first ones were found to be there.
        let door = Latch()
        lab.transport.script { request in
            try await door.pass()
            return .answer(
                200, [.cacheControl: "max-age=864000"],
                body: Picture.png((request.head.path?.hashValue ?? 0) & 0xFFFF_FFFF, size: 5000))
        }
        let download = try await unfinished.resume(from: source, options: options)
        await until { door.waiting == 1 }
        let gone = removeFiles(lab, most: 5)
        door.open()
        let report = await download.report()
        #expect(gone == 5 && report.present == 16 && report.progress.lost == 5)
        #expect(report.verdict == .incomplete(missing: 5))
        #expect(report.shortfalls.first?.reason.message.contains("give the region a name") == false)
        // It is still listed, and asks for just these again.
        let asked = lab.transport.count
        #expect(try await lab.cache.downloads().count == 1)
        #expect(await download.retryFailed().report().verdict == .complete)
        #expect(lab.transport.count == asked + 5)
        #expect(try await lab.cache.downloads().isEmpty)
    }

    /// The other way to count, for a download that ended early with far more tiles, looked at entries as well.
    @Test func aLargeRegionThatEndsEarlyCountsFiles() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestBudget = 30
        options.concurrency = 1
        _ = try await lab.cache.download(source, world(source, 0...9), options: options).report()
        let gone = removeFiles(lab, most: 7)
        options.requestBudget = 1
        let report = try await lab.cache.download(source, world(source, 0...9), options: options).report()
        // One of those that are gone has come again.
        #expect(gone == 7 && report.present == 24)
    }

    /// Another process cannot tell this one: it stored everything, pinned nothing of it and said that all was well.
    @Test func aRegionThatAnotherProcessRemovesIsNotComplete() async throws {
        let lab = try CacheLab()
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source), named: "world")
        await until { door.waiting == 4 }
        // Past the cache, which is what another process does.
        _ = try lab.store.removeRegion("world")
        door.open()
        let report = await download.report()
        #expect(report.stoppedBy?.code == .invalidRegion)
        #expect(report.verdict != .complete)
        #expect(try await lab.cache.downloads().isEmpty)
    }

    /// It asked for all tiles of a region that was not there any more.
    @Test func theDownloadOfARegionThatAnotherProcessReplacesStopsSoon() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let store = lab.store
        let smaller = try PinnedRegion(
            name: "world", source: source.name, spans: [TileSpan(zoom: 2, columns: 0...1, rows: 0...1)])
        let isReplaced = Locked(false)
        lab.transport.script { _ in
            if isReplaced.withLock({ was in
                defer { was = true }; return !was
            }) {
                try store.pin(smaller)
            }
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let report = try await lab.cache.download(source, world(source, 0...6), named: "world").report()
        #expect(report.stoppedBy?.code == .invalidRegion && report.verdict != .complete)
        #expect(lab.transport.count < 1000)
        #expect(try await lab.cache.regions().map(\.region) == [smaller])
    }

    /// It was `nil`, as after a cancellation, where a worker had stopped it before it was set up.
    @Test func aDownloadThatStopsByItselfAtOnceCountsWhatIsThere() async throws {
        struct Refused: Error {}
        let lab = try CacheLab()
        let source = try lab.source { $0.prepare = { _, _ in throw Refused() } }
        for _ in 0..<50 {
            let report = try await lab.cache.download(source, world(source)).report()
            #expect(report.stoppedBy?.code == .hookFailed && report.present == 0)
        }
    }

    /// It counted as complete: 0 of 0 tiles.
    @Test func aShapeBeyondTheMapsEndIsRefused() throws {
        let source = try CacheLab().source()
        let line = try GeoCorridor(
            path: [GeoCoordinate(longitude: 10, latitude: 88), GeoCoordinate(longitude: 11, latitude: 88)],
            halfWidth: 1000)
        let error = #expect(throws: TileCacheError.self) { try source.coverage(.corridor(line), zooms: 0...5) }
        #expect(error?.code == .invalidRegion && error?.message.contains("85.05") == true)
    }
}
