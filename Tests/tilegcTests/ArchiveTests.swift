import Foundation
import Testing
import TileStore
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `import` and `export` of MBTiles and PMTiles files.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct ArchiveTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    /// What an import notes about a source has the rights of the cache, not those of the mask.
    @Test(arguments: [0o700, 0o750, 0o770, 0o755] as [mode_t])
    func whatArchivesSayOfASourceHadOtherRightsThanTheCache(_ mode: mode_t) throws {
        try Pyramid(seed: 12, zooms: 0...1).write(to: scratch("in"))
        try succeed("import", scratch("a"), scratch("in"), "--source", "s")
        try succeed("export", scratch("a"), scratch("x.pmtiles"), "--source", "s")
        let cache = scratch("cache")
        #expect(mkdir(cache, 0o700) == 0 && chmod(cache, mode) == 0)
        let command = ["import", cache, scratch("x.pmtiles"), "--source", "s"]
        let outcome = try Child(["-c", "umask 022; exec \"$0\" \"$@\"", Child.tilegc] + command, of: "/bin/sh").wait()
        #expect(outcome.status == 0, "\(outcome.messages)")
        func rights(_ path: String) throws -> mode_t {
            var status = stat()
            try #require(stat(cache + path, &status) == 0)
            return status.st_mode & 0o777
        }
        #expect(try rights("/sources") == rights("/objects"))
        #expect(try rights("/sources") == mode)
        #expect(try rights("/sources/s.json") == mode & 0o664)
    }

    /// A description that cannot be written takes nothing of the report.
    @Test func anImportWhoseDescriptionCannotBeWrittenReportsItsTiles() throws {
        let pyramid = Pyramid(seed: 12, zooms: 0...1)
        try pyramid.write(to: scratch("in"))
        try succeed("import", scratch("a"), scratch("in"), "--source", "s")
        try succeed("export", scratch("a"), scratch("x.pmtiles"), "--source", "s")
        try succeed("import", scratch("cache"), scratch("in"), "--source", "other")
        try FileManager.default.createSymbolicLink(atPath: scratch("cache/sources"), withDestinationPath: scratch("in"))
        let outcome = try tilegc("import", scratch("cache"), scratch("x.pmtiles"), "--source", "s", "--json")
        #expect(outcome.status == 74 && outcome.messages.contains("sources"))
        #expect(try outcome.json()["tiles"] as? Int == pyramid.tiles.count)
    }

    @Test(arguments: ["tiles.mbtiles", "tiles.pmtiles", "TILES.MBTiles"])
    func whatGoesIntoAPackageComesOut(_ name: String) throws {
        let pyramid = Pyramid(seed: 12, zooms: 0...4)
        try pyramid.write(to: scratch("in"))
        try succeed("import", scratch("a"), scratch("in"), "--source", "s")
        let exported = try succeed("export", scratch("a"), scratch(name), "--source", "s", "--json").json()
        #expect(exported["tiles"] as? Int == pyramid.tiles.count)
        #expect(exported["bytes"] as? Int == pyramid.bytes)
        #expect(exported["skipped"] as? Int == 0)
        let imported = try succeed("import", scratch("b"), scratch(name), "--source", "t", "--json").json()
        #expect(imported["tiles"] as? Int == pyramid.tiles.count)
        #expect(imported["newBlobs"] as? Int == pyramid.unique)
        #expect(imported["bytes"] as? Int == pyramid.bytes)
        #expect(imported["skipped"] as? Int == 0)
        let statistics = try succeed("stats", scratch("b"), "--json").json()
        #expect(statistics["entries"] as? Int == pyramid.tiles.count)
        #expect(statistics["blobs"] as? Int == pyramid.unique)
        try succeed("verify", scratch("b"))
        try succeed("export", scratch("b"), scratch("out"), "--source", "t")
        #expect(try files(in: scratch("out")) == pyramid.tiles)
    }

    @Test func theFormatCanBeNamed() throws {
        try scratch.write(Pyramid.ocean, to: "in/1/0/0.png")
        try succeed("import", scratch("a"), scratch("in"), "--source", "s")
        try succeed("export", scratch("a"), scratch("odd.bin"), "--source", "s", "--format", "pmtiles")
        #expect(try Data(contentsOf: URL(fileURLWithPath: scratch("odd.bin"))).starts(with: Data("PMTiles".utf8)))
        try succeed("import", scratch("b"), scratch("odd.bin"), "--source", "s", "--format", "PMTiles")
        try succeed("export", scratch("a"), scratch("x.mbtiles"), "--source", "s", "--format", "folder")
        #expect(try files(in: scratch("x.mbtiles")) == ["1/0/0.png": Pyramid.ocean])
    }

    @Test func aRegionIsExportedAndPinnedAgain() throws {
        try Sample.make(at: scratch("a"))
        for name in ["r.mbtiles", "r.pmtiles"] {
            let report = try succeed("export", scratch("a"), scratch(name), "--region", "corner", "--json").json()
            #expect(report["tiles"] as? Int == 1)
            let cache = scratch("cache-" + name)
            try succeed("import", cache, scratch(name), "--source", "osm")
            #expect(try TileStore(at: cache).regions().isEmpty)
            try succeed("import", cache, scratch(name), "--source", "osm", "--pin")
            #expect(try TileStore(at: cache).regions() == TileStore(at: scratch("a")).regions())
            #expect(try tilegc("ls", cache, "--json").jsonLines().map { $0["pinned"] as? Bool } == [true])
            // A name that another source has is left alone.
            let other = try succeed("import", cache, scratch(name), "--source", "x", "--pin")
            #expect(other.messages.contains("corner is not pinned"))
        }
        #expect(try tilegc("export", scratch("a"), scratch("n.pmtiles"), "--region", "nowhere").status == 66)
        let wrong = try tilegc("export", scratch("a"), scratch("n.pmtiles"), "--region", "corner", "--source", "x")
        #expect(wrong.status == 64)
        #expect(!FileManager.default.fileExists(atPath: scratch("n.pmtiles")))
    }

    @Test func nameAndAttributionComeAlong() throws {
        try scratch.write(Pyramid.ocean, to: "in/1/0/0.png")
        try succeed("import", scratch("a"), scratch("in"), "--source", "s")
        try succeed(
            "export", scratch("a"), scratch("1.mbtiles"), "--source", "s", "--name", "Sea", "--attribution", "© Me")
        try succeed("import", scratch("b"), scratch("1.mbtiles"), "--source", "s")
        try succeed("export", scratch("b"), scratch("2.pmtiles"), "--source", "s")
        try succeed("import", scratch("c"), scratch("2.pmtiles"), "--source", "s")
        let kept = try Data(contentsOf: URL(fileURLWithPath: scratch("c/sources/s.json")))
        let object = try #require(try JSONSerialization.jsonObject(with: kept) as? [String: Any])
        #expect(object["name"] as? String == "Sea")
        #expect(object["attribution"] as? String == "© Me")
        #expect(try tilegc("verify", scratch("c")).status == 0)
    }

    @Test func unreadableArchivesAreRefused() throws {
        try scratch.write(Data("no archive".utf8), to: "a.mbtiles")
        try scratch.write(Data("no archive".utf8), to: "a.pmtiles")
        try scratch.write(Data("PMTiles\u{4}".utf8) + Data(count: 119), to: "future.pmtiles")
        try scratch.write(Data("PMTiles\u{3}".utf8), to: "cut.pmtiles")
        let rows: [(String, Int32)] = [
            ("a.mbtiles", 66), ("a.pmtiles", 66), ("absent.pmtiles", 66), ("absent.mbtiles", 66),
            ("future.pmtiles", 66),
            ("cut.pmtiles", 74),
        ]
        for (name, status) in rows {
            let outcome = try tilegc("import", scratch("cache"), scratch(name), "--source", "s")
            #expect(outcome.status == status, "\(name)")
            #expect(outcome.messages.hasPrefix("tilegc: ") && outcome.messages.contains(name))
            #expect(outcome.messages.split(separator: "\n").count == 1)
        }
        #expect(!FileManager.default.fileExists(atPath: scratch("cache")))
    }

    @Test(arguments: ["x.mbtiles", "x.pmtiles"])
    func anInterruptedExportLeavesTheOldFile(_ name: String) throws {
        try Pyramid(seed: 6, zooms: 0...6, sizes: 40...3000).write(to: scratch("in"))
        try succeed("import", scratch("a"), scratch("in"), "--source", "s")
        try scratch.write(Data("old".utf8), to: name)
        for signal in [SIGINT, SIGKILL] {
            let child = try Child(["export", scratch("a"), scratch(name), "--source", "s"])
            func isWriting() throws -> Bool {
                try FileManager.default.contentsOfDirectory(atPath: scratch.path).contains { $0.hasPrefix(".tilegc-") }
            }
            while try !isWriting(), !child.hasEnded(within: 1) {}
            child.send(signal)
            let outcome = try child.wait()
            guard outcome.status != 0 else { continue }  // It was faster than the signal.
            #expect(try Data(contentsOf: URL(fileURLWithPath: scratch(name))) == Data("old".utf8))
            if signal == SIGINT {
                #expect(outcome.status == 130 && outcome.messages.contains("was not written"))
                #expect(try !isWriting())
            }
        }
        try succeed("export", scratch("a"), scratch(name), "--source", "s")
        try succeed("import", scratch("b"), scratch(name), "--source", "s")
    }
}
