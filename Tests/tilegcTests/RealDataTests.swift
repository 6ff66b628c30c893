import Foundation
import Testing
import TileStoreTesting

/// Real tiles, where the folder with their archives is named by `TILE_TEST_DATA`.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct RealDataTests {
    struct Archive: Sendable, CustomTestStringConvertible {
        var name: String
        var tiles: Int
        var unique: Int
        var bytes: Int
        var testDescription: String { name }

        var path: String? {
            guard let folder = ProcessInfo.processInfo.environment["TILE_TEST_DATA"] else { return nil }
            let path = "\(folder)/\(name)"
            return FileManager.default.fileExists(atPath: path) ? path : nil
        }
    }

    static let archives = [
        Archive(name: "osmbright-anholt_z12-14_png.tar.gz", tiles: 356, unique: 37, bytes: 115_994),
        Archive(name: "wb-countries_z0-6_pbf.tar.gz", tiles: 2095, unique: 1773, bytes: 5_578_249),
    ]

    @Test(
        .enabled("set TILE_TEST_DATA to the folder with the archives", { archives.contains { $0.path != nil } }),
        arguments: archives)
    func realTilesComeOutAsTheyWentIn(_ archive: Archive) throws {
        guard let path = archive.path else { return }
        let scratch = try Scratch()
        let cache = scratch("cache")
        try FileManager.default.createDirectory(atPath: scratch("in"), withIntermediateDirectories: true)
        let tar = try Child(["-xzf", path, "-C", scratch("in")], of: "tar").wait()
        try #require(tar.status == 0, "\(tar.messages)")
        let folder = try Self.zoomFolder(in: scratch("in"))

        let report = try succeed("import", cache, folder, "--source", "real", "--json").json()
        #expect(report["tiles"] as? Int == archive.tiles)
        #expect(report["newBlobs"] as? Int == archive.unique)
        #expect(report["bytes"] as? Int == archive.bytes)
        #expect(report["skipped"] as? Int == 0)
        let verified = try succeed("verify", cache, "--json").json()
        #expect(verified["blobsChecked"] as? Int == archive.unique)
        try succeed("export", cache, scratch("out"), "--source", "real")
        #expect(try files(in: scratch("out")) == files(in: folder))
    }

    /// The folder that holds the zooms: the archive may have folders above them.
    private static func zoomFolder(in folder: String) throws -> String {
        let names = try FileManager.default.contentsOfDirectory(atPath: folder)
        if names.contains(where: { Int($0) != nil }) { return folder }
        guard names.count == 1 else { throw TestFailure("no zoom folders in \(names)") }
        return try zoomFolder(in: "\(folder)/\(names[0])")
    }
}
