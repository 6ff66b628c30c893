import Testing
import TileSets
import TileStore
import TileStoreTesting

/// The format as values: what is written can be read, in one form only.
struct FormatTests {
    private static func tile(_ text: String, _ content: Int = 0, size: Int = 10, type: String? = "image/png") throws
        -> SetTile
    {
        let blob = withUnsafeBytes(of: content) { BlobDigest(hashing: $0) }
        return SetTile(
            key: try #require(SetKey(text)), blob: blob, size: size,
            kind: try #require(SetKind(type: type, coding: nil)))
    }

    private static func random(_ random: inout SplitMix64, count: Int, zooms: Int = 12) throws -> [SetTile] {
        var tiles: [String: SetTile] = [:]
        for _ in 0..<count {
            let z = random.below(zooms + 1)
            let text = "\(z)/\(random.below(1 << z))/\(random.below(1 << z))" + (random.oneIn(9) ? "@2x" : "")
            tiles[text] = try tile(text, random.below(40), type: random.oneIn(3) ? nil : "image/webp")
        }
        return Array(tiles.values)
    }

    @Test(arguments: Seeds.list(20))
    func listsThatAreWrittenCanBeRead(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let list = SetList(try Self.random(&random, count: random.below(9000)))
        #expect(zip(list.tiles, list.tiles.dropFirst()).allSatisfy { $0.key < $1.key })
        let root = try SetRoot(list.root.bytes)
        #expect(root == list.root)
        var tiles: [SetTile] = []
        for (item, chunk) in zip(root.items, list.chunks) {
            let bytes = list.encoded(chunk)
            #expect(bytes.withUnsafeBytes { BlobDigest(hashing: $0) } == item.digest)
            tiles += try SetList.decode(bytes, of: item)
        }
        #expect(tiles == list.tiles)
        #expect(SetList(tiles.shuffled(using: &random)).root == root)
    }

    @Test(arguments: Seeds.list(30))
    func deltasLeadWhereTheySay(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let lists = try (0..<3).map { _ in SetList(try Self.random(&random, count: random.below(300), zooms: 4)) }
        func delta(_ a: SetList, _ b: SetList) -> SetDelta {
            SetDelta(from: a.root.digest, a.tiles, to: b.root.digest, b.tiles)
        }
        let (first, second) = (delta(lists[0], lists[1]), delta(lists[1], lists[2]))
        #expect(first.applied(to: lists[0].tiles) == lists[1].tiles)
        #expect(first.followed(by: second).applied(to: lists[0].tiles) == lists[2].tiles)
        #expect(try SetDelta(try #require(first.encoded)) == first)
    }

    @Test func aTileThatComesChangesItsOwnChunkAlone() throws {
        var random = SplitMix64(seed: 7)
        let tiles = try Self.random(&random, count: 20_000)
        let more = try tiles + [Self.tile("13/5000/2000", 99)]
        let (before, after) = (SetList(tiles), SetList(more))
        #expect(before.chunks.count > 10)
        let known = Set(before.chunks.map(\.digest))
        #expect(after.chunks.filter { !known.contains($0.digest) }.count <= 2)
    }

    @Test func equalNeighboursAreOneRun() throws {
        let tiles = try (0..<64).map { n in try Self.tile("3/\(n & 7)/\(n >> 3)", 1) }
        let list = SetList(tiles)
        let written = list.chunks.map { String(decoding: list.encoded($0), as: UTF8.self) }
        #expect(written.joined().contains("[\"3/0/0\",64,"))
    }

    @Test func setsAreReadBackAsTheyWereWritten() throws {
        let digest = withUnsafeBytes(of: 5) { BlobDigest(hashing: $0) }
        let document = SetDocument(
            name: "map", time: Timestamp(seconds: 1_700_000_000), root: digest, rootLength: 17, tiles: 3, blobs: 2,
            bytes: 900, lifetime: 86_400,
            metadata: ["name": .string("A \"map\"\n"), "maxzoom": .integer(3), "x": .array([.null, .bool(true)])],
            deltas: [.init(from: digest, digest: digest, length: 9)],
            kept: [.init(root: digest, length: 4, replaced: Timestamp(seconds: 9))])
        #expect(try SetDocument(document.encoded, at: "here") == document)
    }

    @Test(arguments: [
        "1/2/0", "29/0/0", "01/0/0", "1/0", "1/0/0/0", "-1/0/0", "1/0/0@9x", "1/0/0@1x", "1/0/0.PNG", "../../etc", "",
        "0/0/0/",
        "1/0/0.aaaaaaaaaaaaa",
    ])
    func keysThatAreNoneAreRefused(text: String) { #expect(SetKey(text) == nil) }

    /// What a chunk may say, and each thing that it may not.
    @Test func chunksThatAreNotAsTheyShouldBeAreRefused() throws {
        let digest = String(repeating: "a", count: 64)
        func decode(_ text: String, tiles: Int = 1) throws {
            let bytes = Array(text.utf8)
            let root =
                "{\"chunks\":[[\"\(bytes.withUnsafeBytes { BlobDigest(hashing: $0) })\",\(tiles),\(bytes.count)]]}"
            _ = try SetList.decode(bytes, of: SetRoot(Array(root.utf8)).items[0])
        }
        func chunk(_ runs: String, kinds: String = "[[\"image/png\",null]]") -> String {
            "{\"kinds\":\(kinds),\"runs\":[\(runs)]}"
        }
        try decode(chunk("[\"1/0/0\",1,\"\(digest)\",5,0]"))
        try decode(chunk("[\"1/0/0\",4,\"\(digest)\",5,0]"), tiles: 4)
        let wrong: [(String, Int)] = [
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,0]"), 2),  // fewer tiles than the root says
            (chunk("[\"1/0/0\",5,\"\(digest)\",5,0]"), 5),  // beyond the zoom
            (chunk("[\"28/0/0\",9999999999,\"\(digest)\",5,0]"), 4096),
            (chunk("[\"1/0/0\",0,\"\(digest)\",5,0]"), 1),
            (chunk("[\"1/0/0\",-1,\"\(digest)\",5,0]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest)\",0,0]"), 1),  // no bytes
            (chunk("[\"1/0/0\",1,\"\(digest)\",33554433,0]"), 1),  // too many
            (chunk("[\"1/0/0\",1,\"\(digest)\",-5,0]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,1]"), 1),  // no such kind
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,-1]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest.dropLast())\",5,0]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest.uppercased())\",5,0]"), 1),
            (chunk("[\"1/9/0\",1,\"\(digest)\",5,0]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,0],[\"1/0/0\",1,\"\(digest)\",6,0]"), 2),  // twice
            (chunk("[\"1/1/0\",1,\"\(digest)\",5,0],[\"1/0/0\",1,\"\(digest)\",6,0]"), 2),  // not in order
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,0],[\"1/1/0\",1,\"\(digest)\",5,0]"), 2),  // could be one run
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,0]", kinds: "[[\"text/html\",null]]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,0]", kinds: "[[\"image/png\",\"rot13\"]]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest)\",5,0]", kinds: "[[\"image/png\",null],[null,null]]"), 1),  // not needed
            (chunk("[\"1/0/0\", 1,\"\(digest)\",5,0]"), 1),  // white space
            (chunk("[\"1/0/0\",1.0,\"\(digest)\",5,0]"), 1),
            (chunk("[\"1/0/0\",1,\"\(digest)\",5]"), 1),
            (chunk(""), 1), ("[]", 1), ("{}", 1), ("", 1), ("null", 1), (String(repeating: "[", count: 100_000), 1),
        ]
        for (text, tiles) in wrong {
            #expect(throws: SetError.self, "\(text.prefix(120))") { try decode(text, tiles: tiles) }
        }
    }

    @Test func rootsAndDeltasThatAreNotAsTheyShouldBeAreRefused() {
        let digest = String(repeating: "a", count: 64)
        let roots = [
            "", "{}", "{\"chunks\":[[\"\(digest)\",0,5]]}", "{\"chunks\":[[\"\(digest)\",4097,5]]}",
            "{\"chunks\":[[\"\(digest)\",1,4194305]]}", "{\"chunks\":[[\"\(digest)\",1]]}", "{\"chunks\":[[1,1,1]]}",
            "{\"chunks\":[],\"more\":1}", "{ \"chunks\":[]}",
            "{\"chunks\":[" + Array(repeating: "[\"\(digest)\",1,1]", count: 131_073).joined(separator: ",") + "]}",
        ]
        for text in roots { #expect(throws: SetError.self, "\(text.prefix(80))") { _ = try SetRoot(Array(text.utf8)) } }
        let deltas = [
            "", "{}", "{\"from\":\"\(digest)\",\"kinds\":[],\"removed\":[\"9\"],\"runs\":[],\"to\":\"\(digest)\"}",
            "{\"from\":\"\(digest)\",\"kinds\":[],\"removed\":[\"1/1/0\",\"1/0/0\"],\"runs\":[],\"to\":\"\(digest)\"}",
            "{\"from\":\"\(digest)\",\"kinds\":[],\"removed\":[],\"runs\":[],\"to\":\"nowhere\"}",
        ]
        for text in deltas { #expect(throws: SetError.self, "\(text)") { _ = try SetDelta(Array(text.utf8)) } }
    }

    @Test(arguments: [
        ("\"version\":1", "\"version\":2"), ("tile-set", "tile-shop"), ("\"tiles\":3", "\"tiles\":-3"),
        ("\"bytes\":900", "\"bytes\":9e30"), ("\"rootLength\":17", "\"rootLength\":99999999999"),
        ("\"name\":\"map\"", "\"name\":3"),
        ("\"metadata\":{}", "\"metadata\":[]"), ("\"deltas\":[]", "\"deltas\":[[1,2]]"), ("\"kept\":[]", "\"kept\":{}"),
        ("\"time\":5", "\"time\":-5"), ("\"root\":\"", "\"root\":\"../"),
        ("\"lifetime\":null", "\"lifetime\":\"long\""),
    ])
    func documentsThatAreNotAsTheyShouldBeAreRefused(from: String, to: String) throws {
        let document = SetDocument(
            name: "map", time: Timestamp(seconds: 5), root: withUnsafeBytes(of: 5) { BlobDigest(hashing: $0) },
            rootLength: 17, tiles: 3, blobs: 2, bytes: 900)
        let text = String(decoding: document.encoded, as: UTF8.self)
        let changed = text.split(separator: from, omittingEmptySubsequences: false).joined(separator: to)
        #expect(changed != text)
        _ = try SetDocument(Array(text.utf8), at: "here")
        #expect(throws: SetError.self) { _ = try SetDocument(Array(changed.utf8), at: "here") }
    }
}
