/// `quarantine/`: what was damaged or does not belong in `objects/`, kept where it can be looked at.
///
/// At most 64 files and 16 MB. A folder that somebody has put into a blob's place is neither counted nor emptied: it goes, by one
/// renaming, into the cache's own folder, where `verify` names it as foreign.
struct Quarantine: Sendable {
    private let files: any FileSystem
    private let random: @Sendable () -> UInt64

    init(_ files: any FileSystem, random: @escaping @Sendable () -> UInt64) {
        self.files = files
        self.random = random
    }

    private static var mostFiles: Int { 64 }
    private static var mostBytes: Int64 { 16_000_000 }
    /// How many names are looked at: others have put those here that are more.
    private static var mostNames: Int { 1024 }

    /// Moves a file here, the oldest going to make room; a folder out of the store's own ones.
    ///
    /// - Returns: `false` if it is too large to be kept; then it is where it was.
    func take(_ path: String, _ status: FileStatus) throws(FileError) -> Bool {
        if status.kind == .folder {
            try moveOut(path)
            return true
        }
        if status.kind == .file, status.size > Self.mostBytes { return false }
        try files.makeFolder("quarantine")
        try makeRoom(for: status.size)
        try files.rename(path, to: "quarantine/" + newName(path))
        return true
    }

    private func makeRoom(for size: Int64) throws(FileError) {
        var kept: [(name: String, status: FileStatus)] = []
        for name in (try files.list("quarantine") ?? []).prefix(Self.mostNames) {
            guard let status = try files.status(at: "quarantine/" + name) else { continue }
            if status.kind == .folder { try moveOut("quarantine/" + name) } else { kept.append((name, status)) }
        }
        kept.sort { ($0.status.modified, $0.name) < ($1.status.modified, $1.name) }
        var total = kept.reduce(size) { $0 + $1.status.size }
        for (place, oldest) in kept.enumerated() {
            guard kept.count - place >= Self.mostFiles || total > Self.mostBytes else { return }
            try files.unlink("quarantine/" + oldest.name)
            total -= oldest.status.size
        }
    }

    private func moveOut(_ path: String) throws(FileError) { try files.moveOut(path, as: newName(path)) }

    private func newName(_ path: String) -> String {
        let name = path.split(separator: "/").last.map(String.init) ?? "unnamed"
        return "\(name)-\(String(random() & 0xFFFF_FFFF, radix: 16))"
    }
}

extension FileSystem {
    /// Moves a folder, whatever is in it, to where it is in nobody's way; one with nothing in it goes.
    fileprivate func moveOut(_ path: String, as name: String) throws(FileError) {
        do throws(FileError) { try removeFolder(path) } catch {
            guard error.number == Errno.notEmpty || error.number == Errno.exists else { throw error }
            try rename(path, to: "set-aside-" + name)
        }
    }

    /// Makes sure that no folder is where a file of the manifest is to be put.
    func clearPlace(of path: String) throws(FileError) {
        guard try status(at: path)?.kind == .folder else { return }
        try moveOut(path, as: path.split(separator: "/").last.map(String.init) ?? "unnamed")
    }
}
