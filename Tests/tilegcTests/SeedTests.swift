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

/// `seed`, `revalidate` and `regions`, as processes, against a server on this machine.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct SeedTests {
    private let scratch: Scratch
    private let cache: String

    init() throws {
        scratch = try Scratch()
        cache = scratch("cache")
    }

    private func origin(_ fields: HTTPFields = [.cacheControl: "max-age=3600"]) async throws -> LocalOrigin {
        let site = TileSite(zooms: 0...4, fields: fields)
        return try await LocalOrigin.start { site.answer($0) }
    }

    private func seed(_ origin: LocalOrigin, _ more: String...) throws -> Outcome {
        try Child(
            ["seed", cache, "--source", "s", "--url", origin.url + "/{z}/{x}/{y}.png", "--json"] + more
        ).wait()
    }

    private func figures(_ outcome: Outcome) throws -> [String: Int] {
        try outcome.json().compactMapValues { $0 as? Int }
    }

    private let world = ["--bbox", "-180,-85,180,85"]

    @Test func aRegionIsSeededResumedAndBroughtUpToDate() async throws {
        let origin = try await origin()
        let dry = try figures(
            seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-4", "--dry-run"))
        #expect(dry == ["tiles": 341, "missing": 341, "stale": 0, "fresh": 0])
        #expect(origin.requests.isEmpty)
        #expect(!FileManager.default.fileExists(atPath: cache), "a dry run makes no cache")

        // The rest of a run that covered less is all that the next one asks for.
        let part = try figures(seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-3"))
        #expect(part["fetched"] == 85 && part["failed"] == 0)
        let whole = try figures(
            seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-4", "--region", "world", "--concurrency", "8"))
        #expect(whole["tiles"] == 341 && whole["fetched"] == 256 && whole["unchanged"] == 85)
        #expect(whole["bytes"].map { $0 >= 256 * 5000 } == true)
        #expect(origin.requests.count == 341 && Set(origin.requests.map(\.path)).count == 341)
        #expect(
            origin.requests.allSatisfy { $0.fields[.userAgent]?.contains("swift-tile-cache") == true },
            "requests say who they come from")

        let region = try #require(try tilegc("regions", cache, "--json").jsonLines().first)
        #expect(region["name"] as? String == "world" && region["source"] as? String == "s")
        #expect(region["tiles"] as? Int == 341 && region["present"] as? Int == 341)
        #expect(region["zooms"] as? [Int] == [0, 4])
        #expect((region["bbox"] as? [Any])?.count == 4)

        try succeed("expire", cache, "--all")
        let again = try figures(seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-4"))
        #expect(again["revalidated"] == 341 && again["bytes"] == 0 && again["fetched"] == 0)
        #expect(origin.requests.count == 682)
        try succeed("verify", cache)

        let removed = try succeed("regions", "rm", cache, "world", "--json").json()
        #expect(removed["removedEntries"] as? Int == 341)
        #expect(try tilegc("regions", cache, "--json").lines.isEmpty)
        #expect(try tilegc("regions", "rm", cache, "world").status == 66)
    }

    @Test func staleTilesAreRevalidatedAndChangedOnesFetched() async throws {
        let first = try await origin([.cacheControl: "max-age=3600"])
        _ = try seed(first, "--bbox", "-180,-85,180,85", "--zoom", "0-2")
        try await first.stop()
        try succeed("expire", cache, "--source", "s", "--zoom", "2")

        // The same server, with one tile drawn anew.
        var site = TileSite(zooms: 0...4, fields: [.cacheControl: "max-age=3600"])
        site.set("/2/1/1.png", TileSite.noise(zoom: 9, column: 9, row: 9), fields: [.cacheControl: "max-age=3600"])
        let changed = site
        let second = try await LocalOrigin.start { changed.answer($0) }
        let url = second.url + "/{z}/{x}/{y}.png"
        let limited = try figures(
            tilegc("revalidate", cache, "--source", "s", "--url", url, "--limit", "0", "--json"))
        #expect(limited["tiles"] == 0)
        let report = try figures(tilegc("revalidate", cache, "--source", "s", "--url", url, "--json"))
        #expect(report["tiles"] == 16 && report["revalidated"] == 15 && report["fetched"] == 1)
        #expect(try succeed("cat", cache, "s/2/1/1").output == Data(TileSite.noise(zoom: 9, column: 9, row: 9)))
        #expect(try succeed("stats", cache, "--json").json()["stale"] as? Int == 0)
    }

    @Test func failedTilesEndWithStatusOneAndAreCounted() async throws {
        let site = TileSite(zooms: 0...2)
        let origin = try await LocalOrigin.start { request in
            request.path == "/2/3/3.png" ? LocalAnswer(.forbidden) : site.answer(request)
        }
        let outcome = try seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-2")
        #expect(outcome.status == 1)
        #expect(try figures(outcome)["failed"] == 1 && figures(outcome)["fetched"] == 20)
        #expect(outcome.messages.contains("s/2/3/3") && outcome.messages.contains("403"))
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func anInterruptKeepsWhatWasFetched(_ signal: Int32) async throws {
        let gate = Gate()
        let site = TileSite(zooms: 0...4)
        let origin = try await LocalOrigin.start { request in
            var answer = site.answer(request)
            if request.path.hasPrefix("/4/") { answer.gate = gate }
            return answer
        }
        let child = try Child(
            ["seed", cache, "--source", "s", "--url", origin.url + "/{z}/{x}/{y}.png", "--json"] + world
                + ["--zoom", "0-4"])
        // Zooms 0 to 3 are in, and those under way hang at the server.
        await origin.arrivals(85 + 4)
        child.send(signal)
        let outcome = try child.wait()
        #expect(outcome.status == 130)
        #expect(try figures(outcome)["fetched"] == 85)
        gate.open()
        try succeed("verify", cache)
        let rest = try figures(seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-4"))
        #expect(rest["unchanged"] == 85 && rest["fetched"] == 256)
    }

    @Test func aKilledSeedLosesNothingThatWasStored() async throws {
        let site = TileSite(zooms: 0...4)
        let origin = try await LocalOrigin.start { site.answer($0) }
        let child = try Child(
            ["seed", cache, "--source", "s", "--url", origin.url + "/{z}/{x}/{y}.png"] + world + ["--zoom", "0-4"])
        await origin.arrivals(100)
        child.send(SIGKILL)
        _ = try child.wait()
        try succeed("verify", cache, "--repair")
        let stored = try tilegc("ls", cache, "--json").lines.count
        #expect(stored > 0)
        let rest = try figures(seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-4"))
        #expect(rest["unchanged"] == stored && rest["tiles"] == 341 && rest["failed"] == 0)
    }

    @Test func secretsComeFromTheEnvironmentOrAFileAndReachNoDisk() async throws {
        let origin = try await origin()
        try scratch.write(Data("s3cr3t-from-file\n".utf8), to: "token")
        setenv("TILEGC_TEST_TOKEN", "s3cr3t-from-environment", 1)
        defer { unsetenv("TILEGC_TEST_TOKEN") }
        let outcome = try seed(
            origin, "--bbox", "0,0,1,1", "--zoom", "0-2", "--header", "Authorization=ENV:TILEGC_TEST_TOKEN",
            "--header", "X-Key=FILE:\(scratch("token"))")
        #expect(outcome.status == 0, "\(outcome.messages)")
        let request = try #require(origin.requests.first)
        #expect(request.fields[.authorization] == "s3cr3t-from-environment")
        #expect(request.fields[try #require(HTTPField.Name("X-Key"))] == "s3cr3t-from-file")
        for (name, data) in try files(in: cache) { #expect(data.range(of: Data("s3cr3t".utf8)) == nil, "\(name)") }
        #expect(!outcome.text.contains("s3cr3t") && !outcome.messages.contains("s3cr3t"))
    }

    @Test(arguments: [
        ["--url", "http://127.0.0.1:1/{z}/{x}.png", "--bbox", "0,0,1,1", "--zoom", "1"],
        ["--url", "ftp://127.0.0.1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1"],
        ["--url", "file:///tmp/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1"],
        ["--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1", "--zoom", "1"],
        ["--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "29"],
        ["--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "23"],
        ["--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1", "--rate", "0"],
        ["--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1", "--concurrency", "0"],
        ["--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1", "--header", "A=b"],
        [
            "--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1", "--header",
            "A=ENV:NOT_SET",
        ],
        ["--url", "http://127.0.0.1:1/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1", "--region", "a b"],
        ["--url", "https://tile.openstreetmap.org/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "1"],
    ])
    func whatMakesNoSenseIsUsage(arguments: [String]) throws {
        let outcome = try Child(["seed", cache, "--source", "s"] + arguments).wait()
        #expect(outcome.status == 64, "\(outcome.messages)")
        #expect(outcome.messages.hasPrefix("tilegc: "))
        #expect(!FileManager.default.fileExists(atPath: cache), "what is refused leaves no cache behind")
    }

    @Test func aRegionIsUnpinnedAloneOrDeletedWithItsTiles() async throws {
        let origin = try await origin()
        _ = try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0-3", "--region", "kept")
        let kept = try succeed("regions", "rm", cache, "kept", "--keep-tiles")
        #expect(kept.text == "Unpinned region kept. Its tiles stay until the cache's limits evict them.\n")
        #expect(try tilegc("ls", cache, "--json").lines.count == 4)
        _ = try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0-3", "--region", "gone")
        #expect(try succeed("regions", "rm", cache, "gone").text.contains("Removed 4 entries"))
        #expect(try tilegc("ls", cache, "--json").lines.isEmpty)
    }

    @Test func aServerThatIsGoneIsSaidOnceAndSoon() async throws {
        let origin = try await origin()
        try await origin.stop()
        let outcome = try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0-1", "--patience", "2s")
        #expect(outcome.status == 1)
        let report = try outcome.json()
        #expect(report["failed"] as? Int == 0 && report["pending"] as? Int == 2 && report["missing"] as? Int == 2)
        #expect(report["complete"] as? Bool == false && report["present"] as? Int == 0)
        let lines = outcome.messages.split(separator: "\n")
        #expect(lines.first?.contains("127.0.0.1") == true && lines.first?.contains("waiting for the server") == true)
        #expect(lines.last == "tilegc: 2 tiles of 2 missing; run it again for the rest")
        #expect(!outcome.messages.contains("asked again"), "nobody asks again")
    }

    @Test func aRegionOfAnotherSourceKeepsItsPin() async throws {
        let origin = try await origin()
        _ = try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0-3", "--region", "alps")
        let url = origin.url + "/{z}/{x}/{y}.png"
        for more in [["--dry-run"], []] {
            let arguments = ["seed", cache, "--source", "other", "--url", url, "--bbox", "0,0,1,1", "--zoom", "0"]
            let outcome = try Child(arguments + ["--region", "alps"] + more).wait()
            #expect(outcome.status == 64, "\(more)")
            #expect(outcome.messages.contains("a region alps of source s"), "\(outcome.messages)")
        }
        let regions = try tilegc("regions", cache, "--json").jsonLines()
        #expect(regions.map { $0["source"] as? String } == ["s"])
        // Nothing of it may be evicted.
        #expect(try succeed("gc", cache, "--max-bytes", "0", "--json").json()["removedEntries"] as? Int == 0)
        // The source's own region is replaced.
        #expect(try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0-4", "--region", "alps").status == 0)
    }

    @Test func removingARegionEvictsNothingElse() throws {
        let source = try SourceName("s")
        let store = try TileStore(at: cache)
        for x in 0..<8 {
            try store.put(Data("old \(x)".utf8), for: TileKey("old/3/\(x)/0"), metadata: Sample.metadata())
        }
        let span = try TileSpan(zoom: 3, columns: 0...7, rows: 0...7)
        try store.pin(try PinnedRegion(name: "all", source: source, spans: [span]))
        for x in 0..<8 {
            for y in 0..<8 {
                try store.put(Data("\(x) \(y)".utf8), for: TileKey("s/3/\(x)/\(y)"), metadata: Sample.metadata())
            }
        }
        let before = try store.statistics()
        // Just room for what is not pinned.
        try store.setLimits(StoreLimits(capacity: before.allocatedBytes - before.pinnedBytes, entryLimit: 8))
        try store.close()
        let removed = try succeed("regions", "rm", cache, "all", "--json").json()
        #expect(removed["removedEntries"] as? Int == 64 && removed["removedBlobs"] as? Int == 64, "\(removed)")
        #expect(try tilegc("ls", cache, "--source", "old", "--json").lines.count == 8)
        try succeed("verify", cache)
    }

    @Test func aHugeRegionIsGivenUpAsSoonAsASmallOne() async throws {
        let origin = try await origin()
        _ = try seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-1")
        try await origin.stop()
        // 23 million million tiles: nobody may look each of them up.
        let outcome = try seed(origin, "--bbox", "-180,-85,180,85", "--zoom", "0-22", "--patience", "1s")
        #expect(outcome.status == 1)
        let report = try outcome.json()
        #expect(report["present"] as? Int == 5 && report["fetched"] as? Int == 0 && report["failed"] as? Int == 0)
        #expect(report["complete"] as? Bool == false)
    }

    @Test func aRefusedConnectionIsNotCalledAReset() async throws {
        let origin = try await origin()
        try await origin.stop()
        let outcome = try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0", "--patience", "0s")
        #expect(outcome.messages.contains(String(cString: strerror(ECONNREFUSED))))
        #expect(!outcome.messages.contains("reset"), "\(outcome.messages)")
    }

    @Test func revalidatingASourceThatIsNotThereIsSaid() async throws {
        let origin = try await origin()
        _ = try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0")
        let outcome = try tilegc("revalidate", cache, "--source", "tpyo", "--url", origin.url + "/{z}/{x}/{y}.png")
        #expect(outcome.messages.contains("nothing of a source named tpyo; it has s"), "\(outcome.messages)")
    }

    @Test func whatTheServerForbidsToStoreIsNoSuccess() async throws {
        let origin = try await origin([.cacheControl: "no-store"])
        let outcome = try seed(origin, "--bbox", "0,0,1,1", "--zoom", "0-3", "--region", "r")
        #expect(outcome.status == 1)
        let report = try outcome.json()
        #expect(report["fetched"] as? Int == 0 && report["failed"] as? Int == 4 && report["present"] as? Int == 0)
        #expect(outcome.messages.contains("no-store"))
    }

    @Test func noCacheIsNoInput() async throws {
        let url = "http://127.0.0.1:1/{z}/{x}/{y}.png"
        #expect(try tilegc("revalidate", cache, "--source", "s", "--url", url).status == 66)
        #expect(try tilegc("regions", cache).status == 66)
        #expect(try tilegc("regions", "rm", cache, "x").status == 66)
    }
}
