import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache
@testable import TileCacheMapKit

/// A painter over a lab's map whose pictures are their names, and what it had drawn and redrawn.
private final class PainterLab: Sendable {
    let lab: MapLab
    let painter: TilePainter<String>
    let redrawn = Locked<[PlaneRect]>([])
    let decoded = Locked<[String: Int]>([:])

    init(memory: Int = 1 << 20, _ change: (inout MapCacheConfiguration) -> Void = { _ in }) throws {
        lab = try MapLab(change)
        let (redrawn, decoded) = (self.redrawn, self.decoded)
        painter = TilePainter(
            lab.map, memory: memory, backoff: Backoff(first: .seconds(8), longest: .seconds(60)),
            clock: lab.clock.cacheClock,
            decode: { data in
                guard data.count > 16, data.first == 0x89 else { return nil }
                let name = String(decoding: data.dropFirst(16), as: UTF8.self)
                decoded.withLock { $0[name, default: 0] += 1 }
                return (name, 1000)
            },
            onChange: { rect in redrawn.withLock { $0.append(rect) } })
    }

    /// What is drawn of a tile's place: names of pictures from back to front.
    @discardableResult
    func draw(_ tile: TileAddress, contentScale: Double = 1) -> [String] { layers(tile, contentScale).map(\.picture) }

    func layers(_ tile: TileAddress, _ contentScale: Double = 1) -> [PaintedLayer<String>] {
        var layers: [PaintedLayer<String>] = []
        let zoomScale = lab.map.layout.tileSize * Double(1 << tile.z) / PlaneRect.world
        painter.paint(PlaneRect(tile), zoomScale: zoomScale, contentScale: contentScale) { layers.append($0) }
        return layers
    }

    func settle() async { await until { painter.isIdle } }
}

/// Has every tile once it was loaded, but says for one moment more that it has not.
private final class LateSource: PaintSource {
    let layout: TileLayout
    let loads = Locked<[Bool]>([])
    let isLate = Locked(false)

    init(_ layout: TileLayout) { self.layout = layout }

    func state(of tile: TileAddress) -> CachedTileState {
        let isLate = isLate.withLock { isLate in
            defer { if tile.z == 5 { isLate = false } }
            return isLate
        }
        return tile.z != 5 || isLate || loads.withLock { $0.isEmpty }
            ? .missing : CachedTileState(.picture, version: 1)
    }

    func data(for tile: TileAddress) -> Data? { Data([1]) }

    func load(_ tile: TileAddress, refreshing: Bool) async throws -> LoadedTile {
        loads.withLock { $0.append(refreshing) }
        return LoadedTile(data: Data([1]))
    }
}

@Suite(.timeLimit(.minutes(60)))
struct TilePainterTests {
    private func path(_ tile: TileAddress) -> String { "/\(tile.z)/\(tile.x)/\(tile.y).png" }

    @Test func aFreshTileIsDrawnAndNobodyIsAsked() async throws {
        let lab = try PainterLab()
        let one = try tile(5, 3, 4)
        try lab.lab.put(one)
        #expect(lab.draw(one) == ["5/3/4"])
        await lab.settle()
        #expect(lab.lab.server.requests.isEmpty)
        #expect(lab.redrawn.withLock { $0 } == [])
    }

    @Test func aMissingTileIsAskedForOnceAndDrawnWhenItHasCome() async throws {
        let lab = try PainterLab()
        let one = try tile(5, 3, 4)
        #expect(lab.draw(one) == [])
        // One of these may come after the tile has, and draw it: then nothing has to be drawn again.
        let isDrawn = (0..<10).map { _ in lab.draw(one) }.contains { !$0.isEmpty }
        await until { isDrawn || !lab.redrawn.withLock { $0.isEmpty } }
        await lab.settle()
        #expect(isDrawn || lab.redrawn.withLock { $0 } == [PlaneRect(one)])
        #expect(lab.draw(one) == [path(one)])
        #expect(lab.lab.server.requests.count == 1)
    }

    @Test func standInsKeepTheScaleAndAnotherScaleIsBetterThanNone() async throws {
        let lab = try PainterLab {
            $0.urlTemplate = "https://tiles.example/{z}/{x}/{y}{r}.png"
            $0.loadMode = .cacheOnly
        }
        let one = try tile(5, 3, 4, scale: 2)
        try lab.lab.put(try tile(4, 1, 2), "4 at 1x")
        #expect(lab.draw(one, contentScale: 2) == ["4 at 1x"])
        try lab.lab.put(try tile(4, 1, 2, scale: 2), "4 at 2x")
        #expect(lab.draw(one, contentScale: 2) == ["4 at 2x"])
        #expect(lab.draw(one, contentScale: 1) == ["4 at 1x"])
        try lab.lab.put(try tile(5, 3, 4), "5 at 1x")
        #expect(lab.draw(one, contentScale: 2) == ["5 at 1x"])
        try lab.lab.put(one, "5 at 2x")
        #expect(lab.draw(one, contentScale: 2) == ["5 at 2x"])
    }

    /// Eight threads at a time, as MapKit does, the same place again and again.
    @Test(.ownCores) func manyThreadsLoadATileOnce() async throws {
        let lab = try PainterLab()
        let tiles = try (0..<4).map { try tile(6, $0, 9) }
        let (arrived, release) = AsyncStream.makeStream(of: Void.self)
        lab.lab.server.script { request in
            for await _ in arrived {}
            return .tile(picture(request.path ?? ""))
        }
        await withCheckedContinuation { done in
            DispatchQueue.global().async {
                DispatchQueue.concurrentPerform(iterations: 8) { _ in
                    for _ in 0..<200 { for tile in tiles { lab.draw(tile) } }
                }
                done.resume()
            }
        }
        release.finish()
        await lab.settle()
        #expect(lab.lab.server.requests.count == tiles.count)
        await until { lab.redrawn.withLock { $0.count } == tiles.count }
        #expect(Set(lab.redrawn.withLock { $0 }) == Set(tiles.map { PlaneRect($0) }))
        for tile in tiles { #expect(lab.draw(tile) == [path(tile)]) }
    }

    /// A thread that had found nothing just before the tile came took it for one that the cache had lost.
    @Test func aTileThatCameBetweenTheLookAndTheRequestWasAskedForTwice() async throws {
        let source = LateSource(TileLayout(zooms: 0...10))
        let painter = TilePainter<String>(source, decode: { _ in ("picture", 1) }, onChange: { _ in })
        let one = try tile(5, 3, 4)
        let zoomScale = 256 * Double(1 << 5) / PlaneRect.world
        func draw() { painter.paint(PlaneRect(one), zoomScale: zoomScale, contentScale: 1) { _ in } }
        draw()
        await until { painter.isIdle }
        #expect(source.loads.withLock { $0 } == [false])
        // What this thread finds is what was there before the load.
        source.isLate.withLock { $0 = true }
        draw()
        await until { painter.isIdle }
        #expect(source.loads.withLock { $0 } == [false, false])
    }

    @Test func theNearestAncestorStandsInHoweverFarItIs() async throws {
        let lab = try PainterLab()
        lab.lab.server.script { _ in .status(500) }
        let one = try tile(14, 9000, 5000)
        try lab.lab.put(try tile(0, 0, 0))
        #expect(lab.draw(one) == ["0/0/0"])
        let near = try #require(one.ancestor(zoom: 9))
        try lab.lab.put(near)
        let layers = lab.layers(one)
        #expect(layers.map(\.picture) == ["9/\(near.x)/\(near.y)"])
        // The whole picture in its own place, of which the tile's place is to be seen.
        #expect(layers.map(\.rect) == [PlaneRect(near)])
        #expect(layers.map(\.clip) == [PlaneRect(one)])
    }

    @Test func childrenStandInOnTopOfAnAncestor() throws {
        let lab = try PainterLab()
        lab.lab.server.script { _ in .status(500) }
        let one = try tile(5, 3, 4)
        try lab.lab.put(try tile(4, 1, 2))
        for child in one.children.prefix(2) { try lab.lab.put(child) }
        #expect(lab.draw(one) == ["4/1/2", "6/6/8", "6/7/8"])
        for child in one.children { try lab.lab.put(child) }
        // Four children hide what is behind them.
        #expect(lab.draw(one) == ["6/6/8", "6/7/8", "6/6/9", "6/7/9"])
    }

    @Test func aStaleTileIsDrawnAndRefreshedAndDrawnAgainOnlyIfItChanged() async throws {
        let lab = try PainterLab()
        let one = try tile(5, 3, 4)
        try lab.lab.put(one, "old", fresh: -5)
        lab.lab.server.script { _ in .tile(picture("old")) }
        #expect(lab.draw(one) == ["old"])
        await lab.settle()
        #expect(lab.lab.server.requests.count == 1)
        #expect(lab.redrawn.withLock { $0 } == [])

        let two = try tile(5, 3, 5)
        try lab.lab.put(two, "older", fresh: -5)
        lab.lab.server.script { _ in .tile(picture("new")) }
        #expect(lab.draw(two) == ["older"])
        await until { lab.redrawn.withLock { $0 } == [PlaneRect(two)] }
        #expect(lab.draw(two) == ["new"])
        await lab.settle()
        #expect(lab.lab.server.requests.count == 2)
    }

    @Test func offlineAStaleTileIsDrawnAndItsServerIsLeftAlone() async throws {
        let lab = try PainterLab()
        let one = try tile(5, 3, 4)
        try lab.lab.put(one, "old", fresh: -5)
        lab.lab.server.script { _ in throw TransportError(.connection, "no network") }
        for _ in 0..<20 {
            #expect(lab.draw(one) == ["old"])
            await lab.settle()
        }
        #expect(lab.lab.server.requests.count == 1)
        #expect(lab.redrawn.withLock { $0 } == [])
    }

    @Test func afterAFailureNobodyIsAskedBeforeTheBackOffIsOver() async throws {
        let lab = try PainterLab { $0.loadMode = .serverThenCache }
        let one = try tile(5, 3, 4)
        lab.lab.server.script { _ in .status(403) }
        lab.draw(one)
        await lab.settle()
        let asked = lab.lab.server.requests.count
        for _ in 0..<20 {
            lab.draw(one)
            await lab.settle()
        }
        #expect(lab.lab.server.requests.count == asked)
        await until { lab.lab.clock.sleeping == 1 }
        #expect(lab.redrawn.withLock { $0 } == [])
        // Its place is drawn anew by itself when the time has come, and then it is asked for again.
        lab.lab.server.script { _ in .tile(picture("there")) }
        lab.lab.clock.advance(seconds: 8)
        await until { !lab.redrawn.withLock { $0.isEmpty } }
        lab.draw(one)
        await lab.settle()
        #expect(lab.lab.server.requests.count == asked + 1)
        #expect(lab.draw(one) == ["there"])
    }

    @Test func whatTheServerDoesNotHaveIsStoodInForAndNotAskedForAgain() async throws {
        let lab = try PainterLab()
        let one = try tile(5, 3, 4)
        try lab.lab.put(try tile(4, 1, 2))
        lab.lab.server.script { _ in .status(404) }
        #expect(lab.draw(one) == ["4/1/2"])
        await lab.settle()
        for _ in 0..<5 {
            #expect(lab.draw(one) == ["4/1/2"])
            await lab.settle()
        }
        #expect(lab.lab.server.requests.count == 1)
        #expect(lab.redrawn.withLock { $0 } == [])
    }

    @Test func beyondTheLastZoomItsTilesAreEnlarged() async throws {
        let lab = try PainterLab { $0.maximumZ = 10 }
        let last = try tile(10, 500, 300)
        try lab.lab.put(last)
        let deep = try tile(16, 500 << 6 | 5, 300 << 6 | 9)
        let layers = lab.layers(deep)
        #expect(layers.map(\.picture) == ["10/500/300"])
        #expect(layers.map(\.rect) == [PlaneRect(last)])
        let other = try tile(16, 501 << 6, 300 << 6)
        #expect(lab.draw(other) == [])
        let place = PlaneRect(try tile(10, 501, 300))
        await until { lab.redrawn.withLock { $0 } == [place] }
        #expect(lab.lab.server.requests.map(\.path) == ["/10/501/300.png"])
    }

    @Test func outsideOfItsZoomsNothingIsDrawnOrAskedFor() async throws {
        let lab = try PainterLab {
            $0.minimumZ = 6
            $0.maximumZ = 10
            $0.overzooms = false
        }
        try lab.lab.put(try tile(10, 500, 300))
        #expect(lab.draw(try tile(11, 1000, 600)) == [])
        #expect(lab.draw(try tile(5, 3, 4)) == [])
        await lab.settle()
        #expect(lab.lab.server.requests.isEmpty)
    }

    /// A screen with two pixels for each point asks for such tiles, and for no others.
    @Test func theScaleOfTheScreenIsAskedFor() async throws {
        let lab = try PainterLab { $0.urlTemplate = "https://tiles.example/{z}/{x}/{y}{r}.png" }
        lab.draw(try tile(5, 3, 4), contentScale: 3)
        await lab.settle()
        #expect(lab.lab.server.requests.map(\.path) == ["/5/3/4@2x.png"])
    }

    @Test func picturesAreDecodedOnceAndKeptWithinTheBound() async throws {
        let lab = try PainterLab(memory: 3500)
        for x in 0..<3 { try lab.lab.put(try tile(5, x, 4)) }
        for _ in 0..<10 { for x in 0..<3 { lab.draw(try tile(5, x, 4)) } }
        #expect(lab.decoded.withLock { $0.values.allSatisfy { $0 == 1 } && $0.count == 3 })
        for x in 3..<20 {
            try lab.lab.put(try tile(5, x, 4))
            lab.draw(try tile(5, x, 4))
            #expect(lab.painter.memoryUse <= 3500)
        }
    }

    /// Another process, a download, an import: the picture in memory is not the last word.
    @Test func aTileThatWasReplacedInTheCacheIsDrawnAnew() throws {
        let lab = try PainterLab()
        let one = try tile(5, 3, 4)
        try lab.lab.put(one, "before")
        #expect(lab.draw(one) == ["before"])
        lab.lab.clock.advance(seconds: 1)
        try lab.lab.put(one, "after")
        #expect(lab.draw(one) == ["after"])
    }

    @Test func bytesThatAreNoPictureAreDecodedOnceAndStoodInFor() throws {
        let attempts = Locked(0)
        let lab = try MapLab()
        let painter = TilePainter<String>(
            lab.map, clock: lab.clock.cacheClock,
            decode: { data in
                let name = String(decoding: data.dropFirst(16), as: UTF8.self)
                if name != "broken" { return (name, 100) }
                attempts.withLock { $0 += 1 }
                return nil
            }, onChange: { _ in })
        let one = try tile(5, 3, 4)
        try lab.put(one, "broken")
        try lab.put(try tile(4, 1, 2))
        for _ in 0..<5 {
            var drawn: [String] = []
            painter.paint(PlaneRect(one), zoomScale: 256 * 32 / PlaneRect.world, contentScale: 1) {
                drawn.append($0.picture)
            }
            #expect(drawn == ["4/1/2"])
        }
        #expect(attempts.withLock { $0 } == 1)
        #expect(lab.server.requests.isEmpty)
    }

    @Test func withoutACacheAPictureIsStillDrawnFromMemory() async throws {
        let lab = try PainterLab { $0.loadMode = .serverOnly }
        let one = try tile(5, 3, 4)
        for _ in 0..<10 {
            lab.draw(one)
            await lab.settle()
        }
        #expect(lab.draw(one) == [path(one)])
        #expect(lab.lab.server.requests.count == 1)
    }

    @Test func offlineNobodyIsAskedAtAll() async throws {
        let lab = try PainterLab { $0.loadMode = .cacheOnly }
        try lab.lab.put(try tile(4, 1, 2), fresh: -1_000_000)
        for _ in 0..<5 {
            #expect(lab.draw(try tile(5, 3, 4)) == ["4/1/2"])
            #expect(lab.draw(try tile(4, 1, 2)) == ["4/1/2"])
            await lab.settle()
        }
        #expect(lab.lab.server.requests.isEmpty)
    }

    /// What was asked for before is neither drawn nor kept when all has been forgotten.
    @Test func whatComesAfterAResetIsIgnored() async throws {
        let lab = try PainterLab()
        let one = try tile(5, 3, 4)
        let (arrived, release) = AsyncStream.makeStream(of: Void.self)
        lab.lab.server.script { request in
            for await _ in arrived {}
            return .tile(picture(request.path ?? ""))
        }
        lab.draw(one)
        await until { lab.lab.server.requests.count == 1 }
        lab.painter.reset()
        release.finish()
        await until { (try? lab.lab.cache.store.statistics().entries) == 1 }
        for _ in 0..<100 { await Task.yield() }
        #expect(lab.redrawn.withLock { $0 } == [])
        #expect(lab.painter.memoryUse == 0)
        #expect(lab.draw(one) == [path(one)])
    }

    @Test func givingUpPicturesForgetsNoFailureAndAsksForNothing() async throws {
        let lab = try PainterLab()
        let (one, missing) = (try tile(5, 3, 4), try tile(5, 9, 9))
        try lab.lab.put(one)
        lab.lab.server.script { _ in throw TransportError(.bodyTooLarge, "the body is larger than allowed") }
        lab.draw(missing)
        await lab.settle()
        let (asked, drawn) = (lab.lab.server.requests.count, lab.draw(one))
        lab.painter.trimMemory()
        #expect(lab.painter.memoryUse == 0)
        #expect(lab.draw(one) == drawn && !drawn.isEmpty)
        lab.draw(missing)
        await lab.settle()
        #expect(lab.lab.server.requests.count == asked)
    }

    @Test func aPlaceAcrossTheAntimeridianIsDrawnAgainWhereItIs() async throws {
        let lab = try PainterLab()
        let side = PlaneRect.world / 4
        lab.painter.paint(
            PlaneRect(x: PlaneRect.world, y: 0, width: side, height: side), zoomScale: 1024 / PlaneRect.world,
            contentScale: 1
        ) { _ in }
        await until { lab.redrawn.withLock { $0.count } == 2 }
        #expect(lab.lab.server.requests.map(\.path) == ["/2/0/0.png"])
        #expect(Set(lab.redrawn.withLock { $0 }.map(\.x)) == [0, PlaneRect.world])
    }

    /// Only the first 80 bytes told one picture from another: a radar's tile stayed as it was first.
    @Test(arguments: [LoadMode.serverOnly, .standard])
    func aPictureThatDiffersAtItsEndIsDrawn(mode: LoadMode) async throws {
        let lab = try PainterLab { $0.loadMode = mode }
        let padding = String(repeating: "-", count: 200)
        lab.lab.server.script { _ in .tile(picture(padding + "12:00"), [.cacheControl: "no-store"]) }
        let one = try tile(5, 3, 4)
        lab.draw(one)
        await lab.settle()
        #expect(lab.draw(one).map { $0.suffix(5) } == ["12:00"])
        await lab.settle()
        lab.lab.server.script { _ in .tile(picture(padding + "13:00"), [.cacheControl: "no-store"]) }
        lab.lab.clock.manual.advance(seconds: 400)
        lab.draw(one)
        await lab.settle()
        #expect(lab.draw(one).map { $0.suffix(5) } == ["13:00"])
        #expect(lab.redrawn.withLock { $0.count } == 2)
    }

    /// What came was kept as the version that another program stored in that moment: it was drawn from then on.
    @Test func aPictureIsKeptUnderItsOwnVersion() async throws {
        let one = try tile(5, 3, 4)
        let (map, isFirst) = (Locked<MapLab?>(nil), Locked(true))
        let lab = try PainterLab {
            $0.transform = { data, tile in
                let stores = isFirst.withLock { isFirst in
                    defer { if tile == one { isFirst = false } }
                    return isFirst && tile == one
                }
                if stores { try map.withLock { $0 }?.put(one, "new") }
                return data
            }
        }
        map.withLock { $0 = lab.lab }
        lab.lab.server.script { _ in .tile(picture("old")) }
        lab.draw(one)
        await lab.settle()
        #expect(lab.draw(one) == ["new"])
        map.withLock { $0 = nil }
    }

    /// A source that has only what was there before, and has it late.
    private final class OldSource: PaintSource {
        let layout: TileLayout
        init(_ layout: TileLayout) { self.layout = layout }
        func state(of tile: TileAddress) -> CachedTileState { .missing }
        func data(for tile: TileAddress) -> Data? { nil }
        func load(_ tile: TileAddress, refreshing: Bool) async throws -> LoadedTile {
            LoadedTile(data: picture("old"), isOld: true)
        }
    }

    /// It was not told of: its place stayed empty until the map was moved.
    @Test func anOldTileWhereNothingWasIsTold() async throws {
        let redrawn = Locked(0)
        let painter = TilePainter<String>(
            OldSource(try MapLab().map.layout), decode: { (String(decoding: $0.dropFirst(16), as: UTF8.self), 1000) },
            onChange: { _ in redrawn.withLock { $0 += 1 } })
        let one = try tile(5, 3, 4)
        let zoomScale = 256 * 32 / PlaneRect.world
        var drawn: [String] = []
        painter.paint(PlaneRect(one), zoomScale: zoomScale, contentScale: 1) { drawn.append($0.picture) }
        await until { painter.isIdle && redrawn.withLock { $0 } == 1 }
        painter.paint(PlaneRect(one), zoomScale: zoomScale, contentScale: 1) { drawn.append($0.picture) }
        #expect(drawn == ["old"])
    }

    /// Only the copy that had asked, and the one at home, were drawn again.
    @Test(arguments: [[0.0, 1], [1, 0], [-1, 1], [1, -1], [0, -1, 1]])
    func everyCopyBeyondTheAntimeridianIsTold(worlds: [Double]) async throws {
        let lab = try PainterLab()
        let isOpen = Locked(false)
        lab.lab.server.script { _ in
            while !isOpen.withLock({ $0 }) { await Task.yield() }
            return .tile(picture("west"))
        }
        let one = try tile(2, 0, 1)
        let zoomScale = lab.lab.map.layout.tileSize * 4 / PlaneRect.world
        for world in worlds {
            lab.painter.paint(
                PlaneRect(one).shifted(by: world * PlaneRect.world), zoomScale: zoomScale, contentScale: 1
            ) { _ in }
        }
        isOpen.withLock { $0 = true }
        await lab.settle()
        await until {
            Set(lab.redrawn.withLock { $0 }.map { ($0.x / PlaneRect.world).rounded(.down) }).isSuperset(of: worlds)
        }
    }
}
