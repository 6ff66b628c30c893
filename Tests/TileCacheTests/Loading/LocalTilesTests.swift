import Foundation
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

/// Sources whose tiles this machine has already.
@Suite(.timeLimit(.minutes(60)))
struct LocalTilesTests {
    private struct Broken: Error, CustomStringConvertible {
        let description = "world.pmtiles is cut short"
    }

    /// Some tiles of zoom 12, row 2.
    private final class Shelf: LocalTiles {
        private let tiles: Locked<[Int: LocalTile]>
        let asked = Locked(0)

        init(_ tiles: [Int: LocalTile]) { self.tiles = Locked(tiles) }

        func set(_ x: Int, _ tile: LocalTile) { tiles.withLock { $0[x] = tile } }

        func tile(_ address: TileAddress) throws -> LocalTile? {
            asked.withLock { $0 += 1 }
            if address.x == 9 { throw Broken() }
            return tiles.withLock { $0[address.x] }
        }
    }

    @Test func everyModeGivesWhatIsThereAndNothingIsStoredOrSent() async throws {
        let lab = try CacheLab()
        // What the cache has of that name is another story.
        try await lab.prime(1, body: Picture.png(7))
        let before = lab.bytesOnDisk()
        let shelf = Shelf([1: LocalTile(data: Picture.png(1), mediaType: "image/png")])
        let source = try TileSource("lab", local: shelf)
        for mode in LoadMode.allCases {
            let tile = try #require(try await lab.load(1, mode, from: source))
            #expect(tile.data == Picture.png(1) && tile.mediaType == "image/png" && tile.origin == .disk)
            #expect(try #require(try await lab.load(2, mode, from: source)).isAbsent)
        }
        #expect(lab.transport.count == 1 && lab.bytesOnDisk() == before)
    }

    @Test func equalBytesHaveOneEntityTagAndOthersAnother() async throws {
        let lab = try CacheLab()
        let shelf = Shelf([
            1: LocalTile(data: Picture.png(1)), 2: LocalTile(data: Picture.png(1)), 3: LocalTile(data: Picture.png(3)),
            4: LocalTile(data: Picture.png(1), etag: "\"own\""),
        ])
        let source = try TileSource("lab", local: shelf)
        var tags: [String] = []
        for x in 1...4 { tags.append(try #require(try await lab.load(x, from: source)?.etag)) }
        #expect(tags[0] == tags[1] && tags[0] != tags[2] && tags[3] == "\"own\"")
        #expect(tags[0].count == 34 && tags[0].hasPrefix("\"") && tags[0].hasSuffix("\""))
        shelf.set(1, LocalTile(data: Picture.png(5)))
        #expect(try await lab.load(1, from: source)?.etag != tags[0], "it is read each time")
    }

    @Test func whatCannotBeReadOrIsNoTileIsAnError() async throws {
        let lab = try CacheLab()
        let shelf = Shelf([
            1: LocalTile(data: Data("<!doctype html>".utf8)), 2: LocalTile(data: Picture.png(1, size: 2000)),
            3: LocalTile(data: Data()), 4: LocalTile(data: Data([0x1F, 0x8B, 8]), contentEncoding: "gzip"),
        ])
        var source = try TileSource("lab", local: shelf, zooms: 10...14)
        source.bodyLimit = 1000
        for x in 1...3 { #expect(await lab.failure(x, from: source)?.code == .badBody) }
        #expect(try await lab.load(4, from: source)?.contentEncoding == "gzip")
        let failure = try #require(await lab.failure(9, from: source))
        #expect(failure.code == .noAnswer && failure.cause is Broken && failure.message.contains("cut short"))
        #expect(await lab.failure(9, .cacheOnly, from: source)?.code == .noAnswer)
        let other = try TileSource("lab", local: shelf, zooms: 0...3)
        #expect(await lab.failure(1, from: other)?.code == .outOfBounds)
        let asked = shelf.asked.withLock { $0 }
        #expect(asked == 6, "a zoom that the source has not is not looked for")
    }

    @Test func aRegionOfItIsNotDownloaded() async throws {
        let lab = try CacheLab()
        let source = try TileSource("lab", local: Shelf([:]))
        let world = try source.coverage(.box(try GeoBox(west: 0, south: 0, east: 1, north: 1)), zooms: 1...2)
        await #expect(throws: TileCacheError.self) { _ = try await lab.cache.download(source, world) }
        try lab.cache.close()
        #expect(await lab.failure(1, from: source)?.code == .closed)
    }
}
