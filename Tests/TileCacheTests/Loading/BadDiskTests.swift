import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

@Suite(.timeLimit(.minutes(60)))
struct BadDiskTests {
    @Test func aFullDiskCostsTheCacheAndNotTheTile() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""]))
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        let tile = try #require(try await lab.load())
        #expect(tile.origin == .network && tile.data == Picture.png(1))
        guard case .notStored(let key, let error)? = lab.events.first else {
            Issue.record("no event")
            return
        }
        #expect(try key == lab.key() && (error as? StoreError)?.code == .diskFull)
        lab.files.fail(nil)
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""]))
        #expect(try await lab.load()?.origin == .network)
        #expect(try await lab.load()?.origin.isCached == true)
        #expect(lab.cache.held.count == 0)
        // The same for what a 304 brings.
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(304))
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        #expect(try await lab.load()?.origin == .revalidated)
        lab.files.fail(nil)
        #expect(lab.events.count == 2)
    }

    /// Whatever operation of the disk fails, the tile arrives; and afterwards the cache works.
    @Test func whicheverOperationFailsTheTileArrives() async throws {
        var index = 0
        var hasStruck = true
        while hasStruck, index < 200 {
            let lab = try CacheLab { $0.store.memoryTierBytes = 0 }
            try await lab.prime(1)
            lab.clock.advance(seconds: 100)
            lab.files.fail(.init(at: index, number: EIO))
            lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: Picture.png(2)))
            for x in [2, 1] {
                #expect(try await lab.load(x)?.data == Picture.png(2), "operation \(index)")
            }
            hasStruck = lab.files.hasStruck
            lab.files.fail(nil)
            for x in [2, 1] { #expect(try await lab.load(x)?.data == Picture.png(2), "after operation \(index)") }
            try lab.cache.close()
            index += 1
        }
        #expect(index > 3)
    }

    /// On a real disk: the folder vanishes under the running cache.
    @Test func aFolderThatIsRemovedMeanwhileCostsNoTile() async throws {
        let folder = NSTemporaryDirectory() + "tile-cache-gone-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let transport = ScriptedTransport()
        transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""]))
        var configuration = TileCacheConfiguration()
        configuration.store.memoryTierBytes = 0
        let cache = try TileCache(at: folder, transport: transport, configuration: configuration)
        let source = try TileSource("lab", template: "https://tiles.example/{z}/{x}/{y}.png")
        for x in 1...3 { _ = try await cache.tile(source, z: 12, x: x, y: 2) }
        try FileManager.default.removeItem(atPath: folder)
        for x in 1...6 {
            #expect(try await cache.tile(source, z: 12, x: x, y: 2)?.data == Picture.png(1), "\(x)")
        }
        _ = try? cache.close()
    }

    @Test func aBlobThatIsDamagedIsFetchedAnewWithoutConditions() async throws {
        let lab = try CacheLab {
            $0.store.memoryTierBytes = 0
            $0.store.digestCheck = .always
        }
        try await lab.prime()
        for (path, _) in lab.bytesOnDisk() where path.hasPrefix("objects/") {
            lab.disk.corrupt(path) { $0[$0.count - 1] ^= 1 }
        }
        #expect(try await lab.load()?.origin == .network)
        #expect(lab.transport.requests[1].head.headerFields[.ifNoneMatch] == nil)
        #expect(try await lab.load()?.data == Picture.png(1))
    }
}
