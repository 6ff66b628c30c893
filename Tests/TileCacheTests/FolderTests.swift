import Testing

@testable import TileCache

@Suite struct FolderTests {
    @Test func twoProgramsDoNotShareTheDefaultFolder() {
        let names = ["/usr/bin/viewer", "editor", "./tools/my map", "", "..", "/"].map {
            TileCache.programName(bundle: nil, program: $0)
        }
        #expect(names == ["viewer", "editor", "my-map", "swift-tile-cache", "swift-tile-cache", "swift-tile-cache"])
        #expect(TileCache.programName(bundle: "org.example.maps", program: "/usr/bin/viewer") == "org.example.maps")
    }

    /// An empty or relative path would put the cache wherever the program was started (XDG base directories).
    @Test func pathsOfTheEnvironmentThatAreNotAbsoluteCountAsNone() {
        func path(_ place: TileCache.Place, _ environment: [String: String]) -> String {
            TileCache.path(named: "Tiles", in: place, environment: environment, home: "/home/s", program: "viewer")
        }
        #expect(path(.support, ["HOME": "/home/a"]) == "/home/a/.local/share/viewer/Tiles")
        #expect(path(.caches, ["HOME": "/home/a"]) == "/home/a/.cache/viewer/Tiles")
        #expect(path(.support, ["HOME": "/home/a", "XDG_DATA_HOME": "/data"]) == "/data/viewer/Tiles")
        #expect(path(.caches, ["HOME": "/home/a", "XDG_CACHE_HOME": "/cache"]) == "/cache/viewer/Tiles")
        for wrong in ["", "data", "./data", "~/data"] {
            #expect(path(.support, ["HOME": "/home/a", "XDG_DATA_HOME": wrong]) == "/home/a/.local/share/viewer/Tiles")
            #expect(path(.caches, ["HOME": "/home/a", "XDG_CACHE_HOME": wrong]) == "/home/a/.cache/viewer/Tiles")
            #expect(path(.caches, ["HOME": wrong]) == "/home/s/.cache/viewer/Tiles")
        }
    }
}
