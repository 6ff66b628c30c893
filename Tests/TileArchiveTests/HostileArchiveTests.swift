import Foundation
import GRDB
import Testing
import TileArchive
import TileStore
import TileStoreTesting

/// Archives that are made to cost time, memory or disk.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct HostileArchiveTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private static let counter = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"
    private static let table = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data);"

    private func make(_ sql: String, _ name: String = "a.mbtiles") throws -> String {
        let queue = try DatabaseQueue(path: scratch(name))
        try queue.writeWithoutTransaction { db in try db.execute(sql: sql) }
        try queue.close()
        return scratch(name)
    }

    /// Time is up at once.
    private var impatient: MBTilesLimits {
        var limits = MBTilesLimits()
        limits.metadataSeconds = 0
        limits.lookupSeconds = 0
        limits.countSeconds = 0
        limits.stepsBetweenRows = 1_000_000
        return limits
    }

    /// A view that gives rows without end, none of them a tile, kept conversions and publishing busy for ever.
    @Test func rowsThatAreNoTilesCountAgainstTheLimit() throws {
        let path = try make(
            "CREATE VIEW tiles AS \(Self.counter) SELECT 99 AS zoom_level, n AS tile_column, 0 AS tile_row, x'00' AS tile_data FROM c;"
        )
        var conversion = ArchiveConversion(try MBTilesReader(path, limits: impatient))
        conversion.mostTiles = 1000
        #expect(
            message { _ = try conversion.run(to: scratch("out.pmtiles"), format: .pmtiles, observer: Notes()) }
                .contains("has more than 1000 tiles"))
        let tiles = ArchiveToPublish(try MBTilesReader(path, limits: impatient), mostTiles: 1000, observer: Notes())
        #expect(message { _ = try tiles.forEachTile { _ in } }.contains("has more than 1000 tiles"))
    }

    private func transfer(_ most: Int = 10_000_000) throws -> ArchiveImport {
        let store = try TileStore(at: scratch("store"))
        var transfer = ArchiveImport(
            store: store, source: try SourceName("s"), now: Timestamp(seconds: 1_700_000_000))
        transfer.mostTiles = most
        return transfer
    }

    @Test func metadataOfManyNamesIsCutOff() throws {
        var raw = RawPMTiles([PMTilesEntry(tile: 0, offset: 0, length: 1, run: 1)], data: Data("x".utf8))
        var text = "{\"vector_layers\":[]"
        for i in 0..<150_000 { text += ",\"\(i)\":0" }
        raw.metadata = Data((text + ",\"name\":\"n\"}").utf8)
        try scratch.write(raw.bytes, to: "a.pmtiles")
        let reader = try ArchiveFormat.pmtiles.open(scratch("a.pmtiles"))
        #expect(reader.metadata.name == "n" && reader.metadata.others.count == 1000)
        #expect(reader.metadata.others.first?.name == "vector_layers")
        #expect(reader.warnings.contains { $0.contains("149001 names") })
    }

    @Test func metadataOfAViewIsCutOff() throws {
        let endless = try make(
            Self.table + "INSERT INTO tiles VALUES (0, 0, 0, 'tile');"
                + "CREATE VIEW metadata AS \(Self.counter) SELECT 'a' AS name, 'b' AS value FROM c WHERE n < 0;")
        let reader = try MBTilesReader(endless, limits: impatient)
        #expect(reader.warnings.contains { $0.contains("too much time") })
        #expect(try reader.everything().tiles.count == 1)
        // A thousand rows of three million bytes.
        let large = try make(
            Self.table + """
                CREATE VIEW metadata AS \(Self.counter)
                SELECT 'k' || n AS name, printf('%.*c', 3000000, 'x') AS value FROM c;
                """, "b.mbtiles")
        let other = try MBTilesReader(large)
        #expect(other.warnings.contains { $0.contains("more than 16 MiB") })
        #expect(other.metadata.others.count == 5)
        // A value of nearly a gigabyte.
        let giant = try make(
            Self.table + "CREATE VIEW metadata AS SELECT 'k' AS name, zeroblob(900000000) AS value;", "c.mbtiles")
        #expect(try MBTilesReader(giant).metadata == ArchiveMetadata())
    }

    /// Stops when it is asked for the hundredth time.
    private final class Impatience: TransferObserver {
        var asked = 0
        var wantsStop: Bool {
            asked += 1
            return asked > 100
        }
        func skipped(_ what: String, _ why: String, count: Int) {}
        func failed(_ what: String, _ why: String) {}
        func advanced(_ progress: @autoclosure () -> TransferProgress) {}
    }

    private var silent: String {
        "CREATE VIEW tiles AS \(Self.counter) SELECT 1 AS zoom_level, 0 AS tile_column, 0 AS tile_row, 'x' AS tile_data "
            + "FROM c WHERE n < 0;"
    }

    @Test func anImportOfAViewWithoutATileCanBeStopped() throws {
        var limits = impatient
        limits.stepsBetweenRows = .max
        let reader = try MBTilesReader(make(silent), limits: limits)
        let report = try transfer().run(reader, observer: Impatience())
        #expect(report.wasStopped && report.tiles == 0)
    }

    @Test func aViewWithoutATileIsGivenUp() throws {
        let reader = try MBTilesReader(make(silent), limits: impatient)
        let said = message { _ = try transfer().run(reader, observer: Notes()) }
        #expect(said.contains("may have no end") && said.hasSuffix("[unsupported]"), "\(said)")
    }

    @Test func anImportEndsAtTheMostTiles() throws {
        let path = try make(
            "CREATE VIEW tiles AS \(Self.counter) SELECT 14 AS zoom_level, n % 16384 AS tile_column, 0 AS tile_row, "
                + "'x' AS tile_data FROM c;")
        let reader = try MBTilesReader(path, limits: impatient)
        let transfer = try transfer(1000)
        let said = message { _ = try transfer.run(reader, observer: Notes()) }
        #expect(said.contains("more than 1000 tiles") && said.hasSuffix("[tooMany]"), "\(said)")
        #expect(try transfer.store.statistics().entries == 1000)
    }

    @Test func aRunOfBillionsOfTilesIsRefusedBeforeTheFirst() throws {
        var raw = RawPMTiles()
        raw.data = Data("x".utf8)
        raw.leaves = PMTilesDirectory.encode([PMTilesEntry(tile: 1 << 40, offset: 0, length: 1, run: .max)])
        raw.root = PMTilesDirectory.encode([
            PMTilesEntry(tile: 0, offset: 0, length: 1, run: 1),
            PMTilesEntry(tile: 1 << 40, offset: 0, length: UInt32(raw.leaves.count), run: 0),
        ])
        try scratch.write(raw.bytes, to: "a.pmtiles")
        let reader = try ArchiveFormat.pmtiles.open(scratch("a.pmtiles"))
        let transfer = try transfer()
        let said = message { _ = try transfer.run(reader, observer: Notes()) }
        #expect(said.contains("--max-tiles") && said.hasSuffix("[tooMany]"), "\(said)")
        #expect(try transfer.store.statistics().entries == 0)
    }

    @Test func aLookUpThatReadsTheWholeTableIsEnded() throws {
        let path = try make(
            Self.table + """
                \(Self.counter) INSERT INTO tiles SELECT 14, n, 0, 'tile' FROM c LIMIT 5000;
                """)
        let patient = try MBTilesReader(path)
        #expect(try patient.tile(z: 14, x: 7, y: 16383)?.data == Data("tile".utf8))
        var limits = impatient
        let reader = try MBTilesReader(path, limits: limits)
        for _ in 0..<2 {
            let said = message { _ = try reader.tile(z: 14, x: 7, y: 16383) }
            #expect(said.contains("no index") && said.contains("CREATE INDEX"), "\(said)")
        }
        // After the pause the next one is tried again, and may be faster.
        limits.pauseSeconds = 0
        limits.lookupSeconds = 1000
        #expect(try MBTilesReader(path, limits: limits).tile(z: 14, x: 7, y: 16383) != nil)
        // With an index there is nothing to end.
        let indexed = try DatabaseQueue(path: path)
        try indexed.writeWithoutTransaction { db in
            try db.execute(sql: "CREATE INDEX i ON tiles (zoom_level, tile_column, tile_row)")
        }
        try indexed.close()
        #expect(try MBTilesReader(path, limits: impatient).tile(z: 14, x: 7, y: 16383)?.data == Data("tile".utf8))
    }

    // MARK: Rows that come twice

    @Test func rowsThatComeTwiceAreNotTakenForEvicted() throws {
        let path = try make(
            Self.table + "\(Self.counter) INSERT INTO tiles SELECT 3, n % 8, 0, 'tile ' || n FROM c LIMIT 700;")
        let notes = Notes()
        let transfer = try transfer()
        let report = try transfer.run(MBTilesReader(path), observer: notes)
        #expect(report.tiles == 8 && report.repeated == 692 && report.skipped == 692)
        #expect(try transfer.countOfKept() == report.tiles)
        #expect(notes.skips.contains { $0.contains("several rows for one tile") })
    }

    @Test func ofRowsThatComeTwiceTheLastCountsWhereNewerOnesAreKept() throws {
        let path = try make(
            Self.table + "\(Self.counter) INSERT INTO tiles SELECT 0, 0, 0, 'tile ' || n FROM c LIMIT 700;")
        let reader = try MBTilesReader(path)
        let written = try #require(reader.modified)
        let store = try TileStore(at: scratch("store"))
        var transfer = ArchiveImport(store: store, source: try SourceName("s"), now: Timestamp(seconds: written + 20))
        transfer.keepsNewer = true
        let report = try transfer.run(reader, observer: Notes())
        #expect(try store.read(TileKey("s/0/0/0"))?.data == Data("tile 700".utf8))
        #expect(report.keptNewer == 0 && report.tiles == 1)
        // What was there, and newer, stays.
        transfer.now = Timestamp(seconds: written + 40)
        #expect(try transfer.run(reader, observer: Notes()).keptNewer == 700)
    }

    @Test(arguments: [
        "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data, PRIMARY KEY (zoom_level, tile_column, tile_row)) WITHOUT\nROWID;",
        "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data, rowid); CREATE INDEX i ON tiles (zoom_level);",
        "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data CHECK (tile_data != 'without rowid'));",
    ])
    func rowsAreFoundHoweverTheTableIsWritten(_ sql: String) throws {
        let isUnique = sql.contains("PRIMARY")
        let path = try make(
            sql + "INSERT INTO tiles (zoom_level, tile_column, tile_row, tile_data) VALUES (1, 0, 0, x'01');"
                + (isUnique
                    ? "" : "INSERT INTO tiles (zoom_level, tile_column, tile_row, tile_data) VALUES (1, 0, 0, x'02');"))
        let reader = try MBTilesReader(path)
        #expect(try reader.tile(z: 1, x: 0, y: 1)?.data == Data([isUnique ? 1 : 2]))
    }
}
