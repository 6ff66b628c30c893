/// `quarantine/`: what was damaged or does not belong in `objects/`, kept where it can be looked at.
///
/// At most 64 files and 16 MB.
struct Quarantine: Sendable {
    private let files: any FileSystem
    private let random: @Sendable () -> UInt64

    init(_ files: any FileSystem, random: @escaping @Sendable () -> UInt64) {
        self.files = files
        self.random = random
    }

    private static var mostFiles: Int { 64 }
    private static var mostBytes: Int64 { 16_000_000 }

    /// Moves a file or folder here; the oldest go to make room.
    ///
    /// - Returns: `false` if it is too large to be kept; then it is where it was.
    func take(_ path: String, _ status: FileStatus) throws -> Bool {
        if status.kind == .file, status.size > Self.mostBytes { return false }
        try files.makeFolder("quarantine")
        var kept: [(name: String, status: FileStatus)] = []
        for name in try files.list("quarantine") ?? [] {
            if let status = try files.status(at: "quarantine/" + name) { kept.append((name, status)) }
        }
        kept.sort { ($0.status.modified, $0.name) < ($1.status.modified, $1.name) }
        func total() -> Int64 { kept.reduce(status.size) { $0 + $1.status.size } }
        while !kept.isEmpty, kept.count >= Self.mostFiles || total() > Self.mostBytes {
            let oldest = kept.removeFirst()
            do { try removeTree("quarantine/" + oldest.name, depth: 0) } catch let error as FileError {
                // Names that are no Unicode cannot be removed by name; what they are in stays.
                guard error.number == Errno.notEmpty else { throw error }
            }
        }
        let name = path.split(separator: "/").last.map(String.init) ?? "unnamed"
        try files.rename(path, to: "quarantine/\(name)-\(String(random() & 0xFFFF_FFFF, radix: 16))")
        return true
    }

    /// Removes what is kept: mostly files, but somebody may have put a folder into a blob's place.
    private func removeTree(_ path: String, depth: Int) throws {
        guard let status = try files.status(at: path) else { return }
        guard status.kind == .folder else {
            try files.unlink(path)
            return
        }
        guard depth < 16 else {
            throw StoreError(.damaged, "\(files.location)/\(path) is nested too deeply; remove it by hand")
        }
        for name in try files.list(path) ?? [] { try removeTree(path + "/" + name, depth: depth + 1) }
        try files.removeFolder(path)
    }
}
