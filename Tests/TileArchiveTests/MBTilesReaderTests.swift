import Foundation
import GRDB
import Testing
import TileArchive
import TileStore
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct MBTilesReaderTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private static let flat = """
        CREATE TABLE metadata (name text, value text);
        CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
        """

    private func make(_ sql: String, _ name: String = "a.mbtiles") throws -> String {
        let path = scratch(name)
        let queue = try DatabaseQueue(path: path)
        try queue.writeWithoutTransaction { db in try db.execute(sql: sql) }
        try queue.close()
        return path
    }

    private func open(_ path: String) throws -> any ArchiveReader { try ArchiveFormat.mbtiles.open(path) }
    private func sibling(_ ending: String) -> Bool {
        FileManager.default.fileExists(atPath: scratch("a.mbtiles" + ending))
    }

    /// Schemas that are about, each with tile 1/0/1 (row 0 from the south).
    @Test(arguments: [
        flat
            + "INSERT INTO tiles VALUES (1, 0, 0, 'tile'); CREATE UNIQUE INDEX i ON tiles (zoom_level, tile_column, tile_row);",
        """
        CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data, PRIMARY KEY (zoom_level, tile_column, tile_row))
        WITHOUT ROWID;
        INSERT INTO tiles VALUES (1, 0, 0, x'74696c65');
        """,
        """
        CREATE TABLE map (zoom_level, tile_column, tile_row, tile_id TEXT, grid_id TEXT);
        CREATE TABLE images (tile_data BLOB, tile_id TEXT);
        CREATE UNIQUE INDEX m ON map (zoom_level, tile_column, tile_row);
        CREATE UNIQUE INDEX i ON images (tile_id);
        CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM map
            JOIN images ON images.tile_id = map.tile_id;
        INSERT INTO images VALUES (x'74696c65', 'abc');
        INSERT INTO map VALUES (1, 0, 0, 'abc', NULL);
        """,
        """
        CREATE TABLE map (zoom_level, tile_column, tile_row, tile_id);
        CREATE TABLE images (tile_data BLOB, tile_id PRIMARY KEY);
        INSERT INTO images VALUES (x'74696c65', 'abc');
        INSERT INTO map VALUES (1, 0, 0, 'abc');
        """,
        """
        CREATE TABLE tiles_shallow (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER, tile_data_id INTEGER,
            PRIMARY KEY (zoom_level, tile_column, tile_row)) WITHOUT ROWID;
        CREATE TABLE tiles_data (tile_data_id INTEGER PRIMARY KEY, tile_data BLOB);
        INSERT INTO tiles_data VALUES (7, x'74696c65');
        INSERT INTO tiles_shallow VALUES (1, 0, 0, 7);
        """,
        // Text for numbers, in columns without a type; a view that compares with text in double quotes.
        """
        CREATE TABLE raw (kind, z, c, r, d);
        INSERT INTO raw VALUES ('tile', '1', 0.0, '0', 'tile');
        INSERT INTO raw VALUES ('grid', 1, 1, 1, 'grid');
        CREATE VIEW tiles AS SELECT z AS zoom_level, c AS tile_column, r AS tile_row, d AS tile_data FROM raw
            WHERE kind = 'tile';
        """,
    ])
    func knownSchemasAreRead(_ sql: String) throws {
        let reader = try open(make(sql))
        let (tiles, skipped) = try reader.everything()
        #expect(skipped.isEmpty, "\(skipped)")
        #expect(tiles.mapValues(\.data) == [Place(1, 0, 1): Data("tile".utf8)])
        if !sql.contains("'1', 0.0") { #expect(try reader.tile(z: 1, x: 0, y: 1)?.data == Data("tile".utf8)) }
        #expect(try reader.tile(z: 1, x: 0, y: 0) == nil)
        #expect(try reader.tile(z: 40, x: 0, y: 0) == nil)
        for ending in ["-wal", "-shm", "-journal"] { #expect(!sibling(ending)) }
    }

    @Test func unusableRowsArePassedOverAndNamed() throws {
        let reader = try open(
            make(
                Self.flat + """
                    INSERT INTO tiles VALUES (0, 0, 0, x'01');
                    INSERT INTO tiles VALUES (1, 0, 0, NULL);
                    INSERT INTO tiles VALUES (1, 0, 1, x'');
                    INSERT INTO tiles VALUES (1, 2, 0, x'01');
                    INSERT INTO tiles VALUES (1, 0, -1, x'01');
                    INSERT INTO tiles VALUES (29, 0, 0, x'01');
                    INSERT INTO tiles VALUES ('one', 0, 0, x'01');
                    INSERT INTO tiles VALUES (1, 0.5, 0, x'01');
                    INSERT INTO tiles VALUES (1, 1, 0, 17);
                    INSERT INTO tiles VALUES (1, 1, 1, zeroblob(33554433));
                    """))
        let (tiles, skipped) = try reader.everything()
        #expect(Array(tiles.keys) == [Place(0, 0, 0)])
        let words = [
            "is NULL", "is empty", "outside of the pyramid", "outside of the pyramid", "not in 0...28", "whole numbers",
            "whole numbers", "is a number", "33554433 bytes",
        ]
        #expect(skipped.count == words.count)
        for (skip, word) in zip(skipped, words) { #expect(skip.contains(word), "\(skip)") }
        #expect(try reader.tile(z: 1, x: 0, y: 1) == nil)
    }

    @Test func ofSeveralRowsTheLastCounts() throws {
        let path = try make(
            Self.flat + "INSERT INTO tiles VALUES (0, 0, 0, x'01'); INSERT INTO tiles VALUES (0, 0, 0, x'02');")
        let reader = try open(path)
        #expect(try reader.tile(z: 0, x: 0, y: 0)?.data == Data([2]))
        #expect(try reader.everything().tiles[Place(0, 0, 0)]?.data == Data([2]))
        #expect(reader.warnings.contains { $0.contains("no index") })
    }

    @Test func metadataIsReadAsItComes() throws {
        let reader = try open(
            make(
                Self.flat + """
                    INSERT INTO tiles VALUES (1, 0, 0, x'89504e470d0a1a0a');
                    INSERT INTO metadata VALUES ('name', 'n'), ('format', 'jpg'), ('bounds', '-180.0000001, -85,180,85.06'),
                        ('center', '1,2,3'), ('minzoom', '0'), ('maxzoom', '9'), ('scheme', 'xyz'), (NULL, 'x'),
                        ('json', '{"vector_layers":[1.50],"x":"y"}'), ('odd', 5);
                    """))
        let metadata = reader.metadata
        #expect(metadata.name == "n" && metadata.tileFormat == "jpg" && metadata.zooms == 0...9)
        #expect(metadata.bounds?.description == "-180.0,-85.0,180.0,85.06")
        #expect(metadata.center == .init(longitude: 1, latitude: 2, zoom: 3))
        #expect(metadata.others.map(\.name) == ["vector_layers", "x", "odd"])
        #expect(metadata.others.first?.value.text == "[1.50]")
        // Rows from the north, and the bytes know better than the metadata.
        #expect(try reader.tile(z: 1, x: 0, y: 0)?.mediaType == "image/png")
    }

    @Test func missingMetadataIsAWarning() throws {
        let reader = try open(make("CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data);"))
        #expect(reader.metadata == ArchiveMetadata())
        #expect(reader.warnings.contains { $0.contains("metadata") })
    }

    @Test func otherFilesAreToldApart() throws {
        try scratch.write(Data(), to: "empty.mbtiles")
        try scratch.write(Data("PMTiles\u{3}".utf8), to: "pm.mbtiles")
        try scratch.write(Data("<html>".utf8), to: "page.mbtiles")
        try scratch.write(Data("SQLite format 3\0".utf8), to: "cut.mbtiles")
        _ = try make("CREATE TABLE layers (a)", "other.mbtiles")
        _ = try make("CREATE TABLE tiles (a, b)", "columns.mbtiles")
        let rows = [
            ("absent", "cannot open", "notFound"), ("empty", "is empty", "damaged"),
            ("pm", "is PMTiles", "notAnArchive"),
            ("page", "not an SQLite database", "notAnArchive"), ("cut", "cut short", "damaged"),
            ("other", "no table or view 'tiles' (it has layers)", "notAnArchive"),
            ("columns", "no such column", "notAnArchive"),
        ]
        for (name, words, code) in rows {
            let said = message { _ = try open(scratch("\(name).mbtiles")) }
            #expect(said.contains(words) && said.hasSuffix("[\(code)]") && said.contains(name), "\(said)")
        }
    }

    @Test func aFileThatIsCutInTheMiddleIsDamage() throws {
        var sql = Self.flat
        for i in 0..<60 { sql += "INSERT INTO tiles VALUES (8, \(i), 0, randomblob(3000));" }
        let path = try make(sql)
        let bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        try scratch.write(bytes.prefix(bytes.count / 2 / 4096 * 4096), to: "cut.mbtiles")
        let said = message { _ = try open(scratch("cut.mbtiles")).everything() }
        #expect(said.contains("damaged or cut short") && said.hasSuffix("[damaged]"), "\(said)")
    }

    @Test func aFileInWALModeIsReadWithoutATrace() throws {
        let path = try make("PRAGMA journal_mode = WAL;" + Self.flat + "INSERT INTO tiles VALUES (0, 0, 0, x'01');")
        for ending in ["-wal", "-shm"] where sibling(ending) {
            try FileManager.default.removeItem(atPath: path + ending)
        }
        let before = try Data(contentsOf: URL(fileURLWithPath: path))
        #expect(before[18] == 2)
        let reader = try open(path)
        #expect(try reader.everything().tiles.count == 1)
        #expect(!sibling("-wal") && !sibling("-shm"))
        #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == before)
    }

    @Test func aLogThatAWriterLeftIsReadToo() throws {
        let path = try make("PRAGMA journal_mode = WAL;" + Self.flat)
        let writer = try DatabaseQueue(path: path)
        try writer.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA wal_autocheckpoint = 0; INSERT INTO tiles VALUES (0, 0, 0, x'01')")
        }
        // As another process sees it while this one writes, and as it is left when this one is killed.
        let reader = try open(path)
        #expect(try reader.everything().tiles.count == 1)
        #expect(reader.warnings.contains { $0.contains("-wal") })
        try FileManager.default.createDirectory(atPath: scratch("left"), withIntermediateDirectories: true)
        for ending in ["", "-wal"] {
            try FileManager.default.copyItem(atPath: path + ending, toPath: scratch("left/a.mbtiles\(ending)"))
        }
        #expect(try open(scratch("left/a.mbtiles")).everything().tiles.count == 1)
        try writer.close()
    }

    @Test func aFileThatIsBeingWrittenIsReadAsItWasOrRefused() throws {
        let path = try make(Self.flat + "INSERT INTO tiles VALUES (0, 0, 0, x'01');")
        let writer = try DatabaseQueue(path: path)
        try writer.inDatabase { db in
            try db.inTransaction(.immediate) {
                try db.execute(sql: "INSERT INTO tiles VALUES (1, 0, 0, x'01')")
                // Not committed yet.
                #expect(try open(path).everything().tiles.count == 1)
                return .commit
            }
        }
        #expect(try open(path).everything().tiles.count == 2)
        try writer.close()
    }

    @Test func odderPathsAreNoURIs() throws {
        let path = try make(Self.flat + "INSERT INTO tiles VALUES (0, 0, 0, x'01');", "a%20b?mode=rw#ü &.mbtiles")
        #expect(try open(path).everything().tiles.count == 1)
    }
}
