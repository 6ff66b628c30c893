import Foundation
import GRDB
import Testing
import TileArchive
import TileStore
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Exports over files that are there already.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ReplacedFileTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private static let tables = """
        CREATE TABLE metadata (name text, value text);
        CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
        """

    private func store() throws -> TileStore {
        let store = try TileStore(at: scratch("store"))
        let pyramid = Pyramid(seed: 9, zooms: 0...3)
        try pyramid.write(to: scratch, "in")
        try store.take(scratch("in"))
        return store
    }

    /// A database as a killed writer leaves it: with a log or a journal beside it.
    private func leave(_ name: String, journal: String) throws {
        let path = scratch("writer.mbtiles")
        let writer = try DatabaseQueue(path: path)
        try writer.writeWithoutTransaction { db in
            try db.execute(
                sql: "PRAGMA journal_mode = \(journal); PRAGMA synchronous = OFF; PRAGMA cache_size = 2; " + Self.tables
            )
            for x in 0..<50 {
                try db.execute(sql: "INSERT INTO tiles VALUES (8, ?, 0, randomblob(2000))", arguments: [x])
            }
            try db.execute(sql: "PRAGMA wal_autocheckpoint = 0; BEGIN IMMEDIATE")
            try db.execute(sql: "UPDATE tiles SET tile_data = zeroblob(3000)")
            if journal == "WAL" { try db.execute(sql: "COMMIT") }
            for ending in ["", journal == "WAL" ? "-wal" : "-journal"] {
                try FileManager.default.copyItem(atPath: path + ending, toPath: scratch(name) + ending)
            }
            if journal != "WAL" { try db.execute(sql: "ROLLBACK") }
        }
        try writer.close()
    }

    private func check(_ path: String, _ store: TileStore) throws {
        let queue = try DatabaseQueue(path: path)
        let (soundness, count, zoom) = try queue.read { db in
            (
                try String.fetchOne(db, sql: "PRAGMA integrity_check"),
                try Int.fetchOne(db, sql: "SELECT count(*) FROM tiles"),
                try Int.fetchOne(db, sql: "SELECT max(zoom_level) FROM tiles")
            )
        }
        #expect(soundness == "ok" && count == 85 && zoom == 3)
        try queue.close()
        for ending in ["-wal", "-journal", "-shm"] { #expect(!FileManager.default.fileExists(atPath: path + ending)) }
    }

    @Test(arguments: ["WAL", "DELETE"])
    func aLogOfTheOldPackageIsNotAppliedToTheNewOne(journal: String) throws {
        let store = try store()
        try leave("x.mbtiles", journal: journal)
        try store.give(scratch("x.mbtiles"))
        try check(scratch("x.mbtiles"), store)
    }

    @Test func aPackageThatAnotherProcessHasOpenIsNotReplaced() throws {
        let store = try store()
        let path = scratch("x.mbtiles")
        let writer = try DatabaseQueue(path: path)
        try writer.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA journal_mode = WAL; " + Self.tables)
            try db.execute(sql: "INSERT INTO tiles VALUES (8, 0, 0, 'old')")
        }
        let said = message { try store.give(path) }
        #expect(said.contains("is in use") && said.hasSuffix("[busy]"), "\(said)")
        #expect(try writer.read { try Int.fetchOne($0, sql: "SELECT zoom_level FROM tiles") } == 8)
        try writer.close()
        try store.give(path)
        try check(path, store)
        let names = try FileManager.default.contentsOfDirectory(atPath: scratch.path)
        #expect(!names.contains { $0.hasPrefix(".tilegc-") })
    }

    @Test func aLogWhosePackageIsGoneIsNotAppliedToTheNewOne() throws {
        let store = try store()
        try leave("x.mbtiles", journal: "WAL")
        try FileManager.default.removeItem(atPath: scratch("x.mbtiles"))
        let said = message { try store.give(scratch("x.mbtiles")) }
        #expect(said.contains("x.mbtiles-wal is left of another database"), "\(said)")
        #expect(!FileManager.default.fileExists(atPath: scratch("x.mbtiles")))
    }

    @Test(arguments: ["x.mbtiles", "x.pmtiles", "x"])
    func whatIsReplacedHandsOnItsPermissions(_ name: String) throws {
        let store = try store()
        let file = name == "x" ? "x/0/0/0.png" : name
        try scratch.write(Data("old".utf8), to: file)
        #expect(chmod(scratch(file), 0o600) == 0)
        try store.give(scratch(name))
        var status = stat()
        #expect(stat(scratch(file), &status) == 0 && status.st_size > 3)
        #expect(status.st_mode & 0o777 == 0o600)
        // A new one has those that the user's mask leaves.
        try scratch.write(Data("x".utf8), to: "plain")
        let plain = stat(scratch("plain"), &status) == 0 ? status.st_mode & 0o777 : 0
        let other = name == "x" ? "x/1/0/0.png" : "new-" + name
        try store.give(scratch(name == "x" ? name : other))
        #expect(stat(scratch(other), &status) == 0 && status.st_mode & 0o777 == plain)
    }

    #if canImport(Glibc)
    /// The cache's owner swaps the folder for a link while root writes into it.
    @Test func whatRootGivesAwayLiesInTheCache() throws {
        guard geteuid() == 0 else {
            print("skipped: only root gives files to others")
            return
        }
        let cache = scratch("store")
        try store().close()
        try scratch.write(Data("{}".utf8), to: "outside/s.json")
        try scratch.write(Data("{}".utf8), to: "store/sources/s.json")
        #expect(chown(cache, 4321, 4321) == 0)
        let (folder, link) = (scratch("store/sources"), scratch("link"))
        #expect(symlink(scratch("outside"), link) == 0)
        // Swift's Glibc does not show it.
        typealias Rename =
            @convention(c) @Sendable (CInt, UnsafePointer<CChar>, CInt, UnsafePointer<CChar>, CUnsignedInt) -> CInt
        let exchange = unsafeBitCast(try #require(dlsym(dlopen(nil, RTLD_NOW), "renameat2")), to: Rename.self)
        let isDone = Locked(false)
        let swapper = Thread {
            // RENAME_EXCHANGE: both are there all the time.
            while !isDone.withLock({ $0 }) { _ = exchange(AT_FDCWD, folder, AT_FDCWD, link, 2) }
        }
        swapper.start()
        let description = SourceDescription(cache: cache, source: try SourceName("s"))
        var written = 0
        var tries = 0
        // On a busy machine the link may be in the folder's place for long.
        while tries < 400 || written == 0 {
            tries += 1
            var metadata = ArchiveMetadata()
            metadata.name = "\(tries)"
            do {
                try description.merge(metadata)
                written += 1
            } catch is ArchiveError {}
        }
        isDone.withLock { $0 = true }
        #expect(written > 0)
        for path in ["outside", "outside/s.json"] {
            var status = stat()
            #expect(stat(scratch(path), &status) == 0 && status.st_uid == 0, "\(path)")
        }
    }
    #endif
}
