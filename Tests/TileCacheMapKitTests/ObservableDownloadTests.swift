import HTTPTypes
import Observation
import Testing
import TileStore

@testable import TileCache
@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct DownloadStatusTests {
    private func name(_ status: DownloadStatus) -> String {
        switch status.phase {
        case .idle: "idle"
        case .running: "running"
        case .paused: "paused"
        case .waiting(let reason): "waiting: \(reason.code)"
        case .finished: "finished"
        case .failed: "failed"
        }
    }

    @Test func itsPhaseIsWhatHappenedLast() {
        var status = DownloadStatus(tiles: 4)
        #expect(name(status) == "idle" && !status.isUnderWay && status.fraction == 0)
        status.start()
        #expect(name(status) == "running" && status.isUnderWay)
        var progress = DownloadProgress(total: 4)
        progress.fetched = 2
        status.advance(to: progress)
        #expect(status.fraction == 0.5)
        progress.isWaiting = true
        status.wait(TileCacheError(.noAnswer, "no network"))
        status.advance(to: progress)
        #expect(name(status) == "waiting: noAnswer" && status.isUnderWay)
        // Who pauses it sees that, and what it waits for when he goes on.
        status.pause()
        #expect(name(status) == "paused")
        status.resume()
        #expect(name(status) == "waiting: noAnswer")
        progress.isWaiting = false
        status.advance(to: progress)
        #expect(name(status) == "running")
        progress.fetched = 4
        status.finish(DownloadReport(progress: progress))
        #expect(name(status) == "finished" && !status.isUnderWay && status.fraction == 1)
        status.start()
        #expect(name(status) == "running" && status.fraction == 0 && status.progress.total == 4)
        status.fail(TileCacheError(.forbidden, "its terms"))
        #expect(name(status) == "failed" && !status.isUnderWay)
    }

    @Test func aPauseBeforeTheStartIsKept() {
        var status = DownloadStatus(tiles: 4)
        status.pause()
        #expect(name(status) == "idle")
        status.start()
        #expect(name(status) == "paused" && status.isUnderWay)
    }
}

@Suite(.timeLimit(.minutes(60)))
@MainActor
struct ObservableDownloadTests {
    private let world: RegionShape

    init() throws { world = .box(try GeoBox(west: -180, south: -85, east: 180, north: 85)) }

    private func report(_ download: ObservableDownload) -> DownloadReport? {
        if case .finished(let report) = download.status.phase { report } else { nil }
    }

    /// Counts changes as SwiftUI does: what is read is watched, and read again after a change.
    private static func watch(_ download: ObservableDownload, _ changes: Locked<Int>) {
        withObservationTracking {
            _ = download.status.fraction
        } onChange: {
            changes.withLock { $0 += 1 }
            Task { @MainActor in watch(download, changes) }
        }
    }

    @Test func aViewHearsOfEveryChangeUpToTheEnd() async throws {
        let lab = try MapLab()
        let download = ObservableDownload(try RegionDownloader(world, zooms: 0...3, named: "world", of: lab.map))
        #expect(download.status.progress.total == 85)
        let changes = Locked(0)
        Self.watch(download, changes)
        download.start()
        #expect(download.status.isUnderWay)
        await until { report(download) != nil }
        #expect(download.status.fraction == 1 && changes.withLock { $0 } > 1)
        #expect(report(download)?.verdict == .complete)
        // Again, nothing has to be asked for.
        let asked = lab.server.requests.count
        download.start()
        await until { report(download) != nil }
        #expect(report(download)?.progress.unchanged == 85 && lab.server.requests.count == asked)
    }

    @Test func failedTilesAreTriedAgain() async throws {
        let lab = try MapLab()
        lab.server.script { $0.path == "/1/1/1.png" ? .status(403) : .tile(picture($0.path ?? "")) }
        let downloader = try RegionDownloader(world, zooms: 0...1, named: nil, of: lab.map)
        downloader.options.attempts = 1
        let download = ObservableDownload(downloader)
        download.retryFailed()
        #expect(!download.status.isUnderWay)
        download.start()
        await until { report(download) != nil }
        #expect(report(download)?.verdict == .incomplete(missing: 1) && download.status.fraction < 1)
        lab.server.script { .tile(picture($0.path ?? "")) }
        download.retryFailed()
        #expect(download.status.isUnderWay)
        await until { report(download) != nil }
        #expect(report(download)?.verdict == .complete)
    }

    @Test func itWaitsForAPauseAndEndsByACancel() async throws {
        let lab = try MapLab()
        let download = ObservableDownload(try RegionDownloader(world, zooms: 0...2, named: nil, of: lab.map))
        download.pause()
        download.start()
        for _ in 0..<100 { await Task.yield() }
        #expect(lab.server.requests.isEmpty)
        download.cancel()
        await until { report(download) != nil }
        #expect(report(download)?.wasCancelled == true)
    }

    @Test func aServerThatForbidsItIsItsFailure() async throws {
        let lab = try MapLab { $0.urlTemplate = "https://tile.openstreetmap.org/{z}/{x}/{y}.png" }
        let download = ObservableDownload(try RegionDownloader(world, zooms: 0...1, named: nil, of: lab.map))
        download.start()
        await until { !download.status.isUnderWay }
        guard case .failed(let error) = download.status.phase else {
            Issue.record("it is \(download.status.phase)")
            return
        }
        #expect((error as? TileCacheError)?.code == .forbidden)
    }
}
