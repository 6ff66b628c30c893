package import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// An in-memory disk, shared by any number of simulated processes: see ``SimulatedFileSystem``.
///
/// It remembers what was synced, so that a power cut can take a seeded share of the rest.
package final class SimulatedDisk: @unchecked Sendable {
    // Everything below is touched only while `lock` is held.
    // Not of `Void`: what takes no room shares its address with the lock, and the thread sanitizer sees a race there.
    let lock = Locked<UInt8>(0)

    /// A file, folder or link, however many names it has.
    final class Node {
        var kind: FileKind
        var bytes: [UInt8] = []
        var modified: Int64 = 0
        var links = 1
        var openHandles = 0
        var lockedBy: Int?
        var target = ""
        /// Names in a folder.
        var names: Set<String> = []
        /// Bytes from the start that a power cut leaves alone.
        var syncedCount = 0
        /// What was synced, where it has been cut since.
        var syncedBytes: [UInt8]?
        /// What a synced folder holds.
        var syncedNames: [String: Node] = [:]

        init(_ kind: FileKind) { self.kind = kind }
    }

    /// A change of a folder that was not synced yet; a rename is two changes with one number.
    struct Change {
        var number: Int
        var folder: ObjectIdentifier
        var path: String
        var node: Node?
    }

    var nodes: [String: Node] = ["": Node(.folder)]
    var pending: [Change] = []
    var changeCount = 0
    var nextHandle = 0
    var usedBytes = 0
    /// Counts "boots": handles of before a power cut are dead.
    var generation = 0

    /// How many bytes of content fit; `nil` for no limit.
    package var capacity: Int? {
        get { lock.withLock { _ in storedCapacity } }
        set { lock.withLock { _ in storedCapacity = newValue } }
    }
    var storedCapacity: Int?
    /// Whether folders' changes are recorded for power cuts; without, the disk is quicker.
    let recordsChanges: Bool
    package let blockSize: Int
    /// Seconds that new and changed files carry as their time.
    let clock: ManualClock

    package init(clock: ManualClock, blockSize: Int = 4096, recordsChanges: Bool = false) {
        self.clock = clock
        self.blockSize = blockSize
        self.recordsChanges = recordsChanges
    }

    // MARK: Names

    static func parent(of path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: 0x2F) else { return "" }
        return String(path[..<slash])
    }

    static func name(of path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: 0x2F) else { return path }
        return String(path[path.utf8.index(after: slash)...])
    }

    /// The folder that a path lies in.
    func folder(of path: String, _ operation: String) throws(FileError) -> Node {
        let parent = Self.parent(of: path)
        guard !path.isEmpty, let node = nodes[parent] else {
            // A link or a file further up says more than "not there".
            var above = parent
            while !above.isEmpty {
                if let node = nodes[above], node.kind != .folder {
                    throw FileError(operation, path, node.kind == .link ? ELOOP : ENOTDIR)
                }
                above = Self.parent(of: above)
            }
            throw FileError(operation, path, ENOENT)
        }
        switch node.kind {
        case .folder: return node
        case .link: throw FileError(operation, path, ELOOP)
        default: throw FileError(operation, path, ENOTDIR)
        }
    }

    func attach(_ node: Node, at path: String, in folder: Node, number: Int) {
        nodes[path] = node
        folder.names.insert(Self.name(of: path))
        if recordsChanges {
            pending.append(Change(number: number, folder: ObjectIdentifier(folder), path: path, node: node))
        }
    }

    func detach(_ path: String, from folder: Node, number: Int) {
        nodes[path] = nil
        folder.names.remove(Self.name(of: path))
        if recordsChanges {
            pending.append(Change(number: number, folder: ObjectIdentifier(folder), path: path, node: nil))
        }
    }

    func changeNumber() -> Int {
        changeCount += 1
        return changeCount
    }

    func release(_ node: Node) {
        if node.links == 0, node.openHandles == 0 { usedBytes -= node.bytes.count }
    }

    func unlinkNode(_ path: String, _ node: Node, in folder: Node, number: Int) {
        detach(path, from: folder, number: number)
        node.links -= 1
        release(node)
    }

    /// Appends what fits; returns how much that is.
    func append(_ bytes: UnsafeRawBufferPointer, to node: Node) -> Int {
        let room = storedCapacity.map { max(0, $0 - usedBytes) } ?? bytes.count
        let count = min(room, bytes.count)
        if count > 0 {
            node.bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[..<count]))
            usedBytes += count
            node.modified = clock.now.seconds
        }
        return count
    }

    func cut(_ node: Node, to size: Int) {
        if size < node.bytes.count {
            if size < node.syncedCount {
                if node.syncedBytes == nil { node.syncedBytes = Array(node.bytes[..<node.syncedCount]) }
                node.syncedCount = size
            }
            usedBytes -= node.bytes.count - size
            node.bytes.removeLast(node.bytes.count - size)
        } else {
            usedBytes += size - node.bytes.count
            node.bytes.append(contentsOf: repeatElement(0, count: size - node.bytes.count))
        }
        node.modified = clock.now.seconds
    }

    func syncFile(_ node: Node) {
        node.syncedCount = node.bytes.count
        node.syncedBytes = nil
    }

    func syncFolder(_ folder: Node, at path: String) {
        guard recordsChanges else { return }
        let identity = ObjectIdentifier(folder)
        pending.removeAll { change in
            guard change.folder == identity else { return false }
            folder.syncedNames[Self.name(of: change.path)] = change.node
            return true
        }
    }

    func syncAll() {
        for (path, node) in nodes {
            if node.kind == .folder { syncFolder(node, at: path) } else { syncFile(node) }
        }
    }

    // MARK: Power

    /// Goes back to what the disk may hold after a power cut.
    ///
    /// That is all that was synced, and of the rest a seeded share, whole, torn or as garbage. Every process dies.
    package func powerCut(using random: inout SplitMix64) {
        lock.withLock { _ in
            precondition(recordsChanges, "made without recordsChanges")
            generation += 1
            // Which changes of folders are kept: often all up to some point, sometimes any of them.
            let inOrder = random.oneIn(2)
            let last = random.below(changeCount + 2)
            let numbers = Set(pending.map(\.number)).sorted()
            let kept = Set(numbers.filter { inOrder ? $0 <= last : random.oneIn(2) })
            for change in pending where kept.contains(change.number) {
                let folder = folders(change.folder)
                folder?.syncedNames[Self.name(of: change.path)] = change.node
            }
            pending = []
            let root = nodes[""] ?? Node(.folder)
            nodes = [:]
            usedBytes = 0
            var seen: Set<ObjectIdentifier> = []
            restore(root, at: "", &seen, &random)
            allFolders = [:]
        }
    }

    // Folders by identity, those included that are only reachable through what was synced.
    private var allFolders: [ObjectIdentifier: Node] = [:]

    private func folders(_ identity: ObjectIdentifier) -> Node? {
        if allFolders.isEmpty {
            func visit(_ node: Node) {
                guard node.kind == .folder, allFolders[ObjectIdentifier(node)] == nil else { return }
                allFolders[ObjectIdentifier(node)] = node
                for child in node.syncedNames.values { visit(child) }
            }
            for node in nodes.values { visit(node) }
            for change in pending { if let node = change.node { visit(node) } }
        }
        return allFolders[identity]
    }

    private func restore(
        _ node: Node, at path: String, _ seen: inout Set<ObjectIdentifier>, _ random: inout SplitMix64
    ) {
        nodes[path] = node
        node.openHandles = 0
        node.lockedBy = nil
        let first = seen.insert(ObjectIdentifier(node)).inserted
        node.links = first ? 1 : node.links + 1
        guard first else { return }
        switch node.kind {
        case .folder:
            node.names = Set(node.syncedNames.keys)
            for name in node.syncedNames.keys.sorted() {
                guard let child = node.syncedNames[name] else { continue }
                restore(child, at: path.isEmpty ? name : "\(path)/\(name)", &seen, &random)
            }
        default:
            if let old = node.syncedBytes, random.oneIn(2) {
                node.bytes = old
            } else if node.syncedCount < node.bytes.count {
                let tail = node.syncedCount..<node.bytes.count
                switch random.below(5) {
                case 0: break
                case 1: node.bytes.removeSubrange(tail)
                case 2: node.bytes.removeLast(random.below(tail.count + 1))
                case 3:
                    let from = tail.lowerBound + random.below(tail.count)
                    for i in from..<tail.upperBound { node.bytes[i] = 0 }
                default:
                    let from = tail.lowerBound + random.below(tail.count)
                    for i in from..<tail.upperBound { node.bytes[i] = UInt8(truncatingIfNeeded: random.next()) }
                }
            }
            node.syncedBytes = nil
            node.syncedCount = node.bytes.count
            usedBytes += node.bytes.count
        }
    }

    // MARK: What tests do behind the store's back

    /// The content of a file, or `nil` where there is none.
    package func contents(_ path: String) -> [UInt8]? {
        lock.withLock { _ in nodes[path].flatMap { $0.kind == .file ? $0.bytes : nil } }
    }

    /// How often the file at a path is open.
    package func openHandles(_ path: String) -> Int { lock.withLock { _ in nodes[path]?.openHandles ?? 0 } }

    /// What kind of thing is at a path.
    package func kind(_ path: String) -> FileKind? { lock.withLock { _ in nodes[path]?.kind } }

    /// The names in a folder, sorted.
    package func names(_ path: String) -> [String] { lock.withLock { _ in (nodes[path]?.names ?? []).sorted() } }

    /// All paths of files, sorted.
    package var files: [String] {
        lock.withLock { _ in nodes.filter { $0.value.kind == .file }.keys.sorted() }
    }

    /// Puts a file there, in the place of whatever was; its folders are made.
    package func plant(_ path: String, _ bytes: [UInt8]) {
        lock.withLock { _ in
            let node = replace(path, .file)
            node.bytes = bytes
            usedBytes += bytes.count
        }
    }

    /// Puts a link there, in the place of whatever was.
    package func plantLink(_ path: String, to target: String) {
        lock.withLock { _ in replace(path, .link).target = target }
    }

    /// Puts an empty folder there, in the place of whatever was.
    package func plantFolder(_ path: String) { lock.withLock { _ in _ = replace(path, .folder) } }

    /// Changes the bytes of a file in place.
    package func corrupt(_ path: String, _ change: (inout [UInt8]) -> Void) {
        lock.withLock { _ in
            guard let node = nodes[path] else { return }
            usedBytes -= node.bytes.count
            change(&node.bytes)
            usedBytes += node.bytes.count
            node.syncedCount = min(node.syncedCount, node.bytes.count)
        }
    }

    /// Removes a file or a whole folder.
    package func remove(_ path: String) {
        lock.withLock { _ in
            removeTree(path)
            if path.isEmpty {
                nodes[""] = Node(.folder)
                pending = []
            }
        }
    }

    private func removeTree(_ path: String) {
        guard let node = nodes[path] else { return }
        for name in node.names.sorted() { removeTree(path.isEmpty ? name : "\(path)/\(name)") }
        if path.isEmpty { return }
        if let folder = nodes[Self.parent(of: path)] { detach(path, from: folder, number: changeNumber()) }
        node.links -= 1
        release(node)
    }

    private func replace(_ path: String, _ kind: FileKind) -> Node {
        removeTree(path)
        let parent = Self.parent(of: path)
        if nodes[parent]?.kind != .folder { _ = replace(parent, .folder) }
        let node = Node(kind)
        node.modified = clock.now.seconds
        if let folder = nodes[parent] { attach(node, at: path, in: folder, number: changeNumber()) }
        return node
    }

    /// A disk with the same content, on which everything counts as synced.
    package func clone() -> SimulatedDisk {
        lock.withLock { _ in
            let copy = SimulatedDisk(clock: clock, blockSize: blockSize, recordsChanges: recordsChanges)
            copy.storedCapacity = storedCapacity
            var copies: [ObjectIdentifier: Node] = [:]
            for (path, node) in nodes {
                let other = copies[ObjectIdentifier(node)] ?? Node(node.kind)
                copies[ObjectIdentifier(node)] = other
                other.bytes = node.bytes
                other.modified = node.modified
                other.links = node.links
                other.target = node.target
                other.names = node.names
                other.syncedCount = node.bytes.count
                copy.nodes[path] = other
            }
            for (path, node) in copy.nodes where node.kind == .folder {
                for name in node.names {
                    node.syncedNames[name] = copy.nodes[path.isEmpty ? name : "\(path)/\(name)"]
                }
            }
            copy.usedBytes = copies.values.reduce(0) { $0 + $1.bytes.count }
            return copy
        }
    }

    /// Bytes of content on the disk.
    package var used: Int { lock.withLock { _ in usedBytes } }
}
