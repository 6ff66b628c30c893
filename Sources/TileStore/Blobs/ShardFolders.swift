/// The 256 folders of `objects/`, and which of them are known to be there and to be folders, not links to elsewhere.
struct ShardFolders: Sendable {
    private let files: any FileSystem
    private let isDurable: Bool
    private let known = Locked(Known())

    private struct Known {
        var isThere = [Bool](repeating: false, count: 256)
        /// Whether it is a folder; its name may not be synced yet.
        var isFolder = [Bool](repeating: false, count: 256)
        /// Since when that is known (ticks).
        var since: UInt64 = 0
    }

    init(_ files: any FileSystem, isDurable: Bool) {
        self.files = files
        self.isDurable = isDurable
    }

    private static func path(_ shard: UInt8) -> String {
        "objects/" + (shard < 16 ? "0" : "") + String(shard, radix: 16)
    }

    /// Makes sure that a shard's folder is there, and that it is one: blobs are never written through a planted link.
    func prepare(_ shard: UInt8) throws {
        if known.withLock({ $0.isThere[Int(shard)] }) { return }
        if try !files.makeFolder(Self.path(shard)), let error = try objection(to: shard) { throw error }
        if isDurable { try files.syncFolder("objects") }
        known.withLock { $0.isThere[Int(shard)] = true }
    }

    /// Whether a shard's folder is there, and is one: what lies behind a link is somebody else's.
    func isFolder(_ shard: UInt8) throws(FileError) -> Bool {
        if known.withLock({ $0.isFolder[Int(shard)] }) { return true }
        guard try files.status(at: Self.path(shard))?.kind == .folder else { return false }
        known.withLock { $0.isFolder[Int(shard)] = true }
        return true
    }

    /// The error of a shard in whose place is something else; `nil` if it is a folder or there is none.
    func objection(to shard: UInt8) throws(FileError) -> StoreError? {
        let path = Self.path(shard)
        guard let status = try files.status(at: path), status.kind != .folder else { return nil }
        return StoreError(
            .damaged, "\(files.location)/\(path) is no folder; remove it, then run tilegc verify --repair")
    }

    /// The shards in whose place is something else.
    func replaced() throws(FileError) -> Set<UInt8> {
        var found = Set<UInt8>()
        for shard in UInt8.min...UInt8.max where try objection(to: shard) != nil { found.insert(shard) }
        return found
    }

    /// Forgets what has been known for a second: something else may have taken the place of a folder.
    ///
    /// - Parameter now: The clock's ticks.
    func lookAgainIfDue(at now: UInt64) {
        known.withLock { known in
            if now &- known.since >= 1_000_000_000 { known = Known(since: now) }
        }
    }

    /// Forgets what is known: the folders may be others, or gone.
    func forget() { known.withLock { $0 = Known(since: $0.since) } }

    /// Syncs the names in a shard.
    func sync(_ shard: UInt8) throws(FileError) { try files.syncFolder(Self.path(shard)) }

    /// Syncs the names in all shards, and theirs.
    func syncAll() throws(FileError) {
        for shard in UInt8.min...UInt8.max where try files.status(at: Self.path(shard))?.kind == .folder {
            try sync(shard)
        }
        try files.syncFolder("objects")
    }

    // MARK: What lies there

    /// A shard's path and the names in it, `nil` if it is no folder; nothing if there is none.
    func contents(of shard: UInt8) throws(FileError) -> (path: String, names: [String]?)? {
        let path = Self.path(shard)
        guard let status = try files.status(at: path) else { return nil }
        return (path, status.kind == .folder ? try files.list(path) ?? [] : nil)
    }

    /// What lies in `objects/` and has not the name of a shard, in the order of names.
    func strangers() throws(FileError) -> [String] {
        let names = try files.list("objects") ?? []
        return names.filter { $0.count != 2 || !$0.utf8.allSatisfy { hexDigitValue($0) != nil } }.sorted()
            .map { "objects/\($0)" }
    }
}
