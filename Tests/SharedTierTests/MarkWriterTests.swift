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

    // MARK: A bucket that is slow

    /// Two authors, and a bucket that carries out one's writes long after its author has given up waiting for the answer.
    ///
    /// It wrote over what the other had been told was there to stay.
    @Test(arguments: Seeds.list(200))
    func aWriteThatIsCarriedOutLateLosesNoMark(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let second: UInt64 = 1_000_000_000
        let start = Timestamp(seconds: 1_000_000)
        struct Author {
            var author: MarkAuthor
            var own: Marks
            var event: (at: UInt64, MarkAuthor.Event?)
            var isDone = false
            var hasGivenUp = false
        }
        func mark(_ name: String) throws -> Marks {
            var marks = Marks()
            marks.raise(try SourceName(name), to: Epoch.first.next(at: start, random: 1))
            return marks
        }
        var index = Marks()
        var late: [(at: UInt64, marks: Marks)] = []
        // How long the first one's writes take, each; the other one's take no time to speak of.
        let slowness = [6, 12, 25, 29][random.below(4)] * second
        var authors = try ["a", "b"].enumerated().map { number, name in
            Author(
                author: MarkAuthor(adding: try mark(name), at: start), own: try mark(name),
                event: (number == 0 ? 0 : UInt64(random.below(8_000)) * 1_000_000, nil))
        }
        var now: UInt64 = 0
        while authors.contains(where: { !$0.isDone && !$0.hasGivenUp }) || !late.isEmpty {
            let nextLate = late.map(\.at).min() ?? .max
            let nextEvent = authors.filter { !$0.isDone && !$0.hasGivenUp }.map(\.event.at).min() ?? .max
            now = max(now, min(nextLate, nextEvent))
            try #require(now < 600 * second)
            if nextLate <= nextEvent {
                let at = try #require(late.firstIndex { $0.at == nextLate })
                index = late.remove(at: at).marks
                continue
            }
            let i = try #require(authors.firstIndex { !$0.isDone && !$0.hasGivenUp && $0.event.at == nextEvent })
            let action =
                if let event = authors[i].event.1 { authors[i].author.on(event, at: now) } else {
                    authors[i].author.begin(at: now)
                }
            let step = UInt64(1 + random.below(40)) * 1_000_000
            switch action {
            // The answer says what was there on the way.
            case .read: authors[i].event = (now + step, .index(index))
            case .write(let marks):
                if i == 0 {
                    late.append((now + slowness, marks))
                    authors[i].event = (now + 2 * second, .failed(mayHappen: true))
                } else {
                    index = marks
                    authors[i].event = (now + step, .written)
                }
            case .wait(let pause): authors[i].event = (now + pause, .waited)
            case .done: authors[i].isDone = true
            case .giveUp: authors[i].hasGivenUp = true
            }
        }
        for author in authors where author.isDone { #expect(index.includes(author.own)) }
        #expect(authors[1].isDone)
    }

    /// Such an epoch would have no greater one.
    @Test func aBucketWithAWrongClockExpiresNothing() async throws {
        let (clock, osm) = (clock, osm)
        let wrong = MemoryBucket(now: { clock.now.adding(seconds: 10 * 365 * 86_400) })
        let writer = MarkWriter(
            wrong, names, on: MultiThreadedEventLoopGroup.singleton.next(), now: { clock.now },
            ticks: { clock.ticks }, sleep: { clock.advance(nanoseconds: $0) })
        let error = await #expect(throws: S3Error.self) {
            try await writer.add { known, now in
                try Marks.expiring(osm, zooms: nil, box: nil, after: known, at: now, random: 1)
            }
        }
        #expect(error?.message.contains("clock") ?? false)
        #expect(wrong.written.isEmpty)
    }
}
