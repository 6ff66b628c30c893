import Foundation
import Testing
import TileStore
import TileStoreTesting

/// `import` and `export` of folders.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct TransferTests {
    private let scratch: Scratch
    private let cache: String

    init() throws {
        scratch = try Scratch()
        cache = scratch("cache")
    }

    private func load(_ arguments: String...) throws -> [String: Int] {
        let all = ["import", cache, scratch("in"), "--source", "s", "--json"] + arguments
        let outcome = try Child(all).wait()
        #expect(outcome.status == 0, "\(outcome.messages)")
        return try outcome.json().compactMapValues { $0 as? Int }
    }

    private func unload(_ name: String = "out", _ arguments: String...) throws -> [String: Data] {
        let all = ["export", cache, scratch(name), "--source", "s"] + arguments
        let outcome = try Child(all).wait()
        #expect(outcome.status == 0, "\(outcome.messages)")
        return try files(in: scratch(name))
    }

    private func keys() throws -> [String] {
        try tilegc("ls", cache, "--json").jsonLines().compactMap { $0["key"] as? String }
    }

    @Test func whatGoesInComesOut() throws {
        let pyramid = Pyramid(seed: 2, zooms: 0...5)
        try pyramid.write(to: scratch("in"))
        let report = try load()
        #expect(report["tiles"] == pyramid.tiles.count)
        #expect(report["newBlobs"] == pyramid.unique)
        #expect(report["bytes"] == pyramid.bytes)
        #expect(report["skipped"] == 0)
        let statistics = try tilegc("stats", cache, "--json").json()
        #expect(statistics["blobs"] as? Int == pyramid.unique)
        #expect(statistics["logicalBytes"] as? Int == pyramid.bytes)
        #expect(try unload() == pyramid.tiles)
        #expect(try tilegc("verify", cache).status == 0)

        let again = try load()
        #expect(again["tiles"] == pyramid.tiles.count)
        #expect(again["newBlobs"] == 0)
    }

    @Test func aSelectionIsExported() throws {
        let pyramid = Pyramid(seed: 3, zooms: 0...3)
        try pyramid.write(to: scratch("in"))
        _ = try load()
        #expect(try unload("a", "--zoom", "2").count == 16)
        #expect(Set(try unload("b", "--bbox", "-180,0.1,-0.1,85", "--zoom", "1").keys) == ["1/0/0.png"])
    }

    @Test func rowsFromTheSouthAreTurned() throws {
        try scratch.write(Pyramid.ocean, to: "in/2/1/0.png")
        _ = try load("--tms")
        #expect(try keys() == ["s/2/1/3"])
        #expect(Array(try unload("a", "--tms").keys) == ["2/1/0.png"])
        #expect(Array(try unload("b").keys) == ["2/1/3.png"])
    }

    @Test func scaleAndFormatBecomePartOfTheKey() throws {
        try scratch.write(Pyramid.ocean, to: "in/1/0/0.png")
        try scratch.write(Pyramid.ocean + Data([1]), to: "in/1/0/0@2x.png")
        try scratch.write(Data("RIFF0000WEBPVP8 ".utf8), to: "in/1/0/0.webp")
        let plain = try load()
        #expect(plain["tiles"] == 2)
        #expect(plain["skipped"] == 1)
        #expect(try keys() == ["s/1/0/0", "s/1/0/0@2x"])
        try succeed("rm", cache, "--all")
        #expect(try load("--with-format")["tiles"] == 3)
        #expect(try keys() == ["s/1/0/0.png", "s/1/0/0.webp", "s/1/0/0@2x.png"])
        #expect(try unload() == files(in: scratch("in")))
    }

    @Test func whatIsNoTileIsSkippedAndCounted() throws {
        try scratch.write(Pyramid.ocean, to: "in/1/0/0.png")
        try scratch.write(Data(), to: "in/1/0/1.png")
        try scratch.write(Data("<!DOCTYPE html><p>Access denied".utf8), to: "in/1/1/0.png")
        try scratch.write(Pyramid.ocean, to: "in/1/1/01.png")
        try scratch.write(Pyramid.ocean, to: "in/1/1/2.png")
        try scratch.write(Pyramid.ocean, to: "in/1/1/-1.png")
        try scratch.write(Pyramid.ocean, to: "in/1/2/0.png")
        try scratch.write(Pyramid.ocean, to: "in/29/0/0.png")
        try scratch.write(Data("{}".utf8), to: "in/metadata.json")
        let files = FileManager.default
        try files.createSymbolicLink(atPath: scratch("in/1/1/1.png"), withDestinationPath: scratch("in/1/0/0.png"))
        try files.createSymbolicLink(atPath: scratch("in/0"), withDestinationPath: scratch("in/1"))
        let outcome = try tilegc("import", cache, scratch("in"), "--source", "s", "--json")
        #expect(outcome.status == 0)
        #expect(try outcome.json()["tiles"] as? Int == 1)
        #expect(try outcome.json()["skipped"] as? Int == 9)
        #expect(outcome.messages.split(separator: "\n").count == 6)
        #expect(try keys() == ["s/1/0/0"])
    }

    /// It was passed over like something that is no tile, and the exit status was 0.
    @Test func aFileThatCouldNotBeReadWasLeftOutInSilence() throws {
        for y in 0..<3 { try scratch.write(Pyramid.ocean + Data([UInt8(y)]), to: "in/2/1/\(y).png") }
        #expect(try load()["tiles"] == 3)
        let held = try HeldFile(scratch("in/2/1/1.png"))
        let outcome = try tilegc("import", cache, scratch("in"), "--source", "s", "--json")
        #expect(outcome.status == 74)
        #expect(try outcome.json()["tiles"] as? Int == 2)
        #expect(try outcome.json()["failed"] as? Int == 1)
        #expect(try outcome.json()["skipped"] as? Int == 0)
        #expect(outcome.messages.contains("2/1/1.png: ") && outcome.messages.contains("1 file of "))
        let said = try tilegc("import", cache, scratch("in"), "--source", "s")
        #expect(said.status == 74 && said.text.contains("; 1 FAILED."))
        held.release()
        #expect(try load()["failed"] == 0)
    }

    /// Nothing can be read: no cache is made, and the folder is not said to be without tiles.
    @Test func aFolderOfFilesThatCannotBeReadWasCalledEmpty() throws {
        try scratch.write(Pyramid.ocean, to: "in/0/0/0.png")
        let held = try HeldFile(scratch("in/0/0/0.png"))
        let outcome = try tilegc("import", cache, scratch("in"), "--source", "s")
        #expect(outcome.status == 74)
        #expect(outcome.messages.contains("0/0/0.png: ") && outcome.messages.contains("1 file of "))
        #expect(!FileManager.default.fileExists(atPath: cache))
        held.release()
        #expect(try load()["tiles"] == 1)
    }

    @Test func aFolderWithoutTilesIsNoInput() throws {
        try scratch.write(Data("x".utf8), to: "in/readme.txt")
        for path in ["in", "absent", "in/readme.txt"] {
            let outcome = try tilegc("import", cache, scratch(path), "--source", "s")
            #expect(outcome.status == 66)
            #expect(outcome.messages.hasPrefix("tilegc: "))
        }
        #expect(!FileManager.default.fileExists(atPath: cache))
        try scratch.write(Data("x".utf8), to: "in/3/readme.txt")
        #expect(try tilegc("import", cache, scratch("in"), "--source", "s").status == 66)
    }

    @Test func mediaTypesComeFromTheBytes() throws {
        let samples: [(name: String, data: Data, type: String?, encoding: String?)] = [
            ("0.bin", Pyramid.ocean, "image/png", nil),
            ("1.png", Data([0xFF, 0xD8, 0xFF, 0xE0, 1]), "image/jpeg", nil),
            ("2", Data("RIFF0000WEBPVP8 ".utf8), "image/webp", nil),
            ("3.gif", Data("GIF89a1234".utf8), "image/gif", nil),
            ("4.avif", Data("0000ftypavif0000".utf8), "image/avif", nil),
            ("5.pbf", Data([0x1A, 2, 3]), "application/vnd.mapbox-vector-tile", nil),
            ("6.mvt", Data([0x1F, 0x8B, 8, 0]), "application/vnd.mapbox-vector-tile", "gzip"),
            ("7.json", Data("[1]".utf8), "application/json", nil),
            ("8.grid", Data(" {\"a\":1}".utf8), "application/json", nil),
            ("9.xyz", Data("something".utf8), nil, nil),
            ("10.pbf.gz", Data([0x1F, 0x8B, 8, 1]), "application/vnd.mapbox-vector-tile", "gzip"),
        ]
        for sample in samples { try scratch.write(sample.data, to: "in/4/0/\(sample.name)") }
        #expect(try load("--lifetime", "2h")["tiles"] == samples.count)
        for (row, sample) in samples.enumerated() {
            let shown = try tilegc("show", cache, "s/4/0/\(row)", "--json").json()
            #expect(shown["mediaType"] as? String == sample.type, "\(sample.name)")
            #expect(shown["contentEncoding"] as? String == sample.encoding, "\(sample.name)")
            #expect(shown["stale"] as? Bool == false)
        }
        #expect(
            Set(try unload().keys.map { $0.dropFirst(4) }) == [
                "0.png", "1.jpg", "2.webp", "3.gif", "4.avif", "5.pbf", "6.pbf", "7.json", "8.json", "9.bin", "10.pbf",
            ])
    }

    @Test func tilesThatTheLimitTakesAtOnceAreSaid() throws {
        let pyramid = Pyramid(seed: 4, zooms: 0...3)
        try pyramid.write(to: scratch("seed"))
        try pyramid.write(to: scratch("in"))
        try succeed("import", cache, scratch("seed"), "--source", "other")
        try succeed("limit", cache, "--entries", "20")
        let outcome = try tilegc("import", cache, scratch("in"), "--source", "s", "--json")
        #expect(outcome.status == 0)
        #expect(try outcome.json()["tiles"] as? Int == 85)
        #expect(outcome.messages.contains("tilegc limit"))
        #expect(try keys().count <= 20)
    }

    @Test func anExportLeavesEqualFilesAlone() throws {
        try scratch.write(Pyramid.ocean, to: "in/0/0/0.png")
        try scratch.write(Pyramid.magic, to: "in/1/0/0.png")
        _ = try load()
        _ = try unload()
        try scratch.write(Data("other".utf8), to: "out/1/0/0.png")
        let old = Date(timeIntervalSince1970: 1_000_000)
        try FileManager.default.setAttributes([.modificationDate: old], ofItemAtPath: scratch("out/0/0/0.png"))
        #expect(try unload() == files(in: scratch("in")))
        let attributes = try FileManager.default.attributesOfItem(atPath: scratch("out/0/0/0.png"))
        #expect(attributes[.modificationDate] as? Date == old)
    }

    @Test func nothingIsWrittenThroughLinks() throws {
        try scratch.write(Pyramid.ocean, to: "in/1/0/0.png")
        _ = try load()
        let files = FileManager.default
        try scratch.write(Data("precious".utf8), to: "elsewhere/0.png")
        for (link, target) in [("a/1/0", "elsewhere"), ("b/1/0/0.png", "elsewhere/0.png"), ("c/1", "elsewhere")] {
            let path = scratch(link)
            try files.createDirectory(
                atPath: URL(fileURLWithPath: path).deletingLastPathComponent().path, withIntermediateDirectories: true)
            try files.createSymbolicLink(atPath: path, withDestinationPath: scratch(target))
            let outcome = try tilegc("export", cache, scratch(String(link.prefix(1))), "--source", "s")
            #expect(outcome.status == 74)
            #expect(outcome.messages.contains("link"))
        }
        #expect(try tilegcTests.files(in: scratch("elsewhere")) == ["0.png": Data("precious".utf8)])
    }

    @Test func whatHasNoBytesOrIsNoTileIsSkipped() throws {
        try Sample.make(at: cache)
        let tiles = try tilegc("export", cache, scratch("a"), "--source", "osm", "--json").json()
        #expect(tiles["tiles"] as? Int == 16)
        #expect(tiles["skipped"] as? Int == 1)
        let styles = try tilegc("export", cache, scratch("b"), "--source", "styles", "--json").json()
        #expect(styles["tiles"] as? Int == 0)
        #expect(styles["skipped"] as? Int == 1)
    }

    /// By `gzip` at level 9 and 0: one block of each kind that DEFLATE has.
    private static let compressed: [(base64: String, plain: String)] = [
        ("H4sIAAAAAAACA+sM8HPn5ZLiKsnMSVUYJUaJUWKUGCWGFQEAQIsEf+QFAAA=", String(repeating: "tile ", count: 300)),
        (
            "H4sIAAAAAAACA+2Qy23FIBBF909KA1mdEh4zMEAF2UVpK13nQA/ZWbKQbe7/9+f76+P1+XrT6GxaEYMs+qY6q5FEp0"
                + "9mEGSjgi0imXKCkWzRchXwvTPeLGoQk7UYnQiWakoNWmMVJWORQRPJTtZgbqZn3ud++tOrOiChEqRJbldIOUWV1kAb"
                + "zbRcx9wIJ0i7oeoENKZhjWzwuiXi1LGU1fKUtKqF85Z3gu0WjWeTZ5Nnk3/Z5A+gyiSwdwQAAA==",
            (0..<400).map { "\($0 * $0 % 97) " }.joined()
        ),
        ("H4sIAAAAAAAEAwEOAPH/iVBORw0KGgpzdG9yZWS9HW8dDgAAAA==", "stored"),
    ]

    @Test func picturesAreExportedUncompressed() throws {
        let store = try TileStore(at: cache)
        let response = ResponseFields(mediaType: "image/png", contentEncoding: "gzip")
        for (x, sample) in Self.compressed.enumerated() {
            let data = try #require(Data(base64Encoded: sample.base64))
            try store.put(data, for: TileKey("s/2/\(x)/0"), metadata: Sample.metadata(response))
            // Cut short: a broken one is never written.
            try store.put(data.dropLast(3), for: TileKey("s/2/\(x)/1"), metadata: Sample.metadata(response))
        }
        try store.close()
        let outcome = try tilegc("export", cache, scratch("out"), "--source", "s", "--json")
        #expect(outcome.status == 1)
        #expect(try outcome.json()["failed"] as? Int == 3)
        let found = try files(in: scratch("out"))
        #expect(found.count == 3)
        for (x, sample) in Self.compressed.enumerated() {
            #expect(found["2/\(x)/0.png"] == Pyramid.magic + Data(sample.plain.utf8))
        }
    }

    @Test func anExportDoesNotChangeWhatIsEvictedNext() throws {
        try Pyramid(seed: 5, zooms: 0...2).write(to: scratch("in"))
        _ = try load()
        let before = try tilegc("ls", cache, "--json").text
        _ = try unload()
        #expect(try tilegc("ls", cache, "--json").text == before)
    }
}
