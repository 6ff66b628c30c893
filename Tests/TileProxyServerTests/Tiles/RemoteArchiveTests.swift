import ContentCoding
import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileCache
import TileCacheArchive
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// PMTiles at a server as sources of the proxy, asked over a socket.
@Suite(.timeLimit(.minutes(60)))
struct RemoteArchiveTests {
    private static let url = "https://files.example/w.pmtiles"

    private func with(
        _ site: ArchiveSite, _ change: (inout SourceConfiguration) -> Void = { _ in },
        _ body: (TileLab) async throws -> Void
    ) async throws {
        try await TileLab.with("w=" + Self.url, change, origin: { try TileLab.Answer(site.answer($0)) }, body)
    }

    private func leaves(_ text: String = "a") throws -> Data {
        try TestArchive.bytes(TestArchive.pictures(0...4, text), leafOf: 100)
    }

    // MARK: What is right

    @Test(arguments: [nil, 50] as [Int?], [true, false])
    func tilesAreThoseOfTheSameFile(leafOf: Int?, packs: Bool) async throws {
        var tiles = TestArchive.pictures(0...4, "a")
        for hole in [5, 77, 200] as [UInt64] { tiles[hole] = nil }
        let bytes = try TestArchive.bytes(tiles, leafOf: leafOf, packs: packs)
        let path = NSTemporaryDirectory() + "remote-\(UUID()).pmtiles"
        try bytes.write(to: URL(fileURLWithPath: path))
        defer { unlink(path) }
        let local = try ArchiveFormat.pmtiles.open(path)
        let site = ArchiveSite(bytes)
        try await with(site) { lab in
            for z in 0...4 {
                for x in 0..<(1 << z) {
                    for y in 0..<(1 << z) {
                        let answer = try await lab.get("/tiles/w/\(z)/\(x)/\(y).png")
                        guard let tile = try local.tile(z: z, x: x, y: y) else {
                            #expect(answer.status == 404 && answer[.cacheControl] == "public, max-age=60")
                            continue
                        }
                        #expect(answer.status == 200 && answer.body == tile.data && answer[.eTag] == tile.etag)
                        #expect(answer[.contentType] == tile.mediaType && answer[.cacheControl] == "public, max-age=60")
                    }
                }
            }
            let asked = lab.origin.ranges()
            let directories = leafOf.map { ($0 + 337) / $0 } ?? 0
            #expect(asked.count == 1 + directories + tiles.count, "each part once, and no tile that is not there")
            #expect(Set(asked).count == asked.count && asked[0] == "bytes=0-16383")
            #expect(try await lab.get("/tiles/w/3/1/1.png")[.cacheStatus] == "tileproxy; hit; ttl=60")
            #expect(try await lab.get("/tiles/w/6/1/1.png").status == 404)
            #expect(lab.origin.count == 0)
        }
    }

    @Test func vectorTilesGoOutAsTheClientTakesThem() async throws {
        let plain = Data([0x1A, 4]) + Data("some layer of a vector tile, some layer of a vector tile".utf8)
        let gzip = try Gzip.encode(plain)
        let site = ArchiveSite(try TestArchive.bytes([0: gzip, 1: plain], type: 1))
        try await with(site) { lab in
            let packed = try await lab.get("/tiles/w/0/0/0.pbf", [.acceptEncoding: "gzip"])
            #expect(packed.body == gzip && packed[.contentEncoding] == "gzip")
            #expect(packed[.contentType] == "application/vnd.mapbox-vector-tile")
            #expect(try await lab.get("/tiles/w/0/0/0.pbf", [.acceptEncoding: "identity"]).body == plain)
            let other = try await lab.get("/tiles/w/1/0/0.pbf", [.acceptEncoding: "gzip"])
            #expect(other.body == plain && other[.contentEncoding] == nil)
            let same = try await lab.get("/tiles/w/1/0/0.pbf", [.ifNoneMatch: other[.eTag] ?? ""])
            #expect(same.status == 304)
        }
    }

    @Test func manyTilesAskForTheirDirectoryOnce() async throws {
        let site = ArchiveSite(try TestArchive.bytes(TestArchive.pictures(5...5, "a"), leafOf: 2000))
        try await with(site) { lab in
            try await withThrowingTaskGroup(of: Int.self) { group in
                for x in 0..<32 {
                    group.addTask {
                        var found = 0
                        for y in 0..<16 where try await lab.get("/tiles/w/5/\(x)/\(y)").status == 200 { found += 1 }
                        return found
                    }
                }
                for try await found in group { #expect(found == 16) }
            }
            let asked = lab.origin.ranges()
            #expect(asked.count == 2 + 512 && Set(asked).count == asked.count)
        }
    }

    // MARK: Freshness and versions

    @Test func oneQuestionRenewsAllTiles() async throws {
        let site = ArchiveSite(try leaves())
        try await with(site) { lab in
            for x in 0..<4 { #expect(try await lab.get("/tiles/w/2/\(x)/0").status == 200) }
            lab.clock.advance(seconds: 61)
            _ = lab.origin.ranges()
            let renewed = try await lab.get("/tiles/w/2/0/0")
            #expect(renewed.text.hasSuffix("a 2/0/0") && renewed[.age] == "0")
            #expect(renewed[.cacheStatus] == "tileproxy; fwd=stale; fwd-status=304; ttl=60; stored")
            for x in 1..<4 {
                #expect(try await lab.get("/tiles/w/2/\(x)/0")[.cacheStatus] == "tileproxy; hit; ttl=60")
            }
            lab.clock.advance(seconds: 10)
            let later = try await lab.get("/tiles/w/2/3/0")
            #expect(later[.age] == "10" && later[.cacheControl] == "public, max-age=60")
            #expect(lab.origin.ranges() == ["bytes=0-16383"])
        }
    }

    @Test func ofANewVersionOnlyWhatDiffersIsStoredAndNothingIsMixed() async throws {
        let site = ArchiveSite(try leaves())
        try await with(site) { lab in
            let first = try await lab.get("/tiles/w/2/0/0")
            _ = try await lab.get("/tiles/w/2/1/0")
            let before = try lab.store.statistics()
            var tiles = TestArchive.pictures(0...4, "a")
            tiles[TileID.number(z: 2, x: 1, y: 0)] = TileLab.png("new")
            tiles[TileID.number(z: 2, x: 2, y: 0)] = nil
            site.become(try TestArchive.bytes(tiles, leafOf: 100), tag: "\"2\"")
            #expect(try await lab.get("/tiles/w/2/0/0")[.cacheStatus] == "tileproxy; hit; ttl=60", "not asked yet")
            lab.clock.advance(seconds: 61)
            let same = try await lab.get("/tiles/w/2/0/0", [.ifNoneMatch: first[.eTag] ?? ""])
            #expect(same.status == 304, "for clients it is what it was")
            #expect(try await lab.get("/tiles/w/2/1/0").body == TileLab.png("new"))
            #expect(try await lab.get("/tiles/w/2/2/0").status == 404)
            // Besides the new tile: the beginning and the first leaf.
            #expect(try lab.store.statistics().blobs - before.blobs <= 3)
        }
    }

    /// The file is another one by the time that a directory, or the tile, is asked for.
    @Test(arguments: [1, 2], ["\"2\"", nil])
    func aFileThatChangesInTheMiddleIsOpenedAnew(after: Int, tag: String?) async throws {
        let site = ArchiveSite(try leaves("a"), tag: tag == nil ? nil : "\"1\"")
        let (new, count) = (try leaves("b"), Locked(0))
        site.twist { _, _ in
            let isDue = count.withLock {
                $0 += 1
                return $0 == after
            }
            if isDue { site.become(new, tag: tag, modified: "Tue, 24 Nov 2026 10:00:00 GMT") }
        }
        try await with(site) { lab in
            let answer = try await lab.get("/tiles/w/4/3/3")
            #expect(answer.status == 200 && answer.text.hasSuffix("b 4/3/3"))
            #expect(
                lab.origin.ranges().count == after + 4, "\(after) in vain, one of them refused; start, leaf and tile")
            #expect(try await lab.get("/tiles/w/4/3/2").text.hasSuffix("b 4/3/2"))
        }
    }

    @Test func aFileThatChangesAllTheTimeIsAnError() async throws {
        let site = ArchiveSite(try leaves(), tag: "\"0\"")
        let (bytes, count) = (try leaves(), Locked(0))
        site.twist { _, _ in
            let number = count.withLock {
                $0 += 1
                return $0
            }
            site.become(bytes, tag: "\"\(number)\"")
        }
        try await with(site) { lab in
            let answer = try await lab.get("/tiles/w/4/3/3")
            #expect(answer.status == 502 && answer[.cacheControl] == "no-store")
            #expect(lab.origin.ranges().count == 4, "two beginnings, two parts")
            for _ in 0..<9 {
                let status = try await lab.get("/tiles/w/4/3/3").status
                #expect((502...504).contains(status), "\(status)")
            }
            #expect(lab.origin.ranges().isEmpty, "it is left alone for a while, though its directory failed")
        }
    }

    @Test func whoComesAfterANewVersionIsNotGivenATileOfTheFormerOne() async throws {
        let old = try TestArchive.bytes(TestArchive.pictures(0...3, "a"))
        let new = try TestArchive.bytes(TestArchive.pictures(0...3, "b"))
        let (site, gate, isHeld) = (ArchiveSite(old), TileCacheTesting.Gate(), Locked(false))
        try await TileLab.with("w=" + Self.url) { _ in
        } origin: { request in
            let answer = try TileLab.Answer(site.answer(request))
            if request.headerFields[.ifMatch] == "\"1\"" {
                isHeld.withLock { $0 = true }
                await gate.wait()
            }
            return answer
        } _: { lab in
            async let first = lab.get("/tiles/w/2/0/0")
            while !isHeld.withLock({ $0 }) { await Task.yield() }
            site.become(new, tag: "\"2\"")
            lab.clock.advance(seconds: 61)
            let second = try await lab.get("/tiles/w/2/0/0")
            #expect(second.text.hasSuffix("b 2/0/0") && second[.cacheControl] == "public, max-age=60")
            gate.open()
            #expect(try await first.text.hasSuffix("a 2/0/0"))
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("b 2/0/0"))
        }
    }

    /// A server that says by tag or date that nothing has changed, though the length is another one.
    @Test(arguments: ["\"1\"", nil])
    func aFileThatIsReplacedUnderItsTagIsReadAnew(tag: String?) async throws {
        let site = ArchiveSite(try TestArchive.bytes(TestArchive.pictures(0...3, "a")), tag: tag)
        try await with(site) { lab in
            #expect(try await lab.get("/tiles/w/2/0/0").status == 200)
            site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "longer")), tag: tag)
            #expect(try await lab.get("/tiles/w/2/1/0").text.hasSuffix("longer 2/1/0"))
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("longer 2/0/0"))
        }
    }

    @Test func theQuerySaysWhichArchiveItIsAndAKeyDoesNot() throws {
        func start(_ query: String, _ token: String = "t") throws -> TileKey {
            var source = SourceConfiguration(name: try SourceName("w"), template: "https://h/w.pmtiles" + query)
            source.values = ["token": token]
            return RemoteArchive(source).parts.start.key
        }
        #expect(try start("?id=a") != start("?id=b") && start("") != start("?id=a"))
        #expect(try start("?id=a&key=1") == start("?id=a&key=2"))
        #expect(try start("?id=a&key={token}", "1") == start("?id=a&key={token}", "2"))
    }

    @Test func besideAStrongTagTheDateSaysNothing() async throws {
        let bytes = try leaves()
        let site = ArchiveSite(bytes)
        try await with(site) { lab in
            _ = try await lab.get("/tiles/w/2/0/0")
            site.become(bytes, tag: "\"1\"", modified: "Tue, 24 Nov 2026 10:00:00 GMT")
            lab.clock.advance(seconds: 61)
            _ = lab.origin.ranges()
            #expect(try await lab.get("/tiles/w/2/0/0").status == 200)
            #expect(lab.origin.ranges() == ["bytes=0-16383"])
        }
    }

    @Test func aTileOfAFormerVersionIsNotServedWhileTheNewOneIsAskedFor() async throws {
        let site = ArchiveSite(try leaves("a"))
        site.twist { _, answer in answer.fields[.cacheControl] = "max-age=60, stale-while-revalidate=600" }
        try await with(site) { lab in
            for x in 0..<2 { _ = try await lab.get("/tiles/w/2/\(x)/0") }
            site.become(try leaves("b"), tag: "\"2\"")
            lab.clock.advance(seconds: 61)
            // This one renews the version behind its answer.
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("a 2/0/0"))
            while lab.service.flights.count > 0 { await Task.yield() }
            #expect(try await lab.get("/tiles/w/2/1/0").text.hasSuffix("b 2/1/0"))
        }
    }

    @Test func aTileOfAFormerVersionStandsInWhereTheNewOneCannotBeHad() async throws {
        let site = ArchiveSite(try leaves("a"))
        try await with(site) { lab in
            _ = try await lab.get("/tiles/w/2/0/0")
            site.become(try leaves("b"), tag: "\"2\"")
            lab.clock.advance(seconds: 61)
            site.twist { request, answer in
                if request.headerFields[.range] != "bytes=0-16383" { answer = SiteAnswer(status: 500) }
            }
            let stale = try await lab.get("/tiles/w/2/0/0")
            #expect(stale.text.hasSuffix("a 2/0/0") && stale[.cacheStatus]?.contains("detail=stale-if-error") == true)
            #expect(try await lab.get("/tiles/w/2/1/0").status >= 502, "it was never had")
            site.twist { _, _ in }
            lab.clock.advance(seconds: 30)
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("b 2/0/0"))
        }
    }

    // MARK: Servers that are away

    @Test func theProxyStartsWithoutTheServerAndServesOfflineAfterARestart() async throws {
        var tiles = TestArchive.pictures(0...4, "a")
        tiles[TileID.number(z: 1, x: 0, y: 0)] = nil
        let site = ArchiveSite(try TestArchive.bytes(tiles, leafOf: 100))
        site.isAway(true)
        try await with(site, { $0.title = "Mine" }) { lab in
            #expect(try await lab.get("/tiles/w/2/0/0").status == 502)
            #expect(try await lab.get("/tiles/w.json").text.contains("\"name\":\"Mine\""))
            site.isAway(false)
            lab.clock.advance(seconds: 120)
            #expect(try await lab.get("/tiles/w/2/0/0").status == 200)
            // As after a restart: nothing of it is in memory.
            site.isAway(true)
            try await lab.adopt([SourceConfiguration(name: SourceName("w"), template: Self.url)])
            #expect(try await lab.get("/tiles/w/2/0/0")[.cacheStatus] == "tileproxy; hit; ttl=60")
            lab.clock.advance(seconds: 3600)
            let stale = try await lab.get("/tiles/w/2/0/0")
            #expect(stale.text.hasSuffix("a 2/0/0") && stale[.cacheStatus]?.contains("ttl=-3540") == true)
            #expect(try await lab.get("/tiles/w/2/1/0").status >= 502, "it was never had")
            #expect(try await lab.get("/tiles/w/1/0/0").status == 404, "there never was one")
        }
    }

    @Test func anArchiveThatIsGoneIsAnErrorAndNoAbsence() async throws {
        let site = ArchiveSite(try leaves())
        try await with(site) { lab in
            _ = try await lab.get("/tiles/w/2/0/0")
            site.twist { _, answer in answer = SiteAnswer(status: 404) }
            #expect(try await lab.get("/tiles/w/2/1/0").status == 502)
            lab.clock.advance(seconds: 61)
            let stale = try await lab.get("/tiles/w/2/0/0")
            #expect(stale.status == 200 && stale[.cacheStatus]?.contains("fwd-status=404") == true)
        }
    }

    // MARK: Answers that are not believed

    static let wrong: [(String, @Sendable (HTTPRequest, inout SiteAnswer) -> Void)] = [
        ("all of the file", { $1.status = 200 }),
        ("a short body", { $1.body.removeLast() }),
        ("a long body", { $1.body.append(0) }),
        ("another range", { $1.fields[.contentRange] = "bytes 1-\($1.body.count)/100000" }),
        ("no range", { $1.fields[.contentRange] = nil }),
        ("no length", { $1.fields[.contentRange] = $1.fields[.contentRange]?.replacing(/\/.*/, with: "/*") }),
        ("several parts", { $1.fields[.contentType] = "multipart/byteranges; boundary=b" }),
        ("a coding", { $1.fields[.contentEncoding] = "gzip" }),
        ("no version", { ($1.fields[.eTag], $1.fields[.lastModified]) = (nil, nil) }),
        ("a weak tag alone", { ($1.fields[.eTag], $1.fields[.lastModified]) = ("W/\"1\"", nil) }),
        ("an error", { $1.status = 500 }),
        ("a page", { $1.body = Data("<!DOCTYPE html><p>no".utf8) + $1.body.dropFirst(20) }),
    ]

    @Test(arguments: wrong.indices)
    func aWrongAnswerIsAnErrorAndIsNotStored(index: Int) async throws {
        let (name, twist) = Self.wrong[index]
        for part in 0..<3 {
            let site = ArchiveSite(try leaves())
            let start = "bytes=0-16383"
            site.twist { request, answer in
                let range = request.headerFields[.range] ?? ""
                let isTile = answer.body.starts(with: [0x89])
                let isMeant = part == 0 ? range == start : part == 1 ? range != start && !isTile : isTile
                if isMeant { twist(request, &answer) }
            }
            try await with(site) { lab in
                let answer = try await lab.get("/tiles/w/2/0/0")
                #expect(answer.status == 502 && answer[.cacheControl] == "no-store", "\(name) of part \(part)")
                #expect(try lab.store.statistics().entries == part, "\(name) of part \(part)")
                #expect(lab.origin.count <= 6, "\(name) of part \(part)")
                site.twist { _, _ in }
                lab.clock.advance(seconds: 30)
                #expect(try await lab.get("/tiles/w/2/0/0").status == 200, "\(name) of part \(part)")
            }
        }
    }

    @Test(arguments: ["W/\"1\"", nil])
    func withoutAStrongTagTheTimeAndTheLengthTell(tag: String?) async throws {
        let site = ArchiveSite(try leaves("a"), tag: tag)
        try await with(site) { lab in
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("a 2/0/0"))
            lab.clock.advance(seconds: 61)
            #expect(try await lab.get("/tiles/w/2/0/0")[.cacheStatus]?.contains("fwd-status=304") == true)
            site.become(
                try leaves("b"), tag: tag == nil ? nil : "W/\"2\"", modified: "Tue, 24 Nov 2026 10:00:00 GMT")
            #expect(try await lab.get("/tiles/w/2/1/0").text.hasSuffix("b 2/1/0"), "noticed by the tile's range")
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("b 2/0/0"))
        }
    }

    @Test func whatExpandsOrClaimsTooMuchIsRefused() async throws {
        let picture = TestArchive.pictures(0...0, "a")
        // A root and a leaf that expand to 9 MiB.
        let bomb = try Gzip.encode(Data(count: 9 << 20))
        let root = try TestArchive.file(root: bomb, Data(), Data(count: 9)) { $0.internalCompression = .gzip }
        let toLeaf = PMTilesDirectory.encode([PMTilesEntry(tile: 0, offset: 0, length: UInt32(bomb.count), run: 0)])
        let leaf = try TestArchive.file(root: Gzip.encode(toLeaf), bomb, Data(count: 9)) {
            $0.internalCompression = .gzip
        }
        // A leaf of more bytes than a directory may have, and one that leads back to itself.
        let long = PMTilesDirectory.encode([PMTilesEntry(tile: 0, offset: 0, length: 9 << 20, run: 0)])
        let longLeaf = try TestArchive.file(root: long, Data(count: 9 << 20), Data(count: 9)) {
            $0.internalCompression = .none
        }
        let itself = PMTilesDirectory.encode([PMTilesEntry(tile: 0, offset: 0, length: 6, run: 0)])
        let circle = try TestArchive.file(root: itself, itself.prefix(6), Data(count: 9)) {
            $0.internalCompression = .none
        }
        let cases: [(String, Data, Int)] = [
            ("root", root, 1), ("leaf", leaf, 2), ("long leaf", longLeaf, 1), ("circle", circle, 5),
            ("outside", try TestArchive.bytes(picture) { $0.data.length = 1 << 50 }, 1),
            ("far root", try TestArchive.bytes(picture) { $0.root.offset = 1 << 62 }, 1),
            ("another format", Data("SQLite format 3\0".utf8) + Data(count: 200), 1),
            ("zstd", try TestArchive.bytes(picture) { $0.internalCompression = .zstd }, 1),
            ("empty", Data([0]), 1),
        ]
        for (name, bytes, requests) in cases {
            try await with(ArchiveSite(bytes)) { lab in
                let answer = try await lab.get("/tiles/w/0/0/0")
                #expect(answer.status == 502, "\(name)")
                #expect(lab.origin.ranges().count <= requests, "\(name)")
            }
        }
        try await with(ArchiveSite(try TestArchive.bytes(picture)), { $0.bodyLimit = 5 }) { lab in
            let answer = try await lab.get("/tiles/w/0/0/0")
            #expect(answer.status == 502)
            #expect(lab.origin.ranges().count == 1, "a tile that is too large is not asked for")
        }
    }

    // MARK: What else belongs to it

    @Test func redirectsCarryTheRangeAndItsVersion() async throws {
        let site = ArchiveSite(try leaves())
        try await TileLab.with(
            "w=" + Self.url, { $0.headers = [.authorization: "secret"] },
            origin: { request in
                guard request.authority == "files.example" else { return try TileLab.Answer(site.answer(request)) }
                return TileLab.Answer(status: 302, fields: [.location: "https://cdn.example/w.pmtiles"])
            }
        ) { lab in
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("a 2/0/0"))
            let last = try #require(lab.origin.asked.withLock { $0.last })
            #expect(last.authority == "cdn.example" && last.headerFields[.ifMatch] == "\"1\"")
            #expect(last.headerFields[.authorization] == nil && last.headerFields[.acceptEncoding] == "identity")
        }
    }

    @Test func valuesAreForTheURLAndForNothingElse() async throws {
        let site = ArchiveSite(try leaves())
        let change: (inout SourceConfiguration) -> Void = {
            ($0.template, $0.values) = (Self.url + "?key={token}", ["token": "s3cret"])
        }
        try await with(site, change) { lab in
            let answer = try await lab.get("/tiles/w/2/0/0")
            #expect(answer.status == 200)
            #expect(lab.origin.asked.withLock { $0.allSatisfy { $0.path == "/w.pmtiles?key=s3cret" } })
            let description = try await lab.get("/tiles/w.json")
            #expect(!description.text.contains("s3cret"))
        }
    }

    @Test func tileJSONSaysWhatTheArchiveSays() async throws {
        let metadata = """
            {"name": "Our roads", "attribution": "© people", "vector_layers": [{"id": "roads", "fields": {}}]}
            """
        let site = ArchiveSite(
            try TestArchive.bytes([0: Gzip.encode(Data([0x1A, 0]))], type: 1, metadata: metadata) {
                $0.maxZoom = 3
                $0.bounds = (-100_000_000, -50_000_000, 100_000_000, 50_000_000)
            })
        try await with(site) { lab in
            for _ in 0..<2 {
                let answer = try await lab.get("/tiles/w.json")
                let json = try #require(try JSONSerialization.jsonObject(with: answer.body) as? [String: Any])
                #expect(json["name"] as? String == "Our roads" && json["attribution"] as? String == "© people")
                #expect(json["maxzoom"] as? Int == 3 && json["bounds"] as? [Double] == [-10, -5, 10, 5])
                #expect((json["tiles"] as? [String])?.first?.hasSuffix("/tiles/w/{z}/{x}/{y}.pbf") == true)
                #expect((json["vector_layers"] as? [[String: Any]])?.first?["id"] as? String == "roads")
            }
            #expect(lab.origin.ranges().count == 2, "the beginning and the metadata")
        }
    }

    /// Nothing may be stored, and the bytes of a part are known all the same.
    @Test func whatMustNotBeStoredIsAskedForEachTime() async throws {
        let site = ArchiveSite(try leaves())
        site.twist { $1.fields[.cacheControl] = "no-store" }
        try await with(site) { lab in
            for _ in 0..<2 {
                let answer = try await lab.get("/tiles/w/2/0/0")
                #expect(answer.text.hasSuffix("a 2/0/0") && answer[.cacheControl] == "no-store")
            }
            #expect(lab.origin.ranges().count == 5, "the directory stays in memory")
            #expect(try lab.store.statistics().entries == 0)
        }
    }

    @Test func pastTheLastZoomTilesAreMadeFromItsTiles() async throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let picture = try Data(contentsOf: root.appendingPathComponent("Sample/world/0/0/0.png"))
        let site = ArchiveSite(try TestArchive.bytes([0: picture]))
        try await with(site, { ($0.zooms, $0.overzoom) = (0...0, 2) }) { lab in
            let tile = try await lab.get("/tiles/w/1/1/0.png")
            #expect(tile.status == 200 && tile[.contentType] == "image/png" && tile.body != picture)
            #expect(tile[.cacheControl] == "public, max-age=60")
            lab.clock.advance(seconds: 7)
            let hit = try await lab.get("/tiles/w/1/1/0.png")
            #expect(hit.body == tile.body && hit[.age] == "7" && hit[.eTag] == tile[.eTag])
            #expect(lab.origin.ranges().count == 2)
            #expect(try await lab.get("/tiles/w/3/0/0.png").status == 404)
        }
    }

    @Test func onlyIfCachedAsksNobody() async throws {
        let site = ArchiveSite(try leaves())
        try await with(site) { lab in
            #expect(try await lab.get("/tiles/w/2/0/0", [.cacheControl: "only-if-cached"]).status == 504)
            #expect(lab.origin.count == 0)
            _ = try await lab.get("/tiles/w/2/0/0")
            #expect(try await lab.get("/tiles/w/2/0/0", [.cacheControl: "only-if-cached"]).status == 200)
        }
    }

    @Test func twoArchivesOfOneNameShareNoVersion() async throws {
        let (one, two) = (ArchiveSite(try leaves("a")), ArchiveSite(try leaves("b"), tag: "\"9\""))
        try await TileLab.with(
            "w=" + Self.url, origin: { try TileLab.Answer($0.path == "/w.pmtiles" ? one.answer($0) : two.answer($0)) }
        ) { lab in
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("a 2/0/0"))
            try await lab.adopt([
                SourceConfiguration(name: SourceName("w"), template: "https://files.example/other.pmtiles")
            ])
            #expect(try await lab.get("/tiles/w/2/0/0").text.hasSuffix("b 2/0/0"))
        }
    }
}
