import Foundation
import Testing
import TileStore
import TileStoreTesting

/// SELECT, and what `gc`, `rm`, `expire` and `limit` do with it.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct SelectionTests {
    private let scratch: Scratch
    private let cache: String

    init() throws {
        scratch = try Scratch()
        cache = scratch("cache")
        try Sample.make(at: cache)
    }

    private func keys(_ arguments: String...) throws -> [String] {
        try Child(["ls", cache, "--json"] + arguments).wait().jsonLines().map { try #require($0["key"] as? String) }
    }

    private func figures(_ arguments: String...) throws -> [String: Int] {
        let outcome = try Child(arguments + ["--json"]).wait()
        #expect(outcome.status == 0, "\(outcome.messages)")
        return try outcome.json().compactMapValues { $0 as? Int }
    }

    @Test func aBoxThatBeginsWithAMinusParses() throws {
        let west = try keys("--bbox", "-180,0.1,-90.1,85", "--zoom", "2")
        #expect(west == ["osm/2/0/0", "osm/2/0/1"])
        #expect(try keys("--bbox=-180,0.1,-90.1,85", "--zoom", "2") == west)
        // Across the antimeridian.
        #expect(try keys("--bbox", "170,70,-170,80", "--zoom", "2") == ["osm/2/0/0", "osm/2/3/0"])
    }

    @Test func conditionsNarrowEachOther() throws {
        #expect(try keys("--source", "terrain") == ["terrain/5/3/4@2x.pbf"])
        #expect(try keys("--zoom", "3-5") == ["osm/3/0/0", "terrain/5/3/4@2x.pbf"])
        #expect(try keys("--stale", "--zoom", "2", "--source", "osm").count == 4)
        #expect(try keys("--key", "osm/2/1/1", "--key", "osm/2/0/0", "--stale") == ["osm/2/0/0"])
        #expect(try keys("--unused-for", "1d").count == 19)
        #expect(try keys("--unused-for", "52000w").isEmpty)
        #expect(try keys("--source", "nobody").isEmpty)
    }

    @Test func showCountsReferences() throws {
        let shown = try tilegc("show", cache, "osm/2/0/0", "--json").json()
        #expect(shown["references"] as? Int == 8)
        #expect(shown["blob"] as? String == BlobDigest(hashing: Pyramid.ocean).description)
        let absent = try tilegc("show", cache, "osm/3/0/0", "--json").json()
        #expect(absent["blob"] is NSNull)
        #expect(absent["etag"] is NSNull)
        let style = try tilegc("show", cache, "styles:light/style.json", "--json").json()
        #expect(style["etag"] as? String == "W/\"v\\1\"")
        #expect(style["lastModified"] as? String == "2020-01-01T00:00:00Z")
    }

    @Test func catWritesTheBytes() throws {
        #expect(try succeed("cat", cache, "osm/2/0/0").output == Pyramid.ocean)
        #expect(try succeed("cat", cache, "terrain/5/3/4@2x.pbf").output == Data("vector".utf8))
    }

    @Test func removingSparesPinnedEntriesUnlessAsked() throws {
        let before = try figures("stats", cache)
        let planned = try figures("rm", cache, "--all", "--dry-run")
        #expect(try figures("stats", cache) == before)
        let removed = try figures("rm", cache, "--all")
        #expect(removed == planned)
        #expect(removed["removedEntries"] == 18)
        #expect(try keys() == ["osm/2/3/3"])
        #expect(try figures("rm", cache, "--all", "--pinned")["removedEntries"] == 1)
        #expect(try figures("stats", cache)["blobs"] == 0)
        #expect(try tilegc("verify", cache).status == 0)
    }

    @Test func expiringMarksStaleOnce() throws {
        #expect(try figures("expire", cache, "--all")["expired"] == 14)
        #expect(try figures("expire", cache, "--all")["expired"] == 0)
        #expect(try figures("stats", cache)["fresh"] == 0)
    }

    static let collections: [[String]] = [
        ["--max-bytes", "12KiB"], ["--max-bytes", "0"], ["--max-entries", "5"], ["--max-entries", "0"],
        ["--max-bytes", "20KiB", "--max-entries", "9"], ["--unused-for", "1d"], ["--stale-for", "1d"],
        ["--stale-for", "1d", "--unused-for", "52000w"], ["--stale-for", "1d", "--max-entries", "9"],
        ["--stale-for", "1d", "--max-bytes", "12KiB"],
        ["--stale-for", "1d", "--unused-for", "1d", "--max-bytes", "8KiB", "--max-entries", "3"], [],
    ]

    @Test(arguments: collections)
    func aDryRunSaysExactlyWhatACollectionDoes(_ options: [String]) throws {
        let before = try figures("stats", cache)
        let planned = try Child(["gc", cache, "--json", "--dry-run"] + options).wait()
        #expect(planned.status == 0)
        #expect(try figures("stats", cache) == before)
        let done = try Child(["gc", cache, "--json"] + options).wait()
        #expect(planned.text == done.text)
        let after = try figures("stats", cache)
        let report = try done.json().compactMapValues { $0 as? Int }
        for field in ["entries", "blobs", "allocatedBytes"] { #expect(report[field] == after[field]) }
        #expect(after["entries"] ?? 0 >= 1, "the pinned entry stays")
        #expect(try tilegc("verify", cache).status == 0)
    }

    @Test func limitsLast() throws {
        #expect(try figures("limit", cache, "--bytes", "16KiB")["capacity"] == 16384)
        #expect(try figures("limit", cache) == ["capacity": 16384, "entryLimit": 100_000])
        let statistics = try figures("stats", cache)
        #expect((statistics["allocatedBytes"] ?? 0) - (statistics["pinnedBytes"] ?? 0) <= 16384)
        #expect(try figures("limit", cache, "--entries", "3")["entryLimit"] == 3)
        #expect(try figures("limit", cache, "--bytes", "2GB") == ["capacity": 2_000_000_000, "entryLimit": 3])
        #expect(try tilegc("limit", cache, "--bytes", "none", "--json").json()["capacity"] is NSNull)
    }
}

extension BlobDigest {
    fileprivate init(hashing data: Data) { self = data.withUnsafeBytes { BlobDigest(hashing: $0) } }
}
