import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A rectangle in MapKit's plane, whose unit is the map point: the world is 2^28 of them wide, the first row in the north.
struct PlaneRect: Hashable, Sendable {
    /// The width, and height, of the world.
    static let world = 268_435_456.0

    var x, y, width, height: Double

    var maxX: Double { x + width }
    var maxY: Double { y + height }

    init(x: Double, y: Double, width: Double, height: Double) {
        self.x = x
        self.y = y
        self.width = width
        self.height = height
    }

    /// Where a tile is; exact, since its edges are multiples of a power of two.
    init(_ tile: TileAddress) {
        let side = Self.world / Double(1 << tile.z)
        self.init(x: Double(tile.x) * side, y: Double(tile.y) * side, width: side, height: side)
    }

    func shifted(by distance: Double) -> PlaneRect { PlaneRect(x: x + distance, y: y, width: width, height: height) }
}

/// Where the zoom that is looked at lies, seen from those that the source has.
enum ZoomState: Hashable, Sendable, CaseIterable {
    case belowMinimum, inRange, beyondMaximum
}

/// A tile that a rectangle touches, and where it belongs.
struct TilePlacement: Hashable, Sendable {
    let tile: TileAddress
    /// Its place; outside of the world where the rectangle reaches over the antimeridian.
    let rect: PlaneRect
    /// How far that is from the tile's place in the world.
    let shift: Double
}

/// The tiles that belong to a zoom scale of MapKit's.
struct TileGrid: Hashable, Sendable {
    /// No rectangle is taken apart into more tiles: MapKit's are a few tiles large, and what is not is no rectangle of
    /// MapKit's.
    static let mostTiles = 1024

    let layout: TileLayout
    /// The zoom that fits the scale; may be beyond what the source has.
    let zoom: Int

    /// The grid of a scale (points on the screen for each map point); `nil` if that is no scale.
    ///
    /// MapKit halves and doubles, so that the logarithm is whole but for rounding.
    init?(_ layout: TileLayout, zoomScale: Double) {
        guard zoomScale.isFinite, zoomScale > 0, layout.tileSize.isFinite, layout.tileSize >= 1 else { return nil }
        let exact = log2(PlaneRect.world * zoomScale / layout.tileSize)
        guard exact.isFinite else { return nil }
        self.layout = layout
        // The whole world may be smaller than a tile; it is drawn from the one there is.
        zoom = Int(min(max(exact.rounded(), 0), 40))
    }

    var state: ZoomState {
        if zoom < layout.zooms.lowerBound { return .belowMinimum }
        return zoom > layout.zooms.upperBound ? .beyondMaximum : .inRange
    }

    /// The zoom whose tiles are asked for.
    var tileZoom: Int { min(max(zoom, layout.zooms.lowerBound), layout.zooms.upperBound) }

    /// The tiles that a rectangle really touches: one that ends on a tile's edge does not touch the next.
    ///
    /// Columns beyond the antimeridian are those of the world's other end; there are no rows beyond the poles.
    func placements(in rect: PlaneRect, scale: Int) -> [TilePlacement] {
        guard rect.x.isFinite, rect.y.isFinite, rect.width.isFinite, rect.height.isFinite, rect.width > 0,
            rect.height > 0, abs(rect.x) <= 4 * PlaneRect.world, rect.width <= 4 * PlaneRect.world
        else { return [] }
        let count = 1 << tileZoom
        let side = PlaneRect.world / Double(count)
        let (top, bottom) = (max(rect.y, 0), min(rect.maxY, PlaneRect.world))
        guard top < bottom else { return [] }
        let (west, east) = (Int((rect.x / side).rounded(.down)), Int((rect.maxX / side).rounded(.up)) - 1)
        let (north, south) = (Int((top / side).rounded(.down)), Int((bottom / side).rounded(.up)) - 1)
        // One that is thinner than numbers can tell, on a tile's edge, touches nothing.
        guard west <= east, north <= south else { return [] }
        let (columns, rows) = (west...east, north...south)
        let (tiles, overflow) = columns.count.multipliedReportingOverflow(by: rows.count)
        guard !overflow, tiles <= Self.mostTiles else { return [] }
        var placements: [TilePlacement] = []
        placements.reserveCapacity(tiles)
        for row in rows {
            for column in columns {
                let world = column >> tileZoom
                guard let tile = try? TileAddress(z: tileZoom, x: column - world * count, y: row, scale: scale) else {
                    continue
                }
                let shift = Double(world) * PlaneRect.world
                placements.append(
                    TilePlacement(tile: tile, rect: PlaneRect(tile).shifted(by: shift), shift: shift))
            }
        }
        return placements
    }
}
