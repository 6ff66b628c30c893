import HTTPWire
import Testing

@testable import TileProxyServer

@Suite(.timeLimit(.minutes(60)))
struct TilePathTests {
    private func target(_ path: String) -> String {
        Array(path.utf8).withUnsafeBytes { bytes in
            func text(_ range: Range<Int>) -> String {
                String(decoding: bytes.part(range.lowerBound, range.upperBound), as: UTF8.self)
            }
            switch TileTarget(bytes) {
            case .nothing: return "nothing"
            case .description(let name): return "json \(text(name))"
            case .tile(let tile):
                return
                    "\(text(tile.source)) \(tile.z) \(tile.x) \(tile.y) \(tile.scale) \(tile.format.map(text) ?? "-")"
            }
        }
    }

    @Test(arguments: [
        ("/tiles/osm/3/4/2", "osm 3 4 2 1 -"), ("/tiles/osm/3/4/2.png", "osm 3 4 2 1 png"),
        ("/tiles/osm/3/4/2@2x.png", "osm 3 4 2 2 png"), ("/tiles/osm/3/4/2@3x", "osm 3 4 2 3 -"),
        ("/tiles/a.b_c-d/0/0/0.pbf", "a.b_c-d 0 0 0 1 pbf"), ("/tiles/osm.json", "json osm"),
        ("/tiles/osm.v2.json", "json osm.v2"),
    ])
    func aPathIsRead(_ path: String, _ what: String) { #expect(target(path) == what) }

    @Test(arguments: [
        "/tiles/", "/tiles/osm", "/tiles/osm/", "/tiles/osm/3", "/tiles/osm/3/4", "/tiles/osm/3/4/",
        "/tiles/osm/3/4/2/",
        "/tiles/osm/03/4/2", "/tiles/osm/3/-4/2", "/tiles/osm/3/+4/2", "/tiles/osm/3/4/2.", "/tiles/osm/3/4/2.PNG",
        "/tiles/osm/3/4/2@1x", "/tiles/osm/3/4/2@9x", "/tiles/osm/3/4/2@2", "/tiles/osm/3/4/2@2x@2x",
        "/tiles/osm/3/4/2.png.png", "/tiles/osm/3/4/2%2epng", "/tiles/osm/99999999999999999999/4/2", "/tiles//3/4/2",
        "/Tiles/osm/3/4/2", "/tiles/.json", "/tile/osm/3/4/2", "/", "", "/tiles/osm/3//2",
        "/tiles/osm/3/4/2.abcdefghijklm", "/tiles/osm/3/4/2?x",
    ])
    func whatIsNoTileIsRefused(_ path: String) { #expect(target(path) == "nothing") }

    @Test
    func aSourceServesItsZoomsAndItsBoxAlone() throws {
        var configuration = try SourceConfiguration(argument: "osm=https://h/{z}/{x}/{y}.png")
        configuration.zooms = 2...4
        configuration.box = ConfigValue.box("170,-10,-170,10")
        let source = try ServedSource(configuration, index: 0)
        #expect(source.covers(z: 2, x: 0, y: 1) && source.covers(z: 2, x: 3, y: 2))
        #expect(!source.covers(z: 2, x: 1, y: 1), "within the zooms, outside of the box")
        #expect(!source.covers(z: 1, x: 0, y: 0) && !source.covers(z: 5, x: 0, y: 15), "outside of the zooms")
        #expect(!source.covers(z: 2, x: 4, y: 1) && !source.covers(z: 2, x: 0, y: 99), "outside of the world")
        func takes(_ format: String) -> Bool { Array(format.utf8).withUnsafeBytes { source.takes(format: $0) } }
        #expect(takes("png") && !takes("jpg"))
    }
}
