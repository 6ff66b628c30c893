import Foundation
import HTTPTypes
import Testing
import TileCacheTesting
import TileStore
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `--list` and `--changed`, as processes.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct ListTests {
    private let scratch: Scratch
    private let cache: String
    private let list: String

    init() throws {
        scratch = try Scratch()
        (cache, list) = (scratch("cache"), scratch("tiles.list"))
    }

    private func makeSample() throws { try Sample.make(at: cache) }

    private func write(_ text: String) throws { try writeFile(Data(text.utf8), to: list) }

    private func figures(_ arguments: String...) throws -> [String: Int] {
        let outcome = try Child(arguments + ["--json"]).wait()
        #expect(outcome.status == 0, "\(outcome.messages)")
        return try outcome.json().compactMapValues { $0 as? Int }
    }

    private func stale() throws -> [String] {
        try Child(["ls", cache, "--stale", "--json"]).wait().jsonLines().map { try #require($0["key"] as? String) }
    }

    @Test func theTilesOfAListAreExpiredInAllTheirVariants() throws {
        try makeSample()
        let before = try stale()
        try write("# expired\n2/1/1\r\n2/1/2.png\n\n2/1/2\n5/3/4\n9/1/1\n9/1/1\n")
        let outcome = try succeed("expire", cache, "--list", list)
        #expect(outcome.text == "Marked 3 fresh entries stale; 2 lines name tiles that are not cached.\n")
        #expect(try stale() == (before + ["osm/2/1/1", "osm/2/1/2", "terrain/5/3/4@2x.pbf"]).sorted())
        #expect(try figures("expire", cache, "--list", list) == ["expired": 0, "unknown": 2])
        #expect(try figures("expire", cache, "--list", list, "--source", "osm") == ["expired": 0, "unknown": 3])
    }

    @Test func otherConditionsNarrowAList() throws {
        try makeSample()
        try write("osm/2/1/1\nosm/2/3/3\n5/3/4\n")
        #expect(
            try figures("expire", cache, "--list", list, "--source", "osm", "--bbox", "90,-85,180,0")
                == ["expired": 1, "unknown": 1])
        try write("2/1/1\n2/3/3\n5/3/4\n")
        #expect(try figures("expire", cache, "--list", list, "--zoom", "5") == ["expired": 1, "unknown": 0])
    }

    @Test func aListIsWidened() throws {
        try makeSample()
        // Below 1/0/0 lie 2/0-1/0-1, of which those of column 0 are stale; above 3/2/2 lies 2/1/1.
        try write("1/0/0\n")
        #expect(try figures("expire", cache, "--list", list, "--children-to", "1") == ["expired": 0, "unknown": 1])
        #expect(try figures("expire", cache, "--list", list, "--children-to", "2") == ["expired": 2, "unknown": 1])
        try write("3/4/4\n4/8/15\n")
        #expect(try figures("expire", cache, "--list", list, "--parents-to", "3") == ["expired": 0, "unknown": 2])
        #expect(try figures("expire", cache, "--list", list, "--parents-to", "0") == ["expired": 2, "unknown": 2])
    }

    @Test func aListComesFromStandardInputAndInOtherFormats() throws {
        try makeSample()
        let shell =
            "printf '1 1 2\\n2 1 2\\n' | '\(Child.tilegc)' expire '\(cache)' --list - --list-format ' xyz' --json"
        let outcome = try Child(["-c", shell], of: "/bin/sh").wait()
        #expect(outcome.text == "{\"expired\":2,\"unknown\":0}\n", "\(outcome.messages)")
        #expect(try stale().contains("osm/2/2/1"))
    }

    @Test func listedTilesAreRemoved() throws {
        try makeSample()
        try write("2/0/0\n2/1/1\n2/3/3\n7/0/0\n")
        let planned = try figures("rm", cache, "--list", list, "--dry-run")
        #expect(planned["removedEntries"] == 2 && planned["unknown"] == 1, "a region pins 2/3/3")
        #expect(try figures("rm", cache, "--list", list) == planned)
        let again = try figures("rm", cache, "--list", list, "--pinned")
        #expect(again["removedEntries"] == 1 && again["unknown"] == 3)
        try succeed("verify", cache)
    }

    static let wrong: [(text: String, says: String)] = [
        ("2/1/1\n2/1\n", ":2: \"2/1\" is no tile: expected z/x/y; nothing was done"),
        ("2/1/1\n2/4/0\n", ":2: \"2/4/0\" is no tile: columns and rows of zoom 2 are 0 to 3"),
        ("2/1/1\nterrain/5/3/4\n", ":2: \"terrain/5/3/4\" is no tile"),
        ("2/1/1\n\u{0}\u{1B}[2J\n", ":2: \"\\u{0}\\u{1b}[2J\" is no tile"),
        (String(repeating: "2/1/1\n", count: 99_999) + "2 1 1", ":100000: \"2 1 1\" is no tile"),
        ("2/1/1\n" + String(repeating: "9", count: 1 << 20), ":2: "),
    ]

    @Test(arguments: wrong, ["expire", "rm", "revalidate"])
    func aWrongLineIsNamedAndNothingIsDone(_ row: (text: String, says: String), command: String) throws {
        try makeSample()
        try write(row.text)
        let before = try Child(["ls", cache]).wait().text
        let url = command == "revalidate" ? ["--url", "http://127.0.0.1:9/{z}/{x}/{y}.png"] : []
        let outcome = try Child([command, cache, "--source", "osm", "--list", list] + url).wait()
        #expect(outcome.status == 65)
        #expect(outcome.messages.contains("tiles.list" + row.says), "\(outcome.messages.prefix(300))")
        #expect(outcome.output.isEmpty && outcome.messages.utf8.count < 1000)
        #expect(try Child(["ls", cache]).wait().text == before)
    }

    @Test func whatIsAboutAListNeedsOne() throws {
        try makeSample()
        for options in [["--parents-to", "3"], ["--children-to", "3"], ["--list-format", "/zxy"]] {
            let outcome = try Child(["expire", cache, "--source", "osm"] + options).wait()
            #expect(outcome.status == 64 && outcome.messages.contains(options[0]), "\(outcome.messages)")
        }
        try write("2/1/1\n")
        for options in [["--all"], ["--parents-to", "29"], ["--children-to", "-1"], ["--list-format", "zxy"]] {
            #expect(try Child(["expire", cache, "--list", list] + options).wait().status == 64, "\(options)")
        }
        #expect(try tilegc("expire", cache, "--list", scratch("none")).status == 66)
        #expect(try tilegc("expire", cache, "--list", scratch.path).status == 74, "a folder")
        #expect(try tilegc("expire", scratch("no cache"), "--list", list).status == 66)
    }

    // MARK: What has changed

    private func origin(without missing: String? = nil, changed paths: [String]) async throws -> LocalOrigin {
        let fields: HTTPFields = [.cacheControl: "max-age=3600"]
        var site = TileSite(zooms: 0...2, fields: fields)
        for path in paths { site.set(path, TileSite.noise(zoom: 9, column: 9, row: 9), fields: fields) }
        let made = site
        return try await LocalOrigin.start { request in
            request.path == missing ? LocalAnswer(.notFound) : made.answer(request)
        }
    }

    private func revalidate(_ origin: LocalOrigin, _ more: String...) throws -> Outcome {
        try Child(
            ["revalidate", cache, "--source", "s", "--url", origin.url + "/{z}/{x}/{y}.png", "--json"] + more
        ).wait()
    }

    /// From the renderer's list to that for the CDN.
    @Test func onlyKeysWithOtherBytesAreWritten() async throws {
        let first = try await origin(changed: [])
        try succeed(
            "seed", cache, "--source", "s", "--url", first.url + "/{z}/{x}/{y}.png", "--bbox", "-180,-85,180,85",
            "--zoom",
            "0-2")
        try await first.stop()
        let before = try Child(["ls", cache, "--json"]).wait().jsonLines()
        let second = try await origin(without: "/2/0/0.png", changed: ["/2/1/1.png", "/2/3/3.png", "/1/0/0.png"])
        try write("2/0/0\n2/1/1\n2/1/2\n4/9/9\n")
        try succeed("expire", cache, "--source", "s", "--list", list, "--parents-to", "1")
        let changed = scratch("changed")
        let outcome = try revalidate(second, "--list", list, "--parents-to", "1", "--changed", changed)
        #expect(outcome.status == 0, "\(outcome.messages)")
        let report = try outcome.json()
        #expect(report["tiles"] as? Int == 7, "three of the list, and four above them")
        #expect(report["changed"] as? Int == 3 && report["unknown"] as? Int == 1)
        let written = try String(contentsOfFile: changed, encoding: .utf8)
        #expect(written.split(separator: "\n").sorted() == ["s/1/0/0", "s/2/0/0", "s/2/1/1"])
        // To the tile what a comparison of all digests says.
        let after = try Child(["ls", cache, "--json"]).wait().jsonLines()
        let blobs = Dictionary(uniqueKeysWithValues: before.map { ("\($0["key"] ?? "")", "\($0["blob"] ?? "")") })
        let other = after.filter { blobs["\($0["key"] ?? "")"] != "\($0["blob"] ?? "")" }.map { "\($0["key"] ?? "")" }
        #expect(written.split(separator: "\n").map(String.init).sorted() == other.sorted())
        // The list for the CDN is itself a list.
        #expect(try figures("expire", cache, "--source", "s", "--list", changed)["unknown"] == 0)
        let none = try revalidate(second, "--list", list, "--changed", changed)
        #expect(try none.json()["changed"] as? Int == 0)
        #expect(try String(contentsOfFile: changed, encoding: .utf8).isEmpty)
    }

    @Test func whereTheListCannotBeWrittenNobodyIsAsked() async throws {
        let origin = try await origin(changed: [])
        try succeed(
            "seed", cache, "--source", "s", "--url", origin.url + "/{z}/{x}/{y}.png", "--bbox", "-180,-85,180,85",
            "--zoom", "0")
        try succeed("expire", cache, "--all")
        let asked = origin.requests.count
        #expect(try revalidate(origin, "--changed", scratch("no/such/folder")).status == 74)
        try write("0/0/0\n")
        #expect(try revalidate(origin, "--list", list, "--changed", list).status == 64)
        #expect(try String(contentsOfFile: list, encoding: .utf8) == "0/0/0\n", "it was written over")
        // It was waited for, and no signal ended that.
        #expect(mkfifo(scratch("pipe"), 0o600) == 0)
        #expect(try revalidate(origin, "--changed", scratch("pipe")).status == 74, "a pipe that nobody reads")
        #expect(origin.requests.count == asked)
        #expect(try revalidate(origin, "--changed", "/dev/full").status == 0, "nothing has changed")
    }

    /// What was stored was told before, however the run ends; so all runs together have told all.
    @Test(arguments: [SIGKILL, SIGTERM, SIGINT])
    func aRunThatIsEndedInItsMiddleHasToldWhatItStored(_ signal: Int32) async throws {
        let first = try await origin(changed: [])
        try succeed(
            "seed", cache, "--source", "s", "--url", first.url + "/{z}/{x}/{y}.png", "--bbox", "-180,-85,180,85",
            "--zoom", "0-2")
        try await first.stop()
        let before = try blobs()
        try succeed("expire", cache, "--all")
        let fields: HTTPFields = [.cacheControl: "max-age=3600"]
        var site = TileSite(zooms: 0...2, fields: fields)
        for path in site.paths { site.set(path, TileSite.noise(zoom: 9, column: 9, row: 9), fields: fields) }
        let (made, left, shut) = (site, Locked(0), Gate())
        let origin = try await LocalOrigin.start { request in
            var answer = made.answer(request)
            let mayPass = left.withLock { left in
                left -= 1
                return left >= 0
            }
            if !mayPass { answer.gate = shut }
            return answer
        }
        var told: Set<String> = []
        var asked = 0
        for run in 0..<4 {
            left.withLock { $0 = 3 }
            let changed = scratch("changed-\(run)")
            let child = try Child([
                "revalidate", cache, "--source", "s", "--url", origin.url + "/{z}/{x}/{y}.png", "--changed", changed,
                "--concurrency", "2",
            ])
            // Two wait at the server, so three were stored.
            await origin.arrivals(asked + 5)
            child.send(signal)
            _ = try child.wait()
            await origin.connectionsClosed()
            asked = origin.requests.count
            told.formUnion(try keys(in: changed))
            let other = Set(try blobs().filter { before[$0.key] != $0.value }.keys)
            #expect(other.count == 3 * (run + 1))
            #expect(told.isSuperset(of: other), "\(other.subtracting(told)) were stored and not told")
        }
        left.withLock { $0 = .max }
        let last = scratch("changed")
        #expect(try revalidate(origin, "--changed", last).status == 0)
        told.formUnion(try keys(in: last))
        #expect(told == Set(before.keys))
    }

    private func blobs() throws -> [String: String] {
        let entries = try Child(["ls", cache, "--json"]).wait().jsonLines()
        return Dictionary(uniqueKeysWithValues: entries.map { ("\($0["key"] ?? "")", "\($0["blob"] ?? "")") })
    }

    private func keys(in file: String) throws -> [String] {
        try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").map(String.init)
    }

    @Test func whatCannotBeToldIsNotStored() async throws {
        let first = try await origin(changed: [])
        try succeed(
            "seed", cache, "--source", "s", "--url", first.url + "/{z}/{x}/{y}.png", "--bbox", "-180,-85,180,85",
            "--zoom", "0-1")
        try await first.stop()
        try succeed("expire", cache, "--all")
        let before = try blobs()
        let second = try await origin(changed: ["/1/0/0.png"])
        let outcome = try revalidate(second, "--changed", "/dev/full")
        #expect(outcome.status == 74 && outcome.messages.contains("cannot write /dev/full"), "\(outcome.messages)")
        #expect(try blobs() == before)
    }
}
