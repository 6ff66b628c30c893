import ContentCoding
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The folder of a published set, as its publisher sees it.
///
/// Objects are made in `staging/` and appear whole under their names; `set.json` is replaced last. So a reader sees the old set
/// or the new one, and a publisher that was killed leaves the old one and parts in `staging/`, which the next one removes.
final class SetFolder {
    private let files: any FileSystem
    private let lock: OpenFile
    private var made: Set<String> = []
    private var placed: [String] = []
    private var staged = 0

    private static let staging = "staging"
    private static let objects = "objects"

    /// Enters the folder, which is there, and locks it.
    ///
    /// - Throws: ``SetError``, `FileError`.
    init(_ files: any FileSystem) throws {
        self.files = files
        try files.enter()
        try Self.checkOwner(files)
        lock = try files.open("lock", .appendCreating)
        guard try files.tryLock(lock) else {
            files.close(lock)
            throw SetError(.busy, "\(files.location) is being published by another process; try again when it is done")
        }
        for folder in [Self.staging, Self.objects] { try files.makeFolder(folder) }
        // What a publisher that was killed has left.
        for name in try files.list(Self.staging) ?? [] where Self.isPart(name) {
            try files.unlink("\(Self.staging)/\(name)")
        }
    }

    /// Refuses a folder that is somebody else's: a cache, or one with other files and no set.
    private static func checkOwner(_ files: any FileSystem) throws {
        let names = try files.list("") ?? []
        if names.contains("tilecache.json") {
            throw SetError(.invalid, "\(files.location) is a tile cache: publish into another folder")
        }
        if names.contains(SetDocument.path) { return }
        let own = [staging, objects, "lock", "lost+found"]
        guard let other = names.sorted().first(where: { !own.contains($0) && !$0.hasPrefix(".") }) else { return }
        throw SetError(
            .invalid, "\(files.location) has \(quoted(other)) and no set in it: publish into an empty or a new folder")
    }

    /// Whether a name in `staging/` is one that publishers give.
    private static func isPart(_ name: String) -> Bool {
        guard name.hasSuffix(".part") else { return false }
        let start = name.dropLast(5)
        return start == "set" || Int(start) != nil
    }

    /// Whether a name in `objects/` is that of an object.
    private static func isObject(_ name: String, in shard: String) -> Bool {
        let digest = name.hasSuffix(".gz") ? String(name.dropLast(3)) : name
        return digest.hasPrefix(shard) && BlobDigest(digest) != nil
    }

    deinit {
        // A child process that is being started has the descriptor too, until it runs its program: closing alone would leave it the lock.
        files.unlock(lock)
        files.close(lock)
    }

    /// The path in the file system, for messages and for cloning.
    var location: String { files.location }

    /// Reads a file; `nil` where there is none.
    func read(_ path: String, limit: Int) throws -> [UInt8]? { try files.wholeFile(path, limit: limit) }

    /// The set that is there.
    func document() throws -> SetDocument? {
        guard let bytes = try read(SetDocument.path, limit: SetBounds.document) else { return nil }
        return try SetDocument(bytes, at: "\(location)/\(SetDocument.path)")
    }

    /// A list that is there: a root, a chunk or a delta; `nil` where it is missing or damaged.
    func list(_ digest: BlobDigest, length: Int) throws -> [UInt8]? {
        do {
            return try read(SetPaths.list(digest), limit: SetBounds.stored(length)).flatMap {
                SetList.unpacked($0, digest, length: length)
            }
        } catch let error as SetError where error.code == .damaged || error.code == .unreachable {
            // It is longer than it may be, or a link.
            return nil
        }
    }

    /// A delta that `set.json` names; `nil` where it is missing or damaged, or leads from or to another root.
    func delta(_ named: SetDocument.Delta, to root: BlobDigest) throws -> SetDelta? {
        guard let bytes = try list(named.digest, length: named.length), let delta = try? SetDelta(bytes),
            delta.from == named.from, delta.to == root
        else { return nil }
        return delta
    }

    /// Whether a blob is there, and has its bytes.
    ///
    /// - Parameter isOfSet: Whether the set that is there names it, so that its length does. What an interrupted publisher wrote may
    ///   have been emptied by a power cut.
    func has(_ blob: BlobDigest, size: Int, isOfSet: Bool) throws -> Bool {
        let path = SetPaths.blob(blob)
        guard let status = try files.status(at: path), status.kind == .file, status.size == Int64(size) else {
            return false
        }
        return try isOfSet || read(path, limit: size)?.digest == blob
    }

    /// Whether a list is there; it is not read.
    func has(list digest: BlobDigest) throws -> Bool {
        guard let status = try files.status(at: SetPaths.list(digest)) else { return false }
        return status.kind == .file && status.size > 0
    }

    /// Has a file made in `staging/`, and puts it in its place.
    ///
    /// - Parameter make: Makes the file at a path in this folder.
    func place(_ path: String, _ make: (_ staged: String) throws -> Void) throws {
        staged += 1
        let part = "\(Self.staging)/\(staged).part"
        do {
            try make(part)
            try prepare(path)
            try files.rename(part, to: path)
            placed.append(path)
        } catch {
            // The next publisher removes what cannot be removed now.
            _ = try? files.unlink(part)
            throw error
        }
    }

    /// The same with bytes.
    func place(_ path: String, bytes: UnsafeRawBufferPointer) throws {
        try place(path) { try files.createFile($0, bytes, sync: false) }
    }

    /// Stores a list under its digest, if it is not there.
    ///
    /// - Returns: How many bytes were written.
    func place(list bytes: [UInt8], _ digest: BlobDigest) throws -> Int {
        let path = SetPaths.list(digest)
        if try list(digest, length: bytes.count) != nil { return 0 }
        let data = try Gzip.encode(Data(bytes))
        try data.withUnsafeBytes { try place(path, bytes: $0) }
        return data.count
    }

    private func prepare(_ path: String) throws {
        guard let slash = path.lastIndex(of: "/") else { return }
        let folder = String(path[..<slash])
        guard made.insert(folder).inserted else { return }
        try files.makeFolder(folder)
    }

    /// Replaces `set.json`, when all else is on the disk.
    func publish(_ document: SetDocument) throws {
        try sync()
        let bytes = document.encoded
        guard bytes.count <= SetBounds.document else {
            throw SetError(
                .tooLarge,
                "what is known of source \(document.name) comes to \(bytes.count) bytes; at most \(SetBounds.document) are possible: shorten "
                    + "its metadata ('tilegc convert' with --set NAME= takes a name out)")
        }
        // Else nobody could read it, and nobody publish over it.
        guard try SetDocument(bytes, at: "\(location)/\(SetDocument.path)") == document else {
            throw SetError(.invalid, "what is known of the source cannot be written as it is: mend its metadata")
        }
        let part = "\(Self.staging)/set.part"
        // One that its owner may write, unlike objects: a copy of it is written over by the next copy.
        let file = try files.open(part, .createNew)
        defer { files.close(file) }
        try bytes.withUnsafeBytes { try files.writeAll(file, $0) }
        try files.sync(file)
        try files.rename(part, to: SetDocument.path)
        try files.syncFolder("")
    }

    /// Syncs what this publisher has made.
    private func sync() throws {
        if try files.syncAll() { return }
        for path in placed {
            let file = try files.open(path, .read)
            defer { files.close(file) }
            try files.sync(file)
        }
        for folder in made { try files.syncFolder(folder) }
        try files.syncFolder(Self.objects)
    }

    // MARK: Sweeping

    /// Removes objects that nobody names and that were not written lately.
    ///
    /// - Parameters:
    ///   - named: The paths that stay.
    ///   - time: What was written after it stays.
    /// - Returns: How many objects, and their bytes.
    func sweep(keeping named: Set<String>, writtenBefore time: Timestamp, unless isStopped: () -> Bool) throws
        -> (objects: Int, bytes: Int)
    {
        var (objects, bytes) = (0, 0)
        // By their names, since `objects` may be a link, which is not listed.
        for byte in UInt8.min...UInt8.max {
            let shard = (byte < 16 ? "0" : "") + String(byte, radix: 16)
            guard try files.status(at: "\(Self.objects)/\(shard)")?.kind == .folder else { continue }
            for name in try files.list("\(Self.objects)/\(shard)") ?? [] {
                if isStopped() { return (objects, bytes) }
                let path = "\(Self.objects)/\(shard)/\(name)"
                guard Self.isObject(name, in: shard), !named.contains(path), let status = try files.status(at: path),
                    status.kind == .file,
                    status.modified < time.seconds
                else { continue }
                if try files.unlink(path) { (objects, bytes) = (objects + 1, bytes + Int(status.size)) }
            }
        }
        return (objects, bytes)
    }
}

extension FileSystem {
    /// Reads a plain file; `nil` where there is none.
    ///
    /// - Throws: ``SetError`` if it is longer than the limit, or a link; `FileError`.
    package func wholeFile(_ path: String, limit: Int) throws -> [UInt8]? {
        let file: OpenFile
        do throws(FileError) { file = try open(path, .read) } catch {
            if error.isLink {
                throw SetError(
                    .unreachable,
                    "\(location)/\(path) is a link, and those are not followed: put the file itself in its place")
            }
            guard error.isAbsence else { throw error }
            return nil
        }
        defer { close(file) }
        let length = try length(of: file)
        guard length <= Int64(limit) else {
            throw SetError(.damaged, "\(location)/\(path) has \(length) bytes; at most \(limit) were expected")
        }
        return try [UInt8](unsafeUninitializedCapacity: Int(length)) { room, count in
            count = try read(file, into: UnsafeMutableRawBufferPointer(room), at: 0)
        }
    }
}

extension FileError {
    /// Whether it says that there is no such file.
    var isAbsence: Bool { number == Self.noEntry }
    /// Whether it says that a link is in the place of the file.
    var isLink: Bool { number == Self.tooManyLinks }
}
