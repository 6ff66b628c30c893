import Foundation
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileCacheArchive
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileCache

/// PMTiles archives at a server as sources of a cache.
@Suite("PMTiles at a server, in the library", .timeLimit(.minutes(60)))
struct ArchiveAtServerTests {
    private static let url = "https://files.example/w.pmtiles"

    private func lab(_ text: String = "one", leafOf: Int? = nil, tag: String? = "\"1\"") throws -> (
        ServerLab, ArchiveSite
    ) {
        let site = ArchiveSite(try TestArchive.bytes(TestArchive.pictures(0...3, text), leafOf: leafOf), tag: tag)
        return (try ServerLab { try site.answer($0) }, site)
    }

    private func source() throws -> TileSource { try TileSource("w", archiveAt: Self.url) }

    private func png(_ text: String, _ x: Int, z: Int = 2, y: Int = 1) -> Data {
        TestPicture.png("\(text) \(z)/\(x)/\(y)")
    }

    @Test(arguments: [nil, 8])
    func someBytesAreAskedForAtATimeAndEachOnce(leafOf: Int?) async throws {
        let (lab, _) = try lab(leafOf: leafOf)
        let source = try source()
        for _ in 0..<2 {
            for x in 0..<4 {
                let tile = try #require(try await lab.tile(source, x))
                #expect(tile.data == png("one", x) && tile.mediaType == "image/png")
            }
            #expect(try await lab.tile(source, 0, z: 6)?.isAbsent == true)
        }
        let ranges = lab.transport.ranges()
        #expect(ranges.first == "bytes=0-16383" && !ranges.contains("all") && Set(ranges).count == ranges.count)
        #expect(ranges.count >= 5 && ranges.count <= (leafOf == nil ? 5 : 9), "\(ranges)")
        #expect(try await lab.tile(source, 1)?.freshUntil == lab.clock.now.adding(seconds: 60))
        #expect(lab.events.isEmpty)
    }

    @Test(arguments: ["\"2\"", nil])
    func aReplacedFileIsOpenedAnewAndNeverMixed(tag: String?) async throws {
        let (lab, site) = try lab(leafOf: 8, tag: tag == nil ? nil : "\"1\"")
        let source = try source()
        #expect(try await lab.tile(source, 0)?.data == png("one", 0))
        site.become(
            try TestArchive.bytes(TestArchive.pictures(0...3, "another"), leafOf: 8), tag: tag,
            modified: "Mon, 23 Nov 2026 11:00:00 GMT")
        // The beginning counts as fresh, and the tile is of another version.
        #expect(try await lab.tile(source, 1)?.data == png("another", 1))
        #expect(try await lab.tile(source, 0)?.data == png("another", 0), "what was cached is of the former version")
        #expect(lab.events.isEmpty)
    }

    @Test func theServerFirstIsNotAnsweredByATileOfAFormerVersion() async throws {
        let (lab, site) = try lab()
        let source = try source()
        #expect(try await lab.tile(source, 1)?.data == png("one", 1))
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two")), tag: "\"2\"")
        #expect(try await lab.tile(source, 1, .cacheThenServer)?.data == png("one", 1), "what is here, however old")
        #expect(try await lab.tile(source, 1, .serverThenCache)?.data == png("two", 1))
        #expect(try await lab.tile(source, 1)?.data == png("two", 1))
    }

    /// Its beginning is known of the second version, a tile of the first one is cached, and the server has the third one.
    @Test func aTileOfAFormerVersionIsNotServedWhereTheFileHasChangedOnceMore() async throws {
        let (lab, site) = try lab()
        let source = try source()
        #expect(try await lab.tile(source, 1)?.data == png("one", 1))
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two")), tag: "\"2\"")
        lab.clock.advance(seconds: 61)
        #expect(try await lab.tile(source, 0)?.data == png("two", 0))
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "three")), tag: "\"3\"")
        #expect(try await lab.tile(source, 1)?.data == png("three", 1))
    }

    /// Who asked for a tile of the new version was given what somebody was still waiting for of the former one.
    @Test func aSlowTileOfAFormerVersionIsNotGivenToWhoAsksForTheNewOne() async throws {
        let (lab, site) = try lab()
        let source = try source()
        #expect(try await lab.tile(source, 0)?.data == png("one", 0))
        let (slow, gate) = await lab.slowly { try await lab.tile(source, 1)?.data }
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two")), tag: "\"2\"")
        lab.clock.advance(seconds: 61)
        #expect(try await lab.tile(source, 0)?.data == png("two", 0))
        let new = Task { try await lab.tile(source, 1)?.data }
        for _ in 0..<2000 { await Task.yield() }
        gate.open()
        #expect(try await new.value == png("two", 1))
        _ = try await slow.value
        #expect(try await lab.tile(source, 1)?.data == png("two", 1))
    }

    /// The beginning was to be read anew, and the answer to somebody's earlier question for it was taken.
    @Test func whoReloadsDoesNotJoinWhoAskedBefore() async throws {
        let (lab, site) = try lab()
        let source = try source()
        #expect(try await lab.tile(source, 0)?.data == png("one", 0))
        let (slow, gate) = await lab.slowly { try await lab.tile(source, 0, .serverThenCache)?.data }
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two")), tag: "\"2\"")
        let new = Task { try await lab.tile(source, 1)?.data }
        for _ in 0..<2000 { await Task.yield() }
        gate.open()
        #expect(try await new.value == png("two", 1))
        _ = try await slow.value
    }

    /// Tiles of the former version counted as done, where their own lifetimes were not over.
    @Test(arguments: ["fresh", "shown already", "all anew", "stale while it is asked for"])
    func aDownloadHasNoTileOfAFormerVersion(how: String) async throws {
        let (lab, site) = try lab(leafOf: 8)
        let lifetime =
            how == "stale while it is asked for" ? "max-age=1, stale-while-revalidate=86400" : "max-age=86400"
        site.twist { _, answer in answer.fields[.cacheControl] = lifetime }
        let source = try source()
        for x in 0..<4 { #expect(try await lab.tile(source, x)?.data == png("one", x)) }
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two"), leafOf: 8), tag: "\"2\"")
        lab.clock.advance(seconds: how == "fresh" ? 90_000 : 60)
        if how == "shown already" {
            #expect(try await lab.tile(source, 0, .serverThenCache)?.data == png("two", 0))
        }
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        var options = DownloadOptions()
        options.revalidatesFresh = how == "all anew"
        let coverage = try source.coverage(.box(world), zooms: 2...2)
        let report = await (try await lab.cache.download(source, coverage, named: "all", options: options)).report()
        #expect(report.progress.isComplete && report.progress.failed == 0, "\(report)")
        site.isAway(true)
        for x in 0..<4 { #expect(try await lab.tile(source, x, .cacheOnly)?.data == png("two", x), "\(how)") }
    }

    /// Tiles that an archive does not have were called lost, and its regions never complete.
    @Test func aRegionWithGapsIsComplete() async throws {
        var tiles = TestArchive.pictures(0...2, "one")
        for x in 0..<3 { tiles[TileID.number(z: 2, x: x, y: 1)] = nil }
        let site = ArchiveSite(try TestArchive.bytes(tiles))
        let lab = try ServerLab { try site.answer($0) }
        let source = try source()
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let coverage = try source.coverage(.box(world), zooms: 2...2)
        let report = await (try await lab.cache.download(source, coverage, named: "all")).report()
        #expect(report.progress.isComplete && report.progress.failed == 0 && report.progress.lost == 0, "\(report)")
        #expect(try await lab.cache.downloads().isEmpty)
    }

    /// Gaps whose directories had been put out of memory by others were called lost.
    @Test func aRegionWithManyDirectoriesIsComplete() async throws {
        var tiles: [UInt64: Data] = [:]
        for x in stride(from: 0, to: 128, by: 1) {
            for y in stride(from: 0, to: 128, by: 3) { tiles[TileID.number(z: 7, x: x, y: y)] = TestPicture.png("t") }
        }
        let site = ArchiveSite(try TestArchive.bytes(tiles, leafOf: 1))
        let lab = try ServerLab { try site.answer($0) }
        let source = try source()
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let coverage = try source.coverage(.box(world), zooms: 7...7)
        let report = await (try await lab.cache.download(source, coverage, named: "all")).report()
        #expect(report.progress.isComplete && report.progress.lost == 0, "\(report.progress)")
    }

    /// A stale tile of a former version was said to be fresh for as long as its own answer was.
    @Test func whatIsStaleIsNotFreshUntilLater() async throws {
        let (lab, site) = try lab()
        site.twist { _, answer in answer.fields[.cacheControl] = "max-age=86400" }
        let source = try source()
        for x in 0..<2 { #expect(try await lab.tile(source, x)?.data == png("one", x)) }
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two")), tag: "\"2\"")
        #expect(try await lab.tile(source, 0, .serverThenCache)?.data == png("two", 0))
        for mode in [LoadMode.cacheOnly, .cacheThenServer] {
            let old = try #require(try await lab.tile(source, 1, mode))
            #expect(old.data == png("one", 1) && old.freshUntil <= lab.clock.now, "\(mode): \(old.origin)")
            if case .stale = old.origin {} else { Issue.record("\(mode): \(old.origin)") }
        }
        site.isAway(true)
        let old = try #require(try await lab.tile(source, 1))
        #expect(old.data == png("one", 1) && old.freshUntil <= lab.clock.now)
    }

    /// Where a server replaces a file and leaves its tag as it was, bytes of something else were shown as a picture.
    @Test func bytesThatAreNoPictureAreNotATileOfAnArchiveOfPictures() async throws {
        let (lab, site) = try lab()
        let source = try source()
        #expect(try await lab.tile(source, 0)?.data == png("one", 0))
        site.twist { request, answer in
            guard request.headerFields[.range] != "bytes=0-16383" else { return }
            answer.body = Data(repeating: 7, count: answer.body.count)
        }
        #expect(await lab.failure(source, 1)?.code == .badBody)
        #expect(try lab.keys().filter { $0.hasPrefix("w/") }.count == 1)
    }

    @Test func withoutItsServerWhatIsCachedIsServed() async throws {
        let (lab, site) = try lab(leafOf: 8)
        #expect(try await lab.tile(try source(), 1)?.data == png("one", 1))
        site.isAway(true)
        try lab.reopen()
        lab.clock.advance(seconds: 3600)
        let source = try source()
        let old = try #require(try await lab.tile(source, 1))
        #expect(old.data == png("one", 1) && old.origin == .stale(.error))
        #expect(try await lab.tile(source, 1, .cacheOnly)?.data == png("one", 1))
        // Without the beginning too, which may have been evicted.
        for key in try lab.keys() where key.contains("pmtiles/") { _ = try lab.cache.store.remove([TileKey(key)]) }
        try lab.reopen()
        let fresh = try self.source()
        #expect(try await lab.tile(fresh, 1)?.data == png("one", 1))
        #expect(try await lab.tile(fresh, 1, .cacheOnly)?.data == png("one", 1))
        #expect(await lab.failure(fresh, 1, .serverOnly) != nil)
        #expect(try await lab.tile(fresh, 2, .cacheOnly) == nil)
    }

    @Test func aServerWithoutRangeRequestsIsNamed() async throws {
        let (lab, site) = try lab()
        site.twist { _, answer in
            answer.status = 200
            answer.fields[.contentRange] = nil
            answer.body = Data(count: 1 << 20)
        }
        let error = await lab.failure(try source(), 1)
        #expect(error?.message.contains("range requests") == true, "\(String(describing: error))")
        #expect(try lab.keys().isEmpty)
        // A file shorter than what is asked for comes whole.
        site.twist { _, answer in (answer.status, answer.fields[.contentRange]) = (200, nil) }
        lab.cache.forgetFailures()
        let other = await lab.failure(try source(), 1)
        #expect(other?.message.contains("range requests") == true, "\(String(describing: other))")
    }

    @Test func aRegionIsPinnedAndThereWithoutTheServer() async throws {
        let (lab, site) = try lab(leafOf: 8)
        let source = try source()
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let coverage = try source.coverage(.box(world), zooms: 1...2)
        let report = await (try await lab.cache.download(source, coverage, named: "far")).report()
        #expect(report.progress.failed == 0 && report.progress.fetched == 20 && report.stoppedBy == nil, "\(report)")
        site.isAway(true)
        lab.clock.advance(seconds: 30 * 86_400)
        try lab.reopen()
        _ = try lab.cache.store.evict(toBytes: 0)
        let fresh = try self.source()
        for x in 0..<4 {
            let tile = try await lab.tile(fresh, x)
            #expect(tile?.data == png("one", x), "pinned, and the rest was evicted")
        }
        site.isAway(false)
        lab.cache.forgetFailures()
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two"), leafOf: 8), tag: "\"2\"")
        let again = await (try await lab.cache.download(fresh, coverage, named: "far")).report()
        #expect(again.progress.failed == 0 && again.progress.fetched == 20, "\(again)")
        #expect(try await lab.tile(fresh, 3)?.data == png("two", 3))
    }
}
