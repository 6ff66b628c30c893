import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tiles that are files of the same machine.
enum LocalFile {
    /// Reads a file.
    ///
    /// Blocks.
    /// - Returns: `nil` if there is none.
    /// - Throws: ``FetchFailure`` if it cannot be read or is larger than allowed.
    static func read(_ path: String, limit: Int, key: TileKey) throws -> Data? {
        let url = URL(fileURLWithPath: path)
        do {
            let values = try FileManager.default.attributesOfItem(atPath: path)
            guard values[.type] as? FileAttributeType != .typeDirectory else { return nil }
            if let size = values[.size] as? UInt64, size > UInt64(clamping: limit) {
                throw FetchFailure(.badBody, "the file has \(size) bytes, more than the source allows", key: key)
            }
            return try Data(contentsOf: url)
        } catch let error as CocoaError where error.code == .fileReadNoSuchFile || error.code == .fileNoSuchFile {
            return nil
        } catch let failure as FetchFailure {
            throw failure
        } catch {
            throw FetchFailure(
                error: TileCacheError(.noAnswer, "\(key): its file cannot be read: \(error)", key: key, cause: error),
                setback: .unreachable)
        }
    }
}
