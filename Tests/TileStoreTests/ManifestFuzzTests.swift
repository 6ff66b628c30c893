import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Real lines of a manifest with fields at their extremes, and with right checksums.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ManifestFuzzTests {
    private static let numbers = [
        "0", "1", "-1", "2", "28", "29", "31", "128", "599", "600", "65535", "65536", "16777216", "134217727",
        "268435455",
        "268435456", "2147483647", "2147483648", "4294967294", "4294967295", "4294967296", "17592186044416",
        "140737488355327", "281474976710655", "281474976710656", "4503599627370496", "9223372036854775806",
        "9223372036854775807", "9223372036854775808", "18446744073709551615", "-9223372036854775808", "1e3", "1e18",
        "1e308", "1.5", "-0", "null", "true", "\"\"", "[]", "{}", "\"7\"",
    ]
    private static let texts = [
        "", "a", "a/0/0/0", "a/28/268435455/268435455", "a/29/0/0", "a/1/2/0", "a/0/0/0@8x.png", "a/0/0/0@9x", "a:",
        "a:x?00112233445566778899aabbccddeeff", String(repeating: "a", count: 65) + "/0/0/0",
        String(repeating: "x/", count: 3000), "\\u0000", "\\ud800", "\\ud83d\\uddfa", "\u{FEFF}", "e\u{301}",
        String(repeating: "0", count: 64), String(repeating: "f", count: 64), String(repeating: "F", count: 64), "..",
        "/",
    ]

    /// A manifest with every kind of record, as a writer leaves it: with an image, a checkpoint and a journal.
    private static func filled() throws -> Lab {
        var configuration = Lab.plain
        configuration.indexImages = .always
        let lab = try Lab(configuration)
        func fill(_ start: Int) throws {
            for number in start..<(start + 12) {
                let metadata = Universe.metadata(UInt8(number), now: lab.clock.now)
                try lab.store.put(
                    number % 7 == 6 ? nil : Universe.payloads[number % 9], for: Universe.keys[number % 36],
                    metadata: metadata)
            }
            for number in [3, 5, 2] { _ = try lab.store.read(Universe.keys[start + number]) }
            try lab.store.flush()
            for area in 0..<4 as Range<UInt8> {
                if let region = Universe.region(name: area, area: area) { try lab.store.pin(region) }
            }
            _ = try lab.store.unpin("home")
            _ = try lab.store.expire(Universe.selection(0))
            try lab.store.setLimits(StoreLimits(capacity: 1 << 20 + start, entryLimit: 30))
            _ = try lab.store.remove([Universe.keys[start + 1]], includingPinned: true)
            _ = try lab.store.evict(entries: 9)
        }
        try fill(0)
        _ = try lab.store.compact()
        try fill(12)
        return lab
    }

    /// Puts an extreme in the place of one number or text of a line, and gives it the right checksum.
    private static func bend(_ line: [UInt8], _ random: inout SplitMix64) -> [UInt8] {
        let text = String(decoding: line, as: UTF8.self)
        // Journals and checkpoints end their lines differently; what follows the checksum stays.
        guard let sum = text.range(of: ",\"c\":\"", options: .backwards) else { return line }
        var body = Array(text[..<sum.lowerBound].utf8)
        let tail = text[text.index(sum.upperBound, offsetBy: 8)...].dropFirst(2)
        var places: [(range: Range<Int>, isText: Bool)] = []
        var at = 0
        while at < body.count {
            let start = at
            if body[at] == 0x22 {
                at += 1
                while at < body.count, body[at] != 0x22 { at += body[at] == 0x5C ? 2 : 1 }
                // Names of members stay, mostly.
                let isName = at + 1 < body.count && body[at + 1] == 0x3A
                if at < body.count, !isName { places.append(((start + 1)..<at, true)) }
                at += 1
            } else if body[at] == 0x2D || (0x30...0x39).contains(body[at]) {
                while at < body.count, body[at] == 0x2D || body[at] == 0x2E || (0x30...0x39).contains(body[at]) {
                    at += 1
                }
                places.append((start..<at, false))
            } else {
                at += 1
            }
        }
        guard !places.isEmpty else { return line }
        let place = random.pick(places)
        body.replaceSubrange(place.range, with: Array((place.isText ? random.pick(texts) : random.pick(numbers)).utf8))
        let bent = ForgedFilesTests.line(String(decoding: body, as: UTF8.self))
        return tail.isEmpty ? bent : bent.dropLast() + Array(",".utf8) + Array(tail.utf8)
    }

    private static func bendLines(_ bytes: inout [UInt8], _ random: inout SplitMix64, also copies: Bool) {
        var lines = bytes.split(separator: 10, omittingEmptySubsequences: false).map(Array.init)
        for _ in 0..<(1 + random.below(3)) {
            let number = random.below(max(1, lines.count - 1))
            let bent = bend(lines[number], &random)
            if copies, random.oneIn(2) { lines.insert(bent, at: number + 1) } else { lines[number] = bent }
        }
        bytes = Array(lines.joined(separator: [10]))
    }

    /// What may come of it: anything but a trap, a hang, wrong bytes, or a put that is said to be stored and is not.
    private static func use(_ store: TileStore, _ clock: ManualClock, _ what: String) throws {
        try store.catchUp()
        var entries: [TileEntry] = []
        try store.forEachEntry { entries.append($0) }
        for entry in entries {
            if let data = try store.read(entry.key)?.data {
                #expect(Universe.digests.contains(digest(data)), "\(what)")
            }
        }
        _ = try store.statistics()
        _ = try store.regionStatistics()
        _ = try store.verify()
        guard !store.isReadOnly else { return }
        try store.setLimits(StoreLimits(capacity: 1 << 20, entryLimit: 50))
        for number in 0..<3 {
            let key = try TileKey("new/3/\(number)/1")
            var metadata = TileMetadata(storedAt: clock.now, expires: clock.now)
            metadata.response = ResponseFields(mediaType: "new/\(number)")
            try store.put(Universe.payloads[number + 2], for: key, metadata: metadata)
            let tile = try store.read(key)
            #expect(tile?.data == Universe.payloads[number + 2], "\(what): a put is not read back")
            #expect(tile?.entry.metadata.response == metadata.response, "\(what)")
        }
        try store.flush()
        _ = try store.compact()
        _ = try store.verify(repair: true)
        #expect(try store.verify().ok, "\(what)")
        #expect(try store.invariantViolations() == [], "\(what)")
        for number in 0..<3 { #expect(try store.read(TileKey("new/3/\(number)/1")) != nil, "\(what)") }
    }

    private static func digest(_ data: Data) -> BlobDigest { data.withUnsafeBytes { BlobDigest(hashing: $0) } }

    @Test(
        "Fields at their extremes make no store trap, hang, give wrong bytes or lose what is put afterwards",
        arguments: 0..<8)
    func extremes(part: Int) throws {
        let origin = try Self.filled()
        for seed in Seeds.share(part, of: 8, count: 500) {
            var random = SplitMix64(seed: seed &+ 4000)
            let disk = origin.disk.clone()
            let clock = origin.clock
            func opened(_ readOnly: Bool, images: Bool) throws -> TileStore {
                var configuration = Lab.plain
                configuration.readOnly = readOnly
                configuration.indexImages = images ? .always : .never
                return try TileStore(
                    environment: clock.environment(SimulatedFileSystem(disk), seed: random.next()),
                    configuration: configuration)
            }
            let way = ["writer", "reader", "image", "writer that follows", "reader that follows", "marker"][
                random.below(6)]
            let what = "seed \(seed), \(way)"
            let journal = origin.journal
            do {
                if way.hasSuffix("follows") {
                    // Bent lines come while the store is open.
                    let whole = try #require(disk.contents(journal))
                    let half = whole[..<(whole.count / 2)].lastIndex(of: 10).map { $0 + 1 } ?? 0
                    disk.corrupt(journal) { $0 = Array(whole[..<half]) }
                    let store = try opened(way.hasPrefix("reader"), images: false)
                    defer { store.simulateKill() }
                    var rest = Array(whole[half...])
                    Self.bendLines(&rest, &random, also: true)
                    disk.corrupt(journal) { $0 += rest }
                    try Self.use(store, clock, what)
                } else {
                    let path = way == "marker" ? "tilecache.json" : random.oneIn(2) ? journal : origin.checkpoint
                    if way == "image" {
                        // Behind the place of the image.
                        disk.corrupt(journal) { bytes in
                            let lines = bytes.split(separator: 10)
                            for _ in 0..<3 {
                                bytes += Self.bend(Array(lines[random.below(lines.count)]), &random) + [10]
                            }
                        }
                    } else if way == "marker" {
                        disk.corrupt(path) { bytes in
                            let line = ForgedFilesTests.line(String(decoding: bytes.dropLast(2), as: UTF8.self))
                            bytes = Self.bend(line, &random)
                        }
                    } else {
                        disk.corrupt(path) { Self.bendLines(&$0, &random, also: path == journal) }
                    }
                    let store = try opened(way == "reader", images: way == "image")
                    defer { store.simulateKill() }
                    try Self.use(store, clock, what)
                    if !store.isReadOnly {
                        let before = try store.snapshot()
                        store.simulateKill()
                        let again = try opened(false, images: random.oneIn(2))
                        let difference = difference(try again.snapshot(), before)
                        #expect(difference == nil, "\(what): opened again")
                        again.simulateKill()
                    }
                }
            } catch {
                #expect(error is StoreError, "\(what): \(error)")
            }
        }
    }
}
