import ContentCoding
import Foundation
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileCacheArchive
import TileCacheTesting
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
        // They were in memory, and not stored: that is made up for behind the tiles.
        while try lab.keys().filter({ $0.hasSuffix(".gz") }).count < 2 { await Task.yield() }
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

    // MARK: A new version that cannot be had

    /// Once the new `set.json` was stored, nothing was served until its lists could be had, though all of the former version was here.
    @Test func theFormerVersionIsShownWhileTheNewOneCannotBeHad() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        for x in [0, 1, 2] { #expect(try await lab.tile(map, x) != nil) }
        try publisher.publish([0: "ice", 1: "city"])
        // Whoever copied it was not done: `set.json` is there, and nothing else.
        site.twist { request, answer in
            if request.path != "/maps/set.json" { answer = SiteAnswer(status: 404) }
        }
        lab.clock.advance(seconds: 10)
        let old = try #require(try await lab.tile(map, 0))
        #expect(old.data == png("sea") && old.origin == .stale(.error) && old.freshUntil <= lab.clock.now)
        // Then the network is gone too, and the process ends.
        site.isAway(true)
        try lab.reopen()
        for mode in [LoadMode.standard, .cacheOnly, .cacheThenServer, .serverThenCache] {
            let map = try source()
            #expect(try await lab.tile(map, 0, mode)?.data == png("sea"), "\(mode)")
            #expect(try await lab.tile(map, 1, mode)?.isAbsent == true, "\(mode)")
            #expect(try await lab.tile(map, 2, mode)?.origin == .stale(mode == .cacheOnly ? .offline : .error))
        }
        // What was never looked at is of no version.
        #expect(
            try await lab.tile(try source(), 0, z: 5, .cacheOnly)?.isAbsent == true, "the former version's list says so"
        )
        _ = try lab.cache.store.remove([try TileKey("s:set/\(object("land").suffix(64))")])
        #expect(try await lab.tile(try source(), 2, .cacheOnly) == nil)
        #expect(await lab.failure(try source(), 2) != nil)
        #expect(await lab.failure(try source(), 0, .serverOnly) != nil)
        site.isAway(false)
        site.twist { _, _ in }
        lab.cache.forgetFailures()
        try await expect(lab, try source(), [0: "ice", 1: "city"], "all of the new version is there")
    }

    @Test func theFormerVersionIsNotShownWhereItsServerForbidsStaleAnswers() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher, fields: [.cacheControl: "max-age=60, must-revalidate"])
        var map = try source()
        #expect(try await lab.tile(map, 0) != nil)
        try publisher.publish([0: "ice"])
        site.twist { request, answer in
            if request.path != "/maps/set.json" { answer = SiteAnswer(status: 503) }
        }
        lab.clock.advance(seconds: 10)
        #expect(await lab.failure(map, 0) != nil)
        #expect(try await lab.tile(map, 0, .cacheOnly)?.data == png("sea"), "nobody may be asked")
        map.offlineUse = .always
        #expect(try await lab.tile(map, 0)?.data == png("sea"), "who describes the source wants it")
    }

    @Test func aDownloadIsNotDoneByTheFormerVersion() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let coverage = try map.coverage(.box(world), zooms: 2...2)
        _ = await (try await lab.cache.download(map, coverage)).report()
        try publisher.publish([0: "ice", 2: "land"])
        site.twist { request, answer in
            if request.path != "/maps/set.json" { answer = SiteAnswer(status: 404) }
        }
        lab.clock.advance(seconds: 10)
        let report = await (try await lab.cache.download(map, coverage)).report()
        #expect(report.progress.failed > 0 || report.stoppedBy != nil, "\(report)")
    }

    /// It was shown for as long as the new one could not be had, whatever its server said of stale answers.
    @Test func theFormerVersionIsShownForAsLongAsItsServerAllows() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher, fields: [.cacheControl: "max-age=60, stale-if-error=30"])
        let map = try source()
        #expect(try await lab.tile(map, 0) != nil)
        lab.clock.advance(seconds: 1_700_000_000 + 20 - lab.clock.now.seconds)
        try publisher.publish([0: "ice"])
        site.twist { request, answer in
            if request.path != "/maps/set.json" { answer = SiteAnswer(status: 503) }
        }
        lab.clock.advance(seconds: 10)
        #expect(try await lab.tile(map, 0)?.data == png("sea"))
        lab.clock.advance(seconds: 60)
        #expect(await lab.failure(map, 0) != nil)
    }

    /// A tile that the newest list names was said not to be there, by the former one's list.
    @Test func theFormerVersionDoesNotSayThatThereIsNoTile() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        #expect(try await lab.tile(map, 0) != nil)
        try publisher.publish([0: "sea", 2: "land"])
        let missing = object("land")
        site.twist { request, answer in if request.path == missing { answer = SiteAnswer(status: 404) } }
        lab.clock.advance(seconds: 10)
        #expect(await lab.failure(map, 2) != nil)
        #expect(try await lab.tile(map, 0)?.data == png("sea"))
    }

    /// The list was asked for with every look, for as long as it was missing.
    @Test func whatIsMissingIsLeftAloneForLonger() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        #expect(try await lab.tile(map, 0) != nil)
        try publisher.publish([0: "ice"])
        site.twist { request, answer in
            if request.path != "/maps/set.json" { answer = SiteAnswer(status: 404) }
        }
        lab.clock.advance(seconds: 10)
        _ = lab.transport.paths()
        for _ in 0..<600 {
            lab.clock.advance(seconds: 1)
            #expect(try await lab.tile(map, 0)?.data == png("sea"))
        }
        let asked = lab.transport.paths()
        #expect(asked.filter { $0 != "/maps/set.json" }.count < 60, "\(asked.count)")
        #expect(asked.count < 150, "\(asked.count)")
    }

    /// One that was on its way for longer than the next one put the former version back.
    @Test func anOlderDocumentThatComesLateIsNotBelieved() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher)
        let old = try Data(contentsOf: URL(fileURLWithPath: publisher.path))
        let map = try source()
        #expect(try await lab.tile(map, 0) != nil)
        try publisher.publish([0: "ice"])
        lab.clock.advance(seconds: 10)
        #expect(try await lab.tile(map, 0)?.data == png("ice"))
        let isFirst = Locked(true)
        site.twist { request, answer in
            guard request.path == "/maps/set.json" else { return }
            if isFirst.withLock({ first in
                defer { first = false }
                return first
            }) {
                answer = SiteAnswer(body: old)
            }
        }
        lab.clock.advance(seconds: 10)
        #expect(try await lab.tile(map, 0)?.data == png("ice"))
        // A set that is rolled back is believed, once it was asked for again.
        site.twist { request, answer in
            if request.path == "/maps/set.json" { answer = SiteAnswer(body: old) }
        }
        lab.clock.advance(seconds: 10)
        #expect(try await lab.tile(map, 0)?.data == png("sea"))
    }

    // MARK: Lists in memory and in the cache

    /// Lists that were in memory were never stored again: after the next start nothing was found without the server.
    @Test(arguments: ["asked for past the cache", "removed", "another cache"])
    func listsAreInTheCacheOfWhoUsesThem(how: String) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        switch how {
        case "asked for past the cache": #expect(try await lab.tile(map, 0, .serverOnly) != nil)
        case "removed":
            #expect(try await lab.tile(map, 0) != nil)
            _ = try lab.cache.store.remove(try lab.keys().map { try TileKey($0) })
        default:
            let (other, _) = try self.lab(publisher)
            #expect(try await other.tile(map, 0) != nil)
        }
        lab.clock.advance(seconds: 61)
        #expect(try await lab.tile(map, 0)?.data == png("sea"))
        while try lab.keys().filter({ $0.hasSuffix(".gz") }).count < 2 { await Task.yield() }
        site.isAway(true)
        try lab.reopen()
        #expect(try await lab.tile(try source(), 0, .cacheOnly)?.data == png("sea"))
    }

    /// Lists that could not be had, or were removed a moment after they had been looked after, were missing from a download that was done.
    @Test(arguments: ["removed", "not had at first"])
    func aDownloadIsNotDoneWithoutItsLists(how: String) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let coverage = try map.coverage(.box(world), zooms: 2...2)
        // They are in memory, and not stored.
        #expect(try await lab.tile(map, 0, .serverOnly) != nil)
        if how == "removed" {
            for _ in 0..<2 { #expect(try await lab.tile(map, 0) != nil) }
            while try lab.keys().filter({ $0.hasSuffix(".gz") }).count < 2 { await Task.yield() }
            _ = try lab.cache.store.remove(try lab.keys().map { try TileKey($0) })
        } else {
            site.twist { request, answer in
                if request.path?.hasSuffix(".gz") == true { answer = SiteAnswer(status: 503) }
            }
            #expect(try await lab.tile(map, 0) != nil, "it needs no list that is in memory")
            site.twist { _, _ in }
            lab.cache.forgetFailures()
        }
        let report = await (try await lab.cache.download(map, coverage)).report()
        #expect(report.progress.isComplete && report.progress.lost == 0, "\(report)")
        site.isAway(true)
        try lab.reopen()
        try await expect(lab, try source(), [0: "sea", 2: "land"], "\(how)", mode: .cacheOnly)
    }

    /// An older document that another process has stored was followed after a look by which nobody could be asked.
    @Test func anOlderDocumentIsNotBelievedWhereNobodyCanBeAsked() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher)
        let old = try Data(contentsOf: URL(fileURLWithPath: publisher.path))
        let map = try source()
        #expect(try await lab.tile(map, 0) != nil)
        try publisher.publish([0: "ice"])
        lab.clock.advance(seconds: 10)
        #expect(try await lab.tile(map, 0)?.data == png("ice"))
        // As another process would: its own source knows nothing of the second version.
        site.twist { request, answer in
            if request.path == "/maps/set.json" { answer = SiteAnswer(body: old) }
        }
        lab.clock.advance(seconds: 10)
        #expect(try await lab.tile(try source(), 0)?.data == png("sea"))
        site.isAway(true)
        #expect(try await lab.tile(map, 0, .cacheOnly)?.data == png("ice"))
        #expect(try await lab.tile(map, 0)?.data == png("ice"), "it cannot be asked again")
        site.isAway(false)
        site.twist { _, _ in }
        lab.cache.forgetFailures()
        lab.clock.advance(seconds: 1)
        #expect(try await lab.tile(map, 0)?.data == png("ice"))
    }

    /// Beyond eight versions nothing was shown any more, though all of one was here.
    @Test func aVersionThatWasReplacedOftenStandsInToo() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, site) = try lab(publisher)
        #expect(try await lab.tile(try source(), 0) != nil)
        for number in 0..<12 { try publisher.publish([0: "ice \(number)"]) }
        site.twist { request, answer in
            if request.path != "/maps/set.json" { answer = SiteAnswer(status: 503) }
        }
        lab.clock.advance(seconds: 100)
        for mode in [LoadMode.standard, .cacheOnly] {
            #expect(try await lab.tile(try source(), 0, mode)?.data == png("sea"), "\(mode)")
        }
    }

    /// What was kept in memory, as nothing could be stored, counted for a download as stored.
    @Test func aDownloadAfterASuspensionStoresWhatWasInMemory() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        lab.cache.suspend()
        for x in 0..<4 { #expect(try await lab.tile(map, x) != nil) }
        lab.cache.resume()
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let coverage = try map.coverage(.box(world), zooms: 2...2)
        let report = await (try await lab.cache.download(map, coverage)).report()
        #expect(report.progress.isComplete && report.progress.lost == 0, "\(report)")
        site.isAway(true)
        try lab.reopen()
        try await expect(lab, try source(), [0: "sea", 2: "land"], "stored", mode: .cacheOnly)
    }

    /// What stands in has to be there, and allowed: else what is missing was asked for once, and a short failure was an error.
    @Test func whatNothingStandsInForIsAskedForAgain() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let map = try source { $0.attempts = 3 }
        #expect(try await lab.tile(map, 0) != nil)
        try publisher.publish([0: "ice", 2: "city"])
        lab.clock.advance(seconds: 10)
        let failing = object("city")
        let left = Locked(2)
        site.twist { request, answer in
            guard request.path == failing else { return }
            let fails = left.withLock { left in
                left -= 1
                return left >= 0
            }
            if fails { answer = SiteAnswer(status: 503) }
        }
        // The former version's tile was never looked at.
        #expect(try await lab.tile(map, 2)?.data == png("city"))
    }

    /// Who asked with one cache waited for another one's request, and was told that the cache was closed.
    @Test func whoClosesACacheEndsNothingInAnother() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (one, _) = try lab(publisher)
        let (other, _) = try lab(publisher)
        let map = try source()
        #expect(try await one.tile(map, 0, .cacheOnly) == nil)
        let (first, gate) = await one.slowly { try await one.tile(map, 0) }
        let second = Task { try await other.tile(map, 0)?.data }
        for _ in 0..<500 { await Task.yield() }
        try one.cache.close()
        gate.open()
        _ = await first.result
        #expect(try await second.value == png("sea"))
    }

    // MARK: Versions that set.json does not name

    /// A version whose number was known was no longer shown once `set.json` had dropped it, though all of it was here.
    @Test func aVersionThatIsNoLongerKeptIsShownFromTheCache() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let root = publisher.versions[0].root
        let (whole, short) = (try source(version: root), try source(version: String(root.prefix(12))))
        try await expect(lab, whole, [0: "sea", 2: "land"], "named by all digits")
        try await expect(lab, short, [0: "sea", 2: "land"], "named by some")
        let other = try PublisherInLab(salt: salt)
        try other.publish([0: "ice"])
        let new = try Data(contentsOf: URL(fileURLWithPath: other.path))
        site.twist { request, answer in
            answer = request.path == "/maps/set.json" ? SiteAnswer(body: new) : SiteAnswer(status: 404)
        }
        lab.clock.advance(seconds: 3600)
        try await expect(lab, short, [0: "sea", 2: "land"], "this process knows what the digits mean")
        try lab.reopen()
        _ = lab.transport.paths()
        let anew = try source(version: root)
        try await expect(lab, anew, [0: "sea", 2: "land"], "all digits are a name by themselves")
        #expect(lab.transport.paths().isEmpty)
        let error = await lab.failure(try source(version: String(root.prefix(12))), 0)
        #expect(error?.code == .invalidSource)
        // One that is neither here nor there.
        let none = await lab.failure(try source(version: String(repeating: "0", count: 64)), 0)
        #expect(none?.code == .invalidSource, "\(String(describing: none))")
    }

    /// Whoever was told of a new version had to wait until `set.json` was asked for again.
    @Test func aVersionNewerThanTheSetJSONIsLookedFor() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let (lab, _) = try lab(publisher)
        #expect(try await lab.tile(try source(), 0) != nil)
        try publisher.publish([0: "ice"])
        lab.clock.advance(seconds: 3)
        let new = try source(version: String(publisher.versions[1].root.prefix(8)))
        #expect(await lab.failure(new, 0, .cacheOnly)?.code == .invalidSource, "nobody may be asked")
        #expect(try await lab.tile(new, 0)?.data == png("ice"))
        // Not again and again for one that there is not.
        _ = lab.transport.paths()
        let none = try source(version: "00000000")
        for _ in 0..<5 { #expect(await lab.failure(none, 0)?.code == .invalidSource) }
        #expect(lab.transport.paths().isEmpty, "it was read a moment ago")
        lab.clock.advance(seconds: 3)
        for _ in 0..<5 { #expect(await lab.failure(none, 0)?.code == .invalidSource) }
        #expect(lab.transport.paths() == ["/maps/set.json"])
    }

    /// Each tile of a version whose files are gone asked for `set.json` anew.
    @Test func filesOfAVersionThatAreGoneHaveSetJSONReadOnce() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "city", 2: "land"])
        let (lab, site) = try lab(publisher)
        let old = try source(version: String(publisher.versions[0].root.prefix(8)))
        #expect(try await lab.tile(old, 0) != nil)
        lab.clock.advance(seconds: 60)
        site.twist { request, answer in
            if request.path?.contains("/blobs/") == true || request.path?.contains("/objects/") == true {
                answer = SiteAnswer(status: 404)
            }
        }
        _ = lab.transport.paths()
        for x in [1, 2, 1, 2] { #expect(await lab.failure(old, x) != nil) }
        #expect(lab.transport.paths().filter { $0 == "/maps/set.json" }.count == 1)
    }

    /// `set.json` was to be read anew, and the answer to somebody's earlier question for it was taken.
    @Test func whoReloadsDoesNotJoinWhoAskedBefore() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        let map = try source()
        #expect(try await lab.tile(map, 0) != nil)
        lab.clock.advance(seconds: 3)
        let (slow, gate) = await lab.slowly { try await lab.tile(map, 0, .serverThenCache)?.data }
        try publisher.publish([0: "sea", 2: "ice"])
        let gone = object("land")
        site.twist { request, answer in if request.path == gone { answer = SiteAnswer(status: 404) } }
        let new = Task { try await lab.tile(map, 2)?.data }
        for _ in 0..<2000 { await Task.yield() }
        gate.open()
        #expect(try await new.value == png("ice"))
        #expect(try await slow.value == png("sea"))
    }

    // MARK: What goes wrong

    /// URLSession takes off whatever coding a server names, and many name one for what ends in `.gz`.
    @Test func listsThatComeWithoutTheirGzipAreRead() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let (lab, site) = try lab(publisher)
        site.twist { request, answer in
            guard request.path?.hasSuffix(".gz") == true else { return }
            answer.body = Gzip.decode(answer.body, limit: 1 << 20) ?? Data()
        }
        try await expect(lab, try source(), [0: "sea", 2: "land"], "without gzip")
        try lab.reopen()
        try await expect(lab, try source(), [0: "sea", 2: "land"], "from the cache")
        // Another list is none, with and without it.
        let (fresh, spoiled) = try self.lab(publisher)
        spoiled.twist { request, answer in
            guard request.path?.hasSuffix(".gz") == true else { return }
            answer.body = (Gzip.decode(answer.body, limit: 1 << 20) ?? Data()) + Data(" ".utf8)
        }
        #expect(await fresh.failure(try source(), 0)?.code == .badBody)
    }

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
        let progress = report.progress
        // What its list says is known once the list is here, and needs no request.
        #expect(
            progress.failed == 0 && report.stoppedBy == nil && progress.absent + progress.unchanged >= 13, "\(report)")
        #expect(report.progress.isComplete && report.progress.lost == 0, "all of it was called lost: \(report)")
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
