import Testing
import TileArchive
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct TileIDTests {
    /// Computed with the format's own readers: https://github.com/protomaps/PMTiles, `zxy_to_tileid`.
    @Test(arguments: [
        (0, 0, 0, 0), (1, 0, 0, 1), (1, 0, 1, 2), (1, 1, 1, 3), (1, 1, 0, 4), (2, 0, 0, 5), (2, 1, 3, 11),
        (3, 7, 0, 84), (12, 3423, 1763, 19_078_479), (20, 1_048_575, 0, 1_466_015_503_700),
    ])
    func numbersAreThoseOfTheFormat(_ row: (Int, Int, Int, Int)) {
        #expect(TileID.number(z: row.0, x: row.1, y: row.2) == UInt64(row.3))
        let tile = TileID.tile(UInt64(row.3))
        #expect(tile?.z == row.0 && tile?.x == row.1 && tile?.y == row.2)
    }

    @Test func theCurveVisitsEachTileOnceAndGoesToANeighbour() throws {
        var last: (z: Int, x: Int, y: Int)?
        for number in 0..<TileID.first(ofZoom: 7) {
            let tile = try #require(TileID.tile(number))
            #expect(TileID.number(z: tile.z, x: tile.x, y: tile.y) == number)
            if let last, last.z == tile.z { #expect(abs(last.x - tile.x) + abs(last.y - tile.y) == 1) }
            last = tile
        }
    }

    @Test(arguments: Seeds.list(50))
    func numberAndTileAreInverse(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        for _ in 0..<200 {
            let z = random.below(29)
            let (x, y) = (random.below(1 << z), random.below(1 << z))
            let tile = try #require(TileID.tile(TileID.number(z: z, x: x, y: y)))
            #expect(tile == (z, x, y))
        }
    }

    @Test func whatIsBeyondZoom28IsNoTile() {
        #expect(TileID.tile(TileID.end - 1)?.z == 28)
        #expect(TileID.tile(TileID.end) == nil)
        #expect(TileID.tile(.max) == nil)
        #expect(TileID.formatEnd == TileID.first(ofZoom: 31) + (1 << 62))
    }
}
