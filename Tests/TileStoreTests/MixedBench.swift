import Foundation
import TileStore
import TileStoreTesting

/// One folder with a durable and a relaxed store, which never check digests, and what the durable one has acknowledged.
final class MixedBench {
    private let clock = ManualClock()
    private let disk: SimulatedDisk
    private let images: Bool
    private var stores: [(store: TileStore, files: SimulatedFileSystem)?] = [nil, nil]
    private var compactions: [Compaction?] = [nil, nil]
    /// Bodies that have come and are not stored yet: of both stores, often with equal bytes.
    private var bodies: [[(writer: BodyWriter, payload: Int)]] = [[], []]
    private var seed: UInt64
    private var boot = 1
    /// The last acknowledged state of keys that only the durable store has changed since: the payload's number and the expiry;
    /// `nil` for a key that it has removed.
    private var promised: [UInt8: (payload: Int, expires: Timestamp)?] = [:]
    private(set) var log: [String] = []

    init(images: Bool, seed: UInt64) {
        disk = SimulatedDisk(clock: clock, blockSize: 64, recordsChanges: true)
        self.images = images
        self.seed = seed &* 1000
    }

    deinit { end() }

    private func configuration(durable: Bool) -> StoreConfiguration {
        var configuration = StoreConfiguration()
        configuration.durability = durable ? .durable : .relaxed
        configuration.digestCheck = .never
        configuration.memoryTierBytes = 0
        configuration.indexImages = images ? .always : .never
        return configuration
    }

    private func open(durable: Bool) throws -> (store: TileStore, files: SimulatedFileSystem) {
        seed += 1
        let files = SimulatedFileSystem(disk)
        let store = try TileStore(
            environment: clock.environment(files, seed: seed, bootID: "boot-\(boot)"),
            configuration: configuration(durable: durable))
        return (store, files)
    }

    private func store(_ who: Int) throws -> TileStore {
        if let known = stores[who] { return known.store }
        let opened = try open(durable: who == 0)
        stores[who] = opened
        return opened.store
    }

    private func kill(_ who: Int) {
        compactions[who] = nil
        stores[who]?.store.simulateKill()
        stores[who]?.files.kill()
        stores[who] = nil
        // Not before: who dies removes nothing.
        bodies[who] = []
    }

    private func end() { for who in 0...1 { kill(who) } }

    /// Does something by one of the stores.
    func step(_ random: inout SplitMix64) throws {
        let who = random.below(2)
        let key = UInt8(random.below(8))
        let payload = 2 + random.below(5)
        log.append("\(who == 0 ? "durable" : "relaxed") key \(key) payload \(payload)")
        func metadata() -> TileMetadata {
            TileMetadata(storedAt: clock.now, expires: clock.now.adding(seconds: Int64(10 + random.below(1000))))
        }
        switch random.below(21) {
        case 0..<9:
            let metadata = metadata()
            log[log.count - 1] += " put"
            promised[key] = nil
            try store(who).put(Universe.payloads[payload], for: Universe.key(key), metadata: metadata)
            if who == 0 { promised[key] = .some((payload, metadata.expires)) }
        case 9 where !bodies[who].isEmpty, 10 where bodies[who].count > 1:
            let metadata = metadata()
            let body = bodies[who].remove(at: random.below(bodies[who].count))
            // The others let its blob go, and bring it back.
            let others = random.oneIn(2) ? [] : [(key + 1, payload), (key, 2), (key + 1, body.payload), (key, 3)]
            log[log.count - 1] += " commit of \(body.payload), \(others)"
            let tiles = others.map { key, payload in
                TilePut(key: Universe.key(key % 8), data: Universe.payloads[payload], metadata: metadata)
            }
            for (key, _) in others + [(key, 0)] { promised[key % 8] = nil }
            try body.writer.commit(for: Universe.key(key), metadata: metadata, with: tiles)
            if who == 0 {
                for (key, payload) in [(key, body.payload)] + others {
                    promised[key % 8] = .some((payload, metadata.expires))
                }
            }
        case 9, 10:
            let metadata = metadata()
            let keys = (0..<UInt8(2 + random.below(5))).map { (key + $0) % 8 }
            log[log.count - 1] += " batch of \(keys)"
            for key in keys { promised[key] = nil }
            try store(who).put(
                keys.enumerated().map { i, key in
                    TilePut(
                        key: Universe.key(key), data: Universe.payloads[2 + (payload + i) % 5], metadata: metadata)
                })
            if who == 0 {
                for (i, key) in keys.enumerated() { promised[key] = .some((2 + (payload + i) % 5, metadata.expires)) }
            }
        case 11, 12:
            log[log.count - 1] += " refresh"
            let store = try store(who)
            try store.catchUp()
            guard let entry = try store.entry(for: Universe.key(key)) else { return }
            let metadata = metadata()
            promised[key] = nil
            let isDone = try store.refresh(Universe.key(key), from: EntryVersion(entry), metadata: metadata)
            if who == 0, isDone, let blob = entry.blob, let payload = Universe.digests.firstIndex(of: blob) {
                promised[key] = .some((payload, metadata.expires))
            }
        case 13:
            log[log.count - 1] += " remove"
            promised[key] = nil
            _ = try store(who).remove([Universe.key(key)])
            if who == 0 { promised.updateValue(nil, forKey: key) }
        case 14:
            log[log.count - 1] += " limits"
            try store(who).setLimits(StoreLimits(capacity: 1 << 20 + payload, entryLimit: 1000))
        case 15:
            log[log.count - 1] += " compact"
            compactions[who] = nil
            do { _ = try store(who).compact() } catch let error as StoreError where error.code == .busy {}
        case 16:
            log[log.count - 1] += " compaction in steps"
            let store = try store(who)
            if let begun = compactions[who] {
                compactions[who] = nil
                _ = try begun.finish()
            } else if let begun = try store.beginCompaction() {
                compactions[who] = begun
                _ = try begun.step(entries: 1 + random.below(4))
            }
        case 17:
            log[log.count - 1] += " close"
            compactions[who] = nil
            bodies[who] = []
            try stores[who]?.store.close()
            kill(who)
        case 18 where random.oneIn(2):
            log[log.count - 1] += " kill"
            kill(who)
        case 18, 19:
            log[log.count - 1] += " a body comes"
            let writer = try store(who).beginBody(limit: 1 << 20, inMemoryUpTo: random.pick([0, 0, 64]))
            try Universe.payloads[payload].withUnsafeBytes { try writer.append($0) }
            bodies[who].append((writer, payload))
        default:
            log[log.count - 1] += " read"
            _ = try store(who).read(Universe.key(key))
            // What was seen of a file a moment ago is trusted for a second.
            clock.advance(seconds: Int64(random.below(3)))
            if random.oneIn(2) { try store(who).flush() }
        }
    }

    /// Does something in the middle of which the power goes.
    func interruptedStep(_ random: inout SplitMix64) {
        for who in 0...1 { stores[who]?.files.crash(at: random.below(12), torn: random.oneIn(2)) }
        let before = promised
        do { try step(&random) } catch { log[log.count - 1] += ": \(error)" }
        // What it touched is in its former state or in the new one.
        for key in 0..<UInt8(8) where before[key].map({ $0?.payload }) != promised[key].map({ $0?.payload }) {
            promised[key] = nil
        }
        for (key, state) in promised {
            if let old = before[key], old?.expires != state?.expires { promised[key] = nil }
        }
    }

    func powerCut(_ random: inout SplitMix64) {
        log.append("power cut")
        disk.powerCut(using: &random)
        end()
        boot += 1
    }

    /// What is not as it was promised, or has wrong bytes.
    func check(durable: Bool) throws -> [String] {
        stores[durable ? 0 : 1] = try open(durable: durable)
        let store = try store(durable ? 0 : 1)
        var wrong: [String] = []
        for (key, state) in promised.sorted(by: { $0.key < $1.key }) {
            let entry = try store.entry(for: Universe.key(key))
            let tile = try store.read(Universe.key(key))
            if let state {
                if tile?.data != Universe.payloads[state.payload] || tile?.entry.metadata.expires != state.expires {
                    wrong.append(
                        "key \(key) should have payload \(state.payload), is "
                            + (tile?.data == nil ? "lost; entry: \(entry != nil)" : "other"))
                }
            } else if tile != nil {
                wrong.append("key \(key) is back")
            }
        }
        var entries: [TileEntry] = []
        try store.forEachEntry { entries.append($0) }
        for entry in entries {
            if let tile = try store.read(entry.key), let blob = tile.entry.blob,
                tile.data != Universe.payloadByDigest[blob]
            {
                wrong.append("\(entry.key) has wrong bytes")
            }
        }
        return wrong
    }
}
