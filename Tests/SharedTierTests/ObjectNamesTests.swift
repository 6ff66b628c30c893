import Testing
import TileStore
import TileStoreTesting

@testable import SharedTier

@Suite struct ObjectNamesTests {
    private let source: SharedSource

    init() throws {
        source = SharedSource(try SourceName("osm-2.x_A"), traits: ["https://host/{z}/{x}/{y}.png", "image"])
    }

    @Test func aTileHasTheNameThatTheDocumentSays() throws {
        let names = ObjectNames(prefix: "/maps//tiles/")
        let key = try TileKey("osm-2.x_A/12/2148/1385@2x.png")
        let name = try #require(names.name(of: key, source, Epoch(seconds: 1_700_000_000, random: 0xAB)))
        #expect(name == "maps/tiles/v1/osm-2.x_A-\(source.fingerprint)/1700000000-000000ab/12/d7/2148/1385@2x.png")
        #expect(names.index == "maps/tiles/marks.json")
        #expect(ObjectNames(prefix: "").index == "marks.json")
    }

    /// Every tile has one name, from which it can be told; no two have the same.
    @Test(arguments: Seeds.list(200))
    func namesAreReadBack(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let names = ObjectNames(prefix: random.pick(["", "a", "a/b", "v1"]))
        var seen: [String: TileKey] = [:]
        for _ in 0..<200 {
            let z = random.below(29)
            let tile = try TileAddress(
                z: z, x: random.below(1 << z), y: random.below(1 << z), scale: random.pick([1, 1, 2, 8]),
                format: random.pick([nil, "png", "pbf", "v1"]))
            let key = TileKey(source: source.name, tile: tile)
            let epoch = random.oneIn(2) ? .first : Epoch(seconds: UInt32(random.below(1 << 31)), random: 7)
            let name = try #require(names.name(of: key, source, epoch))
            #expect(name.hasPrefix(names.tiles) && !name.contains("//") && !name.contains(".."))
            #expect(names.parts(of: name) == .init(key: key, source: source, epoch: epoch))
            #expect(seen[name] == nil || seen[name] == key)
            seen[name] = key
            // A character less or more is another name, or none.
            #expect(names.parts(of: name + "x")?.key != key)
            #expect(names.parts(of: String(name.dropLast()))?.key != key)
        }
    }

    @Test func whatIsNoTileOfTheSourceHasNoName() throws {
        let names = ObjectNames(prefix: "")
        #expect(names.name(of: try TileKey("other/1/0/0"), source, .first) == nil)
        #expect(names.name(of: try TileKey("osm-2.x_A:styles/a.json"), source, .first) == nil)
        let long = ObjectNames(prefix: String(repeating: "p", count: 1000))
        #expect(long.name(of: try TileKey("osm-2.x_A/1/0/0"), source, .first) == nil)
    }

    @Test(arguments: [
        "marks.json", "v1/", "v1/osm/0-00000000/1/00/0/0", "v1/osm-0123456789abcdef/0-0/1/00/0/0",
        "v1/osm-0123456789abcdef/0-00000000/1/zz/0/0", "v1/osm-0123456789abcdef/0-00000000/01/00/0/0",
        "v1/osm-0123456789abcdef/0-00000000/1/00/0/9", "v1/-0123456789abcdef/0-00000000/1/00/0/0",
        "v1/osm-0123456789ABCDEF/0-00000000/1/00/0/0", "v2/osm-0123456789abcdef/0-00000000/1/00/0/0",
        "v1/osm-0123456789abcdef/00-00000000/1/00/0/0", "v1/../../etc/passwd", "v1/osm-0123456789abcdef",
    ])
    func otherNamesAreNoTiles(name: String) { #expect(ObjectNames(prefix: "").parts(of: name) == nil) }

    @Test func sourcesOfOneNameThatDifferShareNothing() throws {
        let name = try SourceName("osm")
        let all = [["a", "b"], ["ab"], ["a,1:b"], ["b", "a"], [], ["a", "b", ""]].map {
            SharedSource(name, traits: $0).fingerprint
        }
        #expect(Set(all).count == all.count)
        #expect(SharedSource(name, traits: ["a"]) == SharedSource(name, traits: ["a"]))
    }

    @Test func theGreatestEpochCountsForAll() throws {
        let epoch = Epoch(seconds: 100, random: 5)
        #expect(Epoch("100-00000005") == epoch && epoch.description == "100-00000005")
        #expect(Epoch.first < epoch && epoch < Epoch(seconds: 100, random: 6) && epoch < Epoch(seconds: 101, random: 0))
        for text in ["", "1", "-1-00000000", "1-0000000", "1-00000000-", "+1-00000000", "01-00000000", "1-0000000G"] {
            #expect(Epoch(text) == nil, "\(text)")
        }
        // A clock that is behind raises it all the same.
        #expect(epoch.next(at: Timestamp(seconds: 5), random: 0) > epoch)
        #expect(epoch.next(at: Timestamp(seconds: 500), random: 1) == Epoch(seconds: 500, random: 1))
        let last = Epoch(seconds: .max, random: 1)
        #expect(last.next(at: Timestamp(seconds: 0), random: 2).seconds == .max)
    }

    /// `osm-dark` begins as `osm-` does, and so may what is nobody's tile: a sweep of `osm` took both.
    @Test func otherNamesThatBeginSoAreNotASourcesTiles() throws {
        let names = ObjectNames(prefix: "maps")
        func name(_ source: String) throws -> String {
            let shared = SharedSource(try SourceName(source), traits: ["a"])
            return try #require(names.name(of: TileKey("\(source)/3/1/2"), shared, .first))
        }
        let (osm, dark) = (try name("osm"), try name("osm-dark"))
        let source = try SourceName("osm")
        #expect(names.isTile(osm, of: nil) && names.isTile(osm, of: source))
        #expect(names.isTile(dark, of: nil) && !names.isTile(dark, of: source))
        #expect(!names.isTile("maps/v1/osm-backup/important.db", of: nil))
        #expect(!names.isTile("maps/v1/osm-backup/important.db", of: source))
    }
}
