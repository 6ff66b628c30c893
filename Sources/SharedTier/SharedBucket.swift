package import CacheEngine
package import NIOCore
import ObjectStorage
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The tier that the proxies of a fleet share: a bucket with an object for each tile, and an index of what is stale.
///
/// Never in the way: a look takes ``Settings/timeout`` at most, and a bucket that has failed some times in a row is left alone
/// for a while. What is written waits in a bounded queue, and nobody waits for it. Without a recent index nothing is taken from the
/// bucket: it could be what has been expired since.
package final class SharedBucket: Sendable {
    package struct Settings: Sendable {
        /// How long a look may take, last byte and connecting included.
        package var timeout = Duration.milliseconds(500)
        /// Whether tiles are written.
        package var writes = true
        /// How long after one answer about the index it is asked for again.
        package var interval = Duration.seconds(2)
        /// What waits to be written.
        package var queue = WriteQueue<Write>.Limits()

        package init() {}
    }

    /// A tile that is to be written.
    package struct Write: Sendable {
        /// What the object says; its times are the bucket's since it was queued, whatever is done to this machine's clock meanwhile.
        fileprivate let metadata: S3Metadata
        fileprivate let blob: BlobDigest?
        fileprivate let bytes: ByteBuffer
    }

    private struct State {
        /// Apart, so that a bucket that is full, or may only be read, is still read.
        var reads = Breaker()
        var writes = Breaker()
        var marks: Marks?
        /// The index's entity tag.
        var tag: String?
        /// When the index was last asked for with success (ticks); `nil` if it never was.
        var polledAt: UInt64?
        var offset = ClockOffset(seconds: 0)
        /// Those of before this machine's clock was set back.
        var former = FormerOffsets()
        /// The time that the bucket told last, if it did, and when (ticks).
        var told: (time: Timestamp, ticks: UInt64)?
        /// From when on the bucket's clock has told times twice, as it was set back, and until when: what was asked for then may have
        /// been asked for before.
        var twiceFrom = Timestamp.distantFuture
        var twiceUntil = Timestamp.distantPast
        /// What writes marks anew that the index has lost, while it does, and when the next one may (ticks).
        var restoring: Task<Void, Never>?
        var restoresFrom: UInt64 = 0
        /// What was kept last for the next start, and whether something is being kept.
        var kept: KnownMarks?
        var isKeeping = false
        var queue: WriteQueue<Write>
        var figures = SharedFigures()
        var isStopping = false
        var drained: CheckedContinuation<Void, Never>?

        /// The bucket's time, by a clock that nobody sets.
        func bucketTime(_ here: Timestamp, _ ticks: UInt64) -> Timestamp {
            guard let told else { return offset.bucket(here) }
            return told.time.adding(seconds: Int64(clamping: (ticks &- told.ticks) / 1_000_000_000))
        }

        /// What is to be kept; `nil` if it was.
        var unkept: KnownMarks? {
            guard let marks else { return nil }
            let known = KnownMarks(marks: marks, offset: offset, former: former)
            return kept.map { known.isSaid(by: $0) } ?? false ? nil : known
        }
    }

    private let state: Locked<State>
    private let objects: any SharedObjects
    private let writer: any SharedObjects
    private let names: ObjectNames
    private let loops: any EventLoopGroup
    private let computing: BlockingPool
    private let settings: Settings
    private let now: @Sendable () -> Timestamp
    private let ticks: @Sendable () -> UInt64
    private let report: @Sendable (_ message: String, _ reason: String) -> Void
    private let keep: @Sendable (KnownMarks) -> Bool
    private let restore: (@Sendable (Marks) async throws -> Void)?

    /// - Parameters:
    ///   - objects: The bucket.
    ///   - writer: The same over connections of its own: slow writes must not hold up looks.
    ///   - known: What was kept of the index: it holds while the bucket is away.
    ///   - computing: The threads that look through large tiles, and on which `keep` is called.
    ///   - ticks: Nanoseconds of a clock that goes forward.
    ///   - report: Tells an operator what has failed.
    ///   - keep: Keeps what the index says now, for the next start. May block. Returns whether it is kept: if not, it is tried again.
    ///   - restore: Adds marks to the index that it has lost; not all nodes at once. `nil` where they are not to be written.
    package init(
        _ objects: any SharedObjects, writer: (any SharedObjects)? = nil, _ names: ObjectNames,
        _ settings: Settings = Settings(), known: KnownMarks? = nil, group: any EventLoopGroup, computing: BlockingPool,
        now: @escaping @Sendable () -> Timestamp, ticks: @escaping @Sendable () -> UInt64,
        report: @escaping @Sendable (_ message: String, _ reason: String) -> Void = { _, _ in },
        keep: @escaping @Sendable (KnownMarks) -> Bool = { _ in true },
        restore: (@Sendable (Marks) async throws -> Void)? = nil
    ) {
        (self.objects, self.writer, self.names) = (objects, writer ?? objects, names)
        (self.settings, loops) = (settings, group)
        (self.computing, self.now, self.ticks, self.report, self.keep) = (computing, now, ticks, report, keep)
        self.restore = restore
        var first = State(queue: WriteQueue(settings.queue))
        if let known {
            (first.marks, first.offset, first.former, first.kept) = (known.marks, known.offset, known.former, known)
        }
        state = Locked(first)
    }

    /// What it has done so far.
    package var figures: SharedFigures {
        let ticks = ticks()
        return state.withLock { state in
            var figures = state.figures
            figures.dropped += state.queue.dropped
            figures.waiting = state.queue.count
            figures.isOpen = state.reads.isResting(at: ticks) || !isRecent(state, ticks)
            return figures
        }
    }

    private func isRecent(_ state: State, _ ticks: UInt64) -> Bool {
        state.polledAt.map { ticks &- $0 <= 3 * settings.interval.nanoseconds } ?? false
    }

    /// Takes note of the time that the bucket has told in an answer.
    ///
    /// - Parameters:
    ///   - begun: When the request was sent (ticks): if the answer was long under way, or this process stood still, it does not say
    ///     what time it is there now.
    ///   - here: This machine's time now.
    /// - Returns: What is wrong with it; then nothing of the answer counts.
    private func learn(
        _ date: Timestamp?, begun: UInt64, _ ticks: UInt64, _ here: Timestamp, _ state: inout State
    ) -> String? {
        guard let date, state.told == nil || ticks &- begun <= Self.tellsTime else { return nil }
        let offset = ClockOffset(bucket: date, here: here)
        guard !offset.isImplausible else {
            return "the bucket's clock says \(date), this machine's \(here): set the one that is wrong"
        }
        let step = offset.seconds - state.offset.seconds
        if step > 0, state.told != nil || state.marks != nil {
            state.former.note(state.offset, until: here.adding(seconds: step))
        }
        let expected = state.bucketTime(here, ticks)
        if state.told != nil, date.adding(seconds: SharedEntry.mostAhead) < expected {
            state.twiceFrom = min(state.twiceFrom, date)
            state.twiceUntil = max(state.twiceUntil, expected.adding(seconds: Marks.slack))
        }
        (state.offset, state.told) = (offset, (date, ticks))
        return nil
    }

    /// What takes longer does not tell the time (ns): marks allow for two seconds.
    private static let tellsTime: UInt64 = 1_000_000_000

    // MARK: What is stale

    /// Since when a tile that was stored here is stale for all of the fleet; `nil` if it is not.
    ///
    /// - Parameter storedAt: By this machine's clock, as the answer is.
    package func staleSince(_ source: SourceName, z: Int, x: Int, y: Int, storedAt: Timestamp) -> Timestamp? {
        state.withLock { state in
            guard let marks = state.marks else { return nil }
            // What was marked longer ago than marks are kept for is not known any more.
            if storedAt.adding(seconds: Marks.lifetime) < now() { return storedAt }
            // By the least time that it can have been: at worst a tile is asked for once more.
            let offset = state.former.least(at: storedAt) ?? state.offset
            return marks.staleSince(source, z: z, x: x, y: y, askedAt: offset.bucket(storedAt))
                .map { min(state.offset.here($0), now()) }
        }
    }

    /// Asks for the index, now and then for ever after.
    package func start() {
        let loop = loops.next()
        loop.execute { self.pollAndGoOn(on: loop) }
    }

    private func pollAndGoOn(on loop: any EventLoop) {
        poll(on: loop) {
            let pause = TimeAmount.nanoseconds(Int64(clamping: self.settings.interval.nanoseconds))
            loop.scheduleTask(in: pause) { self.pollAndGoOn(on: loop) }
        }
    }

    /// Asks for the index once; to be called on one of the loops.
    ///
    /// - Parameter finish: Called once, unless it is stopping.
    package func poll(on loop: any EventLoop, _ finish: @escaping @Sendable () -> Void) {
        let (tag, isStopping) = state.withLock { ($0.tag, $0.isStopping) }
        guard !isStopping else { return }
        let begun = ticks()
        _ = objects.get(names.index, unlessMatching: tag, on: loop) { result in
            self.polled(result, begun)
            // What was held back while the bucket rested.
            self.writeOn()
            finish()
        }
    }

    private func polled(_ result: Result<S3Found, S3Error>, _ begun: UInt64) {
        let (here, ticks) = (now(), ticks())
        var lost: Marks?
        let problem = state.withLock { state -> String? in
            switch result {
            case .failure(let error): return error.message
            case .success(let found):
                if let problem = learn(found.date, begun: begun, ticks, here, &state) { return problem }
                let (known, bucketNow) = (state.marks ?? Marks(), state.offset.bucket(here))
                var problem: String?
                switch found {
                case .notModified: break
                // Somebody has removed it; what it said holds on.
                case .missing:
                    (state.marks, state.tag) = (known, nil)
                    if known != Marks() { lost = known }
                case .object(let object):
                    guard let read = object.bytes.withUnsafeReadableBytes({ Marks(json: $0) }) else {
                        return "\(names.index) is no index of this version; the last good one holds"
                    }
                    let plausible = read.plausible(at: bucketNow)
                    if plausible != read {
                        problem =
                            "\(names.index) has marks that lie in the future, which do not count; expire what they are about anew"
                    }
                    let merged = known.merged(plausible, at: bucketNow)
                    (state.marks, state.tag) = (merged, object.entityTag)
                    if !plausible.includes(merged) { lost = merged }
                }
                // Since it was asked for: what has been added while the answer was under way may not be in it.
                if state.marks != nil { state.polledAt = begun }
                return problem
            }
        }
        if let problem { report("the index of a fleet's bucket could not be read", problem) }
        keepWhatIsNew()
        if let lost { putBack(lost, ticks) }
    }

    /// Has marks written to the index again that it has lost.
    ///
    /// An author that was killed while its write was under way may have overwritten them, or somebody has removed the index. Proxies
    /// that come later know them by it alone.
    private func putBack(_ marks: Marks, _ ticks: UInt64) {
        guard let restore, settings.writes else { return }
        let begins = state.withLock { state -> Bool in
            guard !state.isStopping, state.restoring == nil, ticks >= state.restoresFrom else { return false }
            state.restoresFrom = ticks &+ Self.restoresEvery
            state.restoring = Task {
                var problem: String?
                do { try await restore(marks) } catch is CancellationError {} catch { problem = "\(error)" }
                self.state.withLock { $0.restoring = nil }
                if let problem {
                    self.report("marks that the index of a fleet's bucket has lost could not be written", problem)
                }
            }
            return true
        }
        if begins { report("the index of a fleet's bucket had lost marks", "they are written anew") }
    }

    /// How long after the beginning of one the next one begins (ns).
    private static let restoresEvery: UInt64 = 60_000_000_000

    /// Has kept what is known now and was not kept yet, or could not be: with the next answer it is tried again.
    private func keepWhatIsNew() {
        let begins = state.withLock { state in
            guard !state.isKeeping, state.unkept != nil else { return false }
            state.isKeeping = true
            return true
        }
        if begins { computing.submit { self.keepNow() } }
    }

    private func keepNow() {
        var isKept = true
        while isKept, let known = nextToKeep() {
            isKept = keep(known)
            state.withLock { state in
                if isKept { state.kept = known } else { state.isKeeping = false }
            }
        }
    }

    private func nextToKeep() -> KnownMarks? {
        state.withLock { state in
            let known = state.unkept
            state.isKeeping = known != nil
            return known
        }
    }

    // MARK: Looking

    /// Looks for a tile that is fresh; to be called on one of the loops.
    ///
    /// - Parameters:
    ///   - limit: Larger bodies are not taken.
    ///   - finish: Called once, on the loop, with what there is; not after ``SharedLook/cancel()``.
    /// - Returns: The look, while it is under way; `nil` if it is over.
    package func look(
        _ key: TileKey, _ source: SharedSource, limit: Int, on loop: any EventLoop,
        _ finish: @escaping (SharedTile?) -> Void
    ) -> SharedLook? {
        let begun = ticks()
        let leave = state.withLock { state -> (name: String, isProbe: Bool)? in
            guard isRecent(state, begun), let epoch = state.marks?.epoch(of: source.name),
                let name = names.name(of: key, source, epoch)
            else {
                state.figures.skipped += 1
                return nil
            }
            switch state.reads.leave(at: begun) {
            case .ask: return (name, false)
            case .probe: return (name, true)
            case .leaveAlone:
                state.figures.skipped += 1
                return nil
            }
        }
        guard let leave else {
            finish(nil)
            return nil
        }
        // Nobody waits for a probe, which only tells whether the bucket is back.
        let look = SharedLook(
            self, key, limit: limit, isProbe: leave.isProbe, begun: begun, loop: loop,
            leave.isProbe ? { _ in } : finish)
        look.begin(in: TimeAmount.nanoseconds(Int64(clamping: settings.timeout.nanoseconds))) { heard in
            objects.get(leave.name, unlessMatching: nil, on: loop, heard)
        }
        guard leave.isProbe else { return look.isOver ? nil : look }
        finish(nil)
        return nil
    }

    /// What an answer says.
    fileprivate enum Answer {
        case entry(SharedEntry, ByteBuffer)
        case nothing
    }

    fileprivate func heard(
        _ result: Result<S3Found, S3Error>, of key: TileKey, limit: Int, isProbe: Bool, begun: UInt64
    ) -> Answer {
        let (here, ticks) = (now(), ticks())
        var problem: String?
        let answer = state.withLock { state -> Answer in
            func failed(_ why: String?) -> Answer {
                state.figures.errors += 1
                state.reads.failed(isProbe: isProbe, at: ticks)
                problem = why
                return .nothing
            }
            let found: S3Found
            switch result {
            case .failure(let error): return failed(error.message)
            case .success(let success): found = success
            }
            // The process may have stood still: then this comes before the end of its time is noticed.
            guard ticks &- begun <= settings.timeout.nanoseconds else { return failed(nil) }
            if let problem = learn(found.date, begun: begun, ticks, here, &state) { return failed(problem) }
            state.reads.succeeded(isProbe: isProbe)
            state.figures.answers += 1
            state.figures.seconds += Double(ticks &- begun) / 1e9
            guard isRecent(state, ticks) else {
                state.figures.skipped += 1
                return .nothing
            }
            guard case .object(let object) = found else {
                state.figures.misses += 1
                return .nothing
            }
            guard var entry = SharedEntry(object.metadata, of: key, state.offset, now: here),
                (entry.blob == nil) == (object.bytes.readableBytes == 0), object.bytes.readableBytes <= limit
            else {
                state.figures.errors += 1
                problem = "the object of \(key) is not one of its tile"
                return .nothing
            }
            var asked = state.offset.bucket(entry.metadata.storedAt)
            if asked > state.twiceFrom, asked <= state.twiceUntil {
                entry.metadata.expires = entry.metadata.expires.adding(
                    seconds: state.twiceFrom.seconds - asked.seconds)
                asked = state.twiceFrom
                entry.metadata.storedAt = state.offset.here(asked)
            }
            guard isFresh(entry, at: here), let marks = state.marks, !marks.isExpired(key, askedAt: asked) else {
                state.figures.misses += 1
                return .nothing
            }
            return .entry(entry, object.bytes)
        }
        if let problem { report("a fleet's bucket did not give a tile", problem) }
        return answer
    }

    private func isFresh(_ entry: SharedEntry, at now: Timestamp) -> Bool {
        !entry.metadata.isStale(at: now) && !entry.metadata.response.noCache
            && entry.metadata.storedAt.adding(seconds: Marks.longestLifetime) > now
    }

    /// Counts a look that was given up for want of time, or one that nobody waits for.
    fileprivate func left(isProbe: Bool, isTimeout: Bool) {
        let ticks = ticks()
        state.withLock { state in
            if isTimeout {
                state.figures.errors += 1
                state.reads.failed(isProbe: isProbe, at: ticks)
            } else if isProbe {
                state.reads.abandoned(at: ticks)
            }
        }
    }

    /// Counts a tile that was taken.
    package func taken() { state.withLock { $0.figures.hits += 1 } }

    /// Counts one that is whole, and is not a tile of its source.
    package func refused(_ key: TileKey, _ why: String) {
        state.withLock { $0.figures.errors += 1 }
        report("a fleet's bucket gave what is no tile", "the object of \(key): \(why)")
    }

    fileprivate func isDamaged(_ key: TileKey) {
        state.withLock { $0.figures.errors += 1 }
        report("a fleet's bucket gave a damaged tile", "the object of \(key) has other bytes than it says")
    }

    /// Looks whether bytes have their name, and goes on; large ones are hashed on another thread.
    fileprivate func check(
        _ bytes: ByteBuffer, _ name: BlobDigest, on loop: any EventLoop, _ finish: @escaping (HashedBody?) -> Void
    ) {
        let hash: @Sendable () -> HashedBody? = {
            let body = HashedBody(Data(bytes.readableBytesView))
            return body.digest == name ? body : nil
        }
        guard bytes.readableBytes > Self.hashedAtOnce else { return finish(hash()) }
        let bound = NIOLoopBound(finish, eventLoop: loop)
        computing.submit {
            let body = hash()
            loop.execute { bound.value(body) }
        }
    }

    /// Larger bodies are hashed on a thread that may take its time.
    private static let hashedAtOnce = 64 << 10

    // MARK: Writing

    /// Has a tile written for the others, sometime; where there is no room it is not.
    ///
    /// - Parameters:
    ///   - metadata: With the time at which the origin was asked in ``TileMetadata/storedAt``.
    ///   - blob: The name of its bytes; `nil` if there is no such tile.
    package func write(
        _ key: TileKey, _ metadata: TileMetadata, _ blob: BlobDigest?, _ bytes: ByteBuffer, of source: SharedSource
    ) {
        guard settings.writes else { return }
        let (here, ticks) = (now(), ticks())
        let offset = state.withLock { state in
            state.isStopping || state.marks == nil
                ? nil : ClockOffset(bucket: state.bucketTime(here, ticks), here: here)
        }
        guard let offset else { return }
        let said = SharedEntry(key: key, metadata: metadata, blob: blob).objectMetadata(offset)
        state.withLock { state in
            guard !state.isStopping, let marks = state.marks,
                let name = names.name(of: key, source, marks.epoch(of: source.name))
            else { return }
            guard let said else {
                // It cannot be said in the space that a server has. What waits is older.
                state.figures.dropped += 1
                state.queue.remove(name)
                return
            }
            let write = Write(metadata: said, blob: blob, bytes: bytes)
            state.queue.add(write, name: name, bytes: bytes.readableBytes + 1024, at: ticks)
        }
        writeOn()
    }

    /// Drops what waits to be written of a tile: its origin says something else now.
    package func forget(_ key: TileKey, of source: SharedSource) {
        state.withLock { state in
            guard let marks = state.marks, let name = names.name(of: key, source, marks.epoch(of: source.name)) else {
                return
            }
            state.queue.remove(name)
        }
    }

    /// The same of a tile that may be in the bucket: it is written over with what is stale, since it must not come back from there.
    package func withdraw(_ key: TileKey, of source: SharedSource) {
        forget(key, of: source)
        let here = now()
        let metadata = TileMetadata(response: ResponseFields(status: 404), storedAt: here, expires: here)
        write(key, metadata, nil, ByteBuffer(), of: source)
    }

    /// Begins what may be begun.
    private func writeOn() {
        while let next = next() {
            let loop = loops.next()
            loop.execute { self.write(next.job, isProbe: next.isProbe, on: loop) }
        }
        let drained = state.withLock { state in
            guard state.queue.isEmpty else { return CheckedContinuation<Void, Never>?.none }
            defer { state.drained = nil }
            return state.drained
        }
        drained?.resume()
    }

    private func next() -> (job: WriteQueue<Write>.Job, isProbe: Bool)? {
        let ticks = ticks()
        return state.withLock { state in
            guard !state.queue.isEmpty else { return nil }
            let leave = state.writes.leave(at: ticks)
            guard leave != .leaveAlone else { return nil }
            guard let job = state.queue.next(at: ticks) else {
                if leave == .probe { state.writes.abandoned(at: ticks) }
                return nil
            }
            return (job, leave == .probe)
        }
    }

    private func write(_ job: WriteQueue<Write>.Job, isProbe: Bool, on loop: any EventLoop) {
        let write = job.write
        writer.put(job.name, write.bytes, write.metadata, digest: write.blob, on: loop) { result in
            let ticks = self.ticks()
            var problem: String?
            self.state.withLock { state in
                switch result {
                case .success:
                    state.figures.stores += 1
                    state.writes.succeeded(isProbe: isProbe)
                case .failure(let error):
                    state.figures.errors += 1
                    state.figures.dropped += 1
                    state.writes.failed(isProbe: isProbe, at: ticks)
                    problem = error.message
                }
                state.queue.done(job.name)
                // A bucket that takes nothing is not waited for when the proxy ends.
                if state.isStopping, state.writes.isOpen { state.queue.clear() }
            }
            if let problem { self.report("a fleet's bucket did not take a tile", problem) }
            self.writeOn()
        }
    }

    /// Ends asking for the index, and waits until all is written.
    ///
    /// - Parameter limit: How long at most; what is left then, or at once where the bucket takes nothing, is dropped and reported.
    package func drain(within limit: Duration) async {
        let before = figures.dropped
        let (isIdle, restoring) = state.withLock { state in
            state.isStopping = true
            if state.writes.isOpen { state.queue.clear() }
            return (state.queue.isEmpty, state.restoring)
        }
        restoring?.cancel()
        await restoring?.value
        if !isIdle { await writeTheRest(within: limit) }
        let after = figures
        let dropped = after.dropped - before + after.waiting
        guard dropped > 0 else { return }
        report("the proxy ends before all tiles were written to a fleet's bucket", "\(dropped) were not")
    }

    private func writeTheRest(within limit: Duration) async {
        let pause = TimeAmount.nanoseconds(Int64(clamping: limit.nanoseconds))
        let timer = loops.next().scheduleTask(in: pause) {
            self.state.withLock { $0.queue.clear() }
            self.writeOn()
        }
        // What is under way then has the time of its request: nothing may come back when the loops are gone.
        let last = loops.next().scheduleTask(in: pause + Self.longestWrite) { self.giveUp() }
        await withCheckedContinuation { waiting in
            let isOver = state.withLock { state in
                guard !state.queue.isEmpty else { return true }
                state.drained = waiting
                return false
            }
            if isOver { waiting.resume() } else { writeOn() }
        }
        timer.cancel()
        last.cancel()
    }

    /// A request takes no longer.
    private static let longestWrite = TimeAmount.seconds(4)

    private func giveUp() {
        let drained = state.withLock { state in
            state.queue.clear()
            defer { state.drained = nil }
            return state.drained
        }
        drained?.resume()
    }
}

/// A look that is under way; belongs to its event loop and is used on it alone.
package final class SharedLook {
    private let bucket: SharedBucket
    private let key: TileKey
    private let limit: Int
    private let isProbe: Bool
    private let begun: UInt64
    private let loop: any EventLoop
    private var finish: ((SharedTile?) -> Void)?
    private var call: (any SharedCall)?
    private var timer: Scheduled<Void>?
    /// Whether the bucket has answered, and the bytes are being looked at.
    private var isAnswered = false

    fileprivate init(
        _ bucket: SharedBucket, _ key: TileKey, limit: Int, isProbe: Bool, begun: UInt64, loop: any EventLoop,
        _ finish: @escaping (SharedTile?) -> Void
    ) {
        (self.bucket, self.key, self.limit, self.isProbe) = (bucket, key, limit, isProbe)
        (self.begun, self.loop, self.finish) = (begun, loop, finish)
    }

    var isOver: Bool { finish == nil }

    fileprivate func begin(
        in limit: TimeAmount, _ send: (@escaping (Result<S3Found, S3Error>) -> Void) -> (any SharedCall)?
    ) {
        let bound = NIOLoopBound(self, eventLoop: loop)
        timer = loop.scheduleTask(in: limit) { bound.value.timeIsOver() }
        call = send { self.heard($0) }
        if isOver || isAnswered { call = nil }
    }

    /// Nobody waits for it any more.
    package func cancel() {
        guard finish != nil else { return }
        finish = nil
        if !isAnswered { bucket.left(isProbe: isProbe, isTimeout: false) }
        stop()
    }

    private func timeIsOver() {
        guard finish != nil, !isAnswered else { return }
        bucket.left(isProbe: isProbe, isTimeout: true)
        end(nil)
    }

    private func heard(_ result: Result<S3Found, S3Error>) {
        guard finish != nil, !isAnswered else { return }
        isAnswered = true
        timer?.cancel()
        timer = nil
        call = nil
        switch bucket.heard(result, of: key, limit: limit, isProbe: isProbe, begun: begun) {
        case .nothing: end(nil)
        case .entry(let entry, let bytes):
            guard let name = entry.blob else {
                return end(SharedTile(metadata: entry.metadata, body: nil))
            }
            bucket.check(bytes, name, on: loop) { body in
                if body == nil { self.bucket.isDamaged(self.key) }
                self.end(body.map { SharedTile(metadata: entry.metadata, body: $0) })
            }
        }
    }

    private func end(_ tile: SharedTile?) {
        let waiting = finish
        finish = nil
        stop()
        waiting?(tile)
    }

    private func stop() {
        timer?.cancel()
        call?.cancel()
        (timer, call) = (nil, nil)
    }
}

extension S3Found {
    /// The time that the bucket has told.
    fileprivate var date: Timestamp? {
        switch self {
        case .object(let object): object.date
        case .notModified(let date), .missing(let date): date
        }
    }
}
