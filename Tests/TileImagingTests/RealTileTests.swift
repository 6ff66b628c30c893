// They look at pixels and damage as libpng, libjpeg-turbo and libwebp see them.
#if !canImport(ImageIO)
import Foundation
import Testing
import TileArchive
import TileImaging
import TileStore
import TileStoreTesting

/// Real tiles of each format, where the folder with their archives is named by `TILE_TEST_DATA`.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct RealTileTests {
    static let folder = ProcessInfo.processInfo.environment["TILE_TEST_DATA"]

    @Test(
        .enabled("skipped: set TILE_TEST_DATA to the folder with the archives", { folder != nil }),
        arguments: [
            "ne-world-osmlike_z0-6_png.mbtiles", "fixtures/node-mbtiles_plain_1.mbtiles",
            "fixtures/consbio_geography-class-png.mbtiles", "fixtures/consbio_geography-class-jpg.mbtiles",
            "fixtures/consbio_geography-class-webp.mbtiles", "fixtures/pmtiles_stamen_toner_z3.pmtiles",
        ])
    func realTilesAreEnlargedAndBentOnesRefused(name: String) throws {
        guard let folder = Self.folder else { return }
        let path = "\(folder)/\(name)"
        guard FileManager.default.fileExists(atPath: path) else {
            print("skipped: there is no \(name) in TILE_TEST_DATA")
            return
        }
        var random = SplitMix64(seed: 7)
        var tiles: [(TileAddress, Data)] = []
        try ArchiveFormat(path: path).open(path).forEachTile { step in
            if case .tile(let z, let x, let y, _, _, let tile) = step {
                tiles.append((try TileAddress(z: z, x: x, y: y), tile.data))
            }
            return tiles.count < 400
        }
        try #require(!tiles.isEmpty)
        for (address, data) in tiles where tiles.count < 20 || random.oneIn(20) {
            let header = try TileImage.header(of: data)
            for depth in [1, 3] {
                let tile = try TileAddress(
                    z: address.z + depth, x: address.x << depth + 1, y: address.y << depth)
                let made = try TileImage.overzoomed(data, Overzoom.of(tile, from: address.z))
                let after = try TileImage.header(of: made)
                #expect((after.format, after.width, after.height) == (header.format, header.width, header.height))
            }
            let crop = PixelRect(x: 0, y: 64, width: 64, height: 64)
            for _ in 0..<6 { _ = try FuzzTests.survives(FuzzTests.bend(data, &random), crop: crop, size: 64) }
        }
    }
}
#endif
