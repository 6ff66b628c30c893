import Foundation
import Testing
import TileStore

@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct MapCacheFolderTests {
    /// RFC 1321, appendix A.5, and lengths around a block's end.
    @Test(arguments: [
        ("", "d41d8cd98f00b204e9800998ecf8427e"), ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"), ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
        (
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"
        ),
        (
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
            "57edf4a22be3c955ac49da2e2107b67a"
        ),
    ])
    func md5IsThatOfItsRFC(text: String, digest: String) { #expect(MD5.hexadecimal(text.utf8) == digest) }

    private static let template = "https://{s}.tile.example/{z}/{x}/{y}.png"

    private func withFolder(_ body: (URL, (Int, Int, Int, Data) throws -> Void) async throws -> Void) async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("old-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        try await body(folder) { z, x, y, data in
            let name = MapCacheFolder.fileName(Self.template, z: z, x: x, y: y)
            try data.write(to: folder.appendingPathComponent(name))
        }
    }

    @Test func tilesAreFoundByTheirNamesAndTakenOverStale() async throws {
        try await withFolder { folder, write in
            // A pyramid down to zoom 9, of which only zooms to 3 are looked through completely.
            for z in 0...9 { try write(z, 300 >> (9 - z), 200 >> (9 - z), picture("\(z)")) }
            // Beside what is found, and two further away that only a box finds.
            try write(9, 301, 201, picture("beside"))
            try write(9, 10, 10, picture("far"))
            try write(5, 1, 1, Data("<html>an error page</html>".utf8))
            try Data("notes".utf8).write(to: folder.appendingPathComponent("README"))

            let lab = try MapLab()
            try lab.put(try tile(2, 300 >> 7, 200 >> 7), "newer")
            var old = MapCacheFolder(folder: folder, urlTemplate: Self.template)
            old.exhaustiveZoom = 3
            old.deepestZoom = 10
            let report = try await old.importTiles(into: lab.map)
            #expect(report == MapCacheFolder.Report(imported: 10, present: 1, refused: 0, leftOver: 2))
            let deep = lab.map.state(of: try tile(9, 300, 200))
            #expect(deep.content == .picture && deep.isStale)
            #expect(lab.map.cachedData(for: try tile(9, 301, 201)) == picture("beside"))
            #expect(lab.map.cachedData(for: try tile(2, 2, 1)) == picture("newer"))

            // Again, with boxes: only what is new is taken, and a page of error text is not.
            old.boxes = [try tile(9, 10, 10).box, try tile(5, 1, 1).box]
            let again = try await old.importTiles(into: lab.map)
            #expect(again == MapCacheFolder.Report(imported: 1, present: 11, refused: 1, leftOver: 0))
            #expect(FileManager.default.fileExists(atPath: folder.appendingPathComponent("README").path))
        }
    }

    /// The whole takeover ended there, each time, and the error named no file.
    @Test func aFileThatCannotBeReadIsCountedAndTheOthersAreTakenOver() async throws {
        try await withFolder { folder, write in
            for z in 0...3 { try write(z, 0, 0, picture("\(z)")) }
            let name = MapCacheFolder.fileName(Self.template, z: 1, x: 1, y: 1)
            try FileManager.default.createDirectory(
                at: folder.appendingPathComponent(name), withIntermediateDirectories: true)
            let lab = try MapLab()
            var old = MapCacheFolder(folder: folder, urlTemplate: Self.template)
            old.exhaustiveZoom = 3
            let report = try await old.importTiles(into: lab.map)
            #expect(report == MapCacheFolder.Report(imported: 4, unreadable: 1))
        }
    }

    @Test func aFolderThatIsNotThereIsAnError() async throws {
        let lab = try MapLab()
        let old = MapCacheFolder(folder: URL(fileURLWithPath: "/nowhere/at/all"), urlTemplate: Self.template)
        await #expect(throws: (any Error).self) { try await old.importTiles(into: lab.map) }
    }
}
