import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Batches that are at different steps at the same time.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct PutInStepsTests {
    private let lab: Lab

    /// Durable: what is not is written where it belongs, and nothing is staged.
    init() throws {
        var configuration = Lab.plain
        configuration.durability = .durable
        lab = try Lab(configuration)
    }

    /// Tiles by number, with the content of that number.
    private func batch(_ tiles: [(key: Int, content: Int)]) throws -> PutInSteps {
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "image/png"), storedAt: lab.clock.now,
            expires: lab.clock.now.adding(seconds: 60))
        return try PutInSteps(
            tiles.map { TilePut(key: lab.key($0.key), data: lab.bytes($0.content), metadata: metadata) },
            into: lab.store)
    }

    private var staged: [String] { get throws { try lab.files.list("staging") ?? [] } }

    private func check(blobs: Int, entries: Int) throws {
        #expect(try lab.store.invariantViolations() == [])
        let report = try lab.store.verify()
        #expect(report.ok && report.orphans.isEmpty && report.blobsChecked == blobs)
        #expect(try lab.store.statistics().entries == entries)
        #expect(try staged.isEmpty)
    }

    @Test func aBlobThatAnEarlierBatchBringsIsStagedOnce() throws {
        let first = try batch([(1, 1), (2, 2), (3, 1)])
        let second = try batch([(4, 2), (5, 3), (6, 1)])
        let brought = try first.stage(known: [])
        #expect(brought.count == 2)
        #expect(try second.stage(known: [brought]).count == 1)
        #expect(try staged.count == 3)
        let summaries = try [first.record(), second.record()]
        #expect(summaries.map(\.stored) == [3, 3] && summaries.map(\.newBlobs) == [2, 1])
        #expect(try lab.store.read(lab.key(6))?.data == lab.bytes(1))
        try check(blobs: 3, entries: 6)
    }

    @Test func whatIsNotRecordedLeavesNothing() throws {
        do {
            let dropped = try batch([(1, 1), (2, 2)])
            _ = try dropped.stage(known: [])
            #expect(try staged.count == 2)
        }
        try check(blobs: 0, entries: 0)
    }

    @Test func aBlobThatWasToBeThereAndIsNotIsStagedUnderTheLock() throws {
        var brought: Set<BlobDigest> = []
        do {
            let dropped = try batch([(1, 1)])
            brought = try dropped.stage(known: [])
        }
        let second = try batch([(2, 1), (3, 1)])
        #expect(try second.stage(known: [brought]).isEmpty)
        #expect(try staged.isEmpty)
        #expect(try second.record().newBlobs == 1)
        #expect(try lab.store.read(lab.key(3))?.data == lab.bytes(1))
        try check(blobs: 1, entries: 2)
    }

    @Test func whatIsRefusedIsNamed() throws {
        var configuration = Lab.plain
        configuration.capacity = 4096
        let small = try Lab(configuration)
        let metadata = TileMetadata(
            response: ResponseFields(), storedAt: small.clock.now, expires: small.clock.now.adding(seconds: 60))
        let batch = try PutInSteps(
            [
                TilePut(key: small.key(1), data: small.bytes(1, size: 100_000), metadata: metadata),
                TilePut(key: small.key(2), data: small.bytes(2, size: 10), metadata: metadata),
            ], into: small.store)
        _ = try batch.stage(known: [])
        let summary = try batch.record()
        #expect(summary.stored == 1)
        #expect(summary.refused.map(\.key) == [small.key(1)] && summary.refused[0].outcome == .largerThanCapacity)
        #expect(try small.files.list("staging")?.isEmpty == true)
    }
}
