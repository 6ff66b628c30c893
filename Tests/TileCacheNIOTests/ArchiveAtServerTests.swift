import Foundation
import HTTPTypes
import Testing
import TileArchiveTesting
import TileCache
import TileCacheArchive
import TileCacheTesting
import TileStore

/// Archives and sets at a server over real connections, by every transport.
@Suite("Archives at a server, by every transport", .timeLimit(.minutes(60)))
struct ArchiveAtServerTests {
    @Test(arguments: Carrier.allCases)
    func aSetAndAnArchiveComeOverRealConnections(carrier: Carrier) async throws {
        let salt = " \(UUID())"
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        let set = FolderSite(publisher.folder)
        let archive = ArchiveSite(try TestArchive.bytes(TestArchive.pictures(0...3, "one"), leafOf: 8))
        let origin = try await LocalOrigin.start { request in
            do {
                let answer =
                    try request.path.hasPrefix("/set/") ? set.answer(request.request) : archive.answer(request.request)
                return LocalAnswer(.init(code: answer.status), answer.fields, body: answer.body)
            } catch { return LocalAnswer(.internalServerError) }
        }
        let cache = try TileCache(at: publisher.folder + "/of-the-app", transport: carrier.make())
        let map = try TileSource("map", archiveAt: "http://\(origin.authority)/set/set.json")
        let base = try TileSource("base", archiveAt: "http://\(origin.authority)/w.pmtiles")
        for mode in [LoadMode.standard, .cacheOnly] {
            for (x, text) in [0: "sea", 1: "sea", 2: "land"] {
                let tile = try await cache.tile(map, z: 2, x: x, y: 1, mode: mode)
                #expect(tile?.data == TestPicture.png(text + salt), "\(mode) \(x)")
            }
            #expect(try await cache.tile(map, z: 2, x: 3, y: 1, mode: mode)?.isAbsent == true)
            for x in 0..<4 {
                let tile = try await cache.tile(base, z: 2, x: x, y: 1, mode: mode)
                #expect(tile?.data == TestPicture.png("one 2/\(x)/1"), "\(mode) \(x)")
            }
        }
        let paths = origin.requests.map(\.path)
        #expect(paths.filter { $0.hasPrefix("/set/") }.count == 5, "\(paths)")
        #expect(paths.filter { $0 == "/w.pmtiles" }.count <= 9, "\(paths)")
        try cache.close()
    }
}
