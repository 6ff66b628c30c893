import Foundation
import Testing
import TileStore
import TileStoreTesting

/// The same records by different ways: entered from what was put, read back by another process, read by many threads.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ManifestPathsTests {
    private static let hex = "0123456789abcdef"

    private func tag(_ random: inout SplitMix64) -> String? {
        func digits(_ count: Int) -> String {
            String((0..<count).map { _ in random.pick(Array(Self.hex)) })
        }
        switch random.below(14) {
        case 0: return nil
        case 1: return ""
        case 2: return "\"\""
        case 3: return "W/\"\""
        case 4: return "\"" + digits(1 + random.below(9)) + "\""
        case 5: return "W/\"" + digits(31 + random.below(3)) + "\""
        case 6: return "\"" + digits(63 + random.below(3)) + "\""
        case 7: return "\"" + digits(500 + random.below(11)) + "\""
        case 8: return "\"" + digits(8).uppercased() + "-x\""
        case 9: return "\"a\\b\u{1}\u{7F}c\""
        case 10: return "\"größe-" + digits(4) + "\""
        case 11: return digits(32)
        case 12: return "\"" + digits(8) + "\\\"" + digits(8) + "\""
        default: return "\"" + digits(32) + "\""
        }
    }

    private func key(_ random: inout SplitMix64) throws -> TileKey {
        let source = try SourceName(random.pick(["a", "base", "a-source-with-a-rather-long-name.of_64", "Z"]))
        if random.oneIn(6) {
            let path = random.pick(["style.json", "fonts/Noto Sans/0-255.pbf".replacing(" ", with: "-"), "x"])
            return TileKey(source: source, resource: try ResourceAddress(path: path))
        }
        let z = random.below(4)
        return TileKey(
            source: source,
            tile: try TileAddress(
                z: z, x: random.below(1 << z), y: random.below(1 << z), scale: random.pick([1, 1, 2, 8]),
                format: random.pick([nil, nil, "png", "webp", "abcdefghijkl"])))
    }

    private func metadata(_ random: inout SplitMix64, _ sets: [ResponseFields]) -> TileMetadata {
        func time() -> Timestamp {
            Timestamp(seconds: random.pick([0, 1, 1_700_000_000, 4_294_967_294, 4_294_967_295, .max, -5, .min]))
        }
        return TileMetadata(
            response: random.pick(sets), etag: tag(&random), lastModified: random.oneIn(2) ? time() : nil,
            storedAt: time(), date: random.oneIn(2) ? time() : nil,
            initialAge: random.pick([0, 0, 1, 3600, 1 << 31, .max, -1]), expires: time())
    }

    @Test("What a writer enters is what others read in its lines, and what it reads itself when opened again")
    func writersAndReadersAgree() throws {
        for seed in Seeds.list(60) {
            var random = SplitMix64(seed: seed)
            let lab = try Lab()
            let other = try lab.another()
            defer { other.simulateKill() }
            let sets = (0..<3).map { ResponseFields(mediaType: "image/\($0)", noCache: $0 == 1) }
            for step in 0..<12 {
                let tiles = try (0..<(random.oneIn(2) ? 1 : 1 + random.below(30))).map { _ in
                    let bytes = random.oneIn(5) ? nil : lab.bytes(random.below(4), size: 10)
                    return TilePut(key: try key(&random), data: bytes, metadata: metadata(&random, sets))
                }
                if tiles.count == 1 {
                    try lab.store.put(tiles[0].data, for: tiles[0].key, metadata: tiles[0].metadata)
                } else {
                    try lab.store.put(tiles)
                }
                try other.catchUp()
                let (mine, theirs) = (try lab.store.snapshot(), try other.snapshot())
                #expect(mine == theirs, "seed \(seed), step \(step): \(difference(theirs, mine) ?? "")")
                #expect(try lab.store.invariantViolations() == [])
            }
            let before = try lab.store.snapshot()
            if seed % 2 == 0 { _ = try lab.store.compact() }
            try lab.reopen()
            let again = try lab.store.snapshot()
            #expect(again == before, "seed \(seed), opened again: \(difference(again, before) ?? "")")
        }
    }

    @Test("A checkpoint that several threads read says what it says to one; a damaged line costs its entry alone")
    func largeCheckpoint() throws {
        var configuration = Lab.plain
        // With an image the checkpoint would not be read.
        configuration.indexImages = .never
        let lab = try Lab(configuration)
        let count = 30_000
        let sets = (0..<3).map { ResponseFields(mediaType: "image/\($0)") }
        var random = SplitMix64(seed: 5)
        let tiles = (0..<count).map { number in
            var metadata = lab.metadata()
            metadata.response = sets[number % 3]
            metadata.etag = number % 7 == 0 ? tag(&random) : "\"\(number)-\\x\""
            return TilePut(key: lab.key(number), data: lab.bytes(number % 50, size: 20), metadata: metadata)
        }
        try lab.store.put(tiles)
        _ = try lab.store.compact()
        let before = try lab.store.snapshot()
        try lab.reopen()
        #expect(try lab.store.snapshot() == before)
        #expect(try lab.store.verify(repair: false).journalDamage == 0)

        let path = lab.checkpoint
        let text = try #require(lab.disk.contents(path))
        #expect(text.count > 5 << 20, "too short to be read by more than one thread")
        let place = try #require(Data(text).range(of: Data("\"lab/12/77/3\"".utf8)))
        lab.disk.corrupt(path) { $0[place.lowerBound + 3] ^= 1 }
        try lab.reopen()
        let after = try lab.store.snapshot()
        let lost = Set(before.entries.map(\.key)).subtracting(after.entries.map(\.key))
        #expect(lost == [lab.key(3 * 4096 + 77)])
        #expect(after.entries.count == count - 1)
        #expect(try lab.store.verify(repair: false).journalDamage > 0)
    }
}
