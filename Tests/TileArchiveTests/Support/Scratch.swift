import Foundation
import TileArchive
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A folder for one test, removed when the value goes.
final class Scratch {
    let path: String

    init() throws {
        path = NSTemporaryDirectory() + "/archive-test-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit {
        do { try FileManager.default.removeItem(atPath: path) } catch { print("left behind: \(path): \(error)") }
    }

    /// A path in the folder.
    func callAsFunction(_ name: String) -> String { "\(path)/\(name)" }

    /// Writes a file, with the folders above it.
    func write(_ data: Data, to name: String) throws {
        let url = URL(fileURLWithPath: self(name))
        try FileManager.default.createDirectory(at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
        // Without syncing it, which `Data.write(to:)` does: a thousand of those take seconds.
        guard let file = fopen(url.path, "wb") else { throw CocoaError(.fileWriteUnknown) }
        let written = data.withUnsafeBytes { fwrite($0.baseAddress, 1, $0.count, file) }
        guard fclose(file) == 0, written == data.count else { throw CocoaError(.fileWriteUnknown) }
    }
}

/// Notes what a transfer says, and stops it after so many tiles.
final class Notes: TransferObserver {
    var skips: [String] = []
    var failures: [String] = []
    var advances = 0
    var stopAfter = Int.max

    func skipped(_ what: String, _ why: String, count: Int) { skips.append("\(what): \(why)") }
    func failed(_ what: String, _ why: String) { failures.append("\(what): \(why)") }
    func advanced(_ progress: @autoclosure () -> TransferProgress) { advances += 1 }
    var wantsStop: Bool { advances >= stopAfter }
}

/// A tile's place.
struct Place: Hashable, CustomStringConvertible {
    var z: Int
    var x: Int
    var y: Int
    init(_ z: Int, _ x: Int, _ y: Int) { (self.z, self.x, self.y) = (z, x, y) }
    var description: String { "\(z)/\(x)/\(y)" }
}

extension ArchiveReader {
    /// All tiles, by going through the archive; and what was passed over.
    func everything() throws -> (tiles: [Place: ArchivedTile], skipped: [String]) {
        var tiles: [Place: ArchivedTile] = [:]
        var skipped: [String] = []
        try forEachTile { step in
            switch step {
            case .tile(let z, let x, let y, _, _, let tile): tiles[Place(z, x, y)] = tile
            case .skipped(let what, let why, let count): skipped.append("\(what): \(why) (\(count))")
            case .failed(let what, let why): skipped.append("failed: \(what): \(why)")
            }
            return true
        }
        return (tiles, skipped)
    }
}

extension TileStore {
    /// Imports an archive.
    @discardableResult
    func take(_ path: String, source: String = "s", _ notes: Notes = Notes()) throws -> TransferReport {
        let reader = try ArchiveFormat(path: path).open(path)
        let transfer = ArchiveImport(
            store: self, source: try SourceName(source), now: Timestamp(seconds: 1_700_000_000))
        return try transfer.run(reader, observer: notes)
    }

    /// Exports a source.
    @discardableResult
    func give(_ path: String, source: String = "s", _ notes: Notes = Notes()) throws -> TransferReport {
        try ArchiveExport(store: self, source: try SourceName(source))
            .run(to: path, format: ArchiveFormat(path: path), observer: notes)
    }
}

/// What an error says, where it is one of ours.
func message(_ body: () throws -> Void) -> String {
    do {
        try body()
        return "no error"
    } catch let error as ArchiveError {
        return error.description
    } catch {
        return "another error: \(error)"
    }
}
