import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Who may read what a cache's folder holds, and what is said where there can be no cache.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct FolderRightsTests {
    private func rights(_ path: String) throws -> Int {
        let attributes = try FileManager.default.attributesOfItem(atPath: path)
        return (attributes[.posixPermissions] as? NSNumber)?.intValue ?? -1
    }

    /// The rights of all that a cache in a folder has after a bit of work, by path.
    private func rightsAfterWork(in folder: String) throws -> [String: Int] {
        let clock = ManualClock()
        var configuration = Lab.plain
        configuration.indexImages = .always
        let store = try TileStore(
            environment: clock.environment(DiskFileSystem(location: folder)), configuration: configuration)
        let metadata = TileMetadata(storedAt: clock.now, expires: clock.now)
        for (number, payload) in Universe.payloads.enumerated() {
            try store.put(payload, for: TileKey("a/9/\(number)/0"), metadata: metadata)
        }
        try store.put(Data(count: 200_000), for: TileKey("a/9/99/0"), metadata: metadata)
        let writer = try store.beginBody(limit: 5000, inMemoryUpTo: 0)
        try Data(repeating: 7, count: 5000).withUnsafeBytes { try writer.append($0) }
        try writer.commit(for: TileKey("a/9/98/0"), metadata: metadata)
        _ = try store.compact()
        try store.close()
        var found: [String: Int] = ["": try rights(folder)]
        let paths = try #require(FileManager.default.enumerator(atPath: folder))
        for case let path as String in paths { found[path] = try rights(folder + "/" + path) }
        #expect(found.keys.contains { $0.hasPrefix("manifest/index-") })
        return found
    }

    private func isFolder(_ path: String) -> Bool {
        path.isEmpty || ["objects", "manifest", "staging", "quarantine"].contains(path)
            || path.hasPrefix("objects/") && path.utf8.count == 10
    }

    @Test("What a new cache holds only its owner may read")
    func newCachesArePrivate() throws {
        let folder = TemporaryFolder()
        for (path, rights) in try rightsAfterWork(in: folder.path + "/below/cache") {
            #expect(rights & 0o077 == 0, "\(path): \(String(rights, radix: 8))")
        }
    }

    @Test("In a folder that is there already, files get its rights as far as the process's mask permits")
    func rightsOfAFolderThatIsThere() throws {
        for mode in [0o700, 0o750, 0o755] {
            let folder = TemporaryFolder()
            try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
            try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: folder.path)
            let probe = TemporaryFolder()
            #expect(mkdir(probe.path, 0o777) == 0)
            let mask = try ~rights(probe.path) & 0o777
            for (path, rights) in try rightsAfterWork(in: folder.path) where path != "" {
                let widest = mode & ~mask & (isFolder(path) ? 0o777 : 0o666)
                #expect(rights & ~widest == 0, "\(path): \(String(rights, radix: 8)) in \(String(mode, radix: 8))")
                if path.hasPrefix("objects/") { #expect(rights & 0o044 == mode & ~mask & 0o044, "\(path)") }
            }
        }
    }

    @Test("In a folder that a group may write, the group may do so with all that has to be written")
    func rightsOfAGroup() throws {
        for mode in [0o770, 0o775, 0o777] {
            let folder = TemporaryFolder()
            try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
            #expect(chmod(folder.path, mode_t(mode | 0o2000)) == 0)
            for (path, rights) in try rightsAfterWork(in: folder.path) where path != "" {
                let text = "\(path): \(String(rights, radix: 8)) in \(String(mode, radix: 8))"
                #expect(rights & 0o002 == 0, "\(text)")
                #expect(rights & 0o040 != 0, "\(text)")
                if mode == 0o770 { #expect(rights & 0o007 == 0, "\(text)") }
                if isFolder(path) { #expect(rights & 0o2070 == 0o2070, "\(text)") }
                if path == "lock" || path.hasPrefix("manifest/journal-") { #expect(rights & 0o060 == 0o060, "\(text)") }
            }
        }
    }

    @Test("Opening says why there can be no cache, and what to do")
    func messages() throws {
        let folder = TemporaryFolder()
        try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
        try Data([1]).write(to: URL(fileURLWithPath: folder.path + "/file"))
        try FileManager.default.createSymbolicLink(
            atPath: folder.path + "/dangling", withDestinationPath: folder.path + "/nowhere")
        try FileManager.default.createSymbolicLink(
            atPath: folder.path + "/link", withDestinationPath: folder.path + "/file")
        func refusal(_ path: String, _ readOnly: Bool) -> StoreError? {
            var configuration = StoreConfiguration()
            configuration.readOnly = readOnly
            return #expect(throws: StoreError.self) { try TileStore(at: path, configuration: configuration) }
        }
        for readOnly in [false, true] {
            #expect(refusal("", readOnly)?.code == .invalidValue)
            for name in ["file", "link", "dangling", "file/below", "file/below/it"] {
                let error = refusal(folder.path + "/" + name, readOnly)
                #expect(error?.code == .notACache, "\(name): \(error?.message ?? "")")
                let place = folder.path + (name.hasPrefix("file") ? "/file" : "/\(name)")
                #expect(error?.message.contains(place) ?? false, "\(name): \(error?.message ?? "")")
                #expect(error?.message.hasSuffix("; name another folder") ?? false, "\(error?.message ?? "")")
            }
        }
        #expect(FileManager.default.contents(atPath: folder.path + "/file") == Data([1]))
    }

    @Test("In an empty folder that may not be written, opening says so")
    func emptyFolderThatMayNotBeWritten() {
        let clock = ManualClock()
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        files.setWritable(false)
        let error = #expect(throws: StoreError.self) {
            try TileStore(environment: clock.environment(files), configuration: Lab.plain)
        }
        #expect(error?.code == .readOnly)
        #expect(error?.message.contains("may not write in it") ?? false)
    }
}
