import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A picture and where it goes.
struct PaintedLayer<Picture> {
    var picture: Picture
    /// Whose picture it is.
    var tile: TileAddress
    /// Where the whole picture goes.
    var rect: PlaneRect
    /// The part of that which is to be seen; `nil` for all of it.
    var clip: PlaneRect?
}

/// Draws what there is of a map's tiles and asks for what is missing: a renderer without its MapKit.
///
/// Any number of threads may call ``paint(_:zoomScale:contentScale:draw:)`` at a time. No lock is held while a tile is
/// read, decoded or drawn. The rules are those of ``PaintDecision`` and ``LoadTracker``; this joins them to the world.
final class TilePainter<Picture: Sendable>: Sendable {
    private struct State {
        var tracker: LoadTracker
        var pictures: PictureCache<Picture>
        /// Counts the times that all was forgotten: what was asked for before counts no more.
        var generation = 0
        /// Where copies of tiles that are being loaded are drawn, the one that asked first: some lie beyond the antimeridian.
        var copies: [TileAddress: [Double]] = [:]

        /// Has a copy told of when the tile has come.
        mutating func noteCopy(_ placement: TilePlacement) {
            let known = copies[placement.tile] ?? []
            guard known.count < TilePainter.mostCopies, !known.contains(placement.shift) else { return }
            copies[placement.tile] = known + [placement.shift]
        }
    }

    /// So many copies of a tile are told of at most.
    private static var mostCopies: Int { 8 }

    private let source: any PaintSource
    private let decode: @Sendable (Data) -> (picture: Picture, cost: Int)?
    private let clock: CacheClock
    private let onChange: @Sendable (PlaneRect) -> Void
    private let state: Locked<State>

    /// - Parameters:
    ///   - source: Where tiles come from.
    ///   - memory: Bytes of decoded pictures that are kept.
    ///   - decode: Makes a picture of bytes; `nil` for what is none.
    ///   - onChange: Told of every rectangle where something else would be drawn now; called on any thread.
    init(
        _ source: any PaintSource, memory: Int = 48 << 20, backoff: Backoff = Backoff(), clock: CacheClock = .system,
        decode: @escaping @Sendable (Data) -> (picture: Picture, cost: Int)?,
        onChange: @escaping @Sendable (PlaneRect) -> Void
    ) {
        self.source = source
        self.decode = decode
        self.clock = clock
        self.onChange = onChange
        state = Locked(State(tracker: LoadTracker(backoff: backoff), pictures: PictureCache(capacity: memory)))
    }

    /// Bytes of decoded pictures that are kept now.
    var memoryUse: Int { state.withLock { $0.pictures.cost } }
    /// Whether nothing is being loaded.
    var isIdle: Bool { state.withLock { $0.tracker.isIdle } }

    /// Forgets pictures, failures and what is under way, as when the source has become another.
    func reset() {
        state.withLock { state in
            state.generation += 1
            state.pictures.removeAll()
            state.tracker = LoadTracker(backoff: state.tracker.backoff)
            state.copies = [:]
        }
    }

    /// Gives up the pictures; what is drawn next is decoded anew.
    func trimMemory() { state.withLock { $0.pictures.removeAll() } }

    /// Draws what is there of a rectangle, and asks for the rest.
    ///
    /// Waits for the disk at most. `draw` is called from back to front.
    func paint(
        _ rect: PlaneRect, zoomScale: Double, contentScale: Double, draw: (PaintedLayer<Picture>) -> Void
    ) {
        let layout = source.layout
        guard let grid = TileGrid(layout, zoomScale: zoomScale), grid.state != .belowMinimum,
            grid.state == .inRange || layout.overzooms
        else { return }
        for placement in grid.placements(in: rect, scale: layout.scale(contentScale)) {
            paint(placement, grid, draw)
        }
    }

    private func paint(_ placement: TilePlacement, _ grid: TileGrid, _ draw: (PaintedLayer<Picture>) -> Void) {
        let tile = placement.tile
        var found = source.state(of: tile)
        let own = picture(of: tile, found)
        switch (found.content, own) {
        case (.picture, nil):
            // Gone since, or no picture: a stand-in is better than nothing, and only the former is asked for.
            found.content = state.withLock { $0.pictures.peek(tile) } == nil ? .missing : .absent
        case (.missing, _?):
            // Not stored, or not any more: what is in memory is drawn, and asked for by the tracker's leave.
            found = CachedTileState(.picture, isStale: true)
        default: break
        }
        let now = clock.ticks()
        let status = state.withLock { $0.tracker.status(of: tile, at: now) }
        var layers: [PaintedLayer<Picture>] = []
        let decision = PaintDecision.decide(
            zoom: grid.state, overzooms: grid.layout.overzooms, state: found, status: status,
            standIns: standIns(for: placement, grid.layout, &layers))
        switch decision.picture {
        case .nothing: break
        case .own:
            if let own { draw(PaintedLayer(picture: own, tile: tile, rect: placement.rect)) }
        case .standIns(let standIns):
            for layer in layers where layer.tile.z > tile.z || standIns.ancestor != nil { draw(layer) }
        }
        if decision.request != .none {
            request(placement, refreshing: decision.request == .refresh, at: now)
        } else if status == .loading {
            state.withLock { $0.noteCopy(placement) }
        }
    }

    // MARK: Pictures

    /// The picture of a tile of which the cache has something; decoded if that has not been done.
    private func picture(of tile: TileAddress, _ found: CachedTileState) -> Picture? {
        guard found.content != .absent else { return nil }
        let (kept, generation) = state.withLock { ($0.pictures.use(tile), $0.generation) }
        if let kept, found.content == .missing || kept.version == found.version { return kept.picture }
        guard found.content == .picture, let data = source.data(for: tile) else { return nil }
        return keep(data, for: tile, version: found.version, generation)
    }

    /// Decodes a picture and keeps it.
    @discardableResult
    private func keep(_ data: Data, for tile: TileAddress, version: Int, _ generation: Int) -> Picture? {
        let made = decode(data)
        state.withLock { state in
            guard state.generation == generation else { return }
            state.pictures.insert(
                PictureCache.Entry(picture: made?.picture, version: version), for: tile, cost: made?.cost ?? 0)
        }
        return made?.picture
    }

    /// What could be drawn in place of a tile: a part of the nearest tile further out, then the four of the next zoom.
    ///
    /// Each in the tile's own scale if it is there, else in another: a region of one scale fills a screen of another.
    private func standIns(
        for placement: TilePlacement, _ layout: TileLayout, _ layers: inout [PaintedLayer<Picture>]
    ) -> StandIns {
        var found = StandIns.none
        let tile = placement.tile
        func layer(_ place: TileAddress, clip: PlaneRect?, ownScale: Bool = true) -> PaintedLayer<Picture>? {
            for other in place.inScales(of: layout) where ownScale || other.scale != place.scale {
                let state = source.state(of: other)
                guard state.content == .picture, let picture = picture(of: other, state) else { continue }
                return PaintedLayer(
                    picture: picture, tile: other, rect: PlaneRect(other).shifted(by: placement.shift), clip: clip)
            }
            return nil
        }
        // The same place in another scale is nearer than any other tile.
        if let layer = layer(tile, clip: nil, ownScale: false) {
            found.ancestor = 0
            layers.append(layer)
            return found
        }
        var front: [PaintedLayer<Picture>] = []
        if tile.z < layout.zooms.upperBound {
            for (number, child) in tile.children.enumerated() {
                guard let layer = layer(child, clip: nil) else { continue }
                found.children |= 1 << UInt8(number)
                front.append(layer)
            }
        }
        if found.children != 0b1111 {
            for overzoom in Overzoom.candidates(for: tile, within: layout.zooms, maximumDepth: tile.z) {
                guard let layer = layer(overzoom.ancestor, clip: placement.rect) else { continue }
                found.ancestor = overzoom.depth
                layers.append(layer)
                break
            }
        }
        layers += front
        return found
    }

    // MARK: Loading

    private func request(_ placement: TilePlacement, refreshing: Bool, at now: UInt64) {
        let tile = placement.tile
        let generation = state.withLock { state -> Int? in
            if state.tracker.begin(tile, at: now) {
                state.copies[tile] = [placement.shift]
                return state.generation
            }
            if state.tracker.status(of: tile, at: now) == .loading {
                state.noteCopy(placement)
            }
            return nil
        }
        guard let generation else { return }
        Task(priority: refreshing ? .utility : .userInitiated) {
            await self.load(placement, refreshing: refreshing, generation)
        }
    }

    private func load(_ placement: TilePlacement, refreshing: Bool, _ generation: Int) async {
        let tile = placement.tile
        do {
            // Since it was looked at, a load may have ended that began before this one.
            let before = source.state(of: tile)
            let isWanted = before.isStale || before.content == .missing
            let loaded = try await source.load(tile, refreshing: refreshing && isWanted)
            let after = source.state(of: tile)
            let changed = take(loaded, for: tile, before, after, generation)
            let now = clock.ticks()
            if loaded.isOld {
                // Old as it is, nothing better is drawn there.
                if changed { tell(placement, generation) }
                return await failed(placement, asked: nil, generation, isDrawn: true)
            }
            state.withLock { state in
                guard state.generation == generation else { return }
                let isSettled = after.content != .missing && !after.isStale
                state.tracker.finished(tile, isSettled: isSettled, at: now)
                if !changed { state.copies[tile] = nil }
            }
            if changed { tell(placement, generation) }
        } catch is CancellationError {
            state.withLock { state in
                guard state.generation == generation else { return }
                state.tracker.abandoned(tile)
                state.copies[tile] = nil
            }
        } catch {
            await failed(placement, asked: (error as? TileCacheError)?.retryAfter, generation, isDrawn: refreshing)
        }
    }

    /// Takes over what came.
    ///
    /// - Returns: Whether something else is to be drawn now.
    private func take(
        _ loaded: LoadedTile, for tile: TileAddress, _ earlier: CachedTileState, _ after: CachedTileState,
        _ generation: Int
    ) -> Bool {
        let before = state.withLock { $0.generation == generation ? ($0.pictures.peek(tile), true) : (nil, false) }
        guard before.1 else { return false }
        guard let data = loaded.data else {
            state.withLock { if $0.generation == generation { $0.pictures.remove(tile) } }
            return before.0?.picture != nil
        }
        // Another tile may have been stored since this one was taken: then its version is not that of these bytes.
        let isSame = after.content == .picture && (after.version == 0 || after.version == earlier.version)
        let version = loaded.version ?? (isSame ? after.version : data.version)
        // A cache that does not tell its versions apart may have anything new.
        if let kept = before.0, kept.version == version, version != 0 { return false }
        return keep(data, for: tile, version: version, generation) != nil || before.0?.picture != nil
    }

    /// Leaves a tile alone for a while, and has its place drawn again when that is over if nothing is to be seen there.
    private func failed(_ placement: TilePlacement, asked: Duration?, _ generation: Int, isDrawn: Bool) async {
        let (now, random) = (clock.ticks(), clock.random())
        let wait = state.withLock { state -> UInt64? in
            guard state.generation == generation else { return nil }
            let wait = state.tracker.failed(placement.tile, asked: asked, at: now, random: random)
            if wait == nil || isDrawn { state.copies[placement.tile] = nil }
            return wait
        }
        guard let wait, !isDrawn else { return }
        let clock = self.clock
        // Does not keep the painter: a map that is gone has nothing to draw.
        Task { [weak self] in
            // A sleep that is broken off means that nobody waits for the drawing any more.
            guard (try? await clock.sleep(.nanoseconds(Int64(clamping: wait)))) != nil else { return }
            self?.tell(placement, generation)
        }
    }

    private func tell(_ placement: TilePlacement, _ generation: Int) {
        let copies = state.withLock { state in
            state.generation == generation ? state.copies.removeValue(forKey: placement.tile) ?? [] : nil
        }
        guard let copies else { return }
        onChange(placement.rect)
        let own = PlaneRect(placement.tile)
        if placement.shift != 0, !copies.contains(0) { onChange(own) }
        for shift in copies where shift != placement.shift { onChange(own.shifted(by: shift)) }
    }
}

extension Data {
    /// Tells bytes from others, all of them: `hashValue` looks at the first 80 alone.
    fileprivate var version: Int {
        var hasher = Hasher()
        withUnsafeBytes { hasher.combine(bytes: $0) }
        return hasher.finalize()
    }
}

extension TileAddress {
    /// The tile in its own scale, then in the other scales that a map has, the finest first.
    fileprivate func inScales(of layout: TileLayout) -> [TileAddress] {
        guard layout.scales.count > 1 else { return [self] }
        return [self]
            + layout.scales.reversed().filter { $0 != scale }.compactMap {
                // A scale that an address cannot have is no tile.
                try? TileAddress(z: z, x: x, y: y, scale: $0, format: format)
            }
    }
}
