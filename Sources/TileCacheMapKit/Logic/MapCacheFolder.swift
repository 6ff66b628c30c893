public import Foundation
import TileCache
public import TileStore

/// A folder that the library MapCache (merlos) has filled: what can be taken over from it.
///
/// Its files are named by the MD5 of `template-x-y-z`, and nothing in the folder says which tile a file is. So the names
/// of tiles are computed and looked for: all of the zooms down to ``exhaustiveZoom``, then those below and beside what was
/// found, and all of the boxes that are named. What is not found so is reported as left over.
///
/// Taken over are bytes. Entity tags are not, since MapCache writes them before their tiles and a failed write makes them
/// vouch for other bytes; neither are times, since a file's time is that of its last use. So every tile is stale at once:
/// it is shown offline, and asked for again when it is looked at and there is a network.
public struct MapCacheFolder: Sendable {
    /// What was found and taken over.
    public struct Report: Hashable, Sendable {
        /// Tiles that are in the cache now.
        public var imported = 0
        /// Tiles that the cache had already, and that stay as they are there.
        public var present = 0
        /// Files that are no picture, such as pages of error text, and were left where they are.
        public var refused = 0
        /// Files that could not be read, and were left where they are.
        public var unreadable = 0
        /// Files that were found to be no tile that was looked for.
        public var leftOver = 0
    }

    /// The folder: `Caches/DiskCache/NAME` in an app, unless the app chose another.
    public var folder: URL
    /// The template exactly as MapCache was given it; it is part of every name.
    public var urlTemplate: String
    /// Zooms down to this are looked through completely.
    ///
    /// Each more takes four times as long: down to 9 are 350,000 names, about a second; down to 12, a minute.
    public var exhaustiveZoom = 9
    /// Boxes that are looked through completely, in all zooms down to ``deepestZoom`` where they have at most four million
    /// tiles.
    public var boxes: [GeoBox] = []
    /// No zoom beyond is looked at.
    public var deepestZoom = 19
    /// No larger file is taken.
    public var fileLimit = 16 << 20
    /// No more names are computed for a box.
    private static let mostNames = 4_000_000

    /// Describes a folder.
    public init(folder: URL, urlTemplate: String) {
        self.folder = folder
        self.urlTemplate = urlTemplate
    }

    /// The name of a tile's file.
    static func fileName(_ template: String, z: Int, x: Int, y: Int) -> String {
        MD5.hexadecimal("\(template)-\(x)-\(y)-\(z)".utf8)
    }

    /// Takes the tiles over into a map's cache; the folder stays as it is.
    ///
    /// On a thread of the cache's own. What the cache has already is not replaced. May be called again, and goes on where
    /// an earlier call ended.
    /// - Throws: What the system says if the folder cannot be read; `StoreError` if the cache cannot be written;
    ///   `CancellationError`.
    public func importTiles(into map: MapCache) async throws -> Report {
        let task = Cancelled()
        return try await withTaskCancellationHandler {
            try await map.cache.onFileThread { try self.run(map, task) }
        } onCancel: {
            task.set()
        }
    }

    private func run(_ map: MapCache, _ task: Cancelled) throws -> Report {
        var search = Search(
            template: urlTemplate, names: Set(try FileManager.default.contentsOfDirectory(atPath: folder.path)))
        var report = Report()
        let last = min(max(deepestZoom, 0), 28)
        for zoom in 0...last where !search.names.isEmpty {
            var candidates: Set<TileAddress> = []
            if zoom <= min(exhaustiveZoom, 12) {
                let side = 1 << zoom
                for y in 0..<side {
                    if task.isSet { throw CancellationError() }
                    for x in 0..<side {
                        guard let tile = try? TileAddress(z: zoom, x: x, y: y) else { continue }
                        try take(tile, &search, map, &report)
                    }
                }
            } else {
                // Whoever looked at a place looked around it, and came from a zoom above.
                for tile in search.found(zoom - 1) { candidates.formUnion(tile.rings(0...1).flatMap(\.children)) }
            }
            for box in boxes {
                for span in try box.spans(zoom: zoom) where span.count <= Self.mostNames {
                    for y in span.rows {
                        for x in span.columns {
                            if let tile = try? TileAddress(z: zoom, x: x, y: y) { candidates.insert(tile) }
                        }
                    }
                }
            }
            // What is found has neighbours that are worth a look too.
            var queue = Array(candidates)
            while let tile = queue.popLast() {
                if task.isSet { throw CancellationError() }
                guard try take(tile, &search, map, &report) else { continue }
                for neighbour in tile.rings(1...1) where candidates.insert(neighbour).inserted {
                    queue.append(neighbour)
                }
            }
            search.forget(zoom - 1)
        }
        report.leftOver = search.names.count
        return report
    }

    /// Takes a tile over, if there is a file of its name.
    @discardableResult
    private func take(
        _ tile: TileAddress, _ search: inout Search, _ map: MapCache, _ report: inout Report
    ) throws -> Bool {
        guard let name = search.take(tile) else { return false }
        let file = folder.appendingPathComponent(name, isDirectory: false)
        let data: Data
        do { data = try Self.start(of: file, upTo: max(0, min(fileLimit, 1 << 32)) + 1) } catch {
            // One file that cannot be read is no reason to leave the others.
            report.unreadable += 1
            return true
        }
        guard data.count <= fileLimit, map.source.kind.accepts(data) else {
            report.refused += 1
            return true
        }
        guard let key = try? map.source.key(z: tile.z, x: tile.x, y: tile.y) else {
            report.refused += 1
            return true
        }
        guard try map.cache.store.entryWithBlob(key) == nil else {
            report.present += 1
            return true
        }
        let now = map.cache.now()
        _ = try map.cache.store.put(data, for: key, metadata: TileMetadata(storedAt: now, expires: now))
        report.imported += 1
        return true
    }

    /// The first bytes of a file.
    private static func start(of file: URL, upTo count: Int) throws -> Data {
        let handle = try FileHandle(forReadingFrom: file)
        let data: Data
        do { data = try handle.read(upToCount: count) ?? Data() } catch {
            // The error of the read is the one that counts.
            try? handle.close()
            throw error
        }
        try handle.close()
        return data
    }

    /// The names that are left, and the tiles that were found.
    private struct Search {
        let template: String
        var names: Set<String>
        private var tiles: [Int: [TileAddress]] = [:]

        init(template: String, names: Set<String>) {
            self.template = template
            // A name of another form is no tile's.
            self.names = names.filter { $0.utf8.count == 32 }
        }

        mutating func take(_ tile: TileAddress) -> String? {
            let name = fileName(template, z: tile.z, x: tile.x, y: tile.y)
            guard names.remove(name) != nil else { return nil }
            tiles[tile.z, default: []].append(tile)
            return name
        }

        func found(_ zoom: Int) -> [TileAddress] { tiles[zoom] ?? [] }
        mutating func forget(_ zoom: Int) { tiles[zoom] = nil }
    }

    /// Whether the waiting task has been cancelled.
    private final class Cancelled: Sendable {
        private let state = Locked(false)
        var isSet: Bool { state.withLock { $0 } }
        func set() { state.withLock { $0 = true } }
    }
}
