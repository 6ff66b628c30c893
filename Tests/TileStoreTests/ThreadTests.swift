import Dispatch
import Foundation
import Testing
import TileStore
import TileStoreTesting

/// One store used by several threads at once, its own background work included; `make tsan` watches.
@Suite(.timeLimit(.minutes(30)), .ownThreads)
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
}
