import Foundation
import Testing

/// What is refused: with which status, and with one line that begins with the program's name.
@Suite(.serialized, .timeLimit(.minutes(30)), .ownThreads)
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
