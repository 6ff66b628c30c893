/// Opening and making the folder itself: what is in it besides tiles, and whether it may be used at all.
enum CacheFolder {
    /// What `tilecache.json` says.
    struct Marker {
        var salt: String
    }

    private static let known: Set<String> = [
        "CACHEDIR.TAG", "tilecache.json", "objects", "manifest", "staging", "quarantine", "lock", "compact.lock",
        "lost+found", ".DS_Store",
    ]
    /// Whether a name in the cache's folder is one that the store, an import, a download, a pull or a proxy of a fleet gives.
    static func belongs(_ name: String) -> Bool {
        known.contains(name) || ["sources", "shared", "pulls", PlanFolder.folder].contains(name)
    }

    private static let folders = ["objects", "manifest", "staging", "quarantine"]
    private static let tag = """
        Signature: 8a477f597d28d172789f06886806bc55
        # This folder is a tile cache: backup programs may leave it out (https://bford.info/cachedir/).

        """

    /// Checks the folder, makes it if asked to, and returns what its marker says.
    static func open(
        _ environment: StoreEnvironment, _ configuration: StoreConfiguration, _ ledger: Ledger
    ) throws -> Marker {
        let files = environment.files
        if let obstacle = (files as? DiskFileSystem)?.obstacle() {
            throw StoreError(.notACache, "\(obstacle); name another folder")
        }
        guard let status = try files.status(at: "") else {
            guard configuration.createIfMissing, !configuration.readOnly else {
                throw StoreError(.noSuchCache, "\(files.location): there is no such folder")
            }
            return try create(environment, configuration, ledger)
        }
        guard status.kind == .folder || status.kind == .link else {
            throw StoreError(.notACache, "\(files.location) is a file, not the folder of a tile cache")
        }
        ledger.settleRights(configuration)
        if let marker = try readMarker(files) { return marker }
        let names = try files.list("") ?? []
        // One that has lost its marker has folders of imports and downloads too; by themselves those may be anybody's.
        let wasCache = names.contains("objects") && names.contains("manifest")
        let foreign = names.filter { !(wasCache ? belongs($0) || $0.hasPrefix("set-aside-") : known.contains($0)) }
        guard foreign.isEmpty else {
            throw StoreError(
                .notACache,
                "\(files.location) holds \(quoted(foreign.sorted()[0])) and is no tile cache; name an empty or a new folder"
            )
        }
        guard configuration.createIfMissing, !configuration.readOnly else {
            throw StoreError(.noSuchCache, "\(files.location) is not a tile cache (it has no tilecache.json)")
        }
        guard !ledger.readOnly else {
            throw StoreError(
                .readOnly,
                "\(files.location) is no tile cache yet, and this user may not write in it; name another folder, or change its "
                    + "owner or mode")
        }
        return try create(environment, configuration, ledger)
    }

    private static func create(
        _ environment: StoreEnvironment, _ configuration: StoreConfiguration, _ ledger: Ledger
    ) throws -> Marker {
        let files = environment.files
        // Parents too, as `mkdir -p` does, on a real disk.
        try (files as? DiskFileSystem)?.makeParents()
        if try files.makeFolder("") { try (files as? DiskFileSystem)?.syncParent() }
        try ledger.acquire(wait: configuration.lockWait, folderIsNew: true)
        defer { ledger.release() }
        if let marker = try readMarker(files) { return marker }
        try makeFolders(files)
        if try files.newestCheckpoint() == nil { try ledger.createFirst(isNew: true) }
        try files.syncFolder("")
        try writeOnce(files, "CACHEDIR.TAG", tag)
        let salt = hex(environment.random()) + hex(environment.random())
        // The marker comes last: a folder without it is finished by whoever opens it next.
        let temporary = "staging/marker-\(hex(environment.random()))"
        try files.createFile(
            temporary, bytes: Array("{\"format\":1,\"salt\":\"\(salt)\"}\n".utf8),
            sync: true)
        try files.rename(temporary, to: "tilecache.json")
        // Once in a cache's life, and in both modes: without this file there is no cache.
        try files.syncFolder("")
        return Marker(salt: salt)
    }

    static func makeFolders(_ files: any FileSystem) throws {
        for folder in folders where try !files.makeFolder(folder) {
            guard let status = try files.status(at: folder) else { continue }
            // Files that no entry names are removed from them. Through a link those would be somebody else's.
            guard status.kind == .folder else {
                throw StoreError(
                    .damaged,
                    "\(files.location)/\(folder) is no folder" + (status.kind == .link ? " but a link" : "")
                        + "; put the folder itself in its place, or move it away for the cache to make a new one")
            }
        }
    }

    private static func writeOnce(_ files: any FileSystem, _ path: String, _ text: String) throws(FileError) {
        guard try files.status(at: path) == nil else { return }
        try files.createFile(path, bytes: Array(text.utf8), sync: false)
    }

    private static func hex(_ value: UInt64) -> String {
        let digits = String(value, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }

    static func readMarker(_ files: any FileSystem) throws -> Marker? {
        let text = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 1)
        defer { text.deallocate() }
        guard
            let count = try "tilecache.json".withCString({ path throws(FileError) in
                try files.readFile(path, into: text)
            })
        else { return nil }
        guard let object = JSONValue(UnsafeRawBufferPointer(rebasing: text[..<count]))?.object else {
            throw StoreError(
                .damaged,
                "\(files.location)/tilecache.json cannot be read: restore it from a backup, or remove this file alone, which costs the "
                    + "resources whose URLs have queries; the next import, seed or start of a proxy makes it anew"
            )
        }
        guard object["format"]?.integer == 1 else {
            throw StoreError(
                .unknownFormat,
                "\(files.location) was written in a format that this version does not know; use the version that wrote it, "
                    + "or name another folder")
        }
        guard let salt = object["salt"]?.string, salt.utf8.count == 32,
            salt.utf8.allSatisfy({ hexDigitValue($0) != nil })
        else {
            throw StoreError(
                .damaged,
                "\(files.location)/tilecache.json has no salt of 32 hexadecimal digits: restore it from a backup, or remove this file "
                    + "alone, which costs the resources whose URLs have queries; the next import, seed or start of a proxy makes it anew"
            )
        }
        return Marker(salt: salt)
    }

    /// Loads the tables, under the lock where that is needed, and clears what an earlier crash left lying about.
    static func load(
        _ ledger: Ledger, _ configuration: StoreConfiguration, _ blobs: BlobFolder
    ) throws -> Tables {
        let files = ledger.files
        if ledger.readOnly {
            try files.enter()
            // Whoever may not write may still read; a cache that is being made has nothing to read yet.
            if let tables = try ledger.load(underLock: false) { return tables }
            throw StoreError(
                .busy,
                "\(files.location)/manifest cannot be read: another process is making or changing the cache, or files are "
                    + "missing; try again, and if that does not help, run tilegc verify")
        }
        do throws(FileError) { try ledger.openLock() } catch {
            throw StoreError(error, in: files.location)
        }
        // People and systems remove folders that look like rubbish; what was in them is a miss, no error.
        try makeFolders(files)
        var loaded = try ledger.load(underLock: false)
        if loaded == nil || ledger.damage.needsJudgement {
            // New, unfinished or damaged: only under the lock may that be settled.
            try ledger.acquire(wait: configuration.lockWait)
            defer { ledger.release() }
            loaded = try ledger.load(underLock: true)
        }
        guard let loaded else {
            throw StoreError(.damaged, "\(files.location)/manifest cannot be read; see tilegc verify")
        }
        try blobs.staging.sweep(now: ledger.environment.now())
        ledger.reserve.make()
        return loaded
    }
}
