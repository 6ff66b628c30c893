import Dispatch
import Foundation
import Testing
import TileStore
import TileStoreTesting

/// One store used by several threads at once, its own background work included; `make tsan` watches.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ThreadTests {
    #if DEBUG
    private static let rounds = 150
    #else
    private static let rounds = 4000
    #endif

    @Test(
        "Threads that read, put, touch, evict, pin, compact and verify leave a sound cache", arguments: [false, true])
    func threadsShareAStore(severalStores: Bool) throws {
        let folder = TemporaryFolder()
        var configuration = StoreConfiguration()
        configuration.capacity = 60 * 4096
        configuration.entryLimit = 200
        configuration.memoryTierBytes = 40_000
        let stores = try (0..<(severalStores ? 2 : 1)).map { _ in
            try TileStore(at: folder.path, configuration: configuration)
        }
        let keys = try (0..<400).map { try TileKey(source: "s\($0 % 3)", z: 9, x: $0, y: $0 / 3) }
        let payloads = (0..<90).map { number in
            var random = SplitMix64(seed: UInt64(number))
            return Data((0..<(200 + number * 20)).map { _ in UInt8(truncatingIfNeeded: random.next()) })
        }
        let region = try PinnedRegion(
            name: "home", source: SourceName("s1"), spans: [TileSpan(zoom: 9, columns: 0...60, rows: 0...20)])
        let faults = Locked<[String]>([])

        @Sendable func work(_ thread: Int, _ store: TileStore) throws {
            var random = SplitMix64(seed: UInt64(thread) + 1)
            for round in 0..<Self.rounds {
                let key = random.pick(keys)
                switch random.below(thread % 4 == 3 ? 40 : 20) {
                case 0..<8:
                    guard let tile = try store.read(key), let data = tile.data, let blob = tile.entry.blob else {
                        break
                    }
                    let digest = data.withUnsafeBytes { BlobDigest(hashing: $0) }
                    if digest != blob { faults.withLock { $0.append("\(key) gave bytes of \(digest), not \(blob)") } }
                case 8..<16:
                    let now = Timestamp(seconds: 1_700_000_000 + Int64(round))
                    let metadata = TileMetadata(
                        response: ResponseFields(mediaType: "image/\(random.below(5))"),
                        etag: "\"\(random.below(9))a\"",
                        storedAt: now, expires: .distantFuture)
                    try store.put(random.oneIn(9) ? nil : random.pick(payloads), for: key, metadata: metadata)
                case 16, 17: if let entry = try store.entry(for: key) { try store.touch(key, EntryVersion(entry)) }
                case 18: _ = try store.remove([key], includingPinned: true)
                case 19: _ = try store.statistics()
                case 20: _ = try store.evict(toBytes: 30 * 4096, entries: 100)
                case 21: try store.pin(region)
                case 22: _ = try store.unpin("home")
                case 23: try store.flush()
                case 24:
                    // Another thread, or the background, may be at it.
                    do { _ = try store.compact() } catch let error as StoreError where error.code == .busy {}
                case 25:
                    let report = try store.verify(quick: random.oneIn(2))
                    if !report.ok { faults.withLock { $0.append("\(report)") } }
                case 26: try store.forEachEntry { _ in }
                case 27: try store.setLimits(StoreLimits(capacity: 60 * 4096, entryLimit: 150 + random.below(100)))
                default: _ = try store.expire(EntrySelection())
                }
            }
        }
        // Threads of their own: a pool would run as many as there are processors.
        let group = DispatchGroup()
        for thread in 0..<6 {
            let store = stores[thread % stores.count]
            group.enter()
            Thread.detachNewThread {
                do { try work(thread, store) } catch {
                    faults.withLock { $0.append("thread \(thread) threw \(error)") }
                }
                group.leave()
            }
        }
        group.wait()
        #expect(faults.withLock { $0 } == [])
        for store in stores {
            try store.flush()
            #expect(try store.invariantViolations() == [])
        }
        for store in stores { try store.catchUp() }
        let expected = try #require(stores.first).snapshot()
        for store in stores {
            #expect(try store.snapshot() == expected)
            try store.close()
        }
        let again = try TileStore(at: folder.path)
        #expect(try again.snapshot() == expected)
        try again.close()
    }

    @Test("Threads that read, put and walk find each source's own tiles, while another store renumbers and compacts")
    func threadsBesideCompactions() throws {
        let folder = TemporaryFolder()
        let sources = (0..<5).map { "s\($0)" }
        let keys = try sources.flatMap { source in
            try (0..<8).map { try TileKey(source: source, z: 9, x: $0, y: 0) }
                + [TileKey("\(source):style.json"), TileKey("\(source)/9/1/0@2x.png")]
        }
        // What is stored says whose it is: bytes, tag and media type.
        @Sendable func bytes(_ key: TileKey, _ version: Int) -> Data {
            Data("\(key) \(version) \(String(repeating: "-", count: 400))".utf8)
        }
        @Sendable func metadata(_ key: TileKey, _ version: Int) -> TileMetadata {
            TileMetadata(
                response: ResponseFields(mediaType: "x/\(key.source)"), etag: "\"\(key)\"",
                storedAt: Timestamp(seconds: 1_700_000_000 + Int64(version)), expires: .distantFuture)
        }
        let faults = Locked<[String]>([])
        let workers = Locked(4)
        @Sendable func check(_ key: TileKey, _ entry: TileEntry, _ data: Data?, _ place: String) {
            let isOwn =
                entry.key == key && entry.metadata.etag == "\"\(key)\""
                && entry.metadata.response.mediaType == "x/\(key.source)"
                && data?.starts(with: Data("\(key) ".utf8)) ?? true
            if !isOwn { faults.withLock { $0.append("\(place) of \(key) gave \(entry)") } }
        }
        let store = try TileStore(at: folder.path)
        let writer = try TileStore(at: folder.path)
        try store.put(keys.map { TilePut(key: $0, data: bytes($0, 0), metadata: metadata($0, 0)) })

        @Sendable func work(_ thread: Int) throws {
            var random = SplitMix64(seed: UInt64(thread) + 1)
            for round in 0..<Self.rounds {
                let key = random.pick(keys)
                switch random.below(12) {
                case 0..<6:
                    if let tile = try store.read(key) { check(key, tile.entry, tile.data, "a read") }
                case 6:
                    if case .tile(let tile) = try store.readNow(key) {
                        check(key, tile.entry, tile.data, "a quick read")
                    }
                case 7, 8: try store.put(bytes(key, round), for: key, metadata: metadata(key, round))
                case 9: if let entry = try store.entry(for: key) { try store.touch(key, EntryVersion(entry)) }
                case 10: try store.forEachEntry { check($0.key, $0, nil, "a walk") }
                default: try store.flush()
                }
            }
        }
        @Sendable func compact() throws {
            var random = SplitMix64(seed: 99)
            while workers.withLock({ $0 > 0 }) {
                // Which source comes first in the next checkpoint changes with what goes and comes.
                let some = (0..<8).map { _ in random.pick(keys) }
                _ = try writer.remove(some)
                for key in some { try writer.put(bytes(key, -1), for: key, metadata: metadata(key, -1)) }
                for _ in 0..<2 {
                    // The background of the other store may be at it.
                    do { _ = try writer.compact() } catch let error as StoreError where error.code == .busy {}
                }
            }
        }
        let group = DispatchGroup()
        for thread in 0..<5 {
            group.enter()
            Thread.detachNewThread {
                do { try thread == 4 ? compact() : work(thread) } catch {
                    faults.withLock { $0.append("thread \(thread) threw \(error)") }
                }
                if thread < 4 { workers.withLock { $0 -= 1 } }
                group.leave()
            }
        }
        group.wait()
        #expect(faults.withLock { Array($0.prefix(5)) } == [])
        for store in [store, writer] {
            try store.flush()
            #expect(try store.invariantViolations() == [])
        }
        try store.catchUp()
        for key in keys {
            guard let tile = try store.read(key) else { continue }
            check(key, tile.entry, tile.data, "the last read")
        }
        #expect(faults.withLock { Array($0.prefix(5)) } == [])
        #expect(try store.snapshot() == writer.snapshot())
        for store in [store, writer] { try store.close() }
    }
}
