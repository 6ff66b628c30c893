import Foundation
import TileSets
import TileStore

/// A cache that is published into a folder, and the model of what it has.
package final class PublisherInLab {
    package let folder = FileManager.default.temporaryDirectory.appendingPathComponent("sets-\(UUID())").path
    private let store: TileStore
    private var time: Int64 = 1_700_000_000
    /// What each version has, the latest last; by x of zoom 2, row 1.
    package private(set) var versions: [(root: String, tiles: [Int: String])] = []

    /// Behind each text, so that no other test's lists are the same: they are kept in one place for the whole process.
    private let salt: String

    package init(salt: String = "") throws {
        self.salt = salt
        try FileManager.default.createDirectory(atPath: folder + "/set", withIntermediateDirectories: true)
        store = try TileStore(at: folder + "/cache")
    }

    deinit {
        do { try FileManager.default.removeItem(atPath: folder) } catch {
            print("left behind: \(folder): \(error)")
        }
    }

    package var path: String { folder + "/set/set.json" }

    package func publish(_ tiles: [Int: String]) throws {
        time += 10
        for x in 0..<4 {
            let key = try TileKey(source: "s", z: 2, x: x, y: 1)
            guard let text = tiles[x] else {
                _ = try store.remove([key])
                continue
            }
            let now = Timestamp(seconds: time)
            try store.put(
                TestPicture.png(text + salt), for: key,
                metadata: TileMetadata(
                    response: ResponseFields(mediaType: "image/png"), storedAt: now, expires: now))
        }
        let source = try SourceName("s")
        var publisher = SetPublisher(
            CacheTiles(store, folder: "", source: source), source: source, now: Timestamp(seconds: time))
        publisher.copier = nil
        let report = try publisher.publish(into: DiskFileSystem(location: folder + "/set"))
        versions.removeAll { $0.root == "\(report.root!)" }
        versions.append(("\(report.root!)", tiles))
    }
}
