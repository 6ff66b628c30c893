import Foundation
import SharedTier
import TileStore

/// `shared/` in the cache's folder: what a fleet's index said last, a file for each bucket.
///
/// Without it a proxy that is started while its bucket is away would serve what it knew to be expired. The file is derived: deleting it
/// loses no more than that.
struct KeptMarks: Sendable {
    private let folder: URL
    private let file: URL
    /// No index is longer, with what is added to it.
    private static let longest = (1 << 20) + 1024

    /// - Parameters:
    ///   - cache: The cache's folder.
    ///   - bucket: The URL of the bucket.
    init(cache: String, bucket: String) {
        folder = URL(fileURLWithPath: cache).appendingPathComponent(Self.folderName)
        let name = Data(bucket.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }.description.prefix(16)
        file = folder.appendingPathComponent("\(name).json")
    }

    private static let folderName = "shared"

    /// What was kept; `nil` where nothing was, or it cannot be read.
    func read() -> KnownMarks? {
        // Not to wait where it is a pipe.
        guard let values = try? FileManager.default.attributesOfItem(atPath: file.path),
            values[.type] as? FileAttributeType == .typeRegular, values[.size] as? Int ?? .max <= Self.longest,
            let data = try? Data(contentsOf: file)
        else { return nil }
        return KnownMarks(json: data)
    }

    /// Keeps it: the file is replaced as a whole.
    ///
    /// - Throws: What the system says; also where the cache's folder is gone, which is not made anew: with nothing but this in it, it
    ///   could not be opened as a cache.
    func write(_ marks: KnownMarks) throws {
        if !FileManager.default.fileExists(atPath: folder.path) {
            try FileManager.default.createDirectory(
                at: folder, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
        }
        try marks.json.write(to: file, options: .atomic)
    }
}
