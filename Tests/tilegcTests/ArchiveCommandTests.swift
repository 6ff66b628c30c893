import Foundation
import Testing
import TileStoreTesting

/// `info` and `verify` of archives and sets, as processes.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct ArchiveCommandTests {
    private let scratch: Scratch
    private let pyramid = Pyramid(seed: 3, zooms: 0...4)

    init() throws {
        scratch = try Scratch()
        try pyramid.write(to: scratch("folder"))
        try succeed("import", scratch("cache"), scratch("folder"), "--source", "map")
        for name in ["x.pmtiles", "x.mbtiles"] {
            try succeed("export", scratch("cache"), scratch(name), "--source", "map", "--name", "A map")
        }
        try succeed("publish", scratch("cache"), scratch("set"), "--source", "map")
    }

    private static let names = ["folder", "x.pmtiles", "x.mbtiles", "set", "set/set.json"]

    @Test(arguments: names)
    func anArchiveIsDescribedAndSound(name: String) throws {
        let said = try succeed("info", scratch(name), "--json").json()
        #expect(said["tiles"] as? Int == pyramid.tiles.count)
        #expect(
            said["format"] as? String
                == ["folder", "pmtiles", "mbtiles", "set", "set"][Self.names.firstIndex(of: name)!])
        if name.hasPrefix("x.") { #expect(said["name"] as? String == "A map" && said["zooms"] as? [Int] == [0, 4]) }
        if name.hasPrefix("set") { #expect((said["versions"] as? [Any])?.count == 1) }
        #expect(try succeed("info", scratch(name)).text.contains("tiles"))
        let found = try succeed("verify", scratch(name), "--json").json()
        #expect(found["ok"] as? Bool == true && found["damaged"] as? Int == 0)
        #expect(found["tiles"] as? Int == pyramid.tiles.count)
        #expect(try tilegc("verify", scratch(name), "--repair").status == 64)
    }

    @Test func cachesAndNothingAreSaidToBeThat() throws {
        #expect(try tilegc("info", scratch("cache")).status == 64)
        #expect(try tilegc("info", scratch("nothing")).status == 66)
        #expect(try tilegc("verify", scratch("nothing")).status == 66)
        #expect(try tilegc("verify", scratch("cache")).status == 0)
        try FileManager.default.createDirectory(atPath: scratch("empty"), withIntermediateDirectories: true)
        #expect(try tilegc("info", scratch("empty")).status == 66)
        #expect(try tilegc("verify", scratch("empty")).status == 66)
    }

    @Test(arguments: names)
    func anArchiveIsConvertedAndNothingIsOverwritten(name: String) throws {
        for to in ["y.pmtiles", "y.mbtiles", "y"] {
            let report = try succeed("convert", scratch(name), scratch(to), "--set", "name=Mine", "--json").json()
            #expect(report["tiles"] as? Int == pyramid.tiles.count && report["skipped"] as? Int == 0)
            #expect(try succeed("info", scratch(to), "--json").json()["name"] as? String == "Mine")
            let difference = try succeed("diff", scratch(name), scratch(to), "--json").json()
            #expect(difference["same"] as? Int == pyramid.tiles.count && difference["added"] as? Int == 0)
            #expect(try tilegc("convert", scratch(name), scratch(to)).status == 64)
            try succeed("convert", scratch(name), scratch(to), "--force", "--set", "name=")
        }
        #expect(try tilegc("convert", scratch(name), scratch(name), "--force").status == 64)
        #expect(try tilegc("convert", scratch(name), scratch("z.pmtiles"), "--set", "minzoom=3").status == 64)
        #expect(try tilegc("convert", scratch(name), scratch("cache/z.pmtiles")).status == 64)
        #expect(try tilegc("convert", scratch("cache"), scratch("z.pmtiles")).status == 64)
        #expect(try tilegc("convert", scratch("nothing.pmtiles"), scratch("z.pmtiles")).status == 66)
        #expect(!FileManager.default.fileExists(atPath: scratch("z.pmtiles")))
    }

    private func change(_ name: String, _ change: (inout Data) -> Void) throws {
        var data = try Data(contentsOf: URL(fileURLWithPath: scratch(name)))
        change(&data)
        try FileManager.default.removeItem(atPath: scratch(name))
        try scratch.write(data, to: name)
    }

    private func expectDamage(_ name: String, _ note: String) throws {
        let outcome = try tilegc("verify", scratch(name), "--json")
        #expect(outcome.status == 1, "\(note): \(outcome.messages)")
        guard outcome.messages.isEmpty else { return }
        #expect(try outcome.json()["ok"] as? Bool == false, "\(note)")
        #expect(try outcome.json()["damaged"] as? Int ?? 0 > 0, "\(note)")
    }

    /// A file of some bytes that claimed billions of tiles was counted and checked for days.
    @Test func archivesWithoutEndAreRefused() throws {
        // As a program that does not say how many tiles there are.
        try change("x.pmtiles") { $0.replaceSubrange(72..<80, with: Data(count: 8)) }
        #expect(try succeed("info", scratch("x.pmtiles"), "--json").json()["tiles"] as? Int == pyramid.tiles.count)
        #expect(try tilegc("info", scratch("x.pmtiles"), "--max-tiles", "3").messages.contains("--max-tiles"))
        for name in Self.names {
            let outcome = try tilegc("verify", scratch(name), "--max-tiles", "3")
            #expect(
                outcome.status != 0 && outcome.messages.contains("has more than 3 tiles"),
                "\(name): \(outcome.messages)")
        }
        #expect(try tilegc("info", scratch("folder"), "--max-tiles", "3").messages.contains("--max-tiles"))
    }

    /// Tiles lay between a set's own files afterwards.
    @Test func nothingIsConvertedIntoAPublishedSet() throws {
        let before = try FileManager.default.subpathsOfDirectory(atPath: scratch("set")).sorted()
        for to in ["set", "set/objects", "set/objects/x.pmtiles", "set/staging/y", "set/objects/ab/z.mbtiles"] {
            let outcome = try tilegc("convert", scratch("set/set.json"), scratch(to), "--force")
            #expect(outcome.status == 64 && outcome.messages.contains("published set"), "\(to): \(outcome.messages)")
        }
        #expect(try FileManager.default.subpathsOfDirectory(atPath: scratch("set")).sorted() == before)
        try succeed("convert", scratch("set"), scratch("set/beside.pmtiles"))
    }

    /// Going back to a former version gave its tiles another lifetime where they were pulled to.
    @Test func aSetThatIsPublishedAnewKeepsItsLifetime() throws {
        func lifetime() throws -> Int? { try succeed("info", scratch("set"), "--json").json()["lifetime"] as? Int }
        try succeed("publish", scratch("cache"), scratch("set"), "--source", "map", "--lifetime", "30d")
        try succeed("publish", scratch("set/set.json"), scratch("set"), "--source", "map")
        #expect(try lifetime() == 2_592_000)
        try succeed("publish", scratch("set"), scratch("set"), "--source", "map", "--lifetime", "1h")
        #expect(try lifetime() == 3600)
        try succeed("publish", scratch("x.pmtiles"), scratch("set"), "--source", "map")
        #expect(try lifetime() == nil)
    }

    /// What '--tms' had written could not be read again but upside down.
    @Test func foldersWithRowsFromTheSouthAreReadByATemplate() throws {
        try succeed("convert", scratch("x.mbtiles"), scratch("south"), "--tms")
        let template = scratch("south/{z}/{x}/{-y}.png")
        for (name, others) in [("back.mbtiles", "x.mbtiles"), ("back.pmtiles", "x.pmtiles")] {
            try succeed("convert", template, scratch(name))
            let difference = try succeed("diff", scratch(name), scratch(others), "--json").json()
            #expect(difference["same"] as? Int == pyramid.tiles.count && difference["added"] as? Int == 0)
        }
        #expect(try succeed("info", scratch("back.mbtiles"), "--json").json()["name"] as? String == "A map")
        #expect(
            try succeed("diff", template, scratch("folder"), "--json").json()["same"] as? Int == pyramid.tiles.count)
        try succeed("verify", template)
        #expect(try tilegc("convert", template, scratch("south"), "--force").status == 64)
        #expect(try tilegc("convert", scratch("nothing/{z}/{x}/{y}.png"), scratch("y")).status == 66)
    }

    /// The list took the place of the archive.
    @Test func theListOfADifferenceDoesNotReplaceWhatIsCompared() throws {
        for name in ["x.mbtiles", "x.pmtiles"] {
            let outcome = try tilegc("diff", scratch("x.mbtiles"), scratch("x.pmtiles"), "--write-list", scratch(name))
            #expect(outcome.status == 64 && outcome.messages.contains("name another file"))
        }
        #expect(try tilegc("verify", scratch("x.mbtiles")).status == 0)
    }

    @Test func aSetIsPulledByItsDocumentToo() throws {
        try succeed("pull", scratch("set/set.json"), scratch("laptop"), "--source", "map")
        let outcome = try tilegc("pull", scratch("set/set.json@12345678"), scratch("laptop"), "--source", "map")
        #expect(outcome.status == 64 && outcome.messages.contains("the latest version is pulled"))
    }

    @Test func whatAnArchiveDoesNotKeepCannotBeSaid() throws {
        for name in ["scheme", "compression", "filesize"] {
            #expect(
                try tilegc("convert", scratch("x.pmtiles"), scratch("y.mbtiles"), "--set", "\(name)=1").status == 64)
        }
    }

    @Test func damageOfArchivesIsFound() throws {
        try change("folder/2/1/1.png") { $0 = Data("<html><body>Bad gateway</body></html>".utf8) }
        try expectDamage("folder", "a page in a folder")
        // The last bytes of a PMTiles file are a tile's.
        try change("x.pmtiles") { $0.removeLast(3) }
        try expectDamage("x.pmtiles", "a PMTiles file that is cut short")
        try change("x.mbtiles") { data in
            for i in data.count / 2..<data.count / 2 + 9000 { data[i] = 0xA5 }
        }
        try expectDamage("x.mbtiles", "an MBTiles file with a hole")
    }

    @Test func damageOfSetsIsFoundInAllVersions() throws {
        let files = try #require(FileManager.default.enumerator(atPath: scratch("set"))).compactMap { $0 as? String }
            .filter { $0.hasPrefix("objects/") && $0.count > 20 }.sorted()
        for path in [files[0], files.last!, files.first { $0.hasSuffix(".gz") }!] {
            let whole = try Data(contentsOf: URL(fileURLWithPath: scratch("set/\(path)")))
            try change("set/\(path)") { $0[$0.count / 2] ^= 1 }
            try expectDamage("set", "\(path) is damaged")
            try FileManager.default.removeItem(atPath: scratch("set/\(path)"))
            try expectDamage("set", "\(path) is missing")
            try scratch.write(whole, to: "set/\(path)")
        }
        // A tile of a former version alone.
        removeFolder(scratch("folder"))
        try Pyramid(seed: 4, zooms: 0...4).write(to: scratch("folder"))
        try succeed("import", scratch("cache"), scratch("folder"), "--source", "map")
        try succeed("publish", scratch("cache"), scratch("set"), "--source", "map")
        #expect(try tilegc("verify", scratch("set")).status == 0)
        try FileManager.default.removeItem(atPath: scratch("set/\(files.first { !$0.hasSuffix(".gz") }!)"))
        try FileManager.default.removeItem(atPath: scratch("set/\(files.last { !$0.hasSuffix(".gz") }!)"))
        try expectDamage("set", "a tile of a former version is missing")
    }
}
