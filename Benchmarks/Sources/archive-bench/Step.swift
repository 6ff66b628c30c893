import Foundation
import GRDB
import TileArchive
import TileCache
import TileCacheArchive
import TileStore

/// One thing that is measured.
enum Step: String, CaseIterable {
    case readRows = "read rows"
    case createFiles = "create files"
    case importMBTiles = "import MBTiles"
    case importAgain = "import MBTiles again"
    case exportPMTiles = "export PMTiles"
    case exportMBTiles = "export MBTiles"
    case randomPMTiles = "random tile of PMTiles"
    case randomMBTiles = "random tile of MBTiles"
    case sourcePMTiles = "random tile of a PMTiles source"
    case sourceMBTiles = "random tile of an MBTiles source"

    struct Result {
        var seconds: Double
        /// Resident memory at its highest, in MB.
        var peak = 0.0
        /// The tiles' bytes, or the file's.
        var bytes: Int
        /// Seconds of processor time, of all threads.
        var processor = 0.0
    }

    /// The processor time that this process has had, in seconds.
    private static var processor: Double {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// Runs it on an MBTiles file, with a folder for what it makes.
    func run(_ arguments: [String]) async throws -> Result {
        let (file, work) = (arguments[0], arguments[1])
        switch self {
        case .readRows: return try readRows(file)
        case .createFiles: return try createFiles(file, work + "/raw")
        case .importMBTiles, .importAgain: return try importAll(file, work + "/cache")
        case .exportPMTiles: return try export(work + "/cache", to: work + "/out.pmtiles")
        case .exportMBTiles: return try export(work + "/cache", to: work + "/out.mbtiles")
        case .randomPMTiles: return try lookUp(work + "/out.pmtiles")
        case .randomMBTiles: return try lookUp(work + "/out.mbtiles")
        case .sourcePMTiles: return try await ask(work + "/out.pmtiles", work)
        case .sourceMBTiles: return try await ask(work + "/out.mbtiles", work)
        }
    }

    private func timed(_ body: () throws -> Int) rethrows -> Result {
        let (start, processor) = (DispatchTime.now().uptimeNanoseconds, Self.processor)
        let bytes = try body()
        return Result(
            seconds: Double(DispatchTime.now().uptimeNanoseconds - start) / 1e9, bytes: bytes,
            processor: Self.processor - processor)
    }

    private func rows(_ file: String, _ body: (Data) throws -> Void) throws {
        var configuration = Configuration()
        configuration.readonly = true
        let queue = try DatabaseQueue(path: file, configuration: configuration)
        try queue.read { db in
            let rows = try Row.fetchCursor(db, sql: "SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles")
            while let row = try rows.next() { try body(row[3]) }
        }
    }

    private func readRows(_ file: String) throws -> Result {
        try timed {
            var bytes = 0
            try rows(file) { bytes += $0.count }
            return bytes
        }
    }

    /// The unique blobs as plain files under their names, in as many folders as the cache has.
    private func createFiles(_ file: String, _ folder: String) throws -> Result {
        var blobs: [String: Data] = [:]
        try rows(file) { data in
            blobs[data.withUnsafeBytes { BlobDigest(hashing: $0) }.description] = data
        }
        let files = blobs.map { (path: "\(folder)/\($0.prefix(2))/\($0)", data: $1) }
        return try timed {
            mkdir(folder, 0o777)
            for shard in 0..<256 { mkdir("\(folder)/" + (shard < 16 ? "0" : "") + String(shard, radix: 16), 0o777) }
            var bytes = 0
            for file in files {
                let descriptor = open(file.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o444)
                guard descriptor >= 0 else { throw CocoaError(.fileWriteUnknown) }
                bytes += file.data.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
                close(descriptor)
            }
            return bytes
        }
    }

    private func importAll(_ file: String, _ cache: String) throws -> Result {
        try timed {
            var configuration = StoreConfiguration()
            configuration.memoryTierBytes = 0
            let store = try TileStore(at: cache, configuration: configuration)
            let transfer = ArchiveImport(store: store, source: try SourceName("world"), now: Timestamp(Date()))
            let report = try transfer.run(ArchiveFormat.mbtiles.open(file), observer: Silence())
            try store.close()
            return report.bytes
        }
    }

    private func export(_ cache: String, to path: String) throws -> Result {
        var result = try timed {
            var configuration = StoreConfiguration()
            configuration.memoryTierBytes = 0
            configuration.readOnly = true
            let store = try TileStore(at: cache, configuration: configuration)
            let report = try ArchiveExport(store: store, source: try SourceName("world"))
                .run(to: path, format: ArchiveFormat(path: path), observer: Silence())
            return report.bytes
        }
        result.bytes = try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int ?? 0
        return result
    }

    /// The mean of many look-ups of tiles that are there, after one round to warm up.
    private func lookUp(_ path: String) throws -> Result {
        let archive = try ArchiveFormat(path: path).open(path)
        let places = places(archive.metadata.zooms)
        var bytes = 0
        for place in places { bytes += try archive.tile(z: place.z, x: place.x, y: place.y)?.data.count ?? 0 }
        var result = try timed {
            for place in places { bytes += try archive.tile(z: place.z, x: place.x, y: place.y)?.data.count ?? 0 }
            return bytes
        }
        result.seconds /= Double(places.count)
        result.processor /= Double(places.count)
        return result
    }

    /// The same by way of a `TileCache`, with entity tags and on its threads, one after another.
    private func ask(_ path: String, _ work: String) async throws -> Result {
        let source = try TileSource("archive", archive: path)
        let cache = try TileCache(at: work + "/empty")
        let places = places(source.zooms)
        var bytes = 0
        for place in places {
            bytes += try await cache.tile(source, z: place.z, x: place.x, y: place.y)?.data?.count ?? 0
        }
        let (start, processor) = (DispatchTime.now().uptimeNanoseconds, Self.processor)
        for place in places {
            bytes += try await cache.tile(source, z: place.z, x: place.x, y: place.y)?.data?.count ?? 0
        }
        let seconds = Double(DispatchTime.now().uptimeNanoseconds - start) / 1e9
        let used = Self.processor - processor
        try cache.close()
        return Result(
            seconds: seconds / Double(places.count), bytes: bytes, processor: used / Double(places.count))
    }

    private func places(_ zooms: ClosedRange<Int>?) -> [(z: Int, x: Int, y: Int)] {
        var random = SystemRandomNumberGenerator()
        return (0..<20_000).map { _ in
            let z = Int.random(in: zooms ?? 0...0, using: &random)
            return (z, Int.random(in: 0..<(1 << z), using: &random), Int.random(in: 0..<(1 << z), using: &random))
        }
    }
}

/// Nobody is told, and nothing is stopped.
final class Silence: TransferObserver {
    func skipped(_ what: String, _ why: String, count: Int) {}
    func failed(_ what: String, _ why: String) {}
    func advanced(_ progress: @autoclosure () -> TransferProgress) {}
    var wantsStop: Bool { false }
}
