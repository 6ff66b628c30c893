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
    package var problems = ArchiveProblems()
    /// Whether it was stopped before its end.
    package var wasStopped = false

    package init() {}
}

/// Reads all lists and all tiles of all versions of a set, and compares them with their names.
///
/// Deltas are lists too. A set without them can be read; who pulls it fetches more.
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
        var chunks: [BlobDigest: (first: SetKey, last: SetKey)] = [:]
        var blobs: [BlobDigest: Int] = [:]
        for root in [document.root] + document.former.map(\.root) {
            let isLatest = root == document.root
            var (ownBlobs, ownBytes) = (Set<BlobDigest>(), 0)
            let set: SetReader
            do { set = try SetReader(path, version: root) } catch let error as ArchiveError {
                report.problems.add("version \(root): \(error.message)")
                continue
            }
            report.versions += 1
            if isLatest { report.tiles = set.tileCount ?? 0 }
            var before: (last: SetKey, count: Int)?
            for item in set.items {
                func check(_ keys: (first: SetKey, last: SetKey)) {
                    if let before, let flaw = SetList.flaw(inChunkFrom: keys.first, after: before) { refuse(flaw) }
                    before = (keys.last, item.tiles)
                }
                func refuse(_ flaw: String) {
                    report.problems.add("version \(root): chunk \(item.digest) of the set is wrong: \(flaw)")
                }
                // Versions share most of their chunks.
                if let keys = chunks[item.digest] {
                    check(keys)
                    continue
                }
                let tiles: [SetTile]
                do { tiles = try set.tiles(of: item) } catch let error as ArchiveError {
                    report.problems.add("version \(root): \(error.message)")
                    before = nil
                    continue
                }
                guard let first = tiles.first, let last = tiles.last else { continue }
                chunks[item.digest] = (first.key, last.key)
                check((first.key, last.key))
                if let flaw = SetList.flaw(inChunk: tiles) { refuse(flaw) }
                for tile in tiles {
                    if wantsStop() {
                        report.wasStopped = true
                        return report
                    }
                    if isLatest, ownBlobs.insert(tile.blob).inserted { ownBytes += tile.size }
                    if let size = blobs[tile.blob] {
                        if size != tile.size {
                            report.problems.add(
                                "tile \(tile.key.text): the set says of blob \(tile.blob) that it has \(size) bytes, and "
                                    + "\(tile.size)")
                        }
                        continue
                    }
                    blobs[tile.blob] = tile.size
                    do {
                        report.bytes += try set.content(of: tile).data.count
                        report.blobs += 1
                    } catch let error as ArchiveError {
                        report.problems.add("tile \(tile.key.text): \(error.message)")
                    }
                    progress(report.blobs, report.bytes)
                }
            }
            if isLatest, report.problems.isEmpty, ownBlobs.count != document.blobs || ownBytes != document.bytes {
                report.problems.add(
                    "\(SetDocument.path) says that the set has \(document.blobs) blobs of \(document.bytes) bytes; it has "
                        + "\(ownBlobs.count) of \(ownBytes)")
            }
        }
        for named in document.deltas {
            if wantsStop() {
                report.wasStopped = true
                return report
            }
            do {
                let delta = try SetReader.delta(named, of: path)
                if delta.from != named.from || delta.to != document.root {
                    report.problems.add(
                        "delta \(named.digest) leads from \(delta.from) to \(delta.to), and \(SetDocument.path) says from "
                            + "\(named.from) to \(document.root): publish the set again")
                }
            } catch let error as ArchiveError {
                report.problems.add("delta from version \(named.from): \(error.message)")
            }
        }
        return report
    }
}
