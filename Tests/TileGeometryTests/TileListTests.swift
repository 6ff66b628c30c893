import Testing
import TileGeometry
import TileStoreTesting

/// Lists of tiles: what a line may be, and what is refused.
@Suite(.timeLimit(.minutes(60)))
struct TileListTests {
    /// Reads a list in pieces of so many bytes.
    private static func read(
        _ bytes: [UInt8], _ format: TileListFormat = .slashes, source: String? = nil, piece: Int = 1 << 20
    ) throws(TileListError) -> [String] {
        var reader = TileListReader(format, source: source)
        var tiles: [PackedTile] = []
        var from = 0
        while from < bytes.count {
            let end = min(from + piece, bytes.count)
            // A closure with a typed error: `withUnsafeBytes` gives the result out.
            let result = bytes[from..<end].withUnsafeBytes { bytes in
                Result { () throws(TileListError) in try reader.read(bytes, into: &tiles) }
            }
            try result.get()
            from = end
        }
        try reader.finish(into: &tiles)
        return tiles.map { "\($0.z)/\($0.x)/\($0.y)" }
    }

    private static func read(_ text: String, _ format: TileListFormat = .slashes) throws -> [String] {
        try read(Array(text.utf8), format, source: "osm")
    }

    static let lists: [(text: String, tiles: [String])] = [
        ("", []),
        ("\n\n \t\n", []),
        ("14/8529/5975", ["14/8529/5975"]),
        ("14/8529/5975\n", ["14/8529/5975"]),
        ("0/0/0\n1/0/1\r\n1/1/1\r\n", ["0/0/0", "1/0/1", "1/1/1"]),
        // With what others write behind it.
        ("3/1/2.png\n3/1/2@2x.png\n3/1/2@2x\n3/1/2.vector.pbf\n", Array(repeating: "3/1/2", count: 4)),
        // A key as this project writes it.
        ("osm/3/1/2\nosm/3/1/2@2x.pbf", ["3/1/2", "3/1/2"]),
        // Comments and blanks.
        ("# expired\n  # more\n 3/1/2 \n\t3/1/3\t# why\n#\n", ["3/1/2", "3/1/3"]),
        ("#" + String(repeating: "x", count: 1 << 20) + "\n1/0/0", ["1/0/0"]),
        // A byte order mark.
        ("\u{FEFF}3/1/2\n", ["3/1/2"]),
        ("\u{FEFF}# c\n3/1/2\n", ["3/1/2"]),
        ("28/268435455/268435455", ["28/268435455/268435455"]),
        ("3/1/2\n3/1/2\n", ["3/1/2", "3/1/2"]),
    ]

    @Test(arguments: lists)
    func listsAreReadHoweverTheyAreCut(_ list: (text: String, tiles: [String])) throws {
        for piece in [1, 2, 3, 7, 1000, 1 << 21] where piece > 2 || list.text.utf8.count < 1000 {
            #expect(try Self.read(Array(list.text.utf8), source: "osm", piece: piece) == list.tiles, "\(piece)")
        }
    }

    /// A name that is a number is taken off where four parts are there.
    @Test func aSourceMayBeNamedLikeAZoom() throws {
        let list = Array("3/1/2\n3/3/1/2.png\n3/1/1@2x # 3/4\n3/0/0/0\t# top\n3/1/1 # a/b/c\n".utf8)
        for piece in [1, 5, 1000] {
            let tiles = try Self.read(list, source: "3", piece: piece)
            #expect(tiles == ["3/1/2", "3/1/2", "3/1/1", "0/0/0", "3/1/1"])
        }
        let format = try #require(TileListFormat(" xyz"))
        #expect(try Self.read(Array("1 2 3\n3/1 2 3\n".utf8), format, source: "3") == ["3/1/2", "3/1/2"])
        #expect(throws: TileListError.self) { try Self.read(Array("4/3/1/2".utf8), source: "3") }
    }

    static let wrong: [(text: String, line: Int, says: String)] = [
        ("14/8529\n", 1, "expected z/x/y"),
        ("1/0/0\n\n#\n1/2/0\n", 4, "columns and rows of zoom 1 are 0 to 1"),
        ("1/0/2", 1, "columns and rows of zoom 1 are 0 to 1"),
        ("29/0/0", 1, "zooms are 0 to 28"),
        ("-1/0/0", 1, "expected z/x/y"),
        ("+1/0/0", 1, "expected z/x/y"),
        ("01/0/0", 1, "expected z/x/y"),
        ("1/00/0", 1, "expected z/x/y"),
        ("28/268435456/0", 1, "columns and rows of zoom 28"),
        ("28/99999999999999999999999/0", 1, "expected z/x/y"),
        ("9223372036854775808/0/0", 1, "expected z/x/y"),
        ("1/0/0/0", 1, "expected z/x/y"),
        ("/1/0/0", 1, "expected z/x/y"),
        ("1/0/0#c", 1, "expected z/x/y"),
        ("1/0/0 1/0/1", 1, "expected z/x/y"),
        ("1 0 0", 1, "expected z/x/y"),
        ("1/0/0@9x", 1, "expected z/x/y"),
        ("1/0/0@2", 1, "expected z/x/y"),
        ("1/0/0.", 1, "expected z/x/y"),
        ("1/0/0.p ng", 1, "expected z/x/y"),
        ("other/1/0/0", 1, "expected z/x/y"),
        ("osm:style.json", 1, "expected z/x/y"),
        ("1/0/0\r1/0/1\n", 1, "expected z/x/y"),
        ("1/0/0\n1/0\u{0}/0\n", 2, "\\u{0}"),
        ("\u{0}", 1, "expected z/x/y"),
        ("1/0/0\n\u{FEFF}1/0/0", 2, "expected z/x/y"),
        ("1/0/0\n" + String(repeating: "1", count: 1 << 20) + "\n1/0/0", 2, "more than 1024 bytes"),
        ("1/0/0\n" + String(repeating: " ", count: 1100), 2, "more than 1024 bytes"),
        ("\u{1B}[31m1/0/0", 1, "\\u{1b}"),
        ("z/x/y", 1, "expected z/x/y"),
    ]

    @Test(arguments: wrong)
    func aWrongLineIsNamed(_ list: (text: String, line: Int, says: String)) throws {
        for piece in [1, 5, 1 << 21] where piece > 1 || list.text.utf8.count < 2000 {
            let error = #expect(throws: TileListError.self) {
                try Self.read(Array(list.text.utf8), source: "osm", piece: piece)
            }
            #expect(error?.line == list.line, "\(piece)")
            #expect(error?.message.contains(list.says) == true, "\(error?.message ?? "")")
            #expect((error?.message.utf8.count ?? 0) < 1000)
        }
    }

    @Test func bytesThatAreNoTextAreNamed() {
        for bytes: [UInt8] in [[0xFF, 0xFE, 0x31, 0], [0xC3], [0x31, 0x2F, 0xED, 0xA0, 0x80, 0x0A]] {
            #expect(throws: TileListError.self) { try Self.read(bytes) }
        }
    }

    static let formats: [(format: String, line: String)] = [
        ("/zxy", "5/3/4"), (" xyz", "3 4 5"), (",zyx", "5,4,3"), ("\tyxz", "4\t3\t5"), ("-zxy", "5-3-4"),
        (" zxy", "  5 3 4 # tile"), ("/zxy", "5/3/4.png"), ("_xyz", "3_4_5@2x.png"),
    ]

    @Test(arguments: formats)
    func linesMayBeWrittenInOtherWays(_ row: (format: String, line: String)) throws {
        let format = try #require(TileListFormat(row.format))
        #expect(try Self.read(row.line, format) == ["5/3/4"])
    }

    @Test func whatIsNoFormatIsRefused() {
        for text in [
            "", "zxy", "/zx", "/zzy", "zxyz", "1zxy", "/xyzz", "#zxy", ".zxy", "@zxy", "\nzxy", "//xy", "äzxy",
        ] {
            #expect(TileListFormat(text) == nil, "\(text)")
        }
    }

    /// A line, or one that is wrong, and the tile that a slow reader finds in it.
    private static func line(_ random: inout SplitMix64) -> String {
        let z = random.below(8)
        let (x, y) = (random.below((1 << z) + (random.oneIn(60) ? 2 : 0)), random.below(1 << z))
        return switch random.below(12) {
        case 0: ""
        case 1: "# \(z)/\(x)"
        case 2: "  \(z)/\(x)/\(y)\t"
        case 3: "\(z)/\(x)/\(y).png # \(x)"
        case 4: "osm/\(z)/\(x)/\(y)@2x"
        case 5 where random.oneIn(20):
            random.pick(["\(z)/\(x)", "\(z)//\(x)/\(y)", "a/\(z)/\(x)/\(y)", "\(z)/\(x)/\(y)x"])
        default: "\(z)/\(x)/\(y)"
        }
    }

    private struct WrongLine: Error { var number: Int }

    /// The same by splitting texts: the tiles, or the number of the first wrong line.
    private static func slowly(_ lines: [String]) -> Result<[String], WrongLine> {
        var tiles: [String] = []
        for (number, line) in lines.enumerated() {
            var text = line.prefix { $0 != "#" }.filter { $0 != " " && $0 != "\t" }
            if text.isEmpty { continue }
            if text.hasPrefix("osm/") { text.removeFirst(4) }
            for ending in [".png", "@2x"] where text.hasSuffix(ending) { text.removeLast(ending.count) }
            let parts = text.split(separator: "/", omittingEmptySubsequences: false).map { Int($0) ?? -1 }
            guard parts.count == 3, (0...28).contains(parts[0]), (0..<(1 << parts[0])).contains(parts[1]),
                (0..<(1 << parts[0])).contains(parts[2])
            else { return .failure(WrongLine(number: number + 1)) }
            tiles.append("\(parts[0])/\(parts[1])/\(parts[2])")
        }
        return .success(tiles)
    }

    @Test(arguments: Seeds.list(200))
    func agreesWithASlowReader(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        let lines = (0..<random.below(60)).map { _ in Self.line(&random) }
        let end = random.pick(["\n", "\r\n"])
        let text = (random.oneIn(4) ? "\u{FEFF}" : "") + lines.joined(separator: end) + (random.oneIn(2) ? end : "")
        let piece = 1 + random.below(40)
        let read = Result { () throws(TileListError) in try Self.read(Array(text.utf8), source: "osm", piece: piece) }
        switch (read, Self.slowly(lines)) {
        case (.success(let a), .success(let b)): #expect(a == b, "seed \(seed): \(text.debugDescription)")
        case (.failure(let a), .failure(let b)): #expect(a.line == b.number, "seed \(seed): \(text.debugDescription)")
        default: Issue.record("seed \(seed): \(read), \(text.debugDescription)")
        }
    }
}

/// Sets of tiles, against sets that name each of their tiles.
@Suite(.timeLimit(.minutes(60)))
struct TileSetTests {
    private struct Tile: Hashable {
        var z, x, y: Int

        var packed: PackedTile { PackedTile(z: z, x: x, y: y) }

        init(_ z: Int, _ x: Int, _ y: Int) { (self.z, self.x, self.y) = (z, x, y) }

        func above(_ zoom: Int) -> Tile { Tile(zoom, x >> (z - zoom), y >> (z - zoom)) }

        /// Its tiles of a zoom below.
        func below(_ zoom: Int) -> [Tile] {
            let side = 1 << (zoom - z)
            return (0..<side).flatMap { dx in (0..<side).map { dy in Tile(zoom, x * side + dx, y * side + dy) } }
        }
    }

    @Test(arguments: Seeds.list(60))
    func packedTilesKeepTheirPartsAndOrder(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        var tiles: [(quadkey: String, packed: PackedTile)] = []
        for _ in 0..<400 {
            let z = random.below(29)
            let tile = try TileAddress(z: z, x: random.below(1 << z), y: random.below(1 << z))
            let packed = PackedTile(z: z, x: tile.x, y: tile.y)
            #expect((packed.z, packed.x, packed.y) == (tile.z, tile.x, tile.y))
            let zoom = random.below(z + 1)
            let above = try #require(tile.ancestor(zoom: zoom))
            #expect(packed.ancestor(zoom: zoom) == PackedTile(z: zoom, x: above.x, y: above.y))
            #expect(packed.ancestor(zoom: zoom).covers(packed))
            tiles.append((tile.quadkey, packed))
        }
        // A quadkey's beginning comes before it.
        var sorted = tiles.map(\.packed)
        PackedTile.sort(&sorted)
        #expect(sorted == tiles.sorted { $0.quadkey < $1.quadkey }.map(\.packed))
        for (a, b) in zip(tiles, tiles.shuffled(using: &random)) {
            #expect(a.packed.covers(b.packed) == b.quadkey.hasPrefix(a.quadkey))
        }
    }

    @Test(arguments: Seeds.list(150))
    func agreesWithASetOfAllTiles(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let deepest = 6
        let listed = (0..<random.below(25)).map { _ in
            let z = random.below(deepest + 1)
            // Near one another, so that some lie below others.
            return Tile(z, random.below(1 << min(z, 3)), random.below(1 << min(z, 3)))
        }
        let parents = random.oneIn(2) ? random.below(deepest + 1) : nil
        let children = random.oneIn(2) ? random.below(deepest + 1) : nil
        var expected = Set(listed)
        for tile in listed {
            if let parents { for zoom in parents..<max(parents, tile.z) { expected.insert(tile.above(zoom)) } }
            if let children, children > tile.z {
                for zoom in (tile.z + 1)...children { expected.formUnion(tile.below(zoom)) }
            }
        }
        var builder = TileSetBuilder()
        for tile in listed { try builder.insert([tile.packed]) }
        let set = try builder.set().widened(parentsTo: parents, childrenTo: children)
        #expect(set.count == Set(listed).count)
        let all = (0...deepest).flatMap { z in (0..<(1 << z)).flatMap { x in (0..<(1 << z)).map { Tile(z, x, $0) } } }
        let wrong = all.first { tile in
            var place: Int?
            let isThere = set.contains(tile.packed, &place)
            let times = listed.count { $0 == tile }
            return isThere != expected.contains(tile) || (place.map { set.timesListed(at: $0) } ?? 0) != times
                || place.map { set.listed[$0] != tile.packed } ?? false
        }
        #expect(wrong == nil, "seed \(seed)")
        if let members = set.members() {
            #expect(members == expected.map(\.packed).sorted(), "seed \(seed)")
        } else {
            #expect(children != nil)
        }
    }

    @Test func partsThatAreSortedApartMakeOneSet() throws {
        // More than are sorted at a time.
        var builder = TileSetBuilder()
        for part in 0..<3 {
            try builder.insert((0..<600_000).map { PackedTile(z: 21, x: $0 * 3 + part, y: 7) })
        }
        try builder.insert((0..<600_000).map { PackedTile(z: 21, x: $0 * 3, y: 7) })
        let set = try builder.set()
        #expect(set.count == 1_800_000)
        #expect((0..<set.count).reduce(0) { $0 + set.timesListed(at: $1) } == 2_400_000)
        #expect(zip(set.listed, set.listed.dropFirst()).allSatisfy { $0 < $1 })
    }
}
