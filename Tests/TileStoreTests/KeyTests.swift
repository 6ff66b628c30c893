import Testing
import TileStore
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct KeyTests {
    @Test(
        "A key's text is parsed back to the same key",
        arguments: [
            "osm/0/0/0", "osm/28/268435455/268435455", "a/3/7/7@2x", "a/3/7/7@8x.png", "A-b_c.1/12/4095/0.webp",
            "base:style.json", "base:a/b//c.pbf", "base:x?00112233445566778899aabbccddeeff",
            "base:x#00112233445566778899aabbccddeeff",
            "base:x?00112233445566778899aabbccddeeff#ffeeddccbbaa99887766554433221100", "a:/lead", "a:x@2x:y",
            "a:...", "a:/...", "a:.x/y.", "a:x/..y/z..", "a:x/.../y", "a://x//",
        ])
    func roundTrip(text: String) throws {
        let key = try TileKey(text)
        #expect(key.description == text)
        #expect(try TileKey(key.description) == key)
    }

    @Test(
        "Text that is no canonical key is refused",
        arguments: [
            "", "osm", "osm/", "/0/0/0", "osm/0/0", "osm/0/0/0/0", "osm/29/0/0", "osm/0/1/0", "osm/0/0/1", "osm/-1/0/0",
            "osm/+1/0/0", "osm/01/0/0", "osm/1/00/0", "osm/1/0/0@1x", "osm/1/0/0@9x", "osm/1/0/0@02x", "osm/1/0/0@2",
            "osm/1/0/0.", "osm/1/0/0.PNG", "osm/1/0/0.abcdefghijklm", "osm/1/0/0.p/g", "osm/1/0/0 ", " osm/1/0/0",
            "os m/1/0/0", "ö/1/0/0", "../1/0/0", "./1/0/0", "..:x", "a:", "a:b c", "a:b\"c", "a:b\\c", "a:b\u{7F}",
            "a:ü", "a:../x", "a:x/..", "a:x/../y", "a:./x", "a:.", "a:..", "a:x/.", "a:x/./y", "a:/../", "a://.",
            "a:x?", "a:x#", "a:x?123",
            "a:x?00112233445566778899AABBCCDDEEFF",
            "a:x#00112233445566778899aabbccddeeff?00112233445566778899aabbccddeeff",
            "a:?00112233445566778899aabbccddeeff", "osm/1/99999999999999999999/0", "osm/1/4294967296/0", "a\0b/1/0/0",
        ])
    func refused(text: String) {
        let error = #expect(throws: StoreError.self) { try TileKey(text) }
        #expect(error?.code == .invalidKey)
    }

    @Test("The longest parts are taken, one more is refused")
    func lengths() throws {
        let source = String(repeating: "s", count: 64)
        #expect(try TileKey("\(source)/1/0/0.abcdefghijkl").source.description == source)
        #expect(throws: StoreError.self) { try TileKey("\(source)s/1/0/0") }
        let path = String(repeating: "p", count: 1024)
        #expect(try TileKey("a:\(path)").description.utf8.count == 1026)
        #expect(throws: StoreError.self) { try TileKey("a:\(path)p") }
    }

    @Test("Parts and text make the same key, and bad parts are refused")
    func parts() throws {
        #expect(
            try TileKey(source: "osm", z: 3, x: 1, y: 2, scale: 2, format: "png") == TileKey("osm/3/1/2@2x.png"))
        #expect(throws: StoreError.self) { try TileKey(source: "osm", z: 3, x: 8, y: 0) }
        #expect(throws: StoreError.self) { try TileKey(source: "osm", z: 3, x: 0, y: -1) }
        #expect(throws: StoreError.self) { try TileKey(source: "osm", z: -1, x: 0, y: 0) }
        #expect(throws: StoreError.self) { try TileKey(source: "osm", z: 1, x: 0, y: 0, scale: 0) }
        #expect(throws: StoreError.self) { try TileKey(source: "osm", z: 1, x: 0, y: 0, format: "") }
    }

    @Test("Random bytes never crash the parser, and what it takes round-trips")
    func fuzz() throws {
        var random = SplitMix64(seed: 5)
        let alphabet = Array("ab/0127:?#@x.\\\"é \u{0}")
        for _ in 0..<50_000 {
            let text = String((0..<random.below(24)).map { _ in random.pick(alphabet) })
            if let key = try? TileKey(text) { #expect(key.description == text) }
        }
    }

    @Test("Keys are ordered by source, tiles first, then by numbers")
    func order() throws {
        let texts = ["a/2/0/0", "a/10/0/0", "a/10/0/0@2x", "a/10/0/1", "a/10/2/0", "a:p", "a:q", "b/0/0/0"]
        let keys = try texts.map { try TileKey($0) }
        #expect(keys.reversed().sorted() == keys)
    }

    @Test("A digest's text is parsed back, and only lower-case hexadecimal of 64 digits is one")
    func digests() {
        let digest = Universe.digests[0]
        // SHA-256 of nothing.
        #expect(digest.description == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        #expect(BlobDigest(digest.description) == digest)
        #expect(digest.path == "objects/e3/\(digest)")
        #expect(BlobDigest(digest.description.uppercased()) == nil)
        #expect(BlobDigest(String(digest.description.dropLast())) == nil)
        #expect(BlobDigest(digest.description.dropLast() + "g") == nil)
        let sorted = Universe.digests.sorted()
        #expect(sorted.map(\.description) == sorted.map(\.description).sorted())
    }
}
