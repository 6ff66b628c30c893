import Foundation
import GRDB
import Testing
import TileArchive
import TileStore
import TileStoreTesting

/// Batches of an import overlap, and nobody can tell.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ImportPipelineTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    /// A file whose rows name the same few tiles over and over.
    private func repeating(rows: Int, tiles: Int, contents: Int) throws -> (path: String, last: [Int: Data]) {
        let path = scratch("r.mbtiles")
        var last: [Int: Data] = [:]
        let queue = try DatabaseQueue(path: path)
        try queue.write { db in
            try db.execute(sql: "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)")
            for i in 0..<rows {
                let data = Pyramid.magic + Data("content \(i * 7 % contents)".utf8)
                try db.execute(sql: "INSERT INTO tiles VALUES (11, ?, 0, ?)", arguments: [i % tiles, data])
                last[i % tiles] = data
            }
        }
        try queue.close()
        return (path, last)
    }

    @Test func ofSeveralRowsInDifferentBatchesTheLastCounts() throws {
        let (path, last) = try repeating(rows: 4000, tiles: 300, contents: 900)
        let store = try TileStore(at: scratch("a"))
        let report = try store.take(path)
        #expect(report.tiles == 300 && report.repeated == 3700 && report.skipped == 3700)
        let row = (1 << 11) - 1
        for (column, data) in last { #expect(try store.read(TileKey("s/11/\(column)/\(row)"))?.data == data) }
        let check = try store.verify()
        #expect(check.ok && check.orphans.isEmpty && check.blobsChecked == Set(last.values).count)
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch("a/staging")).isEmpty)
    }

    /// Handed on faster than they can be recorded, all for one tile.
    @Test func batchesAreRecordedInTheirOrder() throws {
        let store = try TileStore(at: scratch("a"))
        let now = Timestamp(seconds: 1_700_000_000)
        let metadata = TileMetadata(response: ResponseFields(), storedAt: now, expires: now.adding(seconds: 60))
        let key = try TileKey("s/0/0/0")
        let content = { (number: Int) in Data("content \(number)".utf8) }
        let pipeline = PutPipeline()
        defer { pipeline.close() }
        for round in 0..<40 {
            let batches = try (0..<4).map {
                try PutInSteps([TilePut(key: key, data: content(round * 4 + $0), metadata: metadata)], into: store)
            }
            var stored = 0
            for batch in batches { stored += try pipeline.put(batch).reduce(0) { $0 + $1.stored } }
            stored += try pipeline.drain().done.reduce(0) { $0 + $1.stored }
            #expect(stored == 4)
            #expect(try store.read(key)?.data == content(round * 4 + 3))
        }
        #expect(try store.verify().blobsChecked == 1)
    }

    @Test func aDiskThatFailsLeavesASoundCacheThatIsCompletedLater() throws {
        let (path, last) = try repeating(rows: 1400, tiles: 1400, contents: 400)
        var reached = 0
        for operation in stride(from: 5, to: 1500, by: 131) {
            let clock = ManualClock()
            let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
            let store = try TileStore(environment: clock.environment(files), configuration: StoreConfiguration())
            files.fail(.init(at: operation, number: ENOSPC, scope: .space, persistent: true))
            do {
                try store.take(path)
            } catch let error as StoreError {
                #expect(error.code == .diskFull, "\(error)")
                reached += 1
            }
            files.fail(nil)
            #expect(try store.invariantViolations() == [], "operation \(operation)")
            #expect(try store.verify().orphans.isEmpty && files.list("staging")?.isEmpty != false)
            #expect(try store.take(path).tiles == 1400)
            #expect(try store.verify().ok && store.verify().blobsChecked == Set(last.values).count)
            store.simulateKill()
            files.kill()
        }
        #expect(reached > 3)
    }

    @Test func whatTheObserverIsToldAddsUp() throws {
        let (path, _) = try repeating(rows: 1000, tiles: 1000, contents: 10)
        final class Counter: TransferObserver {
            var tiles: [Int] = []
            func skipped(_ what: String, _ why: String, count: Int) {}
            func failed(_ what: String, _ why: String) {}
            func advanced(_ progress: @autoclosure () -> TransferProgress) { tiles.append(progress().tiles) }
            var wantsStop: Bool { false }
        }
        let counter = Counter()
        let store = try TileStore(at: scratch("a"))
        let transfer = ArchiveImport(
            store: store, source: try SourceName("s"), now: Timestamp(seconds: 1_700_000_000))
        let report = try transfer.run(MBTilesReader(path), observer: counter)
        #expect(counter.tiles == Array(1...1000) && report.newBlobs == 10)
    }
}
