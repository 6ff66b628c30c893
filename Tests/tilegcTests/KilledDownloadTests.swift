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

/// An app that is killed while it downloads a region goes on where it was.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct KilledDownloadTests {
    /// Answers so many requests and holds back what comes then.
    private struct Dam: Sendable {
        private let left: Locked<Int>
        init(_ left: Int) { self.left = Locked(left) }
        func mayPass() -> Bool {
            left.withLock { left in
                left -= 1
                return left >= 0
            }
        }
    }

    /// Tiles are stale as soon as they are there: that they were stored is enough.
    @Test(arguments: ["max-age=3600", "max-age=0"])
    func aDownloadThatIsKilledThreeTimesAsksForNoStoredTileAgain(lifetime: String) async throws {
        let scratch = try Scratch()
        let cache = scratch("cache")
        let site = TileSite(zooms: 0...5, fields: [.cacheControl: lifetime])
        let total = site.paths.count
        let dam = Locked(Dam(0))
        let shut = Gate()
        let origin = try await LocalOrigin.start { request in
            var answer = site.answer(request)
            if !dam.withLock({ $0 }).mayPass() { answer.gate = shut }
            return answer
        }
        var asked = 0
        for _ in 1...3 {
            dam.withLock { $0 = Dam(300) }
            let child = try Child([cache, origin.url, "5"], of: Child.regionDownload)
            // All four that are under way hang at the server.
            await origin.arrivals(asked + 304)
            child.send(SIGKILL)
            #expect(try child.wait().signal == SIGKILL)
            await origin.connectionsClosed()
            asked = origin.requests.count
            // None of those that were stored may come up again.
            let stored = try self.stored(in: cache)
            #expect(stored.count == Set(origin.requests.map(\.path)).count - 4, "what was answered was stored")
            try verify(cache)
        }
        dam.withLock { $0 = Dam(.max) }
        let outcome = try Child([cache, origin.url, "5"], of: Child.regionDownload).wait()
        #expect(
            outcome.text
                == "resumed=true total=\(total) fetched=\(total - 900) unchanged=900 complete=true left=0\n",
            "\(outcome.messages)")
        // Each tile once, but for the four that were under way at each of the three kills.
        #expect(Set(origin.requests.map(\.path)).count == total)
        #expect(origin.requests.count == total + 3 * 4)
        #expect(origin.requests.allSatisfy { $0.fields[.ifNoneMatch] == nil })
        #expect(try FileManager.default.contentsOfDirectory(atPath: cache + "/downloads").isEmpty)
        try verify(cache)
    }

    /// All that a style names, its tiles by their URLs; what comes is stale as soon as it is there.
    @Test func aStyledMapThatIsKilledThreeTimesAsksForNothingStoredAgain() async throws {
        let scratch = try Scratch()
        let cache = scratch("cache")
        let fields: HTTPFields = [.cacheControl: "max-age=0"]
        let pages = Locked(TileSite(zooms: 0...4, fields: fields))
        let dam = Locked(Dam(0))
        let shut = Gate()
        let origin = try await LocalOrigin.start { request in
            var answer = pages.withLock { $0 }.answer(request)
            if !dam.withLock({ $0 }).mayPass() { answer.gate = shut }
            return answer
        }
        pages.withLock { [url = origin.url] site in
            let style = #"{"sprite": "\#(url)/signs", "sources": {"a": {"type": "raster", "url": "\#(url)/a.json"}}}"#
            let tiles = #"{"maxzoom": 4, "tiles": ["\#(url)/{z}/{x}/{y}.png"]}"#
            site.set("/style.json", Array(style.utf8), type: "application/json", fields: fields)
            site.set("/a.json", Array(tiles.utf8), type: "application/json", fields: fields)
            for name in ["/signs.json", "/signs.png", "/signs@2x.json", "/signs@2x.png"] {
                site.set(name, Array(name.utf8), fields: fields)
            }
        }
        let total = 341 + 6
        var asked = 0
        for _ in 1...3 {
            dam.withLock { $0 = Dam(100) }
            let child = try Child([cache, origin.url, "4", "/style.json"], of: Child.regionDownload)
            await origin.arrivals(asked + 104)
            child.send(SIGKILL)
            #expect(try child.wait().signal == SIGKILL)
            await origin.connectionsClosed()
            asked = origin.requests.count
            #expect(try stored(in: cache).count == Set(origin.requests.map(\.path)).count - 4)
            try verify(cache)
        }
        dam.withLock { $0 = Dam(.max) }
        let outcome = try Child([cache, origin.url, "4", "/style.json"], of: Child.regionDownload).wait()
        #expect(
            outcome.text == "resumed=true total=\(total) fetched=\(total - 300) unchanged=300 complete=true left=0\n",
            "\(outcome.messages)")
        #expect(Set(origin.requests.map(\.path)).count == total && origin.requests.count == total + 3 * 4)
        #expect(origin.requests.allSatisfy { $0.fields[.ifNoneMatch] == nil })
        let region = try #require(try succeed("regions", cache, "--json").jsonLines().first)
        #expect(region["resources"] as? Int == total && region["presentResources"] as? Int == total)
        #expect(region["name"] as? String == "world" && region["tiles"] as? Int == 0)
        #expect(try succeed("regions", cache).text.contains("\(total) of \(total) resources"))
        #expect(try Child(["export", cache, scratch("x.pmtiles"), "--region", "world"]).wait().status != 0)
        try verify(cache)
        _ = try succeed("regions", "rm", cache, "world")
        #expect(try stored(in: cache).isEmpty)
    }

    private func stored(in cache: String) throws -> [String] {
        try succeed("ls", cache, "--json").jsonLines().compactMap { $0["key"] as? String }
    }

    private func verify(_ cache: String) throws {
        let report = try succeed("verify", cache, "--json").json()
        #expect((report["foreignFiles"] as? [Any])?.isEmpty == true)
    }
}
