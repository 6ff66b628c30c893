import ContentCoding
import Foundation
import HTTPCaching
import TileStore

/// Tiles that are files of the same machine.
enum LocalFile {
    /// What a file's bytes are: gzip is told by its first bytes, since a file has no fields to say so.
    ///
    /// A picture that somebody compressed is decompressed: what draws pictures does not expect that.
    /// - Throws: ``FetchFailure`` for a compressed picture that is broken or expands to more than the limit.
    static func tile(_ data: Data, limit: Int, key: TileKey) throws -> LocalTile {
        guard Gzip.isMarked(data) else { return LocalTile(data: data) }
        let inside = Gzip.start(of: data, count: 16) ?? Data()
        guard BodySignature(inside).pictureType != nil else { return LocalTile(data: data, contentEncoding: "gzip") }
        guard let plain = Gzip.decode(data, limit: limit) else {
            throw FetchFailure(
                .badBody,
                "the file is a compressed picture whose gzip is broken or expands to more than \(limit) bytes",
                key: key)
        }
        return LocalTile(data: plain)
    }

    /// Reads a plain file, or one that a link leads to.
    ///
    /// Blocks. What grows or is swapped meanwhile is still not read beyond the limit.
    /// - Returns: `nil` if there is none.
    /// - Throws: ``FetchFailure`` if it cannot be read, is no plain file or is larger than allowed.
    static func read(_ path: String, limit: Int, key: TileKey) throws -> Data? {
        let url = URL(fileURLWithPath: path).resolvingSymlinksInPath()
        do {
            let type = try FileManager.default.attributesOfItem(atPath: url.path)[.type] as? FileAttributeType
            if type == .typeDirectory { return nil }
            // Reading a pipe or a device could wait for ever.
            guard type == .typeRegular else { throw FetchFailure(.badBody, "there is no plain file", key: key) }
            let file = try FileHandle(forReadingFrom: url)
            let data = try file.read(upToCount: min(max(0, limit), .max - 1) + 1) ?? Data()
            try file.close()
            guard data.count <= limit else {
                throw FetchFailure(.badBody, "the file has more than the \(limit) bytes allowed", key: key)
            }
            return data
        } catch let error as CocoaError where error.code == .fileReadNoSuchFile || error.code == .fileNoSuchFile {
            return nil
        } catch let failure as FetchFailure {
            throw failure
        } catch {
            throw FetchFailure(
                error: TileCacheError(.noAnswer, "\(key): its file cannot be read", key: key, cause: error),
                failure: .unreachable)
        }
    }
}
