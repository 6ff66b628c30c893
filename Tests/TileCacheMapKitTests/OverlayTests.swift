#if canImport(MapKit)
import Foundation
import HTTPTypes
import MapKit
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache
@testable import TileCacheMapKit

/// An overlay of somebody else's, as an app that used CachingTileOverlay has one.
private final class OwnOverlay: MKTileOverlay, CachingTileOverlay, @unchecked Sendable {
    private let tiles = Locked<[String: Data]>([:])
    let asked = Locked<[String]>([])

    private func name(_ path: MKTileOverlayPath) -> String { "\(path.z)/\(path.x)/\(path.y)" }
    func put(_ name: String) { tiles.withLock { $0[name] = picture(name) } }

    func cachedData(at path: MKTileOverlayPath) -> Data? { tiles.withLock { $0[name(path)] } }
    override func loadTile(at path: MKTileOverlayPath, result: @escaping @Sendable (Data?, (any Error)?) -> Void) {
        let name = name(path)
        asked.withLock { $0.append(name) }
        put(name)
        result(picture(name), nil)
        // Some call back twice; it is not the end of the app.
        result(nil, nil)
    }
}

/// An overlay that is no `MKTileOverlay`, with the three members that CachingTileOverlay asks for and no others.
private final class PlainOverlay: NSObject, CachingTileOverlay, @unchecked Sendable {
    private let tiles = Locked<Set<String>>([])
    let asked = Locked<[String]>([])
    let coordinate = CLLocationCoordinate2D()
    let boundingMapRect = MKMapRect.world
    let tileSize = CGSize(width: 512, height: 512)

    private func name(_ path: MKTileOverlayPath) -> String { "\(path.z)/\(path.x)/\(path.y)" }

    func cachedData(at path: MKTileOverlayPath) -> Data? {
        let name = name(path)
        return tiles.withLock { $0.contains(name) } ? picture(name) : nil
    }

    func loadTile(at path: MKTileOverlayPath) async throws -> Data {
        let name = name(path)
        asked.withLock { $0.append(name) }
        guard path.x != 9 else { throw TileCacheError(.noAnswer, "no \(name)") }
        tiles.withLock { _ = $0.insert(name) }
        return picture(name)
    }
}

/// An overlay that has its tiles and can get no others.
private final class ShelfOverlay: NSObject, CachingTileOverlay {
    let coordinate = CLLocationCoordinate2D()
    let boundingMapRect = MKMapRect.world
    let tileSize = CGSize(width: 256, height: 256)
    func cachedData(at path: MKTileOverlayPath) -> Data? { path.z == 3 ? picture("shelf") : nil }
}

/// A cache of one's own, as an app has one that conformed to MapCacheProtocol.
private final class OwnCache: MapCaching {
    private let tiles = Locked<[TileAddress: Data]>([:])
    let asked = Locked<[TileAddress]>([])
    var layout: TileLayout { TileLayout(zooms: 0...17) }
    func cachedData(for tile: TileAddress) -> Data? { tiles.withLock { $0[tile] } }
    func loadTile(_ tile: TileAddress, refreshing: Bool) async throws -> Data? {
        let data = picture("own \(tile.z)/\(tile.x)/\(tile.y)")
        asked.withLock { $0.append(tile) }
        tiles.withLock { $0[tile] = data }
        return data
    }
}

/// Remembers what it was told to draw anew.
private final class WatchedRenderer: CachedTileOverlayRenderer, @unchecked Sendable {
    let redrawn = Locked<[MKMapRect]>([])
    let redrawnAll = Locked(0)
    override func setNeedsDisplay(_ mapRect: MKMapRect) { redrawn.withLock { $0.append(mapRect) } }
    override func setNeedsDisplay() { redrawnAll.withLock { $0 += 1 } }
    override var contentScaleFactor: CGFloat { 1 }

    /// What is drawn of a tile's place.
    func draw(_ tile: TileAddress, size: Double = 256) -> [Drawn] {
        let context = CGContext()
        draw(PlaneRect(tile).mapRect, zoomScale: size * Double(1 << tile.z) / PlaneRect.world, in: context)
        #expect(context.depth == 0)
        return context.drawn
    }

    func pictures(_ tile: TileAddress, size: Double = 256) -> [String] {
        draw(tile, size: size).compactMap { if case .image(let name, _, _) = $0 { name } else { nil } }
    }

    func settle() async { await until { isIdle } }
}

private func value(_ rect: PlaneRect) -> CGRectValue { CGRectValue(rect.x, rect.y, rect.width, rect.height) }

@Suite(.timeLimit(.minutes(60)))
struct OverlayTests {
    private func path(_ tile: TileAddress) -> MKTileOverlayPath { tile.path(isFlipped: false) }

    private func load(_ overlay: MKTileOverlay, _ path: MKTileOverlayPath) async -> (Data?, (any Error)?) {
        await withCheckedContinuation { continuation in
            overlay.loadTile(at: path) { continuation.resume(returning: ($0, $1)) }
        }
    }

    @Test func anOverlayTakesItsShapeFromItsCache() throws {
        let lab = try MapLab {
            $0.minimumZ = 3
            $0.maximumZ = 17
            $0.tileSize = 512
        }
        let overlay = CachedTileOverlay(lab.map)
        #expect(overlay.minimumZ == 3 && overlay.maximumZ == 17)
        #expect(overlay.tileSize == CGSize(width: 512, height: 512))
        #expect(overlay.urlTemplate == nil)
    }

    @Test func tilesAreLoadedAndFoundInTheCacheAtOnce() async throws {
        let lab = try MapLab()
        let overlay = CachedTileOverlay(lab.map)
        let one = path(try tile(5, 3, 4))
        #expect(overlay.cachedData(at: one) == nil)
        #expect(overlay.cachedState(at: one) == .missing)
        let loaded = await load(overlay, one)
        #expect(loaded.0 == picture("/5/3/4.png") && loaded.1 == nil)
        #expect(overlay.cachedData(at: one) == loaded.0)
        #expect(overlay.cachedState(at: one).content == .picture)
        #expect(overlay.url(forTilePath: one).absoluteString == "https://tiles.example/5/3/4.png")
    }

    @Test func whatCannotBeHadIsAnErrorAndWhatIsNotThereIsNone() async throws {
        let lab = try MapLab()
        let overlay = CachedTileOverlay(lab.map)
        lab.server.script { _ in .status(404) }
        let absent = await load(overlay, path(try tile(5, 3, 4)))
        #expect(absent.0 == nil && absent.1 == nil)
        lab.server.script { _ in .status(403) }
        let refused = await load(overlay, path(try tile(5, 3, 5)))
        #expect(refused.0 == nil && (refused.1 as? TileCacheError)?.code == .badStatus)
        for (x, y, z) in [(-1, 0, 3), (8, 0, 3), (0, 0, -1), (0, 0, 99), (Int.max, Int.min, 5)] {
            let outside = MKTileOverlayPath(x: x, y: y, z: z, contentScaleFactor: 1)
            #expect((await load(overlay, outside)).1 != nil)
            #expect(overlay.cachedData(at: outside) == nil)
            #expect(overlay.url(forTilePath: outside).path == "/dev/null")
        }
    }

    /// MapKit gives such an overlay rows from the south; the cache's own are from the north, and the URL has the former.
    @Test func flippedGeometryIsTheServersAndNotTheCaches() async throws {
        let lab = try MapLab { $0.isGeometryFlipped = true }
        let overlay = CachedTileOverlay(lab.map)
        #expect(overlay.isGeometryFlipped)
        let flipped = MKTileOverlayPath(x: 3, y: 27, z: 5, contentScaleFactor: 1)
        #expect(overlay.url(forTilePath: flipped).absoluteString == "https://tiles.example/5/3/27.png")
        #expect((await load(overlay, flipped)).0 == picture("/5/3/27.png"))
        #expect(lab.map.state(of: try tile(5, 3, 4)).content == .picture)
        let renderer = WatchedRenderer(overlay: overlay)
        #expect(renderer.pictures(try tile(5, 3, 4)) == ["/5/3/27.png"])
    }
}

@Suite(.timeLimit(.minutes(60)))
struct RendererTests {
    @Test func aTileIsDrawnUprightInItsPlace() throws {
        let lab = try MapLab()
        let one = try tile(5, 3, 4)
        try lab.put(one)
        let overlay = CachedTileOverlay(lab.map)
        let rect = PlaneRect(one)
        // A negative height: the rows of a picture go up, those of the context down.
        #expect(
            WatchedRenderer(overlay: overlay).draw(one) == [
                .image("5/3/4", CGRectValue(rect.x, rect.maxY, rect.width, -rect.height), clip: nil)
            ])
    }

    @Test func anAncestorsShareIsDrawnWithinTheTilesPlace() throws {
        let lab = try MapLab { $0.loadMode = .cacheOnly }
        let (one, above) = (try tile(5, 3, 4), try tile(3, 0, 1))
        try lab.put(above)
        let overlay = CachedTileOverlay(lab.map)
        let rect = PlaneRect(above)
        #expect(
            WatchedRenderer(overlay: overlay).draw(one) == [
                .image(
                    "3/0/1", CGRectValue(rect.x, rect.maxY, rect.width, -rect.height),
                    clip: value(PlaneRect(one)))
            ])
    }

    @Test func aTileThatHasComeIsDrawnAnewAndNothingElse() async throws {
        let lab = try MapLab()
        let overlay = CachedTileOverlay(lab.map)
        let renderer = WatchedRenderer(overlay: overlay)
        let one = try tile(5, 3, 4)
        #expect(renderer.canDraw(PlaneRect(one).mapRect, zoomScale: 1))
        #expect(renderer.pictures(one) == [])
        await until { renderer.redrawn.withLock { $0.count } == 1 }
        let redrawn = try #require(renderer.redrawn.withLock { $0.first })
        #expect(PlaneRect(redrawn) == PlaneRect(one))
        #expect(renderer.pictures(one) == ["/5/3/4.png"])
        #expect(lab.server.requests.count == 1 && renderer.redrawnAll.withLock { $0 } == 0)
    }

    /// Several threads with a context each, as MapKit does.
    @Test(.ownCores) func manyThreadsDrawAtOnce() async throws {
        let lab = try MapLab()
        let tiles = try (0..<6).map { try tile(6, $0, 9) }
        for tile in tiles.prefix(3) { try lab.put(tile) }
        let overlay = CachedTileOverlay(lab.map)
        let renderer = WatchedRenderer(overlay: overlay)
        await withCheckedContinuation { done in
            DispatchQueue.global().async {
                DispatchQueue.concurrentPerform(iterations: 8) { thread in
                    for round in 0..<100 {
                        let number = (thread + round) % tiles.count
                        let pictures = renderer.pictures(tiles[number])
                        if number < 3 { #expect(pictures == ["6/\(number)/9"]) }
                        if round == 50, thread == 0 { renderer.decorate = { _, _, _ in } }
                    }
                }
                done.resume()
            }
        }
        await renderer.settle()
        #expect(lab.server.requests.count == 3)
        #expect(Set(lab.server.requests.map(\.path)).count == 3)
    }

    @Test func theFirstRowOfAPackageBelowTheLastZoomIsEnlarged() throws {
        let lab = try MapLab {
            $0.maximumZ = 4
            $0.loadMode = .cacheOnly
        }
        try lab.put(try tile(4, 1, 2))
        let overlay = CachedTileOverlay(lab.map)
        let renderer = WatchedRenderer(overlay: overlay)
        #expect(renderer.pictures(try tile(9, 1 << 5, 2 << 5)) == ["4/1/2"])
        #expect(renderer.pictures(try tile(9, 0, 0)) == [])
    }

    @Test func tilesOf512PointsAreThoseOfAZoomLess() throws {
        let lab = try MapLab {
            $0.tileSize = 512
            $0.loadMode = .cacheOnly
        }
        try lab.put(try tile(5, 3, 4))
        let overlay = CachedTileOverlay(lab.map)
        let renderer = WatchedRenderer(overlay: overlay)
        #expect(renderer.pictures(try tile(5, 3, 4), size: 512) == ["5/3/4"])
        // The scale at which 256 points would be zoom 6.
        #expect(renderer.pictures(try tile(6, 6, 8), size: 256) == ["5/3/4"])
    }

    @Test func picturesThatWereGivenUpAreDecodedAgain() throws {
        let lab = try MapLab()
        let one = try tile(5, 3, 4)
        try lab.put(one)
        let renderer = WatchedRenderer(overlay: CachedTileOverlay(lab.map))
        #expect(renderer.pictures(one) == ["5/3/4"])
        renderer.trimMemory()
        #expect(renderer.pictureMemoryUse == 0)
        #expect(renderer.pictures(one) == ["5/3/4"])
        #expect(renderer.pictureMemoryUse == 256 * 256 * 4)
    }

    @Test func aSwitchOfSourcesAndAReloadDrawEverythingAnew() async throws {
        let lab = try MapLab()
        let one = try tile(5, 3, 4)
        try lab.put(one)
        let night = try lab.other {
            $0.sourceName = "night"
            $0.maximumZ = 12
        }
        let key = try night.source.key(z: 5, x: 3, y: 4)
        let now = lab.clock.manual.now
        try lab.cache.store.put(
            picture("night"), for: key, metadata: TileMetadata(storedAt: now, expires: now.adding(seconds: 60)))
        let overlay = CachedTileOverlay(lab.map)
        let renderer = WatchedRenderer(overlay: overlay)
        #expect(renderer.pictures(one) == ["5/3/4"])
        #expect(renderer.pictureMemoryUse == 256 * 256 * 4)
        await overlay.use(night)
        #expect(overlay.maximumZ == 12 && renderer.pictureMemoryUse == 0)
        #expect(renderer.pictures(one) == ["night"])
        await until { renderer.redrawnAll.withLock { $0 } == 1 }
        try await night.clear()
        overlay.reload()
        await until { renderer.redrawnAll.withLock { $0 } == 2 }
        #expect(renderer.pictures(one) == [])
    }

    @Test func theWatermarkIsDrawnOnEveryTileThatIsDrawn() throws {
        let lab = try MapLab { $0.loadMode = .cacheOnly }
        let one = try tile(5, 3, 4)
        try lab.put(one)
        let overlay = CachedTileOverlay(lab.map)
        let renderer = WatchedRenderer(overlay: overlay)
        renderer.decorate = { context, rect, tile in
            context.setFillColor(red: 1, green: 0, blue: 0, alpha: 1)
            context.fill(CGRect(x: rect.minX, y: rect.minY, width: 10, height: CGFloat(tile.z)))
        }
        let rect = PlaneRect(one)
        #expect(renderer.draw(one).last == .fill(CGRectValue(rect.x, rect.y, 10, 5), color: [1, 0, 0, 1]))
        #expect(renderer.draw(try tile(5, 9, 9)) == [])
    }

    @Test func aPictureThatClaimsToBeHugeIsNotDecoded() throws {
        let lab = try MapLab { $0.loadMode = .cacheOnly }
        let one = try tile(5, 3, 4)
        let now = lab.clock.manual.now
        for (x, width, height) in [(3, UInt32.max, UInt32.max), (4, 0, 256), (5, 40_000, 40_000)] {
            let key = try lab.map.source.key(z: 5, x: x, y: 4)
            try lab.cache.store.put(
                picture("bomb", width: width, height: height), for: key,
                metadata: TileMetadata(storedAt: now, expires: now.adding(seconds: 60)))
        }
        let overlay = CachedTileOverlay(lab.map)
        let renderer = WatchedRenderer(overlay: overlay)
        for x in 3...5 { #expect(renderer.pictures(try tile(5, x, 4)) == []) }
        #expect(renderer.pictures(one) == [])
    }

    /// Whoever has a cache of his own needs `cachedData(at:)` and nothing else.
    @Test func anOverlayOfOnesOwnIsDrawnToo() async throws {
        let overlay = OwnOverlay(urlTemplate: nil)
        overlay.put("3/0/1")
        let renderer = WatchedRenderer(overlay: overlay)
        let one = try tile(5, 3, 4)
        #expect(renderer.pictures(one) == ["3/0/1"])
        await until { renderer.redrawn.withLock { $0.count } == 1 }
        #expect(renderer.pictures(one) == ["5/3/4"])
        #expect(overlay.asked.withLock { $0 } == ["5/3/4"])
        overlay.isGeometryFlipped = true
        #expect(renderer.pictures(try tile(5, 30, 30)) == [])
        await renderer.settle()
        #expect(overlay.asked.withLock { $0.last } == "5/30/1")
    }
}

@Suite(.timeLimit(.minutes(60)))
struct OwnOverlayTests {
    /// `CachingTileOverlayRenderer` and a conformer of CachingTileOverlay 1.1.0 that subclasses nothing.
    @Test func anOverlayThatIsNoTileOverlayIsDrawnByTheRendererOfThatName() async throws {
        let overlay = PlainOverlay()
        let one = try tile(5, 3, 4)
        #expect(CachingTileOverlayRenderer(overlay: overlay).pictureMemoryUse == 0)
        let renderer = WatchedRenderer(overlay: overlay)
        #expect(renderer.pictures(one, size: 512) == [])
        await until { renderer.redrawn.withLock { $0.count } == 1 }
        #expect(renderer.pictures(one, size: 512) == ["5/3/4"])
        #expect(overlay.asked.withLock { $0 } == ["5/3/4"])
        #expect(overlay.minimumZ == 0 && overlay.maximumZ == 21 && !overlay.isGeometryFlipped)
        // What throws is no picture. (That it is left alone for a while is shown with a clock that a test moves, in TilePainterTests.)
        let other = try tile(5, 9, 4)
        #expect(renderer.pictures(other, size: 512) == [])
        await renderer.settle()
        #expect(renderer.pictures(other, size: 512) == [])
        #expect(overlay.asked.withLock { $0.prefix(2) } == ["5/3/4", "5/9/4"])
    }

    @Test @MainActor func aMapViewsDelegateGetsItsRenderer() {
        let overlay = PlainOverlay()
        #expect(MKMapView().mapCacheRenderer(forOverlay: overlay) is CachingTileOverlayRenderer)
    }

    @Test func anOverlayWithoutALoadShowsWhatItHas() async throws {
        let overlay = ShelfOverlay()
        let renderer = WatchedRenderer(overlay: overlay)
        #expect(renderer.pictures(try tile(5, 3, 4)) == ["shelf"])
        await renderer.settle()
        await #expect(throws: TileCacheError.self) {
            try await overlay.loadTile(at: MKTileOverlayPath(x: 0, y: 0, z: 5, contentScaleFactor: 1))
        }
    }

    @Test func aCacheOfOnesOwnIsDrawnToo() async throws {
        let cache = OwnCache()
        let overlay = CachedTileOverlay(cache)
        let renderer = WatchedRenderer(overlay: overlay)
        let one = try tile(5, 3, 4)
        #expect(overlay.maximumZ == 17 && renderer.pictures(one) == [])
        await until { renderer.redrawn.withLock { $0.count } == 1 }
        #expect(renderer.pictures(one) == ["own 5/3/4"])
        #expect(cache.asked.withLock { $0 } == [one])
        let path = MKTileOverlayPath(x: 3, y: 4, z: 5, contentScaleFactor: 1)
        #expect(overlay.url(forTilePath: path).path == "/dev/null")
    }
}

@Suite(.timeLimit(.minutes(60)))
struct GridOverlayTests {
    @Test func eachTileShowsItsAddressAndWhatTheCacheHasOfIt() async throws {
        let lab = try MapLab()
        try lab.put(try tile(2, 0, 0))
        try lab.put(try tile(2, 1, 0), fresh: -5)
        lab.server.script { _ in .status(404) }
        _ = try await lab.map.loadTile(try tile(2, 2, 0), refreshing: false)
        let region = try PinnedRegion(
            name: "r", source: lab.map.source.name, spans: [TileSpan(zoom: 2, columns: 1...1, rows: 0...0)])
        try lab.cache.store.pin(region)
        let overlay = CachedTileOverlay(lab.map)
        let grid = TileGridOverlay(of: overlay)
        let renderer = TileGridOverlayRenderer(overlay: grid)
        let context = CGContext()
        let side = PlaneRect.world / 4
        let asked = lab.server.requests.count
        renderer.draw(
            MKMapRect(x: 0, y: 0, width: 4 * side, height: side), zoomScale: 1024 / PlaneRect.world, in: context)
        let frames = context.drawn.compactMap { drawn -> (Double, [Double])? in
            if case .stroke(let rect, let color) = drawn { (rect.x, color) } else { nil }
        }
        #expect(frames.map(\.0) == [0, side, 2 * side, 3 * side])
        // Fresh, stale, absent, missing: four colours.
        #expect(Set(frames.map(\.1)).count == 4)
        let dots = context.drawn.filter { if case .fill = $0 { true } else { false } }
        // One of them is the pin's.
        let letters = ["2/0/0", "2/1/0", "2/2/0", "2/3/0"].reduce(0) { $0 + DotFont.dots($1).count }
        #expect(dots.count == letters + 1)
        #expect(lab.server.requests.count == asked)
    }
}

@Suite(.timeLimit(.minutes(60)))
@MainActor
struct MapViewTests {
    @Test func theOverlayGoesToTheLevelAskedForBelowWhatIsThere() throws {
        let lab = try MapLab()
        let view = MKMapView()
        let route = MKTileOverlay(urlTemplate: nil)
        view.addOverlay(route, level: .aboveRoads)
        let overlay = view.useCache(lab.map, canReplaceMapContent: false, overlayLevel: .aboveRoads)
        #expect(view.overlays(in: .aboveRoads).map(ObjectIdentifier.init) == [.init(overlay), .init(route)])
        #expect(!overlay.canReplaceMapContent)
        let other = view.useCache(lab.map)
        #expect(view.overlays(in: .aboveLabels).map(ObjectIdentifier.init) == [.init(other)])
        #expect(other.canReplaceMapContent)
    }

    @Test func everyOverlayGetsItsRenderer() throws {
        let lab = try MapLab()
        let view = MKMapView()
        let overlay = view.useCache(lab.map)
        let grid = TileGridOverlay(of: overlay)
        let (plain, own) = (MKTileOverlay(urlTemplate: nil), OwnOverlay(urlTemplate: nil))
        #expect(view.mapCacheRenderer(forOverlay: overlay) is CachedTileOverlayRenderer)
        #expect(view.mapCacheRenderer(forOverlay: own) is CachedTileOverlayRenderer)
        #expect(view.mapCacheRenderer(forOverlay: grid) is TileGridOverlayRenderer)
        #expect(view.mapCacheRenderer(forOverlay: plain) is MKTileOverlayRenderer)
    }

    @Test func theZoomIsThatOfTilesOf256Points() {
        let view = MKMapView()
        #expect(view.zoomLevel == 0)
        view.frame = CGRect(x: 0, y: 0, width: 512, height: 512)
        view.visibleMapRect = .world
        #expect(view.zoomLevel == 1)
        view.visibleMapRect = MKMapRect(x: 0, y: 0, width: MKMapSize.world.width / 1024, height: 1)
        #expect(view.zoomLevel == 11)
    }
}
#endif
