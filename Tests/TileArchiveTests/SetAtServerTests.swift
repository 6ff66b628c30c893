import ContentCoding
import Foundation
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileCacheArchive
import TileSets
import TileStore
import TileStoreTesting

@testable import TileCache

/// Published sets at a server as sources of a cache.
@Suite("Sets at a server, in the library", .timeLimit(.minutes(60)))
struct SetAtServerTests {
    private static let url = "https://files.example/maps/set.json"

    /// Lists are kept in one place for the whole process.
    private let salt = " \(UUID())"

    private func png(_ text: String) -> Data { TestPicture.png(text + salt) }

    private func lab(
        _ publisher: PublisherInLab, fields: HTTPFields = [.cacheControl: "max-age=60"], capacity: Int? = nil
    ) throws -> (ServerLab, FolderSite) {
        let maps = publisher.folder + "/maps"
        if !FileManager.default.fileExists(atPath: maps) {
            try FileManager.default.createSymbolicLink(atPath: maps, withDestinationPath: publisher.folder + "/set")
        }
        let site = FolderSite(publisher.folder, fields: fields)
        return (try ServerLab(capacity: capacity) { try site.answer($0) }, site)
    }

    private func source(
        version: String? = nil, _ change: (inout TileSource) -> Void = { _ in }
    ) throws -> TileSource {
        var source = try TileSource("s", archiveAt: Self.url, version: version)
        change(&source)
        return source
    }

    /// Expects the tiles of zoom 2, row 1, by their columns, and no others there.
    private func expect(
        _ lab: ServerLab, _ source: TileSource, _ tiles: [Int: String], _ note: String, mode: LoadMode = .standard
    ) async throws {
        for x in 0..<4 {
            let tile = try await lab.tile(source, x, mode)
            #expect(tile?.data == tiles[x].map(png), "\(note): \(x)")
            #expect(tile?.isAbsent == (tiles[x] == nil), "\(note): \(x)")
        }
    }

    private func object(_ text: String) -> String {
        "/maps/" + SetPaths.blob(png(text).withUnsafeBytes { BlobDigest(hashing: $0) })
    }

    // MARK: What is right

    @Test(arguments: [nil, "max-age=60", "no-cache", "max-age=0, must-revalidate"])
    func eachFileIsFetchedOnceAndEqualTilesAreOneFile(control: String?) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        let (lab, _) = try lab(publisher, fields: control.map { [.cacheControl: $0] } ?? [:])
        let source = try source()
        let first = try #require(try await lab.tile(source, 0))
        #expect(first.data == png("sea") && first.mediaType == "image/png" && first.origin == .network)
        #expect(first.key == (try TileKey(source: "s", z: 2, x: 0, y: 1)) && first.status == 200)
        try await expect(lab, source, [0: "sea", 1: "sea", 2: "land"], "the first version")
        let asked = lab.transport.paths()
        #expect(asked.count == 5 && Set(asked).count == 5, "set.json, root, chunk, two bodies: \(asked)")
        #expect(asked.first == "/maps/set.json" && asked.contains(object("sea")) && asked.contains(object("land")))
        let hit = try #require(try await lab.tile(source, 1))
        #expect(hit.origin.isFromCache && hit.etag == first.etag && hit.freshUntil > lab.clock.now)
        #expect(try await lab.tile(source, 1, z: 7)?.isAbsent == true)
        #expect(lab.transport.paths().isEmpty && lab.events.isEmpty)
    }

    @Test func aNewVersionIsTakenUpWithinTenSecondsAndCostsWhatIsNew() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        // However fresh its server says that set.json is.
        let (lab, _) = try lab(publisher, fields: [.cacheControl: "max-age=86400, stale-while-revalidate=86400"])
        let source = try source()
        try await expect(lab, source, [0: "sea", 1: "sea", 2: "land"], "the first version")
        _ = lab.transport.paths()
        for _ in 0..<3 {
            lab.clock.advance(seconds: 9)
            try await expect(lab, source, [0: "sea", 1: "sea", 2: "land"], "nothing new")
        }
        #expect(lab.transport.paths() == ["/maps/set.json", "/maps/set.json", "/maps/set.json"])
        try publisher.publish([0: "sea", 1: "city", 3: "land"])
        lab.clock.advance(seconds: 9)
        try await expect(lab, source, [0: "sea", 1: "city", 3: "land"], "the second version")
        let asked = lab.transport.paths()
        #expect(asked.count == 4 && asked.contains(object("city")), "set.json, root, chunk, one body: \(asked)")
    }

    @Test func versionsNeverChangeAndStandBesideEachOther() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, _) = try lab(publisher)
        let old = try source(version: String(publisher.versions[0].root.prefix(8)))
        try await expect(lab, old, [0: "sea", 2: "land"], "asked for at first")
        try publisher.publish([0: "ice", 1: "city"])
        lab.clock.advance(seconds: 10)
        try await expect(lab, try source(), [0: "ice", 1: "city"], "the latest version")
        _ = lab.transport.paths()
        for _ in 0..<3 {
            lab.clock.advance(seconds: 86_400)
            try await expect(lab, old, [0: "sea", 2: "land"], "the old version")
        }
        #expect(lab.transport.paths().isEmpty, "nobody is asked for what never changes")
        #expect((try await lab.tile(old, 0))?.freshUntil.seconds ?? 0 > lab.clock.now.seconds + 30_000_000)
        let none = try source(version: "00000000")
        let error = await lab.failure(none, 0)
        #expect(error?.code == .invalidSource && error?.message.contains("no version 00000000") == true)
    }

    @Test func manyAskersAreOneRequestForEachFile() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        let (lab, _) = try lab(publisher)
        let (source, png) = (try source(), png)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<60 {
                group.addTask {
                    let tile = try await lab.tile(source, number % 3)
                    #expect(tile?.data == png(number % 3 == 2 ? "land" : "sea"))
                }
            }
            try await group.waitForAll()
        }
        let asked = lab.transport.paths()
        #expect(asked.count == 5 && Set(asked).count == 5, "\(asked)")
    }

    // MARK: Modes, and no server

    @Test func withoutItsServerWhatIsCachedIsServed() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        #expect(try await lab.tile(try source(), 0) != nil)
        site.isAway(true)
        // A process that knows nothing yet.
        try lab.reopen()
        lab.clock.advance(seconds: 3600)
        let source = try source()
        let old = try #require(try await lab.tile(source, 0))
        #expect(old.data == png("sea") && old.origin == .stale(.error) && old.freshUntil <= lab.clock.now)
        #expect(try await lab.tile(source, 1)?.isAbsent == true, "its list says so")
        // What was never looked at.
        let error = await lab.failure(source, 2)
        #expect(error?.code == .noAnswer || error?.code == .waiting)
        site.isAway(false)
        lab.cache.forgetFailures()
        try await expect(lab, source, [0: "sea", 2: "land"], "the server is back")
    }

    @Test func eachModeAsksWhomItSays() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let source = try source()
        #expect(try await lab.tile(source, 0, .cacheOnly) == nil)
        #expect(lab.transport.paths().isEmpty)
        // Nothing is read from the cache, and nothing stored.
        try await expect(lab, source, [0: "sea", 2: "land"], "the server alone", mode: .serverOnly)
        #expect(try lab.keys().isEmpty)
        #expect(lab.transport.paths().filter { $0 == "/maps/set.json" }.count == 4)
        try await expect(lab, source, [0: "sea", 2: "land"], "the cache first", mode: .cacheThenServer)
        _ = lab.transport.paths()
        try publisher.publish([0: "ice", 2: "land"])
        lab.clock.advance(seconds: 3600)
        try await expect(lab, source, [0: "sea", 2: "land"], "what is cached, however old", mode: .cacheThenServer)
        try await expect(lab, source, [0: "sea", 2: "land"], "the cache alone", mode: .cacheOnly)
        #expect(lab.transport.paths().isEmpty)
        try await expect(lab, source, [0: "ice", 2: "land"], "the server first", mode: .serverThenCache)
        let asked = lab.transport.paths()
        #expect(asked.filter { $0 == "/maps/set.json" }.count == 4 && asked.count == 7, "\(asked)")
        site.isAway(true)
        try await expect(lab, source, [0: "ice", 2: "land"], "no server", mode: .serverThenCache)
        #expect(await lab.failure(source, 0, .serverOnly) != nil)
    }

    @Test(arguments: [false, true])
    func listsAreNotEvictedBeforeTheTilesThatTheyLeadTo(isNamed: Bool) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher, capacity: 20 * 4096)
        func source() throws -> TileSource {
            try self.source(version: isNamed ? publisher.versions[0].root : nil)
        }
        let map = try source()
        for number in 0..<40 {
            // Only their tile is asked for; they are in memory.
            #expect(try await lab.tile(map, 0)?.data == png("sea"))
            lab.clock.advance(seconds: 120)
            try lab.cache.store.put(
                TestPicture.png("filler \(number)"), for: try TileKey(source: "other", z: 9, x: number, y: 0),
                metadata: TileMetadata(storedAt: lab.clock.now, expires: lab.clock.now))
        }
        #expect(try lab.keys().filter { $0.hasPrefix("other/") }.count < 20, "the others were evicted")
        site.isAway(true)
        try lab.reopen()
        #expect(try await lab.tile(try source(), 0)?.data == png("sea"))
    }

    // MARK: What goes wrong

    @Test func whatIsGoneIsLookedForOnceMore() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let source = try source()
        #expect(try await lab.tile(source, 0) != nil)
        try publisher.publish([0: "sea", 2: "ice"])
        let gone = object("land")
        site.twist { request, answer in if request.path == gone { answer = SiteAnswer(status: 404) } }
        lab.clock.advance(seconds: 5)
        _ = lab.transport.paths()
        // The old list names it still; then set.json is read anew, though it counts as fresh.
        #expect(try await lab.tile(source, 2)?.data == png("ice"))
        #expect(lab.transport.paths().filter { $0 == "/maps/set.json" }.count == 1)
        // What the newest list names and the server has not is an error, after one look at set.json.
        let missing = object("ice")
        site.twist { request, answer in if request.path == missing { answer = SiteAnswer(status: 404) } }
        _ = try lab.cache.store.remove([try TileKey("s:set/\(missing.suffix(64))")])
        lab.clock.advance(seconds: 5)
        let error = await lab.failure(source, 2)
        #expect(error?.code == .badBody, "\(String(describing: error))")
        #expect(lab.transport.paths().filter { $0 == "/maps/set.json" }.count == 1)
    }

    @Test func whatIsNotWhatItsNameSaysIsNeitherServedNorStored() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher)
        let (source, body) = (try source(), object("sea"))
        site.twist { request, answer in if request.path == body { answer.body = TestPicture.png("another") } }
        #expect(await lab.failure(source, 0) != nil)
        #expect(lab.transport.paths().count < 8)
        #expect(try lab.keys().allSatisfy { !$0.contains(body.suffix(64)) })
        for wrong in ["", "{}", "{\"format\":\"tile-set\"", String(repeating: "[", count: 100_000)] {
            let (lab, site) = try self.lab(publisher)
            site.twist { request, answer in if request.path == "/maps/set.json" { answer.body = Data(wrong.utf8) } }
            let error = await lab.failure(source, 0)
            #expect(error?.code == .badBody, "\(wrong.prefix(20)): \(String(describing: error))")
            #expect(try lab.keys().isEmpty)
        }
    }

    @Test func secretsAreSentAndNeverKept() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, _) = try lab(publisher)
        var source = try TileSource("s", archiveAt: Self.url + "?token={key}", values: ["key": "hush-1"])
        source.headers[.authorization] = "hush-2"
        source.prepare = { request, _ in request.headerFields[.cookie] = "hush-3" }
        #expect(try await lab.tile(source, 0)?.data == png("sea"))
        let asked = lab.transport.requests()
        #expect(asked.count == 4)
        for request in asked {
            #expect(request.path?.hasSuffix("?token=hush-1") == true)
            #expect(request.headerFields[.authorization] == "hush-2" && request.headerFields[.cookie] == "hush-3")
        }
        #expect(!lab.textOnDisk().contains("hush"))
    }

    @Test func regionsOfASetAreDownloadedWithoutANameAlone() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let source = try source()
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let coverage = try source.coverage(.box(world), zooms: 2...2)
        await #expect(throws: TileCacheError.self) { try await lab.cache.download(source, coverage, named: "all") }
        let report = await (try await lab.cache.download(source, coverage)).report()
        #expect(report.progress.failed == 0 && report.stoppedBy == nil && report.progress.absent == 13, "\(report)")
        site.isAway(true)
        try await expect(lab, source, [0: "sea", 1: "sea", 2: "land"], "all of it is here", mode: .cacheOnly)
    }

    @Test(arguments: [
        "ftp://files.example/set.json", "file:///maps/set.json", "https://files.example/maps/", "set.json",
        "https://files.example/map.mbtiles", "https://files.example/{z}/set.json",
    ])
    func whatIsNoArchiveAtAServerIsRefused(url: String) {
        #expect(throws: TileCacheError.self) { try TileSource("s", archiveAt: url) }
    }

    @Test(arguments: ["", "1234567", "1234567G", "ABCDEF01", String(repeating: "0", count: 65)])
    func whatIsNoVersionIsRefused(version: String) {
        #expect(throws: TileCacheError.self) { try TileSource("s", archiveAt: Self.url, version: version) }
        #expect(throws: TileCacheError.self) {
            try TileSource("s", archiveAt: "https://files.example/a.pmtiles", version: "12345678")
        }
    }
}

extension TileOrigin {
    /// Fresh, from the cache alone.
    fileprivate var isFromCache: Bool { self == .memory || self == .disk }
}
