import Foundation
import Testing
import TileStore

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

    /// A folder of this test's, which is gone afterwards.
    private func withFolder(_ body: (URL) throws -> Void) throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("folder é \(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        try body(folder)
    }

    @Test func aCacheIsOpenedByAURL() throws {
        try withFolder { folder in
            let place = folder.appendingPathComponent("my tiles", isDirectory: true)
            let (source, tile) = (try SourceName("lab"), try TileAddress(z: 1, x: 0, y: 1))
            let cache = try TileCache(at: place)
            try cache.store.put(
                Picture.png(1), for: TileKey(source: source, tile: tile),
                metadata: TileMetadata(storedAt: Timestamp(seconds: 1), expires: .distantFuture))
            try cache.close()
            // The same folder by its path: neither the blank nor the accent is written otherwise.
            let again = try TileCache(at: place.path)
            #expect(try again.store.entry(for: TileKey(source: source, tile: tile)) != nil)
            try again.close()
        }
    }

    @Test func aURLThatIsNoFoldersIsRefused() throws {
        let url = try #require(URL(string: "https://example.org/tiles"))
        let error = #expect(throws: StoreError.self) { try TileCache(at: url) }
        #expect(error?.code == .invalidValue)
        #expect(error?.message.contains("https") == true)
    }

    @Test func aGroupsCacheLiesInItsContainer() throws {
        try withFolder { container in
            for (place, folder) in [(TileCache.Place.support, "Application Support"), (.caches, "Caches")] {
                let path = try TileCache.folder(inContainer: container, of: "group.maps", named: "Tiles", in: place)
                #expect(path == container.path + "/Library/\(folder)/Tiles")
                #expect(FileManager.default.fileExists(atPath: path))
            }
            #expect(throws: StoreError.self) {
                try TileCache.folder(inContainer: container, of: "group.maps", named: "../Tiles", in: .support)
            }
        }
    }

    @Test func aGroupThatIsNotThereIsNamedWithWhatToDo() throws {
        #if !canImport(Darwin)
        let missing = #expect(throws: StoreError.self) { try TileCache.folder(inAppGroup: "group.maps") }
        #expect(missing?.message.contains("group.maps") == true)
        #expect(missing?.message.contains("TileCache.folder(named:in:)") == true)
        #endif
        try withFolder { folder in
            // As on macOS, which names a container that cannot be written.
            let container = folder.appendingPathComponent("file")
            try Data().write(to: container)
            let error = #expect(throws: StoreError.self) {
                try TileCache.folder(inContainer: container, of: "group.maps", named: "Tiles", in: .support)
            }
            #expect(error?.code == .invalidValue)
            #expect(error?.message.contains("group.maps") == true)
        }
    }
}
