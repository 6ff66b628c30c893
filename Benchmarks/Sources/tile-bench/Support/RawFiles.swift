import Foundation
import TileStore

/// The floors: what the same work costs with nothing but system calls.
enum RawFiles {
    /// Opens, measures, reads and closes a file into a buffer; returns its length.
    @inline(__always)
    static func read(_ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw failure("open", path) }
        defer { _ = close(file) }
        var status = stat()
        guard fstat(file, &status) == 0, Int(status.st_size) <= buffer.count else { throw failure("fstat", path) }
        let length = Foundation.read(file, buffer.baseAddress, Int(status.st_size))
        guard length == Int(status.st_size) else { throw failure("read", path) }
        return length
    }

    /// Creates a file under one name and renames it to another.
    @inline(__always)
    static func write(_ data: Data, staging: UnsafePointer<CChar>, to path: UnsafePointer<CChar>) throws {
        let file = open(staging, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o444)
        guard file >= 0 else { throw failure("create", staging) }
        let written = data.withUnsafeBytes { Foundation.write(file, $0.baseAddress, $0.count) }
        guard close(file) == 0, written == data.count else { throw failure("write", staging) }
        guard rename(staging, path) == 0 else { throw failure("rename", path) }
    }

    private static func failure(_ call: String, _ path: UnsafePointer<CChar>) -> BenchError {
        BenchError("\(call) \(String(cString: path)): \(String(cString: strerror(errno)))")
    }
}

/// A folder of files named by digest in 256 shards, as plain as can be.
struct RawObjects {
    let path: String
    private let lock: Int32
    private let journal: Int32
    private static let record = [UInt8](repeating: 0x61, count: 189) + [0x0A]

    /// Makes the folder with all its shards.
    init(at path: String) throws {
        self.path = path
        for shard in 0..<256 {
            try FileManager.default.createDirectory(
                atPath: path + "/objects/" + RawObjects.hexadecimal(shard), withIntermediateDirectories: true)
        }
        try FileManager.default.createDirectory(atPath: path + "/staging", withIntermediateDirectories: true)
        lock = open(path + "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        journal = open(path + "/journal", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
        try require(lock >= 0 && journal >= 0, "cannot make files in \(path)")
    }

    /// Closes its descriptors.
    func close() {
        _ = Foundation.close(lock)
        _ = Foundation.close(journal)
    }

    /// The path of a blob as a C string.
    func path(of digest: BlobDigest) -> [CChar] { RawObjects.path(of: digest, in: path) }

    /// The path of a blob in any folder of that layout.
    static func path(of digest: BlobDigest, in folder: String) -> [CChar] {
        let name = digest.description
        return Array("\(folder)/objects/\(name.prefix(2))/\(name)".utf8CString)
    }

    /// A path in the staging folder as a C string.
    func stagingPath(_ number: Int) -> [CChar] { Array("\(path)/staging/\(number)".utf8CString) }

    /// Writes a blob under its name, by way of the staging folder; returns its path.
    func write(_ data: Data) throws -> [CChar] {
        let path = path(of: digest(data))
        try stagingPath(0).withUnsafeBufferPointer { staging in
            try path.withUnsafeBufferPointer { path in
                try RawFiles.write(data, staging: staging.baseAddress.orThrow(), to: path.baseAddress.orThrow())
            }
        }
        return path
    }

    /// Appends records of 190 bytes in one write under the file lock.
    @inline(__always)
    func append(records: [UInt8]) throws {
        guard flock(lock, LOCK_EX) == 0 else { throw BenchError("flock failed") }
        defer { _ = flock(lock, LOCK_UN) }
        // Whoever appends first looks whether others have.
        guard lseek(journal, 0, SEEK_END) >= 0 else { throw BenchError("lseek failed") }
        let written = records.withUnsafeBytes { Foundation.write(journal, $0.baseAddress, $0.count) }
        guard written == records.count else { throw BenchError("write failed") }
    }

    /// Records of 190 bytes.
    static func records(_ count: Int) -> [UInt8] { Array(repeatElement(record, count: count).joined()) }

    private static func hexadecimal(_ shard: Int) -> String {
        (shard < 16 ? "0" : "") + String(shard, radix: 16)
    }
}

/// The digest of bytes, by the very code that the store uses.
@inline(__always)
func digest(_ data: Data) -> BlobDigest { data.withUnsafeBytes { BlobDigest(hashing: $0) } }

/// Small contents, one for each shard: put into a fresh folder first, they take the making of shards out of a measurement.
let shardOpeners: [Data] = {
    var found = [Data?](repeating: nil, count: 256)
    var missing = 256
    var random = SplitMix64(seed: 256)
    while missing > 0 {
        let data = random.data(count: 16)
        guard let shard = Int(digest(data).description.prefix(2), radix: 16), found[shard] == nil else { continue }
        found[shard] = data
        missing -= 1
    }
    return found.compactMap { $0 }
}()
