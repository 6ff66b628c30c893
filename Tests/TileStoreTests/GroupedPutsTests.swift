import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Batches of several callers, carried out in one hold of the lock: they end as one by one.
///
/// `TILE_SEED=…` replays one seed, `TILE_SEEDS=n` runs n.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct GroupedPutsTests {
    static let parts = 8

    @Test("Batches that wait together end as one by one, with bodies and other stores", arguments: 0..<parts)
    func aGroupEndsAsItsBatchesOneByOneDo(part: Int) throws {
        for seed in Seeds.share(part, of: Self.parts, count: 800) {
            let wrong = try GroupedPutsBench(seed: seed).run(nil)
            #expect(wrong == nil, "seed \(seed)")
        }
    }

    @Test("Whatever fails in a group, no entry is without its blob, and what was stored is there", arguments: 0..<parts)
    func aGroupInWhichSomethingFails(part: Int) throws {
        for seed in Seeds.share(part, of: Self.parts, count: 800) {
            let wrong = try GroupedPutsBench(seed: seed &+ 1_000_000).run(.failure)
            #expect(wrong == nil, "seed \(seed)")
        }
    }

    @Test("Killed at any operation of a group, no entry is without its blob", arguments: 0..<parts)
    func aGroupInWhichTheProcessDies(part: Int) throws {
        for seed in Seeds.share(part, of: Self.parts, count: 400) {
            let wrong = try GroupedPutsBench(seed: seed &+ 2_000_000).run(.kill)
            #expect(wrong == nil, "seed \(seed)")
        }
    }

    /// A batch that was refused at one of its tiles left the cache above its limits by those before.
    @Test(arguments: [StoreLimits(capacity: 2 * 4096), StoreLimits(capacity: nil, entryLimit: 2)])
    func aBatchThatWasRefusedInItsMiddleLeftTheCacheAboveItsLimits(limits: StoreLimits) throws {
        let clock = ManualClock()
        var environment = clock.environment(SimulatedFileSystem(SimulatedDisk(clock: clock)), seed: 5)
        environment.bounds.names = 1
        let store = try TileStore(environment: environment, configuration: Lab.plain)
        try store.setLimits(limits)
        let metadata = TileMetadata(storedAt: clock.now, expires: clock.now.adding(seconds: 3600))
        let names = (0..<6).map { "a/9/\($0)/0" } + ["b/9/1/0"]
        let batch = try names.map { TilePut(key: try TileKey($0), data: Data($0.utf8), metadata: metadata) }
        #expect(throws: StoreError.self) { try store.put(batch) }
        #expect(try store.read(TileKey("a/9/5/0"))?.data == batch[5].data)
        #expect(try store.invariantViolations() == [])
    }
}

/// Two stores on one folder, of which one carries out groups of batches, and the model of what that should do.
private final class GroupedPutsBench {
    private var random: SplitMix64
    private let clock = ManualClock()
    private let disk: SimulatedDisk
    private let files: SimulatedFileSystem
    private let store: TileStore
    private let other: TileStore
    private var model: StoreModel
    private var uses = StoreModel.Uses()
    private let keyCount: Int
    private let payloadCount: Int
    private var log: [String] = []

    init(seed: UInt64) throws {
        random = SplitMix64(seed: seed &+ 40_000)
        disk = SimulatedDisk(clock: clock, blockSize: 64)
        files = SimulatedFileSystem(disk)
        func configuration(durable: Bool) -> StoreConfiguration {
            var configuration = Lab.plain
            configuration.durability = durable ? .durable : .relaxed
            return configuration
        }
        let isDurable = random.oneIn(3)
        store = try TileStore(
            environment: clock.environment(files), configuration: configuration(durable: isDurable))
        other = try TileStore(
            environment: clock.environment(SimulatedFileSystem(disk), seed: 2),
            configuration: configuration(durable: isDurable != random.oneIn(3)))
        model = StoreModel(limits: try store.limits(), blockSize: 64)
        keyCount = random.pick([3, 8, 20])
        payloadCount = random.pick([3, 6, 16])
        log.append("durable: \(isDurable)")
        if random.oneIn(3) {
            let limits = StoreLimits(capacity: 64 * random.pick([3, 20, 60]), entryLimit: random.pick([4, 1000]))
            try store.setLimits(limits)
            model.setLimits(limits, uses: &uses, now: clock.now)
        }
    }

    deinit {
        for store in [store, other] { store.simulateKill() }
    }

    /// A batch on its way, and what it was made of.
    private struct Batch {
        var tiles: [TilePut]
        var requests: UnsafeMutableBufferPointer<PutRequest>
    }

    enum Accident { case failure, kill }

    func run(_ accident: Accident?) throws -> String? {
        for round in 0..<(1 + random.below(6)) {
            if random.oneIn(2) { try others() }
            var batches: [Batch] = []
            defer {
                for batch in batches {
                    batch.requests.deinitialize()
                    batch.requests.deallocate()
                }
            }
            let count = 1 + random.below(4)
            for number in 0..<count { batches.append(try prepared(isLong: number == 0 && random.oneIn(12))) }
            // What others do between a batch's preparation and its turn.
            if random.oneIn(2) { try others() }
            if random.oneIn(4) { try loseABlob() }
            if random.oneIn(2) {
                let at = random.below(count * 12)
                switch accident {
                case .failure where random.oneIn(2): files.fail(.init(at: at, number: EIO, short: true))
                case .failure: files.fail(.init(at: at, number: ENOSPC, scope: .space, short: random.oneIn(2)))
                case .kill: files.crash(at: at, torn: random.oneIn(2))
                case nil: break
                }
            }
            let failures = carryOut(batches)
            for batch in batches { store.discard(batch.requests) }
            let hasStruck = files.hasStruck
            if accident == .failure { files.fail(nil) }
            if accident == .kill, !hasStruck { files.crash(at: .max, torn: false) }
            log.append("batches \(batches.map { Self.shown($0.tiles) })")
            let wrong =
                if !hasStruck {
                    try difference(batches, failures)
                } else if accident == .kill {
                    try wreck(batches)
                } else {
                    try damage(batches, failures)
                }
            if let wrong { return "round \(round): \(wrong)\n\(log.joined(separator: "\n"))" }
            if hasStruck { return nil }
            clock.advance(seconds: 2)
        }
        return nil
    }

    private static func shown(_ tiles: [TilePut]) -> [String] { tiles.map { "\($0.key) \($0.data?.count ?? -1)" } }

    // MARK: What is done

    private func tile() -> TilePut {
        TilePut(
            key: Universe.key(UInt8(random.below(keyCount))),
            data: random.oneIn(10) ? nil : Universe.payloads[random.below(payloadCount)],
            metadata: Universe.metadata(UInt8(random.below(20)), now: clock.now))
    }

    /// A batch, hashed and staged; its first tile may be a body that has come in pieces.
    private func prepared(isLong: Bool) throws -> Batch {
        var tiles = (0..<(isLong ? 255 + random.below(20) : 1 + random.below(8))).map { _ in tile() }
        if isLong {
            // Each key once, so that nothing is recorded before the next stretch is looked at.
            for i in tiles.indices { tiles[i].key = try TileKey("many/10/\(i)/0") }
        }
        let requests = UnsafeMutableBufferPointer<PutRequest>.allocate(capacity: tiles.count)
        _ = requests.initialize(from: tiles.map { PutRequest($0) })
        if random.oneIn(2), let bytes = tiles[0].data {
            let file = try store.blobs.staging.begin()
            try bytes.withUnsafeBytes { try file.append($0) }
            let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
            requests[0] = PutRequest(file, digest, size: bytes.count, for: tiles[0].key, tiles[0].metadata)
            log.append("the next is a body")
        }
        try store.prepare(requests)
        return Batch(tiles: tiles, requests: requests)
    }

    /// Carries batches out as if all had waited for the lock.
    private func carryOut(_ batches: [Batch]) -> [(any Error)?] {
        let waiting = batches.dropLast().map { store.queue.enqueue($0.requests) }
        guard let last = batches.last else { return [] }
        let failure = store.submit(last.requests)
        return waiting.map(\.failure) + [failure]
    }

    private func others() throws {
        for _ in 0..<(1 + random.below(3)) {
            switch random.below(6) {
            case 0:
                let bytes = 64 * random.below(30)
                log.append("the other evicts down to \(bytes) bytes")
                _ = try other.evict(toBytes: bytes)
                _ = model.evict(toBytes: bytes, entries: nil, uses: &uses, now: clock.now)
            case 1:
                // One that is begun early meets equal bytes of the group.
                let (tile, rest) = (tile(), (0..<random.below(4)).map { _ in self.tile() })
                guard let bytes = tile.data else { continue }
                log.append("the other commits \(Self.shown([tile] + rest))")
                let writer = try other.beginBody(limit: 10_000, inMemoryUpTo: 0)
                try bytes.withUnsafeBytes { try writer.append($0) }
                try writer.commit(for: tile.key, metadata: tile.metadata, with: rest)
                _ = model.put([tile] + rest, uses: &uses, now: clock.now)
            case 2, 3:
                let keys = (0..<(1 + random.below(4))).map { _ in Universe.key(UInt8(random.below(keyCount))) }
                log.append("the other removes \(keys)")
                _ = try other.remove(keys)
                _ = model.remove(keys, includingPinned: false, uses: &uses, now: clock.now)
            default:
                let tiles = (0..<(1 + random.below(5))).map { _ in tile() }
                log.append("the other puts \(Self.shown(tiles))")
                try other.put(tiles)
                _ = model.put(tiles, uses: &uses, now: clock.now)
            }
        }
    }

    /// Has a blob's file vanish whose entries go next.
    private func loseABlob() throws {
        let digest = Universe.digests[random.below(payloadCount)]
        let keys = model.entries.filter { $0.value.blob == digest }.keys.sorted()
        guard !keys.isEmpty else { return }
        log.append("the blob of \(keys) is lost")
        disk.remove(digest.path)
        _ = try other.remove(keys)
        _ = model.remove(keys, includingPinned: false, uses: &uses, now: clock.now)
    }

    // MARK: What has come of it

    private func difference(_ batches: [Batch], _ failures: [(any Error)?]) throws -> String? {
        if let failure = failures.compactMap({ $0 }).first { return "threw \(failure)" }
        var known = Set(model.blobs.keys)
        let outcomes = model.put(batches.flatMap(\.tiles), uses: &uses, now: clock.now)
        for (mine, theirs) in zip(batches.flatMap { $0.requests.map(\.outcome) }, outcomes) {
            defer { if case .stored(let digest?, _) = theirs { known.insert(digest) } }
            guard mine != theirs else { continue }
            // A blob that a group lets go and brings again may count as new or not.
            guard case .stored(let a?, _) = mine, case .stored(let b?, _) = theirs, a == b, known.contains(a) else {
                return "gave \(mine), the model \(theirs)"
            }
        }
        if let difference = TileStoreTesting.difference(try store.snapshot(), model.snapshot()) { return difference }
        let violations = try store.invariantViolations()
        if !violations.isEmpty { return "\(violations)" }
        let staged = disk.names("staging")
        return staged.isEmpty ? nil : "staging keeps \(staged)"
    }

    /// After a failure: what is stored is whole, and what was settled is stored.
    private func damage(_ batches: [Batch], _ failures: [(any Error)?]) throws -> String? {
        let violations = try store.invariantViolations().filter { $0.hasPrefix("I2") || $0.hasPrefix("I10") }
        if !violations.isEmpty { return "\(violations), \(failures)" }
        for (batch, failure) in zip(batches, failures) {
            if failure == nil, !batch.requests.allSatisfy(\.isSettled) { return "neither stored nor failed" }
        }
        // What was settled under a key that no later one of the group may have changed; evictions aside.
        if model.limits.capacity == nil {
            var last: [TileKey: PutRequest?] = [:]
            for request in batches.flatMap({ Array($0.requests) }) {
                if request.isSettled {
                    if case .stored = request.outcome { last[request.key] = .some(request) }
                } else {
                    last[request.key] = .some(nil)
                }
            }
            for case (let key, let request?) in last {
                let tile = try store.read(key)
                let isThere = tile.map { request.digest == $0.entry.blob && request.size == $0.data?.count ?? 0 }
                if isThere != true { return "\(key) was stored and is \(tile.map { "\($0)" } ?? "gone"), \(failures)" }
            }
        }
        // A blob that could not be unlinked stays until a sweep.
        _ = try store.verify(repair: true)
        _ = try store.evict()
        let left = try store.invariantViolations()
        if !left.isEmpty { return "\(left), \(failures)" }
        return try workOn(store, clock: clock)
    }

    /// After a kill: the other store finds every blob.
    private func wreck(_ batches: [Batch]) throws -> String? {
        store.simulateKill()
        files.kill()
        try other.catchUp()
        let missing = try other.verify()
        if !missing.ok { return "\(missing)" }
        _ = try other.verify(repair: true)
        _ = try other.evict()
        let left = try other.invariantViolations()
        if !left.isEmpty { return "\(left)" }
        return try workOn(other, clock: clock)
    }
}
