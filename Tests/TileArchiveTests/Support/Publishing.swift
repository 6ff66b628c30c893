import Foundation
import TileSets
import TileStore
import TileStoreTesting

extension TileStore {
    /// Publishes a source into a folder.
    @discardableResult
    func publish(_ folder: String, source: String = "s", at seconds: Int64 = 1_700_000_000) throws -> PublishReport {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let source = try SourceName(source)
        var publisher = SetPublisher(
            CacheTiles(self, folder: "", source: source), source: source, now: Timestamp(seconds: seconds))
        publisher.copier = nil
        return try publisher.publish(into: DiskFileSystem(location: folder))
    }

    /// Stores a tile's bytes.
    func put(_ data: Data, _ tile: TileAddress, source: String = "s", type: String? = "image/png") throws {
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: type), storedAt: Timestamp(seconds: 1_600_000_000),
            expires: Timestamp(seconds: 4_000_000_000))
        try put(data, for: TileKey(source: try SourceName(source), tile: tile), metadata: metadata)
    }
}
