#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// `downloads/`: what is to become of a region that is not complete, a file for each.
///
/// What a plan says is its writer's business; here it is the members of a JSON object. A file is one line with a checksum,
/// as those of the manifest are. It is written in `staging/`, synced, and renamed with the lock held.
struct PlanFolder: Sendable {
    /// Where they are, in the cache's folder.
    static let folder = "downloads"
    private static let ending = ".json"
    /// No plan is longer.
    static let longest = 65_536
    /// How many files that are of no region are looked at.
    static let mostOthers = 256

    private let files: any FileSystem

    init(_ files: any FileSystem) { self.files = files }

    /// Where a region's plan is.
    ///
    /// By a hash: names may differ in case alone, and may be dots.
    private static func path(of region: String) -> String { folder + "/" + fileName(of: region) }

    private static func fileName(of region: String) -> String {
        let digest = Array(region.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        return digest.description.prefix(32) + ending
    }

    /// The line of a plan.
    ///
    /// - Parameter object: A JSON object with at least one member, without line breaks.
    static func line(_ object: String) -> Data {
        var line = LineBuffer(capacity: object.utf8.count + 32)
        line.text(String(object.dropLast()))
        line.endLine()
        return Data(line.bytes)
    }

    /// Makes sure that a region's plan can be put in its place.
    func prepare(for region: String) throws(FileError) {
        if try files.makeFolder(Self.folder) { try files.syncFolder("") }
        guard try isFolder() else {
            throw FileError("rename into", "\(files.location)/\(Self.folder)", Errno.notFolder)
        }
        let path = Self.path(of: region)
        if try isFolder(path) { throw FileError("replace", "\(files.location)/\(path)", Errno.isFolder) }
    }

    /// Puts a staged plan in its place, which was prepared.
    func place(_ staged: String, of region: String, _ hold: borrowing FolderHold) throws(FileError) {
        try files.rename(staged, to: Self.path(of: region))
        try files.syncFolder(Self.folder)
    }

    /// Removes a region's plan, if there is one; a folder in its place is none.
    func remove(_ region: String, _ hold: borrowing FolderHold) throws(FileError) {
        let path = Self.path(of: region)
        guard try isFolder() else { return }
        do throws(FileError) { try files.unlink(path) } catch {
            guard try isFolder(path) else { throw error }
        }
    }

    /// Whether it is there and no link: through one, files of somebody else would be replaced and removed.
    private func isFolder(_ path: String = folder) throws(FileError) -> Bool {
        try files.status(at: path)?.kind == .folder
    }

    /// A region's plan: the JSON object; `nil` if there is none, or none that can be read.
    func plan(of region: String) throws(FileError) -> String? {
        guard case .whole(let object) = try read(Self.fileName(of: region)) else { return nil }
        return object
    }

    /// What is in a plan's file.
    enum Content {
        case absent, damaged
        case whole(String)
    }

    /// The names of plans' files: those of some regions, and not too many others, which nobody needs.
    func names(of regions: [String]) throws(FileError) -> [String] {
        let known = Set(regions.map(Self.fileName(of:)))
        let all = (try files.list(Self.folder) ?? []).filter { name in
            name.utf8.count == 32 + Self.ending.utf8.count && name.hasSuffix(Self.ending)
        }
        return (all.filter(known.contains) + all.filter { !known.contains($0) }.sorted().prefix(Self.mostOthers))
            .sorted()
    }

    /// Reads a plan's file.
    func read(_ name: String) throws(FileError) -> Content {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.longest + 1, alignment: 8)
        defer { buffer.deallocate() }
        let path = Self.folder + "/" + name
        let count = try path.utf8CString.withUnsafeBufferPointer { path throws(FileError) in
            try path.baseAddress.flatMap { path throws(FileError) in try files.readFile(path, into: buffer) }
        }
        guard let count else { return .absent }
        guard count > 1, count <= Self.longest, buffer[count - 1] == 0x0A,
            let body = LineReader.body(of: UnsafeRawBufferPointer(rebasing: buffer[..<(count - 1)]))
        else { return .damaged }
        return .whole(String(decoding: body, as: UTF8.self) + "}")
    }

    /// Whether a file is where a region's plan belongs.
    func isPlace(_ name: String, of region: String) -> Bool { name == Self.fileName(of: region) }
}
