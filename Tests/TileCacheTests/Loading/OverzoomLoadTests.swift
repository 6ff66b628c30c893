import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct OverzoomLoadTests {
    struct NoPicture: Error {}

    /// A cache whose magnifier writes down what it was asked, in place of drawing it.
    final class Lab: Sendable {
        let lab: CacheLab
        let drawn: Locked<[Overzoom]>
        let isBroken: Locked<Bool>

        init() throws {
            let (drawn, isBroken) = (Locked<[Overzoom]>([]), Locked(false))
            (self.drawn, self.isBroken) = (drawn, isBroken)
            lab = try CacheLab { configuration in
                configuration.magnifier = { ancestor, overzoom in
                    drawn.withLock { $0.append(overzoom) }
                    if isBroken.withLock({ $0 }) { throw NoPicture() }
                    return OverzoomLoadTests.picture(ancestor, overzoom)
                }
            }
        }

        func load(
            _ z: Int, _ x: Int = 0, _ y: Int = 0, _ mode: LoadMode = .standard, levels: Int = 3, gaps: Bool = false
        ) async throws -> CachedTile? {
            var source = try lab.source()
            source.zooms = 0...12
            source.overzoom = OverzoomRules(levels: levels, fillsGaps: gaps)
            source.attempts = 1
            return try await lab.cache.tile(source, z: z, x: x, y: y, mode: mode)
        }

        func code(_ z: Int, levels: Int = 3, _ mode: LoadMode = .standard) async -> TileCacheError? {
            do { _ = try await load(z, 0, 0, mode, levels: levels) } catch { return error as? TileCacheError }
            return nil
        }
    }

    static func picture(_ ancestor: Data, _ overzoom: Overzoom) -> Data {
        ancestor + Data("\(overzoom.depth) \(overzoom.column) \(overzoom.row)".utf8)
    }

    private let hour: HTTPFields = [.cacheControl: "max-age=3600", .eTag: "\"a\"", .contentType: "image/png"]

    @Test func pastTheLastZoomATileIsMadeFromItsAncestorOnce() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        let key = try TileKey("lab/14/13/10")
        for round in 0..<3 {
            let tile = try #require(try await lab.load(14, 13, 10))
            #expect(tile.key == key && tile.origin == .overzoomed && tile.status == 200)
            #expect(tile.data == Picture.png(1) + Data("2 1 2".utf8) && tile.mediaType == "image/png")
            #expect(tile.freshUntil == lab.lab.clock.now.adding(seconds: 3600 - Int64(round)))
            lab.lab.clock.advance(seconds: 1)
        }
        #expect(lab.lab.transport.paths == ["/12/3/2.png"])
        #expect(lab.drawn.withLock { $0.map(\.ancestor) } == [try TileAddress(z: 12, x: 3, y: 2)])
        // It lies beside the tiles, not among them.
        #expect(try lab.lab.store.entry(for: key) == nil)
        #expect(try lab.lab.store.entry(for: TileKey("lab:overzoom/14/13/10")) != nil)
    }

    @Test func whatWasMadeFallsWithItsAncestor() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        let first = try await lab.load(13)
        lab.lab.clock.advance(seconds: 3601)
        // The ancestor still holds: nothing is drawn anew, and it is fresh again.
        lab.lab.transport.answer(.answer(304, hour))
        let second = try #require(try await lab.load(13))
        #expect(second.data == first?.data && lab.drawn.withLock { $0.count } == 1)
        #expect(second.freshUntil == lab.lab.clock.now.adding(seconds: 3600))
        // It changes: so does what is made of it, and the tag.
        lab.lab.clock.advance(seconds: 3601)
        lab.lab.transport.answer(.answer(200, hour, body: Picture.png(2)))
        let third = try #require(try await lab.load(13))
        #expect(third.data == Picture.png(2) + Data("1 0 0".utf8) && lab.drawn.withLock { $0.count } == 2)
        #expect(third.etag != first?.etag && third.etag?.hasPrefix("W/\"overzoom-12-") == true)
        #expect(lab.lab.transport.count == 3)
    }

    @Test func whoeverAsksItIsDrawnOnce() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        let all = try await withThrowingTaskGroup(of: Data?.self) { group in
            for _ in 0..<200 { group.addTask { try await lab.load(15, 7, 7)?.data } }
            return try await group.reduce(into: Set<Data?>()) { $0.insert($1) }
        }
        #expect(all.count == 1 && lab.drawn.withLock { $0.count } == 1 && lab.lab.transport.count == 1)
    }

    @Test func whatIsEvictedIsMadeAgainWithoutAskingTheServer() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        _ = try await lab.load(13)
        _ = try lab.lab.store.remove([TileKey("lab:overzoom/13/0/0")], includingPinned: true)
        #expect(try await lab.load(13)?.origin == .overzoomed)
        #expect(lab.drawn.withLock { $0.count } == 2 && lab.lab.transport.count == 1)
    }

    @Test func tooFarIsOutOfBounds() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        #expect(await lab.code(16)?.code == .outOfBounds)
        #expect(await lab.code(13, levels: 0)?.code == .outOfBounds)
        #expect(await lab.code(13, levels: -5)?.code == .outOfBounds)
        #expect(await lab.code(28, levels: .max)?.code == nil)
        #expect(lab.lab.transport.paths == ["/12/0/0.png"])
        var source = try lab.lab.source()
        source.zooms = 0...12
        source.overzoom.levels = 3
        for kind in [TileKind.vector, .json] {
            source.kind = kind
            #expect(throws: TileCacheError.self) { try source.key(z: 13, x: 0, y: 0) }
        }
        // A cache without a magnifier says so.
        let plain = try CacheLab()
        source.kind = .image
        await #expect(throws: TileCacheError.self) { try await plain.cache.tile(source, z: 13, x: 0, y: 0) }
        #expect(plain.transport.count == 0)
    }

    @Test func whereTheNearestAncestorIsAbsentTheNextOneIsUsed() async throws {
        let lab = try Lab()
        let hour = hour
        lab.lab.transport.script { request in
            request.head.path == "/11/1/0.png" ? .answer(200, hour) : .answer(404)
        }
        let tile = try #require(try await lab.load(14, 9, 6))
        #expect(tile.data == Picture.png(1) + Data("3 1 6".utf8))
        #expect(lab.lab.transport.paths == ["/12/2/1.png", "/11/1/0.png"])
        // Nothing within reach: the tile is as absent as they are.
        let absent = try #require(try await lab.load(13))
        #expect(absent.isAbsent && absent.status == 404)
        #expect(try absent.key == TileKey("lab/13/0/0"))
    }

    @Test func offlineANearerAncestorGivesWayToAFartherOne() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        _ = try await lab.load(11)
        lab.lab.transport.goOffline()
        let tile = try #require(try await lab.load(13, 1, 1))
        #expect(tile.data == Picture.png(1) + Data("2 1 1".utf8))
        // A makeshift is not kept for fresh.
        #expect(tile.freshUntil <= lab.lab.clock.now)
        #expect(lab.lab.transport.paths.filter { !$0.hasPrefix("/11/") && !$0.hasPrefix("/12/") }.isEmpty)
        // With nothing here, the failure is the answer.
        #expect(await lab.code(13, levels: 1)?.code == .waiting)
    }

    @Test func modesHoldForTheAncestor() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        #expect(try await lab.load(13, 0, 0, .cacheOnly) == nil)
        #expect(lab.lab.transport.count == 0)
        #expect(try await lab.load(13, 0, 0, .serverOnly)?.origin == .overzoomed)
        #expect(try await lab.load(13, 0, 0, .cacheOnly) == nil)
        #expect(try lab.lab.store.entry(for: TileKey("lab:overzoom/13/0/0")) == nil)
        _ = try await lab.load(12)
        #expect(try await lab.load(13, 0, 0, .cacheOnly)?.data == Picture.png(1) + Data("1 0 0".utf8))
    }

    @Test func whatMayNotBeStoredHasNoChildrenInTheStore() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, [.cacheControl: "no-store", .contentType: "image/png"]))
        #expect(try await lab.load(13)?.origin == .overzoomed)
        #expect(try lab.lab.store.entry(for: TileKey("lab:overzoom/13/0/0")) == nil)
        #expect(try lab.lab.store.entry(for: TileKey("lab/12/0/0")) == nil)
    }

    @Test func aPictureThatCannotBeDrawnIsAnError() async throws {
        let lab = try Lab()
        lab.lab.transport.answer(.answer(200, hour))
        lab.isBroken.withLock { $0 = true }
        let error = try #require(await lab.code(13))
        #expect(error.code == .badBody && error.cause is NoPicture)
        lab.isBroken.withLock { $0 = false }
        #expect(try await lab.load(13)?.origin == .overzoomed)
        #expect(lab.lab.transport.count(of: "/12/0/0.png") == 1)
    }

    @Test func gapsAreFilledWhereThatIsAskedFor() async throws {
        let lab = try Lab()
        let hour = hour
        lab.lab.transport.script { request in
            request.head.path == "/9/2/2.png" ? .answer(200, hour) : .answer(404)
        }
        #expect(try await lab.load(10, 5, 4)?.isAbsent == true)
        let filled = try #require(try await lab.load(10, 5, 4, gaps: true))
        #expect(filled.origin == .overzoomed && filled.data == Picture.png(1) + Data("1 1 0".utf8))
        // That the tile is absent is still known, and still what it is without the wish.
        #expect(try await lab.load(10, 5, 4)?.isAbsent == true)
        #expect(lab.lab.transport.count(of: "/10/5/4.png") == 1)
        // Nothing above either: absent.
        #expect(try await lab.load(10, 100, 100, gaps: true)?.isAbsent == true)
        // A failure above does not take away what is known.
        #expect(try await lab.load(12, 3000, 3000)?.isAbsent == true)
        lab.lab.transport.goOffline()
        #expect(try await lab.load(12, 3000, 3000, gaps: true)?.isAbsent == true)
    }
}
