import TileSets
import TileStore

/// What a check of a published set has found.
package struct SetCheckReport: Sendable {
    /// Tiles of the latest version.
    package var tiles = 0
    /// Different tiles' bytes that were read, of all versions, and their sum.
    package var blobs = 0
    package var bytes = 0
    /// Versions that were looked at.
    package var versions = 0
    /// What is wrong, one line each.
    package var problems: [String] = []
    /// Whether it was stopped before its end.
    package var wasStopped = false

    package init() {}
}

/// Reads all lists and all tiles of all versions of a set, and compares them with their names.
package struct SetCheck {
    private let path: String
    private let wantsStop: () -> Bool
    private let progress: (_ blobs: Int, _ bytes: Int) -> Void

    /// - Parameter path: The set's folder, or its `set.json`.
    package init(
        _ path: String, wantsStop: @escaping () -> Bool, progress: @escaping (_ blobs: Int, _ bytes: Int) -> Void
    ) {
        (self.path, self.wantsStop, self.progress) = (path, wantsStop, progress)
    }

    /// Checks.
    ///
    /// - Throws: ``ArchiveError`` if there is no set, or its document is damaged.
    package func run() throws -> SetCheckReport {
        var report = SetCheckReport()
        let document = try SetReader.document(of: path)
        var chunks = Set<BlobDigest>()
        var blobs = Set<BlobDigest>()
        for root in [document.root] + document.kept.map(\.root) {
            let isLatest = root == document.root
            var (ownBlobs, ownBytes) = (Set<BlobDigest>(), 0)
            let set: SetReader
            do { set = try SetReader(path, version: root) } catch let error as ArchiveError {
                report.problems.append("version \(root): \(error.message)")
                continue
            }
            report.versions += 1
            if isLatest { report.tiles = set.tileCount ?? 0 }
            for number in 0..<set.chunkCount where isLatest || chunks.insert(set.chunkName(number)).inserted {
                if isLatest { chunks.insert(set.chunkName(number)) }
                let tiles: [SetTile]
                do { tiles = try set.chunk(number) } catch let error as ArchiveError {
                    report.problems.append("version \(root): \(error.message)")
                    continue
                }
                for tile in tiles {
                    if wantsStop() {
                        report.wasStopped = true
                        return report
                    }
                    if isLatest, ownBlobs.insert(tile.blob).inserted { ownBytes += tile.size }
                    guard blobs.insert(tile.blob).inserted else { continue }
                    do {
                        report.bytes += try set.content(of: tile).data.count
                        report.blobs += 1
                    } catch let error as ArchiveError {
                        report.problems.append("tile \(tile.key.text): \(error.message)")
                    }
                    progress(report.blobs, report.bytes)
                }
            }
            if isLatest, report.problems.isEmpty, ownBlobs.count != document.blobs || ownBytes != document.bytes {
                report.problems.append(
                    "\(SetDocument.path) says that the set has \(document.blobs) blobs of \(document.bytes) bytes; it has "
                        + "\(ownBlobs.count) of \(ownBytes)")
            }
        }
        return report
    }
}
