import CacheEngine
import NIOCore
import NIOEmbedded
import NIOPosix
import ObjectStorage
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import SharedTier
@testable import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The tier that proxies share, on a bucket in memory, with a loop and clocks that a test moves.
@Suite(.timeLimit(.minutes(60)))
struct SharedBucketTests {
    private final class Lab {
        let clock = ManualClock()
        let loop = EmbeddedEventLoop()
        let objects: MemoryBucket
        let bucket: SharedBucket
        let source: SharedSource
        let reports = Locked<[String]>([])
        /// For how long this machine stands still before it reads an answer, and how far its clock, and the bucket's, are off.
        let standstill = Locked<Int64>(0)
        let (clockError, bucketError) = (Locked<Int64>(0), Locked<Int64>(0))
        /// What is kept for the next start, and whether it can be.
        let (kept, keeps) = (Locked<KnownMarks?>(nil), Locked(true))

        init(_ change: (inout SharedBucket.Settings) -> Void = { _ in }) throws {
            let clock = clock
            let (standstill, clockError, bucketError) = (standstill, clockError, bucketError)
            let (kept, keeps) = (kept, keeps)
            objects = MemoryBucket(now: {
                defer { clock.advance(seconds: standstill.withLock { $0 }) }
                return clock.now.adding(seconds: bucketError.withLock { $0 })
            })
            var settings = SharedBucket.Settings()
            change(&settings)
            source = SharedSource(try SourceName("osm"), traits: ["t"])
            let reports = reports
            bucket = SharedBucket(
                objects, ObjectNames(prefix: "p"), settings, group: loop, computing: BlockingPool(threads: 1),
                now: { clock.now.adding(seconds: clockError.withLock { $0 }) }, ticks: { clock.ticks },
                report: { message, _ in reports.withLock { $0.append(message) } },
                keep: { marks in
                    guard keeps.withLock({ $0 }) else {
                        reports.withLock { $0.append("not kept") }
                        return false
                    }
                    kept.withLock { $0 = marks }
                    return true
                })
        }

        /// Waits until something is kept, by a thread of its own, that is as it should be.
        func kept(when isRight: (KnownMarks) -> Bool) async -> KnownMarks {
            while true {
                if let known = kept.withLock({ $0 }), isRight(known) { return known }
                await Task.yield()
            }
        }

        /// The same proxy, started anew with what was kept.
        func restarted(_ known: KnownMarks) -> SharedBucket {
            let (clock, clockError) = (clock, clockError)
            return SharedBucket(
                objects, ObjectNames(prefix: "p"), known: known, group: loop, computing: BlockingPool(threads: 1),
                now: { clock.now.adding(seconds: clockError.withLock { $0 }) }, ticks: { clock.ticks })
        }

        /// Asks while this machine's clock is 50 s ahead, and again when it has been set right.
        ///
        /// - Returns: What the clock said while it was ahead.
        func whileItsClockWasAhead() -> Timestamp {
            clockError.withLock { $0 = 50 }
            poll()
            let told = clock.now.adding(seconds: 50)
            clockError.withLock { $0 = 0 }
            clock.advance(seconds: 5)
            poll()
            return told
        }

        /// Expires the source now, by the bucket's clock.
        func expire() {
            var marks = Marks()
            marks.raise(source.name, to: Epoch.first.next(at: clock.now, random: 1))
            objects.set(marks, as: "p/marks.json")
        }

        /// Whether what was stored at a time by this machine's clock is stale.
        func isExpired(_ key: TileKey, storedAt: Timestamp) -> Bool {
            guard let tile = key.tile else { return false }
            return bucket.staleSince(source.name, z: tile.z, x: tile.x, y: tile.y, storedAt: storedAt) != nil
        }

        /// Reads the index.
        func poll() {
            bucket.poll(on: loop) {}
            loop.run()
        }

        /// Writes a tile as another proxy does.
        func write(_ key: TileKey, _ text: String, lifetime: Int64 = 3600, askedAt: Timestamp? = nil) {
            let now = askedAt ?? clock.now
            let body = Data(text.utf8)
            let metadata = TileMetadata(
                response: ResponseFields(status: text.isEmpty ? 404 : 200, mediaType: "image/png"), etag: "\"a\"",
                storedAt: now,
                expires: now.adding(seconds: lifetime))
            let name = body.withUnsafeBytes { BlobDigest(hashing: $0) }
            bucket.write(key, metadata, text.isEmpty ? nil : name, ByteBuffer(bytes: body), of: source)
            loop.run()
        }

        /// What a look finds; `nil` for nothing.
        func look(_ key: TileKey, limit: Int = 1 << 20) -> String? {
            var found: SharedTile??
            let look = bucket.look(key, source, limit: limit, on: loop) { found = .some($0) }
            loop.run()
            #expect((look == nil) == (found != nil))
            if found.flatMap({ $0 }) != nil { bucket.taken() }
            return found.flatMap { $0 }.map { $0.body.map { String(decoding: $0.data, as: UTF8.self) } ?? "absent" }
        }

        func name(of key: TileKey) throws -> String {
            try #require(ObjectNames(prefix: "p").name(of: key, source, bucket.epoch(of: source.name)))
        }
    }

    private let key: TileKey

    init() throws { key = try TileKey("osm/3/4/5") }

    @Test func whatOneWritesAnotherFinds() throws {
        let lab = try Lab()
        lab.poll()
        #expect(lab.look(key) == nil)
        lab.write(key, "sea")
        #expect(lab.look(key) == "sea")
        let none = try TileKey("osm/3/4/6")
        lab.write(none, "")
        #expect(lab.look(none) == "absent")
        let figures = lab.bucket.figures
        #expect(figures.hits == 2 && figures.misses == 1 && figures.stores == 2 && figures.errors == 0)
        #expect(!figures.isOpen && figures.waiting == 0 && figures.dropped == 0)
        // Not longer than it is fresh.
        lab.clock.advance(seconds: 3601)
        lab.poll()
        #expect(lab.look(key) == nil)
    }

    /// What was expired while nobody could read the index would be served.
    @Test func withoutARecentIndexNothingIsTaken() throws {
        let lab = try Lab()
        lab.write(key, "sea")
        #expect(lab.objects.names.isEmpty && lab.look(key) == nil && lab.bucket.figures.isOpen)
        lab.poll()
        lab.write(key, "sea")
        #expect(lab.look(key) == "sea")
        lab.clock.advance(seconds: 6)
        #expect(lab.look(key) == "sea")
        lab.clock.advance(seconds: 1)
        let asked = lab.objects.asked.count
        #expect(lab.look(key) == nil && lab.objects.asked.count == asked)
        lab.objects.mode = .fails
        lab.poll()
        #expect(lab.look(key) == nil)
        lab.objects.mode = .works
        lab.poll()
        #expect(lab.look(key) == "sea")
    }

    @Test func whatIsDamagedOrAnothersIsNotTaken() throws {
        let lab = try Lab()
        lab.poll()
        lab.write(key, "sea")
        let name = try lab.name(of: key)
        let whole = try #require(lab.objects[name])
        func becomes(_ change: (inout S3Object) throws -> Void) throws {
            var object = whole
            try change(&object)
            lab.objects[name] = object
            #expect(lab.look(key) == nil)
        }
        try becomes { $0.bytes = ByteBuffer(string: "se") }
        try becomes { $0.bytes = ByteBuffer(string: "sEa") }
        try becomes { $0.bytes = ByteBuffer() }
        try becomes { $0.metadata = .none }
        try becomes { object in
            object.metadata = try S3Metadata(object.metadata.values.filter { $0.key != "sha256" })
        }
        // Another tile's object under this name.
        let other = try TileKey("osm/3/4/7")
        lab.write(other, "land")
        let others = try #require(lab.objects[try lab.name(of: other)])
        try becomes { $0 = others }
        #expect(lab.bucket.figures.errors == 6 && lab.bucket.figures.hits == 0)
        lab.objects[name] = whole
        #expect(lab.look(key, limit: 2) == nil)
        #expect(lab.look(key) == "sea")
    }

    /// A bucket that hangs, or fails, costs nothing after a few looks.
    @Test(arguments: [MemoryBucket.Mode.hangs, .fails])
    func aBucketThatDoesNotAnswerIsLeftAlone(_ mode: MemoryBucket.Mode) throws {
        let lab = try Lab()
        lab.poll()
        lab.objects.mode = mode
        var ends = 0
        for number in 0..<Breaker.mostFailures {
            var isOver = false
            let look = lab.bucket.look(key, lab.source, limit: 100, on: lab.loop) {
                #expect($0 == nil)
                isOver = true
                ends += 1
            }
            if case .hangs = mode {
                #expect(!isOver && look != nil && lab.objects.hanging == 1)
                lab.loop.advanceTime(by: .milliseconds(499))
                #expect(!isOver)
                lab.loop.advanceTime(by: .milliseconds(1))
                #expect(lab.objects.hanging == 0)
            }
            #expect(isOver && ends == number + 1)
        }
        let asked = lab.objects.asked.count
        #expect(lab.look(key) == nil && lab.objects.asked.count == asked)
        #expect(lab.bucket.figures.isOpen && lab.bucket.figures.errors == Breaker.mostFailures)
        // After a second one look tells whether it is back.
        lab.objects.mode = .works
        lab.clock.advance(seconds: 1)
        #expect(lab.look(key) == nil && lab.objects.asked.count == asked + 1)
        #expect(!lab.bucket.figures.isOpen)
    }

    @Test func aLookThatNobodyWaitsForIsGivenUp() throws {
        let lab = try Lab()
        lab.poll()
        lab.objects.mode = .hangs
        let look = lab.bucket.look(key, lab.source, limit: 100, on: lab.loop) { _ in Issue.record("nobody waits") }
        look?.cancel()
        look?.cancel()
        #expect(lab.objects.hanging == 0 && lab.bucket.figures.errors == 0)
        lab.loop.advanceTime(by: .seconds(10))
    }

    /// A bucket that is full, or may only be read, is read on.
    @Test func whatCannotBeWrittenIsDroppedAndCounted() throws {
        let lab = try Lab()
        lab.poll()
        lab.write(key, "sea")
        lab.objects.mode = .isReadOnly
        for x in 0..<7 { lab.write(try TileKey("osm/3/\(x)/0"), "land") }
        let figures = lab.bucket.figures
        #expect(figures.dropped == Breaker.mostFailures && figures.stores == 1 && figures.waiting == 2)
        #expect(lab.look(key) == "sea" && !lab.bucket.figures.isOpen)
        // What waits is tried again when the bucket has rested, and not after half a minute.
        lab.objects.mode = .works
        lab.clock.advance(seconds: 2)
        lab.poll()
        lab.poll()
        #expect(lab.bucket.figures.waiting == 0 && lab.bucket.figures.stores == 3)
    }

    @Test func aMarkExpiresWhatIsStoredHereAndThere() throws {
        let lab = try Lab()
        lab.poll()
        lab.write(key, "sea")
        let storedAt = lab.clock.now
        lab.clock.advance(seconds: 10)
        lab.poll()
        var marks = Marks()
        let whole = try #require(
            Mark(source: lab.source.name, zooms: 0...3, columns: 0...7, rows: 0...7, time: lab.clock.now))
        marks.add(whole)
        lab.objects.set(marks, as: "p/marks.json")
        #expect(lab.look(key) == "sea")
        lab.poll()
        #expect(lab.look(key) == nil)
        func since(_ name: String, _ z: Int, _ time: Timestamp) throws -> Timestamp? {
            lab.bucket.staleSince(try SourceName(name), z: z, x: 4, y: 5, storedAt: time)
        }
        #expect(try since("osm", 3, storedAt) == lab.clock.now)
        #expect(try since("osm", 4, storedAt) == nil)
        #expect(try since("other", 3, storedAt) == nil)
        #expect(try since("osm", 3, lab.clock.now.adding(seconds: 3)) == nil)
        // Once it is asked for anew it is shared again.
        lab.clock.advance(seconds: 3)
        lab.write(key, "sea")
        #expect(lab.look(key) == "sea")
        // Somebody removes the index, or makes it unreadable: what it said holds on.
        lab.objects["p/marks.json"] = nil
        lab.poll()
        #expect(try since("osm", 3, storedAt) != nil)
        lab.objects.set(ByteBuffer(string: "{"), as: "p/marks.json")
        lab.poll()
        #expect(try since("osm", 3, storedAt) != nil)
        #expect(lab.reports.withLock { $0.count } == 1)
    }

    /// A node whose clock is a minute off takes and gives the same.
    @Test(arguments: [-60, 60])
    func aClockThatIsAMinuteOffExpiresAndTakesTheSame(_ seconds: Int64) throws {
        let lab = try Lab()
        let clock = lab.clock
        let off = SharedBucket(
            lab.objects, ObjectNames(prefix: "p"), group: lab.loop, computing: BlockingPool(threads: 1),
            now: { clock.now.adding(seconds: seconds) }, ticks: { clock.ticks })
        func pollBoth() {
            lab.poll()
            off.poll(on: lab.loop) {}
            lab.loop.run()
        }
        func lookOff() -> SharedTile? {
            var found: SharedTile?
            _ = off.look(key, lab.source, limit: 100, on: lab.loop) { found = $0 }
            return found
        }
        pollBoth()
        lab.write(key, "sea", lifetime: 30)
        let tile = try #require(lookOff())
        #expect(tile.metadata.expires == clock.now.adding(seconds: seconds + 30))
        clock.advance(seconds: 5)
        var marks = Marks()
        marks.raise(lab.source.name, to: Epoch.first.next(at: clock.now, random: 1))
        lab.objects.set(marks, as: "p/marks.json")
        pollBoth()
        #expect(lookOff() == nil)
        #expect(off.staleSince(lab.source.name, z: 3, x: 4, y: 5, storedAt: tile.metadata.storedAt) != nil)
        clock.advance(seconds: 4)
        let fresh = clock.now.adding(seconds: seconds)
        #expect(off.staleSince(lab.source.name, z: 3, x: 4, y: 5, storedAt: fresh) == nil)
        lab.write(key, "sea", lifetime: 30)
        #expect(lookOff() != nil)
    }

    @Test func itIsDrainedAndDropsTheRestAfterItsTime() async throws {
        let clock = ManualClock()
        let objects = MemoryBucket(now: { clock.now })
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let bucket = SharedBucket(
            objects, ObjectNames(prefix: ""), group: group, computing: BlockingPool(threads: 1),
            now: { clock.now }, ticks: { clock.ticks })
        let source = SharedSource(try SourceName("osm"), traits: [])
        await withCheckedContinuation { done in
            group.next().execute { bucket.poll(on: group.next()) { done.resume() } }
        }
        let metadata = TileMetadata(
            response: ResponseFields(status: 404), storedAt: clock.now, expires: clock.now.adding(seconds: 60))
        for x in 0..<100 { bucket.write(try TileKey("osm/7/\(x)/0"), metadata, nil, ByteBuffer(), of: source) }
        await bucket.drain(within: .seconds(3600))
        #expect(bucket.figures.stores == 100 && bucket.figures.waiting == 0)

        let reasons = Locked<[String]>([])
        let other = SharedBucket(
            objects, ObjectNames(prefix: "b"), group: group, computing: BlockingPool(threads: 1),
            now: { clock.now }, ticks: { clock.ticks }, report: { _, reason in reasons.withLock { $0.append(reason) } })
        await withCheckedContinuation { done in
            group.next().execute { other.poll(on: group.next()) { done.resume() } }
        }
        objects.mode = .hangs
        for x in 0..<100 { other.write(try TileKey("osm/7/\(x)/0"), metadata, nil, ByteBuffer(), of: source) }
        await other.drain(within: .milliseconds(1))
        #expect(other.figures.stores == 0 && other.figures.dropped == 100 - 32)
        // Nobody can ask for its figures any more, and those under way may or may not be written.
        #expect(reasons.withLock { $0 } == ["100 were not"])
        try await group.shutdownGracefully()
    }

    /// The bytes that are large are looked at on another thread.
    @Test func largeTilesComeWholeToo() async throws {
        let clock = ManualClock()
        let objects = MemoryBucket(now: { clock.now })
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let bucket = SharedBucket(
            objects, ObjectNames(prefix: ""), group: group, computing: BlockingPool(threads: 1),
            now: { clock.now }, ticks: { clock.ticks })
        let source = SharedSource(try SourceName("osm"), traits: [])
        let key = key
        let body = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        let name = body.withUnsafeBytes { BlobDigest(hashing: $0) }
        let metadata = TileMetadata(
            response: ResponseFields(), storedAt: clock.now, expires: clock.now.adding(seconds: 60))
        await withCheckedContinuation { done in loop.execute { bucket.poll(on: loop) { done.resume() } } }
        bucket.write(key, metadata, name, ByteBuffer(bytes: body), of: source)
        func look() async -> Data? {
            await withCheckedContinuation { done in
                loop.execute {
                    _ = bucket.look(key, source, limit: 1 << 20, on: loop) { done.resume(returning: $0?.body?.data) }
                }
            }
        }
        while objects.written.isEmpty { await Task.yield() }
        #expect(await look() == body)
        let object = try #require(objects.names.first)
        objects[object]?.bytes.setInteger(UInt8(7), at: 299_999)
        #expect(await look() == nil && bucket.figures.errors == 1)
        await bucket.drain(within: .seconds(60))
        try await group.shutdownGracefully()
    }

    // MARK: Time

    /// What was expired during the standstill was then a hit for ever.
    @Test func aLookDuringWhichTheProcessStoodStillIsNotTaken() throws {
        let lab = try Lab()
        lab.poll()
        lab.write(key, "sea")
        lab.standstill.withLock { $0 = 27 }
        #expect(lab.look(key) == nil && lab.bucket.figures.errors == 1)
        lab.standstill.withLock { $0 = 0 }
        // Nor has it learned a wrong time.
        lab.expire()
        let storedAt = lab.clock.now.adding(seconds: -5)
        lab.poll()
        #expect(lab.isExpired(key, storedAt: storedAt))
    }

    @Test func anIndexThatWasLongUnderWayIsNotRecent() throws {
        let lab = try Lab()
        lab.poll()
        lab.write(key, "sea")
        lab.standstill.withLock { $0 = 27 }
        lab.poll()
        lab.standstill.withLock { $0 = 0 }
        let asked = lab.objects.asked.count
        #expect(lab.look(key) == nil && lab.objects.asked.count == asked && lab.bucket.figures.isOpen)
        lab.poll()
        #expect(lab.look(key) == "sea")
    }

    /// A proxy that was started anew while its bucket was away served what it had known to be expired.
    @Test func whatWasExpiredStaysSoOverARestartWithoutTheBucket() async throws {
        let lab = try Lab()
        lab.poll()
        let storedAt = lab.clock.now
        lab.clock.advance(seconds: 10)
        lab.expire()
        lab.poll()
        let kept = await lab.kept { $0.marks != Marks() }
        #expect(KnownMarks(json: kept.json) == kept)
        lab.objects.mode = .fails
        let next = lab.restarted(kept)
        next.poll(on: lab.loop) {}
        lab.loop.run()
        #expect(next.staleSince(lab.source.name, z: 3, x: 4, y: 5, storedAt: storedAt) != nil)
        // It takes nothing from there all the same.
        let asked = lab.objects.asked.count
        _ = next.look(key, lab.source, limit: 100, on: lab.loop) { #expect($0 == nil) }
        #expect(lab.objects.asked.count == asked && next.figures.isOpen)
        #expect(KnownMarks(json: Data("{}".utf8)) == nil && KnownMarks(json: Data(Marks().json.utf8)) == nil)
    }

    /// The disk was full when a mark came, and had room again later: the mark was not kept until another one came, and a proxy that was
    /// started anew while its bucket was away served what had been expired.
    @Test func whatCouldNotBeKeptIsKeptOnceItCanBe() async throws {
        let lab = try Lab()
        lab.poll()
        _ = await lab.kept { _ in true }
        lab.keeps.withLock { $0 = false }
        lab.clock.advance(seconds: 10)
        lab.expire()
        lab.poll()
        while !lab.reports.withLock({ $0.contains("not kept") }) { await Task.yield() }
        #expect(lab.kept.withLock { $0?.marks } == Marks())
        lab.keeps.withLock { $0 = true }
        // Also when the bucket is away by then. The failed attempt may still be ending.
        lab.objects.mode = .fails
        while lab.kept.withLock({ $0?.marks }) == Marks() {
            lab.poll()
            await Task.yield()
        }
    }

    /// A clock that was ahead was set right, and what had been stored meanwhile was expired: after a restart it was a hit again once the
    /// time had come that it was stored at.
    @Test(arguments: [true, false])
    func whatIsExpiredStaysSoOverARestartThoughTheClockWasSetBack(_ isBucketThere: Bool) async throws {
        let lab = try Lab()
        let storedAt = lab.whileItsClockWasAhead()
        lab.clock.advance(seconds: 5)
        lab.expire()
        lab.poll()
        let kept = await lab.kept { $0.marks != Marks() }
        let read = try #require(KnownMarks(json: kept.json))
        #expect(read == kept)
        if !isBucketThere { lab.objects.mode = .fails }
        let next = lab.restarted(read)
        lab.clock.advance(seconds: 60)
        next.poll(on: lab.loop) {}
        lab.loop.run()
        #expect(next.staleSince(lab.source.name, z: 3, x: 4, y: 5, storedAt: storedAt) != nil)
        #expect(next.staleSince(lab.source.name, z: 3, x: 4, y: 5, storedAt: lab.clock.now) == nil)
    }

    /// The same where the clock was set right before there was any mark: nothing was kept by then.
    @Test func aClockThatWasSetBackIsKeptBeforeThereIsAMark() async throws {
        let lab = try Lab()
        let storedAt = lab.whileItsClockWasAhead()
        let next = lab.restarted(await lab.kept { $0.former != FormerOffsets() })
        lab.clock.advance(seconds: 5)
        lab.expire()
        next.poll(on: lab.loop) {}
        lab.loop.run()
        #expect(next.staleSince(lab.source.name, z: 3, x: 4, y: 5, storedAt: storedAt) != nil)
    }

    /// A tile that was asked for after a mark was stale, and asked for each time.
    ///
    /// The bucket's time comes in whole seconds, so it seems to go back and forth by one. Each time all that was stored until then
    /// counted as stored by the clock of before it was set back, long ago.
    @Test func aTileIsFreshAgainThoughTheClockWasSetBackOnceAndTheBucketsTimeWavers() throws {
        let lab = try Lab()
        lab.clockError.withLock { $0 = 600 }
        lab.poll()
        let first = lab.clock.now.adding(seconds: 600)
        lab.clockError.withLock { $0 = 0 }
        lab.clock.advance(seconds: 2)
        lab.poll()
        lab.clock.advance(seconds: 700)
        lab.poll()
        lab.expire()
        for second in 0..<20 {
            lab.clock.advance(seconds: 2)
            lab.bucketError.withLock { $0 = Int64(second % 2) }
            lab.poll()
            if second > 3 { #expect(!lab.isExpired(key, storedAt: lab.clock.now)) }
        }
        // What was stored by the clock that was ahead is stale still.
        #expect(lab.isExpired(key, storedAt: first))
    }

    /// While the bucket said that it was ten years later, what was expired was a hit again.
    @Test func aBucketWhoseClockIsWrongIsLeftAlone() throws {
        let lab = try Lab()
        lab.poll()
        lab.write(key, "sea")
        let storedAt = lab.clock.now
        lab.clock.advance(seconds: 5)
        lab.expire()
        lab.poll()
        for error in [10 * 365 * 86_400, -901] as [Int64] {
            lab.bucketError.withLock { $0 = error }
            lab.clock.advance(seconds: 2)
            lab.poll()
            #expect(lab.isExpired(key, storedAt: storedAt))
            #expect(lab.look(key) == nil)
        }
        #expect(lab.reports.withLock { $0.count } >= 2)
    }

    /// An epoch ten years ahead had no greater one: the source could not be expired any more.
    @Test func marksThatLieInTheFutureDoNotCount() throws {
        let lab = try Lab()
        lab.poll()
        var marks = Marks()
        marks.raise(lab.source.name, to: Epoch.first.next(at: lab.clock.now.adding(seconds: 901), random: 1))
        marks.add(
            try #require(
                Mark(source: lab.source.name, zooms: 0...0, columns: 0...0, rows: 0...0, time: .distantFuture)))
        lab.objects.set(marks, as: "p/marks.json")
        lab.poll()
        #expect(!lab.isExpired(key, storedAt: lab.clock.now))
        #expect(lab.reports.withLock { $0.count } == 1)
        #expect(marks.plausible(at: lab.clock.now) == Marks())
        #expect(marks.plausible(at: .distantFuture) == marks)
    }

    /// A clock that was set back while a tile waited to be written: it seemed to have been asked for later than it was, and what had
    /// been expired since was a hit for all.
    @Test func aTileThatWaitedWhileThisMachinesClockWasSetIsNotNewer() throws {
        let lab = try Lab()
        lab.clockError.withLock { $0 = 60 }
        lab.poll()
        let askedAt = lab.clock.now
        lab.objects.mode = .isReadOnly
        // The bucket takes nothing for a while.
        for x in 0..<Breaker.mostFailures { lab.write(try TileKey("osm/3/\(x)/0"), "land") }
        lab.write(key, "sea", askedAt: askedAt.adding(seconds: 60))
        #expect(lab.bucket.figures.waiting == 1)
        lab.clock.advance(seconds: 3)
        lab.clockError.withLock { $0 = 0 }
        lab.objects.mode = .works
        lab.poll()
        #expect(lab.bucket.figures.stores == 1)
        let object = try #require(lab.objects[try lab.name(of: key)])
        #expect(object.metadata.values["asked"].map { String(decoding: $0, as: UTF8.self) } == "\(askedAt.seconds)")
        lab.clock.advance(seconds: 10)
        lab.poll()
        #expect(lab.look(key) == "sea")
        var marks = Marks()
        let whole = Mark(
            source: lab.source.name, zooms: 0...3, columns: 0...7, rows: 0...7, time: askedAt.adding(seconds: 2))
        marks.add(try #require(whole))
        lab.objects.set(marks, as: "p/marks.json")
        lab.poll()
        #expect(lab.look(key) == nil)
    }

    /// Between the last answer of the bucket and the next one nobody has noticed it.
    @Test(arguments: [-60, 60, 600] as [Int64])
    func aTileThatIsWrittenJustAfterThisMachinesClockWasSetHasTheBucketsTime(_ seconds: Int64) throws {
        let lab = try Lab()
        lab.poll()
        lab.clock.advance(seconds: 1)
        lab.clockError.withLock { $0 = seconds }
        lab.write(key, "sea", askedAt: lab.clock.now.adding(seconds: seconds))
        let object = try #require(lab.objects[try lab.name(of: key)])
        let asked = object.metadata.values["asked"].map { String(decoding: $0, as: UTF8.self) }
        #expect(asked == "\(lab.clock.now.seconds)")
    }

    /// What was asked for before the bucket's clock was set back seemed to be newer than a mark of after that.
    @Test(arguments: [30, 60, 600] as [Int64])
    func aMarkIsHeededThoughTheBucketsClockWasSetBack(_ back: Int64) throws {
        let lab = try Lab()
        lab.poll()
        lab.clock.advance(seconds: 5)
        lab.poll()
        lab.write(key, "sea")
        lab.bucketError.withLock { $0 = -back }
        lab.poll()
        lab.clock.advance(seconds: 4)
        var marks = Marks()
        let now = lab.clock.now.adding(seconds: -back)
        let whole = Mark(source: lab.source.name, zooms: 0...3, columns: 0...7, rows: 0...7, time: now)
        marks.add(try #require(whole))
        lab.objects.set(marks, as: "p/marks.json")
        // Until that time has come again, and after it.
        for _ in 0..<(back / 2 + 20) {
            lab.clock.advance(seconds: 4)
            lab.poll()
            #expect(lab.look(key) == nil)
        }
        // What is asked for after that counts as before.
        lab.write(key, "sea")
        #expect(lab.look(key) == "sea")
    }

    /// The write of an author that was killed was carried out late: it wrote over what others had been told was there to stay.
    ///
    /// Proxies that were started after that did not know it.
    @Test func marksThatTheIndexHasLostAreWrittenAnew() async throws {
        let (clock, group) = (ManualClock(), MultiThreadedEventLoopGroup.singleton)
        let objects = MemoryBucket(now: { clock.now })
        let writer = MarkWriter(
            objects, ObjectNames(prefix: ""), on: group.next(), now: { clock.now }, ticks: { clock.ticks },
            sleep: {
                clock.advance(nanoseconds: $0)
                await Task.yield()
            })
        let restored = Locked(0)
        func node(writes: Bool = true) -> SharedBucket {
            var settings = SharedBucket.Settings()
            settings.writes = writes
            return SharedBucket(
                objects, ObjectNames(prefix: ""), settings, group: group, computing: BlockingPool(threads: 1),
                now: { clock.now }, ticks: { clock.ticks },
                restore: { lost in
                    try await writer.add { _, _ in lost }
                    restored.withLock { $0 += 1 }
                })
        }
        func poll(_ node: SharedBucket) async {
            let loop = group.next()
            await withCheckedContinuation { done in loop.execute { node.poll(on: loop) { done.resume() } } }
        }
        func expiring(_ name: String) throws -> Marks {
            var marks = Marks()
            marks.raise(try SourceName(name), to: Epoch.first.next(at: clock.now, random: 1))
            return marks
        }
        let (old, mine, late) = (try expiring("old"), try expiring("mine"), try expiring("late"))
        objects.set(old)
        try await writer.add { _, _ in mine }
        let (a, b) = (node(), node(writes: false))
        for node in [a, b] { await poll(node) }
        // Read before `mine` was written, and carried out now.
        objects.set(old.merged(late, at: clock.now))
        await poll(b)
        #expect(try await !writer.read().marks.includes(mine))
        await poll(a)
        while restored.withLock({ $0 }) == 0 { await Task.yield() }
        let index = try await writer.read().marks
        #expect(index.includes(mine) && index.includes(late) && index.includes(old))
        // One that is started after that knows all of it, and nothing is written again.
        let written = objects.written.count
        let c = node()
        for node in [a, b, c] { await poll(node) }
        let before = clock.now.adding(seconds: -60)
        let staleSince = c.staleSince(try SourceName("mine"), z: 1, x: 0, y: 0, storedAt: before)
        #expect(staleSince != nil && objects.written.count == written && restored.withLock { $0 } == 1)
        // Nor does one that was removed stay away.
        objects["marks.json"] = nil
        clock.advance(seconds: 61)
        await poll(a)
        while restored.withLock({ $0 }) == 1 { await Task.yield() }
        #expect(try await writer.read().marks.includes(mine))
        for node in [a, b, c] { await node.drain(within: .seconds(1)) }
    }

    /// A clock that was ahead, or is set back, made what was expired a hit again.
    @Test(arguments: [(50, 0), (0, -60), (-60, 60), (60, -60)] as [(Int64, Int64)])
    func whatIsExpiredStaysSoWhenThisMachinesClockIsSet(_ before: Int64, _ after: Int64) throws {
        let lab = try Lab()
        lab.clockError.withLock { $0 = before }
        lab.poll()
        let storedAt = lab.clock.now.adding(seconds: before)
        lab.clockError.withLock { $0 = after }
        lab.clock.advance(seconds: 10)
        lab.expire()
        lab.poll()
        #expect(lab.isExpired(key, storedAt: storedAt))
        // And what is asked for well after it is fresh.
        #expect(!lab.isExpired(key, storedAt: lab.clock.now.adding(seconds: after + 200)))
    }
}

extension SharedBucket {
    fileprivate func epoch(of source: SourceName) -> Epoch { .first }

}
