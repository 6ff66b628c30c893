import Foundation
import Testing
import TileArchive
import TileStore
import TileStoreTesting

@testable import tilegc

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What `import` and `export` refuse, how they end, and what they say.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct PackageTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private func exists(_ name: String) -> Bool { FileManager.default.fileExists(atPath: scratch(name)) }

    /// A PMTiles file of one tile, with whatever is said in its metadata.
    private func package(_ name: String, metadata: String = "{}", tiles: [PMTilesEntry]? = nil) throws {
        let root = PMTilesDirectory.encode(tiles ?? [PMTilesEntry(tile: 0, offset: 0, length: 8, run: 1)])
        var header = PMTilesHeader()
        header.internalCompression = .none
        var at = UInt64(PMTilesHeader.length)
        func place(_ section: Data) -> PMTilesHeader.Section {
            defer { at += UInt64(section.count) }
            return .init(offset: at, length: UInt64(section.count))
        }
        header.root = place(root)
        header.metadata = place(Data(metadata.utf8))
        header.data = place(Pyramid.magic)
        try scratch.write(header.bytes + root + Data(metadata.utf8) + Pyramid.magic, to: name)
    }

    private func fails(_ status: Int32, _ words: String, _ arguments: String...) throws {
        let outcome = try Child(arguments).wait()
        #expect(outcome.status == status, "\(arguments): \(outcome.messages)")
        #expect(outcome.messages.contains(words), "\(outcome.messages)")
    }

    @Test func aRegionThatCannotBePinnedIsSaidBeforeTheImport() throws {
        try package("a.pmtiles", metadata: #"{"tilecache:regions":[{"name":"a b","spans":[[3,0,1,2,3]]}]}"#)
        try fails(66, "a b", "import", scratch("cache"), scratch("a.pmtiles"), "--source", "s", "--pin")
        #expect(!exists("cache"))
        try succeed("import", scratch("cache"), scratch("a.pmtiles"), "--source", "s")
    }

    @Test func anImportOfNothingLeavesNoCache() throws {
        try package("a.pmtiles", tiles: [PMTilesEntry(tile: TileID.end, offset: 0, length: 8, run: 1)])
        try fails(66, "its zoom is above 28", "import", scratch("cache"), scratch("a.pmtiles"), "--source", "s")
        try scratch.write(Data(), to: "in/3/0/0.png")
        try fails(66, "it is empty", "import", scratch("cache"), scratch("in"), "--source", "s")
        #expect(!exists("cache"))
        // A cache that is there stays.
        try Sample.make(at: scratch("cache"))
        try fails(66, "holds no tiles", "import", scratch("cache"), scratch("in"), "--source", "s")
        #expect(exists("cache/tilecache.json"))
    }

    @Test(arguments: ["", "/objects", "/manifest/checkpoint-0.json", "/new/folder", "/new/map.mbtiles", "/map.pmtiles"])
    func anExportIntoACacheIsRefused(_ place: String) throws {
        try Sample.make(at: scratch("cache"))
        try Sample.make(at: scratch("other"))
        let link = scratch("link")
        #expect(symlink(scratch("cache"), link) == 0)
        let before = try files(in: scratch("cache"))
        for (source, target) in [("cache", scratch("cache")), ("cache", link), ("other", scratch("cache") + "/")] {
            var arguments = ["export", scratch(source), target + place, "--source", "osm"]
            if place.hasSuffix(".json") { arguments += ["--format", "pmtiles"] }
            let outcome = try Child(arguments).wait()
            #expect(outcome.status == 64, "\(arguments)")
            #expect(outcome.messages.contains("lies in the tile cache"), "\(outcome.messages)")
        }
        #expect(try files(in: scratch("cache")) == before)
        #expect(try tilegc("verify", scratch("cache")).status == 0)
        // Beside it is the usual place.
        try succeed("export", scratch("cache"), scratch("out"), "--source", "osm")
    }

    @Test func tilesThatAnotherProcessRemovedAreNotBlamedOnTheLimits() throws {
        for x in 0..<100 {
            for y in 0..<100 { try scratch.write(Pyramid.magic + Data("\(x) \(y)".utf8), to: "in/8/\(x)/\(y).png") }
        }
        let child = try Child(["import", scratch("cache"), scratch("in"), "--source", "s"])
        while !child.hasEnded(within: 1) {
            // Before the import has made the cache there is nothing to remove it from.
            _ = try tilegc("rm", scratch("cache"), "--source", "s", "--zoom", "8")
        }
        let outcome = try child.wait()
        #expect(outcome.status == 0, "\(outcome.messages)")
        #expect(!outcome.messages.contains("limited to"), "\(outcome.messages)")
    }

    @Test func moreTilesThanAllowedAreRefused() throws {
        try package("a.pmtiles", tiles: [PMTilesEntry(tile: 1, offset: 0, length: 8, run: 5)])
        try fails(
            64, "--max-tiles", "import", scratch("cache"), scratch("a.pmtiles"), "--source", "s", "--max-tiles", "4")
        #expect(!exists("cache"))
        try succeed("import", scratch("cache"), scratch("a.pmtiles"), "--source", "s", "--max-tiles", "5")
        try fails(
            64, "--max-tiles", "import", scratch("cache"), scratch("a.pmtiles"), "--source", "s", "--max-tiles", "4")
    }

    @Test func anExportOfNothingIsAShortfall() throws {
        try Sample.make(at: scratch("cache"))
        for name in ["a.mbtiles", "a.pmtiles", "a"] {
            try fails(
                1, "no entry is selected", "export", scratch("cache"), scratch(name), "--source", "osm", "--zoom", "9")
            try fails(1, "no tile could be exported", "export", scratch("cache"), scratch(name), "--source", "styles")
            try fails(66, "no source osn; it has osm, ", "export", scratch("cache"), scratch(name), "--source", "osn")
            #expect(!exists(name))
        }
    }

    @Test func aNameThatLooksLikeAPictureIsNoFolder() throws {
        try Sample.make(at: scratch("cache"))
        for name in ["out.png", "out.zip", "tiles.MBTile"] {
            try fails(64, "looks like a file", "export", scratch("cache"), scratch(name), "--source", "osm")
            #expect(!exists(name))
        }
        try succeed("export", scratch("cache"), scratch("v1.2"), "--source", "osm")
        try succeed("export", scratch("cache"), scratch("out.png"), "--source", "osm", "--format", "folder")
    }

    @Test func aPackageInThePlaceOfACacheIsNamed() throws {
        try Sample.make(at: scratch("cache"))
        for name in ["a.mbtiles", "a.pmtiles"] {
            try succeed("export", scratch("cache"), scratch(name), "--source", "osm")
            for command in ["compact", "stats", "gc"] { try fails(66, "tilegc import CACHE", command, scratch(name)) }
        }
        try scratch.write(Data("text".utf8), to: "file")
        try fails(66, "is a file", "verify", scratch("file"))
        try fails(66, "is a file", "import", scratch("file"), scratch("a.pmtiles"), "--source", "s")
    }

    @Test func emptyPathsAreNamed() throws {
        try Sample.make(at: scratch("cache"))
        try fails(64, "is empty", "import", scratch("cache"), "", "--source", "s")
        try fails(64, "is empty", "export", scratch("cache"), "", "--source", "osm")
        try fails(64, "is empty", "export", "", scratch("a.pmtiles"), "--source", "osm")
    }

    @Test func aFolderForTemporaryFilesThatIsNotThereIsNamed() throws {
        try Sample.make(at: scratch("cache"))
        let child = try Child(
            [
                "TMPDIR=" + scratch("absent"), Child.tilegc, "export", scratch("cache"), scratch("a.pmtiles"),
                "--source", "osm",
            ],
            of: "env")
        let outcome = try child.wait()
        #expect(outcome.status == 74 && outcome.messages.contains("set TMPDIR"), "\(outcome.messages)")
        // An empty one is none.
        let other = try Child(
            ["TMPDIR=", Child.tilegc, "export", scratch("cache"), scratch("a.pmtiles"), "--source", "osm"], of: "env")
        #expect(try other.wait().status == 0)
    }

    #if os(Linux)
    @Test func aFolderThatCannotBeWrittenIsNamed() throws {
        try Sample.make(at: scratch("cache"))
        for name in ["a.mbtiles", "a.pmtiles", "a"] {
            let outcome = try tilegc("export", scratch("cache"), "/proc/self/\(name)", "--source", "osm")
            #expect(outcome.status != 0 && outcome.messages.contains("/proc/self"), "\(outcome.messages)")
            #expect(!outcome.messages.contains("journal"), "\(outcome.messages)")
        }
    }
    #endif

    /// SQLite files without their zeros: offsets and bytes.
    private func database(_ count: Int, _ parts: [(offset: Int, base64: String)]) throws -> Data {
        var data = Data(count: count)
        for part in parts {
            let bytes = try #require(Data(base64Encoded: part.base64))
            data.replaceSubrange(part.offset..<(part.offset + bytes.count), with: bytes)
        }
        return data
    }

    /// `CREATE TABLE`, with a name that clears the screen and turns the direction of writing.
    private static let oddTable: [(offset: Int, base64: String)] = [
        (0, "U1FMaXRlIGZvcm1hdCAzAAIAAQEAQCAgAAAAAQAAAAIAAAAAAAAAAAAAAAEAAAAEAAAAAAAAAAAAAAAB"),
        (95, "AQAuYwENAAAAAQHEAAHE"),
        (452, "OgEGFx8fAUV0YWJsZWEbWzJKYuKArmEbWzJKYuKArgJDUkVBVEUgVEFCTEUgImEbWzJKYuKAriIgKHgpDQAAAAAC"),
    ]

    @Test func namesInAFileDoNotDriveTheTerminal() throws {
        try scratch.write(database(1024, Self.oddTable), to: "t.mbtiles")
        let outcome = try tilegc("import", scratch("cache"), scratch("t.mbtiles"), "--source", "s")
        #expect(outcome.status == 66 && outcome.messages.contains("u{1b}[2jb"), "\(outcome.messages)")
        #expect(!outcome.messages.contains("\u{1B}") && !outcome.messages.contains("\u{202E}"))
    }

    /// A view `tiles` that counts for ever and gives no row.
    private static let endlessView: [(offset: Int, base64: String)] = [
        (0, "U1FMaXRlIGZvcm1hdCAzAAIAAQEAQCAgAAAAAQAAAAEAAAAAAAAAAAAAAAEAAAAEAAAAAAAAAAAAAAAB"),
        (95, "AQAuYwENAAAAAQE9AAE9"),
        (
            317,
            "gUABBxUXFwiCY3ZpZXd0aWxlc3RpbGVzQ1JFQVRFIFZJRVcgdGlsZXMgYXMgd2l0aCByZWN1cnNpdmUgYyhuKSBhcy"
                + "Aoc2VsZWN0IDEgdW5pb24gYWxsIHNlbGVjdCBuKzEgZnJvbSBjKSBzZWxlY3QgMSBhcyB6b29tX2xldmVsLCAwIGFz"
                + "IHRpbGVfY29sdW1uLCAwIGFzIHRpbGVfcm93LCAxIGFzIHRpbGVfZGF0YSBmcm9tIGMgd2hlcmUgbjww"
        ),
    ]

    @Test func anImportWithoutEndStopsAtTheFirstSignal() throws {
        try scratch.write(database(512, Self.endlessView), to: "t.mbtiles")
        for cache in ["new", "old"] {
            if cache == "old" { try Sample.make(at: scratch(cache)) }
            let child = try Child(["import", scratch(cache), scratch("t.mbtiles"), "--source", "s"])
            // From then on it watches for signals.
            while !child.said.contains("metadata"), !child.hasEnded(within: 1) {}
            child.send(SIGTERM)
            let outcome = try child.wait()
            #expect(outcome.status == 130, "\(outcome)")
        }
        #expect(!exists("new"))
    }

    @Test func placesOutOfRangeAreSaidToBe() throws {
        try Sample.make(at: scratch("cache"))
        try fails(64, "at zoom 2 the row must be in 0..<4", "show", scratch("cache"), "osm/2/1/9")
        try fails(64, "at zoom 2 the column must be in 0..<4", "show", scratch("cache"), "osm/2/4/0")
        try fails(64, "the zoom must be in 0...28", "show", scratch("cache"), "osm/29/4/0")
        try fails(64, "without signs and leading zeros", "show", scratch("cache"), "osm/2/01/0")
        try fails(64, ".ext of 1 to 12", "show", scratch("cache"), "osm/2/1/0@9x")
    }

    // MARK: The line that shows progress

    @Test func progressKeepsToOneLine() {
        for width in [20, 40, 79, 80, 200] {
            for isDumb in [false, true] {
                let screen = Progress.Screen(width: width, isDumb: isDumb)
                let words = "tiles, 1.0 MB, at 14/8000/5000" + String(repeating: " ü", count: 30)
                let lines = [screen.bar(1234, of: 87_381, words), screen.line(words)]
                for line in lines {
                    #expect(line.count < width)
                    #expect(!isDumb || line.allSatisfy(\.isASCII))
                }
                #expect(isDumb ? !screen.clearing.contains("\u{1B}") : screen.clearing == "\r\u{1B}[K")
                #expect(screen.clearing.count <= width + 2)
            }
        }
        #expect(
            Progress.Screen(width: 80, isDumb: true).bar(5, of: 10, "x").hasPrefix("###############..............."))
    }
}
