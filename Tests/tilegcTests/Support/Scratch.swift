import Foundation

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
        let path = NSTemporaryDirectory() + "/tilegc-test-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        self.path = URL(fileURLWithPath: path).standardizedFileURL.path
    }

    deinit { removeFolder(path) }

    /// A path in the folder.
    func callAsFunction(_ name: String) -> String { "\(path)/\(name)" }

    /// Writes a file, with the folders above it.
    func write(_ data: Data, to name: String) throws {
        let url = URL(fileURLWithPath: self(name))
        try FileManager.default.createDirectory(at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
        try writeFile(data, to: url.path)
    }
}

/// Writes a file without syncing it, which `Data.write(to:)` does: a thousand of those take seconds.
func writeFile(_ data: Data, to path: String) throws {
    guard let file = fopen(path, "wb") else { throw TestFailure("cannot write \(path)") }
    let written = data.withUnsafeBytes { fwrite($0.baseAddress, 1, $0.count, file) }
    guard fclose(file) == 0, written == data.count else { throw TestFailure("cannot write \(path)") }
}

/// Removes a folder of a test; what cannot be removed is left to the system's cleaning of temporary files.
func removeFolder(_ path: String) {
    do { try FileManager.default.removeItem(atPath: path) } catch { print("left behind: \(path): \(error)") }
}

/// All plain files below a folder: their paths in it, and their bytes.
func files(in folder: String) throws -> [String: Data] {
    var found: [String: Data] = [:]
    guard let walk = FileManager.default.enumerator(atPath: folder) else { return [:] }
    while let name = walk.nextObject() as? String {
        let path = "\(folder)/\(name)"
        let type = try FileManager.default.attributesOfItem(atPath: path)[.type] as? FileAttributeType
        if type == .typeRegular { found[name] = try Data(contentsOf: URL(fileURLWithPath: path)) }
    }
    return found
}
