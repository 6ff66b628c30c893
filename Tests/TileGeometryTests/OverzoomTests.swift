import Testing
import TileGeometry
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)))
struct OverzoomTests {
    struct Row: Sendable, CustomTestStringConvertible {
        var tile: (Int, Int, Int)
        var zoom: Int
        var size: Int
        var ancestor: (Int, Int)
        var crop: PixelRect?
        var testDescription: String { "\(tile) from \(zoom), \(size) pixels" }
    }

    @Test(arguments: [
        // The four quarters of the world.
        Row(
            tile: (1, 0, 0), zoom: 0, size: 256, ancestor: (0, 0), crop: PixelRect(x: 0, y: 0, width: 128, height: 128)),
        Row(
            tile: (1, 1, 0), zoom: 0, size: 256, ancestor: (0, 0),
            crop: PixelRect(x: 128, y: 0, width: 128, height: 128)),
        Row(
            tile: (1, 0, 1), zoom: 0, size: 256, ancestor: (0, 0),
            crop: PixelRect(x: 0, y: 128, width: 128, height: 128)),
        Row(
            tile: (1, 1, 1), zoom: 0, size: 512, ancestor: (0, 0),
            crop: PixelRect(x: 256, y: 256, width: 256, height: 256)),
        // Berlin, two zooms past 14.
        Row(
            tile: (16, 35206, 21491), zoom: 14, size: 256, ancestor: (8801, 5372),
            crop: PixelRect(x: 128, y: 192, width: 64, height: 64)),
        // The last pixel, and one zoom too far.
        Row(
            tile: (8, 255, 255), zoom: 0, size: 256, ancestor: (0, 0),
            crop: PixelRect(x: 255, y: 255, width: 1, height: 1)),
        Row(tile: (9, 511, 511), zoom: 0, size: 256, ancestor: (0, 0), crop: nil),
        Row(tile: (28, (1 << 28) - 1, 0), zoom: 0, size: 256, ancestor: (0, 0), crop: nil),
        // Sizes that are no power of two, and none at all.
        Row(
            tile: (2, 1, 3), zoom: 0, size: 250, ancestor: (0, 0), crop: PixelRect(x: 62, y: 187, width: 63, height: 63)
        ),
        Row(tile: (1, 0, 0), zoom: 0, size: 1, ancestor: (0, 0), crop: nil),
        Row(tile: (1, 0, 0), zoom: 0, size: 0, ancestor: (0, 0), crop: nil),
        Row(tile: (1, 0, 0), zoom: 0, size: -256, ancestor: (0, 0), crop: nil),
        Row(tile: (1, 0, 0), zoom: 0, size: .max, ancestor: (0, 0), crop: nil),
    ])
    func ancestorAndCropAreExact(row: Row) throws {
        let tile = try TileAddress(z: row.tile.0, x: row.tile.1, y: row.tile.2, scale: 2, format: "png")
        let overzoom = try #require(Overzoom(of: tile, from: row.zoom))
        let ancestor = try TileAddress(
            z: row.zoom, x: row.ancestor.0, y: row.ancestor.1, scale: 2, format: "png")
        #expect(overzoom.ancestor == ancestor)
        #expect(overzoom.magnification == 1 << (row.tile.0 - row.zoom))
        #expect(overzoom.crop(tileSize: row.size) == row.crop)
    }

    @Test
    func onlyLowerZoomsAreAncestors() throws {
        let tile = try TileAddress(z: 3, x: 1, y: 2)
        for zoom in [-1, 3, 4, 28, .min, .max] { #expect(Overzoom(of: tile, from: zoom) == nil) }
        #expect(Overzoom.candidates(for: tile, within: 0...22, maximumDepth: 0).isEmpty)
        #expect(Overzoom.candidates(for: tile, within: 0...22, maximumDepth: .min).isEmpty)
        #expect(Overzoom.candidates(for: tile, within: 3...22, maximumDepth: 9).isEmpty)
        #expect(Overzoom.candidates(for: tile, within: 0...22, maximumDepth: .max).map(\.ancestor.z) == [2, 1, 0])
        #expect(Overzoom.candidates(for: tile, within: 0...22, maximumDepth: 2).map(\.ancestor.z) == [2, 1])
        #expect(Overzoom.candidates(for: tile, within: 1...1, maximumDepth: 9).map(\.ancestor.z) == [1])
        #expect(try Overzoom.candidates(for: TileAddress(z: 0, x: 0, y: 0), within: 0...22, maximumDepth: 9).isEmpty)
    }

    /// Whatever the size of the picture, the tiles of one ancestor cover each of its pixels once.
    @Test(arguments: [256, 512, 250, 7, 3, 1])
    func theTilesOfAnAncestorCoverItOnce(size: Int) throws {
        for depth in 1...max(1, Overzoom.maximumDepth(tileSize: size)) where 1 << depth <= size {
            var next = 0
            for index in 0..<(1 << depth) {
                let tile = try TileAddress(z: depth, x: index, y: (1 << depth) - 1 - index)
                let crop = try #require(Overzoom(of: tile, from: 0)?.crop(tileSize: size))
                #expect(crop.x == next)
                #expect(crop.isWithin(width: size, height: size))
                next = crop.x + crop.width
            }
            #expect(next == size)
        }
        let beyond = try TileAddress(z: Overzoom.maximumDepth(tileSize: size) + 1, x: 0, y: 0)
        #expect(Overzoom(of: beyond, from: 0)?.crop(tileSize: size) == nil)
    }

    /// The crop shows exactly what the tile shows, in the projection's own numbers.
    @Test(arguments: Seeds.list(200))
    func theCropShowsWhatTheTileShows(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let zoom = 1 + random.below(28)
        let tile = try TileAddress(z: zoom, x: random.below(1 << zoom), y: random.below(1 << zoom))
        let candidates = Overzoom.candidates(for: tile, within: 0...28, maximumDepth: 8)
        #expect(candidates.map(\.depth) == Array(1...min(8, zoom)))
        for overzoom in candidates {
            let crop = try #require(overzoom.crop(tileSize: 256))
            // Global pixels of the ancestor's zoom, enlarged, are those of the tile's.
            #expect((overzoom.ancestor.x * 256 + crop.x) * overzoom.magnification == tile.x * 256)
            #expect((overzoom.ancestor.y * 256 + crop.y) * overzoom.magnification == tile.y * 256)
            #expect(crop.width * overzoom.magnification == 256 && crop.height == crop.width)
        }
    }

    @Test
    func quartersFillTheTileAbove() throws {
        let tile = try TileAddress(z: 4, x: 5, y: 6)
        let quarters = Overzoom.quarters(of: tile, tileSize: 512)
        #expect(quarters.map(\.tile) == tile.children)
        #expect(
            quarters.map(\.place.description) == ["256x256+0+0", "256x256+256+0", "256x256+0+256", "256x256+256+256"])
        #expect(
            Overzoom.quarters(of: tile, tileSize: 5).map(\.place.description) == [
                "2x2+0+0", "3x2+2+0", "2x3+0+2", "3x3+2+2",
            ])
        #expect(Overzoom.quarters(of: tile, tileSize: 1).isEmpty)
        #expect(try Overzoom.quarters(of: TileAddress(z: 28, x: 0, y: 0), tileSize: 256).isEmpty)
    }

    @Test
    func aRectangleOutsideOfThePictureIsSeen() {
        #expect(PixelRect(x: 0, y: 0, width: 4, height: 4).isWithin(width: 4, height: 4))
        for bad in [
            PixelRect(x: 1, y: 0, width: 4, height: 4), PixelRect(x: 0, y: -1, width: 4, height: 4),
            PixelRect(x: 0, y: 0, width: 0, height: 4), PixelRect(x: .max, y: 0, width: 1, height: 1),
            PixelRect(x: 0, y: .max, width: 4, height: .max), PixelRect(x: .min, y: 0, width: .max, height: 1),
        ] { #expect(!bad.isWithin(width: 4, height: 4)) }
    }
}
