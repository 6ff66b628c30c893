import Foundation
import Testing
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What is refused: with which status, and with one line that begins with the program's name.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct UsageTests {
    static let wrong: [[String]] = [
        ["nonsense"], ["stats"], ["stats", "CACHE", "--nonsense"], ["show", "CACHE"], ["show", "CACHE", "a/1/2"],
        ["show", "CACHE", "osm/3/8/0"], ["cat", "CACHE", "osm/29/0/0"], ["ls", "CACHE", "--zoom", "7-3"],
        ["ls", "CACHE", "--zoom", "29"], ["ls", "CACHE", "--zoom", "-1"], ["ls", "CACHE", "--zoom", ""],
        ["ls", "CACHE", "--zoom", "99999999999999999999"], ["ls", "CACHE", "--bbox", "1,2,3"],
        ["ls", "CACHE", "--bbox", "nan,0,1,1"], ["ls", "CACHE", "--bbox", "inf,0,1,1"],
        ["ls", "CACHE", "--bbox", "0,50,1,40"], ["ls", "CACHE", "--bbox", "0,0,1e400,1"],
        ["ls", "CACHE", "--unused-for", "30"], ["ls", "CACHE", "--unused-for", "-5d"],
        ["ls", "CACHE", "--unused-for", "99999999999999999w"], ["ls", "CACHE", "--unused-for", "nand"],
        ["ls", "CACHE", "--source", "a/b"], ["ls", "CACHE", "--key", "nonsense"],
        ["gc", "CACHE", "--max-bytes", "-1"], ["gc", "CACHE", "--max-bytes", "99999999999TB"],
        ["gc", "CACHE", "--max-bytes", "1.5"], ["gc", "CACHE", "--max-bytes", "nan"],
        ["gc", "CACHE", "--max-bytes", "1e9"], ["gc", "CACHE", "--max-bytes", "MB"],
        ["gc", "CACHE", "--max-bytes", "9223372036854775808"], ["gc", "CACHE", "--max-entries", "many"],
        ["gc", "CACHE", "--source", "osm"], ["limit", "CACHE", "--entries", "1.5"],
        ["rm", "CACHE"], ["rm", "CACHE", "--pinned"], ["rm", "CACHE", "--all", "--stale"], ["expire", "CACHE"],
        ["import", "CACHE", "TILES"], ["import", "CACHE", "TILES", "--source", ".."],
        ["import", "CACHE", "TILES", "--source", "a", "--format", "zip"],
        ["import", "CACHE", "T.mbtiles", "--source", "a", "--tms", "--xyz"],
        ["export", "CACHE", "OUT"], ["export", "CACHE", "out.pmtiles", "--source", "osm", "--tms"],
        ["export", "CACHE", "out", "--source", "osm", "--format", "brotli"],
    ]

    @Test(arguments: wrong)
    func wrongUsageIsRefused(_ arguments: [String]) throws {
        let scratch = try Scratch()
        let outcome = try Child(arguments.map { $0 == "CACHE" ? scratch("cache") : $0 }).wait()
        #expect(outcome.status == 64)
        #expect(outcome.output.isEmpty)
        #expect(outcome.messages.hasPrefix("tilegc: "))
        #expect(outcome.messages.split(separator: "\n").count == 1)
        #expect(!FileManager.default.fileExists(atPath: scratch("cache")), "nothing is made")
    }

    @Test(arguments: [
        ["stats"], ["ls"], ["show", "osm/0/0/0"], ["cat", "osm/0/0/0"], ["gc"], ["limit"], ["limit", "--bytes", "1MB"],
        ["rm", "--all"], ["expire", "--all"], ["verify"], ["compact"], ["export", "OUT", "--source", "osm"],
        ["export", "OUT", "--source", "osm", "--format", "pmtiles"], ["export", "OUT", "--region", "corner"],
    ])
    func aMissingCacheIsNotMade(_ arguments: [String]) throws {
        let scratch = try Scratch()
        var arguments = arguments.map { $0 == "OUT" ? scratch("out") : $0 }
        arguments.insert(scratch("cache"), at: 1)
        let outcome = try Child(arguments).wait()
        #expect(outcome.status == 66)
        #expect(outcome.output.isEmpty)
        #expect(outcome.messages.hasPrefix("tilegc: "))
        #expect(outcome.messages.split(separator: "\n").count == 1)
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path).isEmpty)
    }

    @Test func helpOnWhatIsNoCommandIsRefused() throws {
        let outcome = try tilegc("help", "imprt")
        #expect(outcome.status == 64 && outcome.messages.contains("did you mean 'import'?"), "\(outcome.messages)")
        #expect(try tilegc("help", "import").status == 0)
        #expect(try tilegc("help", "regions", "rm").status == 0)
    }

    @Test func twoSourcesOfOneNameAreRefused() throws {
        let scratch = try Scratch()
        let arguments = ["serve", "--cache", scratch("cache"), "--port", "0"]
        let twice = ["--source", "a=http://127.0.0.1:1/{z}/{x}/{y}", "--source", "a=http://127.0.0.1:2/{z}/{x}/{y}"]
        let child = try Child(arguments + twice, of: Child.tileproxy)
        while !child.hasEnded(within: 100), !child.said.contains("listening") {}
        child.send(SIGTERM)
        let outcome = try child.wait()
        #expect(outcome.status == 64 && outcome.messages.contains("given twice"), "\(outcome.messages)")
    }

    @Test func aFolderOfOtherThingsIsNoCache() throws {
        let scratch = try Scratch()
        try scratch.write(Data("mine".utf8), to: "photos/a.jpg")
        for command in ["stats", "gc", "verify"] {
            #expect(try tilegc(command, scratch("photos")).status == 66)
        }
        #expect(try files(in: scratch("photos")) == ["a.jpg": Data("mine".utf8)])
    }

    @Test func aFormatOfTheFutureIsLeftAlone() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        let marker = Data(#"{"format":99,"salt":"00000000000000000000000000000000"}"#.utf8)
        try scratch.write(marker, to: "cache/tilecache.json")
        #expect(try tilegc("stats", scratch("cache")).status == 66)
        #expect(try tilegc("gc", scratch("cache"), "--max-bytes", "0").status == 66)
        #expect(try files(in: scratch("cache"))["tilecache.json"] == marker)
    }

    @Test func aKeyThatIsNotThereIsSaid() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        for command in ["show", "cat"] {
            let outcome = try tilegc(command, scratch("cache"), "osm/9/1/1")
            #expect(outcome.status == 66)
            #expect(outcome.messages.contains("osm/9/1/1 is not in the cache"))
        }
        let absent = try tilegc("cat", scratch("cache"), "osm/3/0/0")
        #expect(absent.status == 66)
        #expect(absent.messages.contains("404"))
    }

    /// The changelog's newest version.
    private func newestVersion() throws -> String {
        var root = URL(fileURLWithPath: #filePath)
        for _ in 0..<3 { root.deleteLastPathComponent() }
        let text = try String(contentsOf: root.appendingPathComponent("CHANGELOG.md"), encoding: .utf8)
        let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("## ") })
        return String(try #require(line.dropFirst(3).split { $0 == "," || $0 == " " }.first))
    }

    @Test func bothToolsNameTheVersionOfTheChangelog() throws {
        let version = try newestVersion()
        for program in [Child.tilegc, Child.tileproxy] {
            let name = URL(fileURLWithPath: program).lastPathComponent
            let outcome = try Child(["--version"], of: program).wait()
            #expect(outcome.status == 0)
            #expect(outcome.text == "\(name) \(version)\n")
        }
    }

    @Test(arguments: [
        (["nonsense"], "nonsense"), (["serve"], "--cache DIR"), (["serve", "--cache", "c"], "nothing to serve"),
        (["serve", "--cache", "c", "--port", "many"], "from 0 to 65535"),
        (["serve", "--cache", "c", "--port", "65536"], "from 0 to 65535"),
        (["serve", "--cache", "c", "--threads", "0"], "from 1 to 64"),
        (["serve", "--cache", "c", "--max-bytes", "1XB"], "200MB"),
        (["serve", "--cache", "c", "--source", "osm"], "NAME=TEMPLATE"),
        (["serve", "--cache", "c", "--upstream", "fonts"], "[NAME:]PREFIX=BASEURL"),
        (["serve", "--config", "/nowhere/tileproxy.yaml"], "/nowhere/tileproxy.yaml"),
    ])
    func wrongUsageOfTheProxyIsRefusedInOneLine(_ arguments: [String], _ named: String) throws {
        let outcome = try Child(arguments, of: Child.tileproxy).wait()
        #expect(outcome.status == 64)
        #expect(outcome.output.isEmpty)
        #expect(outcome.messages.hasPrefix("tileproxy: "))
        #expect(outcome.messages.contains(named))
        #expect(outcome.messages.split(separator: "\n").count == 1)
    }

    @Test func aProxyWithoutTheLeafletItWasToldToUseDoesNotStart() throws {
        let scratch = try Scratch()
        try scratch.write(
            Data(
                "cache: \(scratch("cache"))\nlisten: 127.0.0.1:0\nleaflet: /nowhere\nupstreams: [/=http://127.0.0.1:9]"
                    .utf8), to: "tileproxy.yaml")
        let outcome = try Child(["serve", "--config", scratch("tileproxy.yaml")], of: Child.tileproxy).wait()
        #expect(outcome.status == 64)
        #expect(outcome.messages.contains("leaflet: /nowhere has no leaflet.js"))
        #expect(!FileManager.default.fileExists(atPath: scratch("cache")))
    }

    @Test func aMisspeltSourceIsSaidAndNotAnEmptyAnswer() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        let arguments = [
            ["ls", "--source", "omsk"], ["rm", "--source", "omsk"], ["rm", "--source", "omsk", "--dry-run"],
            ["expire", "--source", "omsk"], ["coverage", "--source", "omsk", "--zoom", "2"], ["show", "omsk/2/0/0"],
            ["cat", "omsk/2/0/0"],
        ]
        for arguments in arguments {
            let outcome = try Child([arguments[0], scratch("cache")] + arguments.dropFirst()).wait()
            #expect(
                outcome.messages
                    == "tilegc: the cache has nothing of a source named omsk; it has osm, styles, terrain\n")
            #expect(outcome.status == (["ls", "rm", "expire"].contains(arguments[0]) ? 0 : 66))
        }
        let narrow = try tilegc("ls", scratch("cache"), "--source", "osm", "--zoom", "9")
        #expect(narrow.status == 0 && narrow.messages == "tilegc: no entry is selected\n")
        let far = try tilegc("coverage", scratch("cache"), "--source", "osm", "--zoom", "9", "--json")
        #expect(
            far.status == 0 && far.messages.contains("nothing of osm is cached at zoom 9; its tiles have zooms 2 to 3"))
        let pinned = try tilegc("rm", scratch("cache"), "--key", "osm/2/3/3")
        #expect(pinned.messages.contains("--pinned removes those too"))
        let format = try tilegc("show", scratch("cache"), "osm/2/0/0.png")
        #expect(format.status == 66 && format.messages.contains("osm/2/0/0.png is not in the cache, but osm/2/0/0 is"))
    }

    @Test(arguments: [("limt", "'limit'"), ("list", "'tilegc --help'"), ("hlep", "'help'")])
    func aMisspeltCommandIsCalledACommand(_ word: String, _ hint: String) throws {
        let outcome = try tilegc(word, "cache")
        #expect(outcome.status == 64)
        #expect(outcome.messages.contains("there is no command '\(word)'"))
        #expect(outcome.messages.contains(hint))
    }

    @Test(.enabled(if: FileManager.default.fileExists(atPath: "/dev/full")))
    func aFullDiskBehindStandardOutputIsAnError() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        let full = try #require(FileHandle(forWritingAtPath: "/dev/full"))
        let outcome = try Child(["ls", scratch("cache")], output: full.fileDescriptor).wait()
        #expect(outcome.status == 74)
        #expect(outcome.messages.contains("standard output"))
    }

    @Test func aClosedPipeEndsQuietly() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        for arguments in [["ls"], ["ls", "--json"], ["stats"], ["verify"], ["gc", "--dry-run"]] {
            let pipe = Pipe()
            try pipe.fileHandleForReading.close()
            let all = [arguments[0], scratch("cache")] + arguments.dropFirst()
            let outcome = try Child(all, output: pipe.fileHandleForWriting.fileDescriptor).wait()
            #expect(outcome.status == 0)
            #expect(outcome.messages.isEmpty)
        }
    }

    /// Without standard output and error, the first files that are opened would get their numbers.
    @Test func closedStandardFilesDoNotDamageTheCache() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        for command in ["stats", "ls", "gc", "expire --all", "verify", "nonsense"] {
            let script = "exec \"$0\" \(command) \"$1\" <&- >&- 2>&-"
            _ = try Child(["-c", script, Child.tilegc, scratch("cache")], of: "sh").wait()
        }
        let verified = try tilegc("verify", scratch("cache"), "--json")
        #expect(verified.status == 0)
        #expect(try verified.json()["journalDamage"] as? Int == 0)
        #expect(try tilegc("ls", scratch("cache")).lines.count == 19)
    }

    @Test(.enabled("permissions do not bind root", { getuid() != 0 }))
    func aFolderThatMayNotBeWrittenCanBeRead() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        func protect(_ mode: Int) throws {
            for name in ["", "/manifest", "/objects", "/staging"] {
                try FileManager.default.setAttributes(
                    [.posixPermissions: mode], ofItemAtPath: scratch("cache") + name)
            }
        }
        try protect(0o555)
        let reading = try tilegc("cat", scratch("cache"), "osm/2/0/0")
        let writing = try tilegc("rm", scratch("cache"), "--all")
        try protect(0o755)
        #expect(reading.output == Pyramid.ocean)
        #expect(writing.status == 74)
    }
}
