import Foundation
import Testing
import TileStore
import TileStoreTesting

/// A hundred times as many entries as the other tests have, on the real disk: what goes in slices is cut into many.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct LargeCacheTests {
    #if DEBUG
    // Without optimisation, and even more with the thread sanitizer, each step takes ten times as long.
    static let count = 30_000
    #else
    static let count = 300_000
    #endif

    /// Most tiles of a world are sea, and the rest has its repetitions.
    private static func payload(_ number: Int) -> Int {
        number % 5 < 2 ? number % 4 : Int(UInt64(number) &* 0x9E37_79B9_7F4A_7C15 >> 33) % (count / 30)
    }

    private static func bytes(_ payload: Int) -> Data {
        var random = SplitMix64(seed: UInt64(payload))
        let size = 60 + random.below(900)
        return Data((0..<(size / 8 + 1)).flatMap { _ in withUnsafeBytes(of: random.next(), Array.init) })
    }

    private static func open(_ folder: TemporaryFolder) throws -> TileStore {
        var environment = StoreEnvironment.disk(at: folder.path)
        // It would compact by itself at a moment of its own.
        environment.background = false
        return try TileStore(environment: environment, configuration: StoreConfiguration())
    }

    @Test("Hundreds of thousands of entries are evicted by half, compacted, loaded again and found sound")
    func aLargeCacheStaysSound() throws {
        let folder = TemporaryFolder()
        var store = try Self.open(folder)
        let count = Self.count
        let source = try SourceName("world")
        let keys = try (0..<count).map {
            TileKey(source: source, tile: try TileAddress(z: 12, x: $0 % 3000, y: $0 / 3000))
        }
        let payloads = (0..<(count / 30)).map(Self.bytes)
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "image/png"), etag: "\"5f1c9e\"",
            storedAt: Timestamp(seconds: 1_700_000_000), expires: .distantFuture)
        for start in stride(from: 0, to: count, by: 2000) {
            try store.put(
                (start..<(start + 2000)).map {
                    TilePut(key: keys[$0], data: payloads[Self.payload($0)], metadata: metadata)
                })
        }
        #expect(try store.statistics().entries == count)

        // The older half goes by number, then the blobs that were used longest ago, by room.
        #expect(try store.evict(entries: count / 2).removedEntries == count / 2)
        let lastUse = Dictionary(((count / 2)..<count).map { (Self.payload($0), $0) }) { max($0, $1) }
        let block = DiskFileSystem(location: folder.path).blockSize
        func room(_ payload: Int) -> Int { (payloads[payload].count + block - 1) / block * block }
        var left = lastUse.keys.reduce(0) { $0 + room($1) }
        let target = left / 2
        var victims: Set<Int> = []
        for (payload, _) in lastUse.sorted(by: { $0.value < $1.value }) where left > target {
            victims.insert(payload)
            left -= room(payload)
        }
        let report = try store.evict(toBytes: target)
        #expect(report.removedBlobs == victims.count)
        let kept = ((count / 2)..<count).filter { !victims.contains(Self.payload($0)) }
        #expect(try store.statistics().entries == kept.count)
        #expect(report.removedEntries == count / 2 - kept.count)

        #expect(try store.compact().entries == kept.count)
        let expected = try store.snapshot()
        #expect(expected.entries.count == kept.count)
        try store.close()
        store = try Self.open(folder)
        #expect(try store.snapshot() == expected)
        for number in stride(from: 0, to: count, by: 997) {
            let tile = try store.read(keys[number])
            let isKept = number >= count / 2 && !victims.contains(Self.payload(number))
            #expect(tile?.data == (isKept ? payloads[Self.payload(number)] : nil), "tile \(number)")
        }
        try store.flush()
        #expect(try store.verify().ok)
        #expect(try store.invariantViolations() == [])
        // The sea goes with its tens of thousands of entries.
        let shared = try #require((0..<4).first { !victims.contains($0) })
        let digest = payloads[shared].withUnsafeBytes { BlobDigest(hashing: $0) }
        let references = try store.references(to: digest)
        #expect(references > count / 30)
        try FileManager.default.removeItem(atPath: "\(folder.path)/\(digest.path)")
        #expect(try store.verify(repair: true).missing == [digest])
        #expect(try store.statistics().entries == kept.count - references)
        #expect(try store.invariantViolations() == [])
        try store.close()
    }
}
