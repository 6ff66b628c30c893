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

/// MBTiles files that are written while they are open, and tiles that are had without waiting.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct MBTilesChangeTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private static let tables = """
        CREATE TABLE metadata (name text, value text);
        CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
        CREATE UNIQUE INDEX i ON tiles (zoom_level, tile_column, tile_row);
        """

    /// A file with `count` tiles of zoom 8 in row 0 from the north, all with one content.
    @discardableResult
    private func make(
        _ name: String, _ content: String, journal: String = "DELETE", count: Int = 200, age: Int = 60,
        tables: String = Self.tables
    ) throws -> String {
        let path = scratch(name)
        let queue = try DatabaseQueue(path: path)
        try queue.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA journal_mode = \(journal); BEGIN; " + tables)
            for x in 0..<count {
                try db.execute(
                    sql: "INSERT INTO tiles VALUES (8, ?, 255, ?)", arguments: [x, Self.bytes(content, x)])
            }
            try db.execute(sql: "COMMIT")
        }
        try queue.close()
        for ending in ["-wal", "-shm"] { unlink(path + ending) }
        try setAge(path, age)
        return path
    }

    private static func bytes(_ content: String, _ x: Int) -> Data {
        Data("\(content) \(x) ".utf8) + Data(repeating: UInt8(x & 255), count: 500 + x * 20)
    }

    /// Makes a file look as old as that, in seconds: one that has just been written is not trusted.
    private func setAge(_ path: String, _ age: Int) throws {
        let date = Date(timeIntervalSinceNow: -Double(age))
        try FileManager.default.setAttributes([.modificationDate: date], ofItemAtPath: path)
    }

    private func write(_ path: String, _ content: String) throws {
        let queue = try DatabaseQueue(path: path)
        try queue.writeWithoutTransaction { db in
            try db.execute(sql: "BEGIN")
            for x in 0..<200 {
                try db.execute(
                    sql: "UPDATE tiles SET tile_data = ? WHERE tile_column = ?", arguments: [Self.bytes(content, x), x])
            }
            try db.execute(sql: "COMMIT")
        }
        try queue.close()
    }

    private static func isAnswer(_ glance: ArchiveGlance, _ content: String, _ x: Int) -> Bool {
        if case .tile(let tile) = glance { return tile.data == bytes(content, x) }
        return false
    }

    private func mustWait(_ glance: ArchiveGlance) -> Bool {
        if case .mustWait = glance { return true }
        return false
    }

    #if !canImport(Darwin) && !canImport(Musl)
    @Test(arguments: ["DELETE", "WAL"])
    func afterTheFirstLookUpTilesAreHadAtOnce(journal: String) throws {
        let reader = try MBTilesReader(make("a.mbtiles", "old", journal: journal))
        #expect(mustWait(reader.tileNow(z: 8, x: 3, y: 0)))
        #expect(try reader.tile(z: 8, x: 3, y: 0)?.data == Self.bytes("old", 3))
        for x in 0..<200 { #expect(Self.isAnswer(reader.tileNow(z: 8, x: x, y: 0), "old", x)) }
        for place in [Place(8, 200, 0), Place(8, 0, 1), Place(7, 0, 0), Place(8, 256, 0), Place(40, 0, 0)] {
            guard case .absent = reader.tileNow(z: place.z, x: place.x, y: place.y) else {
                Issue.record("\(place) is said to be there")
                continue
            }
        }
    }

    @Test func aFileThatHasJustBeenWrittenIsNotTrusted() throws {
        let path = try make("a.mbtiles", "old")
        // A time of whole seconds, as of a file system whose clock has no others.
        let written = (Date().timeIntervalSinceReferenceDate + 2).rounded(.down)
        try FileManager.default.setAttributes(
            [.modificationDate: Date(timeIntervalSinceReferenceDate: written)], ofItemAtPath: path)
        let reader = try MBTilesReader(path)
        _ = try reader.tile(z: 8, x: 3, y: 0)
        let waits = mustWait(reader.tileNow(z: 8, x: 3, y: 0))
        if Date().timeIntervalSinceReferenceDate < written + 2 { #expect(waits) }
    }

    @Test func whatIsNotSearchableOrNotOrdinaryIsLookedUpTheOtherWay() throws {
        let flat = Self.tables.replacingOccurrences(of: "CREATE UNIQUE INDEX", with: "-- ")
        let slow = try MBTilesReader(make("a.mbtiles", "old", tables: flat))
        for _ in 0..<2 {
            #expect(try slow.tile(z: 8, x: 3, y: 0)?.data == Self.bytes("old", 3))
            #expect(mustWait(slow.tileNow(z: 8, x: 3, y: 0)))
        }
        let path = try make(
            "b.mbtiles", "old",
            tables: Self.tables + """
                INSERT INTO tiles VALUES (9, 0, 0, NULL), (9, 1, 0, 'text'), (9, 2, 0, 17), (9, 3, 0, zeroblob(300000)),
                    (9, 4, 0, x''), (9, 5, 0, zeroblob(33554433));
                """)
        let reader = try MBTilesReader(path)
        for (x, expected) in [
            (0, nil), (1, Data("text".utf8)), (2, nil), (3, Data(count: 300_000)), (4, nil), (5, nil),
        ] {
            #expect(try reader.tile(z: 9, x: x, y: 511)?.data == expected)
            #expect(mustWait(reader.tileNow(z: 9, x: x, y: 511)))
        }
    }

    @Test func manyThreadsLookUpAtOnce() throws {
        let reader = try MBTilesReader(make("a.mbtiles", "old"))
        _ = try reader.tile(z: 8, x: 0, y: 0)
        let wrong = Locked(0)
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            var random = SplitMix64(seed: UInt64(thread))
            for _ in 0..<500 {
                let x = random.below(200)
                if !Self.isAnswer(reader.tileNow(z: 8, x: x, y: 0), "old", x) { wrong.withLock { $0 += 1 } }
            }
        }
        #expect(wrong.withLock { $0 } == 0)
    }
    #endif

    /// Whatever way a file changes, no old tile is given out afterwards, nor one of two files.
    @Test(arguments: ["DELETE", "WAL"])
    func whatSQLiteWritesIsSeen(journal: String) throws {
        let path = try make("a.mbtiles", "old", journal: journal)
        let reader = try MBTilesReader(path)
        func all(_ content: String) throws {
            for x in 0..<200 { #expect(try reader.tile(z: 8, x: x, y: 0)?.data == Self.bytes(content, x)) }
            #expect(try reader.everything().tiles.count == 200)
        }
        try all("old")
        try write(path, "new")
        try all("new")
        // Once more, with the look-ups warm again.
        try setAge(path, 50)
        try all("new")
        try write(path, "newer")
        try all("newer")
    }

    @Test func aLogThatBeginsBesideAnOpenFileIsRead() throws {
        let path = try make("a.mbtiles", "old", journal: "WAL")
        let reader = try MBTilesReader(path)
        #expect(try reader.tile(z: 8, x: 5, y: 0)?.data == Self.bytes("old", 5))
        let writer = try DatabaseQueue(path: path)
        try writer.writeWithoutTransaction { db in
            try db.execute(
                sql: "PRAGMA wal_autocheckpoint = 0; UPDATE tiles SET tile_data = ? WHERE tile_column = 5",
                arguments: [Self.bytes("log", 5)])
        }
        // The file itself is as it was.
        #expect(mustWait(reader.tileNow(z: 8, x: 5, y: 0)))
        #expect(try reader.tile(z: 8, x: 5, y: 0)?.data == Self.bytes("log", 5))
        #expect(try reader.tile(z: 8, x: 6, y: 0)?.data == Self.bytes("old", 6))
        try writer.close()
        #expect(try reader.tile(z: 8, x: 5, y: 0)?.data == Self.bytes("log", 5))
    }

    @Test(arguments: ["DELETE", "WAL"])
    func aFileThatIsCopiedOverIsReadAnew(journal: String) throws {
        let path = try make("a.mbtiles", "old", journal: journal)
        // The same pages otherwise, and as many changes: SQLite alone would not notice.
        let other = try make("b.mbtiles", "bad", journal: journal)
        let reader = try MBTilesReader(path)
        for x in 0..<200 { #expect(try reader.tile(z: 8, x: x, y: 0)?.data == Self.bytes("old", x)) }
        let bytes = try Data(contentsOf: URL(fileURLWithPath: other))
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try file.write(contentsOf: bytes)
        try file.truncate(atOffset: UInt64(bytes.count))
        try file.close()
        for x in 0..<200 { #expect(try reader.tile(z: 8, x: x, y: 0)?.data == Self.bytes("bad", x)) }
        try Data("no database".utf8).write(to: URL(fileURLWithPath: path))
        #expect(message { _ = try reader.tile(z: 8, x: 1, y: 0) } != "no error")
    }

    @Test func aFileThatIsRenamedIntoPlaceIsNotMixedWithTheOldOne() throws {
        let path = try make("a.mbtiles", "old", journal: "WAL")
        let reader = try MBTilesReader(path)
        #expect(try reader.tile(z: 8, x: 5, y: 0)?.data == Self.bytes("old", 5))
        #expect(rename(try make("b.mbtiles", "bad", journal: "WAL"), path) == 0)
        let writer = try DatabaseQueue(path: path)
        try writer.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA wal_autocheckpoint = 0; DELETE FROM tiles")
        }
        #expect(try reader.tile(z: 8, x: 5, y: 0)?.data == Self.bytes("old", 5), "the log is another file's")
        #expect(message { _ = try reader.everything() }.hasSuffix("[busy]"))
        try writer.close()
    }
}
