import NIOCore
import NIOPosix
import ObjectStorage
import Testing
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import SharedTier

/// Authors of marks on a bucket in memory.
@Suite(.timeLimit(.minutes(60)))
struct MarkWriterTests {
    private let clock = ManualClock()
    private let bucket: MemoryBucket
    private let names = ObjectNames(prefix: "")
    private let osm: SourceName

    init() throws {
        let clock = clock
        bucket = MemoryBucket(now: { clock.now })
        osm = try SourceName("osm")
    }

    private func writer() -> MarkWriter {
        let clock = clock
        return MarkWriter(
            bucket, names, on: MultiThreadedEventLoopGroup.singleton.next(), now: { clock.now },
            ticks: { clock.ticks },
            sleep: {
                clock.advance(nanoseconds: $0)
                await Task.yield()
            })
    }

    private func index() async throws -> Marks { try await writer().read().marks }

    @Test func whatIsAddedIsThere() async throws {
        let box = try GeoBox(west: 5, south: 44, east: 17, north: 48)
        let osm = osm
        try await writer().add { known, now in
            try Marks.expiring(osm, zooms: 0...10, box: box, after: known, at: now, random: 1)
        }
        let marks = try await index()
        #expect(marks.list.count == 1 && marks.epochs.isEmpty)
        let askedAt = marks.list[0].time
        let inside = try #require(try box.spans(zoom: 7).first)
        #expect(
            marks.isExpired(
                TileKey(
                    source: osm,
                    tile: try TileAddress(z: 7, x: inside.columns.lowerBound, y: inside.rows.lowerBound)),
                askedAt: askedAt))
        #expect(!marks.isExpired(try TileKey("osm/7/0/0"), askedAt: askedAt))
        #expect(!marks.isExpired(try TileKey("osm/11/1080/720"), askedAt: askedAt))
        try await writer().add { known, now in
            try Marks.expiring(osm, zooms: nil, box: nil, after: known, at: now, random: 1)
        }
        #expect(try await index().epoch(of: osm) > .first)
        // What the epoch says need not be said by a mark.
        #expect(try await index().isExpired(try TileKey("osm/11/1080/720"), askedAt: askedAt))
    }

    /// Two at once, each of which reads before the other has written.
    @Test func authorsAtOnceLoseNoMark() async throws {
        let osm = osm
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<8 {
                let writer = writer()
                group.addTask {
                    try await writer.add { known, now in
                        let box = try GeoBox(
                            west: Double(number) * 20, south: 10, east: Double(number) * 20 + 1, north: 11)
                        return try Marks.expiring(osm, zooms: 5...9, box: box, after: known, at: now, random: 1)
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(try await index().list.count == 8)
    }

    @Test func anIndexThatCannotBeReadIsNotWrittenOver() async throws {
        bucket.set(.init(string: "{\"format\": 2}"), as: "marks.json")
        let osm = osm
        let error = await #expect(throws: S3Error.self) {
            try await writer().add { known, now in
                try Marks.expiring(osm, zooms: nil, box: nil, after: known, at: now, random: 1)
            }
        }
        #expect(error?.message.contains("no index of this version") ?? false)
        #expect(bucket.written.isEmpty)
    }

    @Test func aBucketThatFailsIsTold() async throws {
        bucket.mode = .isReadOnly
        let osm = osm
        await #expect(throws: S3Error.self) {
            try await writer().add { known, now in
                try Marks.expiring(osm, zooms: nil, box: nil, after: known, at: now, random: 1)
            }
        }
    }
}
