package import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// One process's view of a ``SimulatedDisk``: its open files and its locks.
///
/// Every operation that can fail is counted, so that a test can let the n-th one fail, or kill the process there.
package final class SimulatedFileSystem: FileSystem, @unchecked Sendable {
    // Everything mutable is touched only while the disk's lock is held.

    /// Which operations a fault counts.
    package enum Scope: Sendable {
        /// All of them.
        case all
        /// Those that may need space: writing, making files and folders, renaming, syncing.
        case space
    }

    /// An operation that fails.
    package struct Fault: Sendable {
        /// Which one of those in the scope, from 0.
        package var at: Int
        /// The error number.
        package var number: Int32
        package var scope: Scope
        /// Whether all later ones fail too.
        package var persistent: Bool
        /// Whether a write that fails writes half of its bytes first.
        package var short: Bool
        /// How many times cutting a file fails once it has struck.
        package var cutsFail: Int

        package init(
            at: Int, number: Int32, scope: Scope = .all, persistent: Bool = false, short: Bool = false,
            cutsFail: Int = 0
        ) {
            self.cutsFail = cutsFail
            self.at = at
            self.number = number
            self.scope = scope
            self.persistent = persistent
            self.short = short
        }
    }

    private struct Handle {
        var node: SimulatedDisk.Node
        var path: String
        var identity: Int
        var generation: Int
    }

    /// The error number of everything that a killed process tries.
    package static let killed: Int32 = 9999

    package let disk: SimulatedDisk
    package let location: String
    private var handles: [Int32: Handle] = [:]
    private var nextNumber: Int32 = 3
    private var counts = (all: 0, space: 0)
    private var fault: Fault?
    private var crash: (at: Int, torn: Bool)?
    private var isDead = false
    private var writable = true
    private var hits = 0
    private var intruder: (after: Int, body: () -> Void)?
    private var writeHook: (@Sendable (String) -> Void)?
    private var listedShards = 0
    private var greatestRead = 0
    private var copiedBytes = 0

    package init(_ disk: SimulatedDisk, location: String = "/cache") {
        self.disk = disk
        self.location = location
    }

    package var blockSize: Int { disk.blockSize }

    /// How many operations there were.
    package var operations: Int { disk.lock.withLock { _ in counts.all } }
    /// How many of them may need space.
    package var spaceOperations: Int { disk.lock.withLock { _ in counts.space } }
    /// Whether the fault or the crash has happened.
    package var hasStruck: Bool { disk.lock.withLock { _ in hits > 0 || isDead } }

    /// Sets or clears what fails; counting starts anew.
    package func fail(_ fault: Fault?) {
        disk.lock.withLock { _ in
            self.fault = fault
            counts = (0, 0)
            hits = 0
        }
    }

    /// Kills the process at an operation counted from now: it does not happen (a torn write happens by half), and
    /// nothing after it does.
    package func crash(at operation: Int, torn: Bool) {
        disk.lock.withLock { _ in
            counts = (0, 0)
            crash = (operation, torn)
        }
    }

    /// Has something happen once, when the process is about to take the cache's lock for the n-th time from now, n from 0.
    ///
    /// What other processes do between two holds of the lock can be put there.
    package func beforeLocking(after count: Int = 0, _ body: @escaping () -> Void) {
        disk.lock.withLock { _ in intruder = (count, body) }
    }

    /// Forgets what ``beforeLocking(after:_:)`` was told, if it has not happened yet.
    package func forgetIntruder() { disk.lock.withLock { _ in intruder = nil } }

    /// Has something happen before each write to a file, on the thread that writes: it may keep that waiting, as a slow disk does.
    package func beforeEachWrite(_ body: (@Sendable (_ path: String) -> Void)?) {
        disk.lock.withLock { _ in writeHook = body }
    }

    private func letIntruderIn(_ file: OpenFile) {
        let body = disk.lock.withLock { _ -> (() -> Void)? in
            guard handles[file.number]?.path == "lock", let next = intruder else { return nil }
            guard next.after == 0 else {
                intruder?.after -= 1
                return nil
            }
            intruder = nil
            return next.body
        }
        body?()
    }

    /// The most bytes that one call was asked to read, since this was last called.
    package func takeGreatestRead() -> Int {
        disk.lock.withLock { _ in
            defer { greatestRead = 0 }
            return greatestRead
        }
    }

    /// How many bytes were read at places in files.
    package var bytesRead: Int { disk.lock.withLock { _ in copiedBytes } }

    /// How often the names in a folder of blobs were listed.
    package var shardListings: Int { disk.lock.withLock { _ in listedShards } }

    /// Ends the process: its files are closed and its locks free.
    package func kill() {
        disk.lock.withLock { _ in
            for handle in handles.values { release(handle) }
            handles = [:]
            isDead = true
        }
    }

    /// Whether the user of this process may write in the folder.
    package func setWritable(_ value: Bool) { disk.lock.withLock { _ in writable = value } }

    private func release(_ handle: Handle) {
        guard handle.generation == disk.generation else { return }
        if handle.node.lockedBy == handle.identity { handle.node.lockedBy = nil }
        handle.node.openHandles -= 1
        disk.release(handle.node)
    }

    // MARK: Counting

    private enum Verdict { case proceed, halfThen(FileError) }

    /// Counts an operation; throws if it is to fail, or tells that half of a write is to happen first.
    @inline(__always)
    private func count(
        _ operation: String, _ path: String, space: Bool, write: Bool = false
    ) throws(FileError) -> Verdict {
        if isDead { throw FileError(operation, path, Self.killed) }
        let all = counts.all
        let inScope = counts.space
        counts.all += 1
        if space { counts.space += 1 }
        if let crash, all >= crash.at {
            isDead = true
            let error = FileError(operation, path, Self.killed)
            if write, crash.torn { return .halfThen(error) }
            throw error
        }
        if let fault {
            let position = fault.scope == .all ? all : space ? inScope : -1
            if position == fault.at || (fault.persistent && position > fault.at) {
                hits += 1
                let error = FileError(operation, path, fault.number)
                if write, fault.short { return .halfThen(error) }
                throw error
            }
        }
        if space, !writable { throw FileError(operation, path, EACCES) }
        return .proceed
    }

    private func handle(_ file: OpenFile, _ operation: String) throws(FileError) -> Handle {
        guard let handle = handles[file.number], handle.generation == disk.generation else {
            throw FileError(operation, "", EBADF)
        }
        return handle
    }

    private func makeHandle(_ node: SimulatedDisk.Node, _ path: String) -> OpenFile {
        nextNumber += 1
        disk.nextHandle += 1
        node.openHandles += 1
        handles[nextNumber] = Handle(node: node, path: path, identity: disk.nextHandle, generation: disk.generation)
        return OpenFile(number: nextNumber)
    }

    // MARK: FileSystem

    package func open(_ path: String, _ mode: OpenMode) throws(FileError) -> OpenFile {
        try disk.lock.withLock { _ throws(FileError) in
            let existing = disk.nodes[path]
            let writes = mode != .read
            let makesNew = mode == .createNew || mode == .createBlob
            let creates = makesNew || (mode == .appendCreating && existing == nil)
            _ = try count("open", path, space: creates)
            if let existing {
                if makesNew { throw FileError("open", path, EEXIST) }
                if existing.kind == .link { throw FileError("open", path, ELOOP) }
                if existing.kind == .folder { throw FileError("open", path, EISDIR) }
                if writes, !writable { throw FileError("open", path, EACCES) }
                return makeHandle(existing, path)
            }
            let folder = try disk.folder(of: path, "open")
            guard creates else { throw FileError("open", path, ENOENT) }
            let node = SimulatedDisk.Node(.file)
            node.modified = disk.clock.now.seconds
            disk.attach(node, at: path, in: folder, number: disk.changeNumber())
            return makeHandle(node, path)
        }
    }

    package func close(_ file: OpenFile) {
        disk.lock.withLock { _ in
            if isDead { return }
            if let handle = handles.removeValue(forKey: file.number) { release(handle) }
        }
    }

    package func read(
        _ file: OpenFile, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(FileError) -> Int {
        try disk.lock.withLock { _ throws(FileError) in
            let path = handles[file.number]?.path ?? ""
            _ = try count("read", path, space: false)
            greatestRead = max(greatestRead, buffer.count)
            let node = try handle(file, "read").node
            if node.kind == .folder { throw FileError("read", path, EISDIR) }
            let count = Self.copy(node, from: Int(offset), into: buffer)
            copiedBytes += count
            return count
        }
    }

    private static func copy(
        _ node: SimulatedDisk.Node, from offset: Int, into buffer: UnsafeMutableRawBufferPointer
    ) -> Int {
        let count = max(0, min(buffer.count, node.bytes.count - offset))
        if count > 0 {
            node.bytes.withUnsafeBytes { bytes in
                buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[offset..<(offset + count)]))
            }
        }
        return count
    }

    package func write(_ file: OpenFile, _ bytes: UnsafeRawBufferPointer) throws(FileError) -> Int {
        let (hook, path) = disk.lock.withLock { _ in (writeHook, handles[file.number]?.path ?? "") }
        hook?(path)
        return try disk.lock.withLock { _ throws(FileError) in
            let verdict = try count("write", path, space: true, write: true)
            let node = try handle(file, "write").node
            if case .halfThen(let error) = verdict {
                let half = disk.append(UnsafeRawBufferPointer(rebasing: bytes[..<(bytes.count / 2)]), to: node)
                // A short write is no error yet: the next call says why.
                if error.number != Self.killed, half > 0 {
                    fault?.at += 1
                    fault?.short = false
                    return half
                }
                throw error
            }
            let done = disk.append(bytes, to: node)
            if done == 0, !bytes.isEmpty { throw FileError("write", path, ENOSPC) }
            return done
        }
    }

    package func truncate(_ file: OpenFile, to size: Int64) throws(FileError) {
        try disk.lock.withLock { _ throws(FileError) in
            let path = handles[file.number]?.path ?? ""
            _ = try count("truncate", path, space: false)
            if hits > 0, let left = fault?.cutsFail, left > 0 {
                fault?.cutsFail = left - 1
                throw FileError("truncate", path, EIO)
            }
            disk.cut(try handle(file, "truncate").node, to: Int(size))
        }
    }

    package func sync(_ file: OpenFile) throws(FileError) {
        try disk.lock.withLock { _ throws(FileError) in
            let path = handles[file.number]?.path ?? ""
            _ = try count("sync", path, space: true)
            disk.syncFile(try handle(file, "sync").node)
        }
    }

    package func status(of file: OpenFile) throws(FileError) -> FileStatus {
        try disk.lock.withLock { _ throws(FileError) in
            let path = handles[file.number]?.path ?? ""
            _ = try count("status", path, space: false)
            return Self.status(try handle(file, "status").node)
        }
    }

    package func status(at path: String) throws(FileError) -> FileStatus? {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("status", path, space: false)
            if let node = disk.nodes[path] { return Self.status(node) }
            do throws(FileError) {
                _ = try disk.folder(of: path, "status")
            } catch {
                if error.number != ENOENT, error.number != ENOTDIR { throw error }
            }
            return nil
        }
    }

    private static func status(_ node: SimulatedDisk.Node) -> FileStatus {
        FileStatus(
            kind: node.kind, size: Int64(node.kind == .file ? node.bytes.count : 4096), modified: node.modified,
            links: node.links, number: UInt64(UInt(bitPattern: ObjectIdentifier(node))))
    }

    package func readFile(
        _ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer
    ) throws(FileError) -> Int? {
        try disk.lock.withLock { _ throws(FileError) in
            let path = String(cString: path)
            _ = try count("read", path, space: false)
            greatestRead = max(greatestRead, buffer.count)
            guard let node = disk.nodes[path] else {
                do throws(FileError) {
                    _ = try disk.folder(of: path, "open")
                } catch {
                    if error.number != ENOENT { throw error }
                }
                return nil
            }
            if node.kind == .link { throw FileError("open", path, ELOOP) }
            if node.kind == .folder { throw FileError("read", path, EISDIR) }
            return Self.copy(node, from: 0, into: buffer)
        }
    }

    package func createFile(_ path: String, _ bytes: UnsafeRawBufferPointer, sync: Bool) throws(FileError) {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("create", path, space: true)
            if disk.nodes[path] != nil { throw FileError("create", path, EEXIST) }
            let folder = try disk.folder(of: path, "create")
            let node = SimulatedDisk.Node(.file)
            node.modified = disk.clock.now.seconds
            disk.attach(node, at: path, in: folder, number: disk.changeNumber())
            do throws(FileError) {
                if !bytes.isEmpty {
                    switch try count("write", path, space: true, write: true) {
                    case .proceed:
                        if disk.append(bytes, to: node) < bytes.count { throw FileError("write", path, ENOSPC) }
                    case .halfThen(let error):
                        _ = disk.append(UnsafeRawBufferPointer(rebasing: bytes[..<(bytes.count / 2)]), to: node)
                        throw error
                    }
                }
                if sync {
                    _ = try count("sync", path, space: true)
                    disk.syncFile(node)
                }
                _ = try count("close", path, space: false)
            } catch {
                if (try? count("unlink", path, space: false)) != nil {
                    disk.unlinkNode(path, node, in: folder, number: disk.changeNumber())
                }
                throw error
            }
        }
    }

    package func rename(_ from: String, to: String) throws(FileError) {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("rename", to, space: true)
            guard let node = disk.nodes[from] else {
                _ = try disk.folder(of: from, "rename")
                throw FileError("rename", to, ENOENT)
            }
            let source = try disk.folder(of: from, "rename")
            let target = try disk.folder(of: to, "rename")
            if from == to { return }
            let number = disk.changeNumber()
            if let old = disk.nodes[to] {
                if old === node { return }
                if old.kind == .folder {
                    if node.kind != .folder { throw FileError("rename", to, EISDIR) }
                    if !old.names.isEmpty { throw FileError("rename", to, ENOTEMPTY) }
                } else if node.kind == .folder {
                    throw FileError("rename", to, ENOTDIR)
                }
                old.links -= 1
                disk.release(old)
            }
            disk.detach(from, from: source, number: number)
            disk.attach(node, at: to, in: target, number: number)
            if node.kind == .folder { move(node, from: from, to: to) }
        }
    }

    private func move(_ folder: SimulatedDisk.Node, from: String, to: String) {
        for name in folder.names {
            guard let child = disk.nodes.removeValue(forKey: "\(from)/\(name)") else { continue }
            disk.nodes["\(to)/\(name)"] = child
            if child.kind == .folder { move(child, from: "\(from)/\(name)", to: "\(to)/\(name)") }
        }
    }

    package func unlink(_ path: String) throws(FileError) -> Bool {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("unlink", path, space: false)
            if !writable { throw FileError("unlink", path, EACCES) }
            guard let node = disk.nodes[path] else {
                do throws(FileError) {
                    _ = try disk.folder(of: path, "unlink")
                } catch {
                    if error.number != ENOENT { throw error }
                }
                return false
            }
            if node.kind == .folder { throw FileError("unlink", path, EISDIR) }
            let folder = try disk.folder(of: path, "unlink")
            disk.unlinkNode(path, node, in: folder, number: disk.changeNumber())
            return true
        }
    }

    package func makeFolder(_ path: String) throws(FileError) -> Bool {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("make folder", path, space: disk.nodes[path] == nil)
            if disk.nodes[path] != nil { return false }
            let folder = try disk.folder(of: path, "make folder")
            let node = SimulatedDisk.Node(.folder)
            node.modified = disk.clock.now.seconds
            disk.attach(node, at: path, in: folder, number: disk.changeNumber())
            return true
        }
    }

    package func removeFolder(_ path: String) throws(FileError) -> Bool {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("remove folder", path, space: false)
            if !writable { throw FileError("remove folder", path, EACCES) }
            guard let node = disk.nodes[path] else { return false }
            if node.kind != .folder { throw FileError("remove folder", path, ENOTDIR) }
            if !node.names.isEmpty { throw FileError("remove folder", path, ENOTEMPTY) }
            let folder = try disk.folder(of: path, "remove folder")
            disk.unlinkNode(path, node, in: folder, number: disk.changeNumber())
            return true
        }
    }

    package func list(_ path: String) throws(FileError) -> [String]? {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("list", path, space: false)
            if path.hasPrefix("objects/") { listedShards += 1 }
            guard let node = disk.nodes[path] else { return nil }
            switch node.kind {
            case .folder: return Array(node.names)
            case .link: throw FileError("list", path, ELOOP)
            default: throw FileError("list", path, ENOTDIR)
            }
        }
    }

    package func syncFolder(_ path: String) throws(FileError) {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("sync folder", path, space: true)
            guard let node = disk.nodes[path] else { throw FileError("sync folder", path, ENOENT) }
            disk.syncFolder(node, at: path)
        }
    }

    package func syncAll() throws(FileError) -> Bool {
        try disk.lock.withLock { _ throws(FileError) in
            _ = try count("sync all", "", space: true)
            disk.syncAll()
            return true
        }
    }

    package func tryLock(_ file: OpenFile) throws(FileError) -> Bool {
        letIntruderIn(file)
        return try disk.lock.withLock { _ throws(FileError) in
            let path = handles[file.number]?.path ?? ""
            _ = try count("lock", path, space: false)
            let handle = try handle(file, "lock")
            if let holder = handle.node.lockedBy, holder != handle.identity { return false }
            handle.node.lockedBy = handle.identity
            return true
        }
    }

    package func unlock(_ file: OpenFile) {
        disk.lock.withLock { _ in
            if isDead { return }
            guard let handle = handles[file.number], handle.generation == disk.generation else { return }
            if handle.node.lockedBy == handle.identity { handle.node.lockedBy = nil }
        }
    }

    package func mayWrite() -> Bool { disk.lock.withLock { _ in writable } }
}
