#if MBTiles
import GRDB

/// Where an MBTiles file has its tiles, and how to ask for them.
struct MBTilesShape: Sendable {
    /// A table, a view or a query in parentheses with the four columns of `tiles`.
    private let source: String
    private let counted: String
    /// Of several rows for one tile the last one counts, in a look-up as in an import.
    private let order: String

    /// Looks at the schema.
    ///
    /// - Throws: ``ArchiveError`` where there are no tiles in any form that is known.
    init(_ db: Database, path: String) throws {
        let rows = try Row.fetchAll(
            db, sql: "SELECT lower(name), type FROM sqlite_master WHERE type IN ('table', 'view') LIMIT 10000")
        var kinds: [String: String] = [:]
        for row in rows {
            guard let name = String.fromDatabaseValue(row[0]), let kind = String.fromDatabaseValue(row[1]) else {
                continue
            }
            kinds[name] = kind
        }
        let known = kinds["tiles"] != nil
        if known {
            source = "tiles"
        } else if kinds["tiles_shallow"] != nil, kinds["tiles_data"] != nil {
            source = """
                (SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles_shallow \
                JOIN tiles_data ON tiles_shallow.tile_data_id = tiles_data.tile_data_id)
                """
        } else if kinds["map"] != nil, kinds["images"] != nil {
            source = """
                (SELECT zoom_level, tile_column, tile_row, tile_data FROM map \
                JOIN images ON images.tile_id = map.tile_id)
                """
        } else {
            let found = kinds.keys.sorted().prefix(8).joined(separator: ", ")
            throw ArchiveError(
                .notAnArchive,
                "\(path) is an SQLite database, but no MBTiles: it has no table or view 'tiles'"
                    + (found.isEmpty ? "" : " (it has \(found))"))
        }
        // A view without an index below it is counted by going through all of it; its table is cheaper.
        counted = ["map", "tiles_shallow"].first { kinds[$0] == "table" && kinds["tiles"] != "table" } ?? source
        let rowNumber = kinds["tiles"] == "table" ? try Self.rowNumber(db) : nil
        order = rowNumber.map { "ORDER BY \($0) DESC" } ?? ""
        do { _ = try db.makeStatement(sql: scanSQL) } catch let error as DatabaseError {
            throw ArchiveError(
                .notAnArchive,
                "\(path) is an SQLite database, but no MBTiles: \(error.message ?? "its tables have other columns")",
                cause: error)
        }
    }

    /// By which name the table `tiles` has the numbers of its rows; `nil` for one without.
    ///
    /// SQLite is asked, since a schema's text can be written in many ways. A column of one of these names hides the number.
    private static func rowNumber(_ db: Database) throws -> String? {
        let columns = try Row.fetchAll(db, sql: "PRAGMA table_info(tiles)").compactMap {
            String.fromDatabaseValue($0["name"])?.lowercased()
        }
        guard let name = ["rowid", "_rowid_", "oid"].first(where: { !columns.contains($0) }) else { return nil }
        do {
            _ = try db.makeStatement(sql: "SELECT \(name) FROM tiles")
            return name
        } catch let error as DatabaseError where error.resultCode == .SQLITE_ERROR { return nil }
    }

    /// The content; NULL for one that is too large or is no content.
    ///
    /// SQLite reads the length without the content, so that a blob of a gigabyte costs nothing. A text is taken as its
    /// bytes.
    private static let content = """
        CASE typeof(tile_data) \
        WHEN 'blob' THEN CASE WHEN length(tile_data) <= \(MBTilesReader.largestTile) THEN tile_data END \
        WHEN 'text' THEN CASE WHEN length(CAST(tile_data AS BLOB)) <= \(MBTilesReader.largestTile) \
        THEN CAST(tile_data AS BLOB) END END
        """

    /// All tiles in the order in which they lie.
    var scanSQL: String {
        "SELECT zoom_level, tile_column, tile_row, \(Self.content), length(tile_data) FROM \(source)"
    }

    /// One tile, by zoom, column and row.
    var lookupSQL: String {
        "SELECT \(Self.content) FROM \(source) WHERE zoom_level = ? AND tile_column = ? AND tile_row = ? \(order) LIMIT 1"
    }

    /// The same where a tile must be had at once: NULL for what is no blob, or a large one, which takes its time.
    var cachedLookupSQL: String {
        "SELECT CASE WHEN typeof(tile_data) = 'blob' AND length(tile_data) <= 262144 THEN tile_data END FROM \(source) "
            + "WHERE zoom_level = ? AND tile_column = ? AND tile_row = ? \(order) LIMIT 1"
    }

    /// How many tiles there are, or nearly.
    var countSQL: String { "SELECT count(*) FROM \(counted)" }

    /// Whether a look-up goes through an index.
    func isSearchable(_ db: Database) throws -> Bool {
        let plan = try Row.fetchAll(db, sql: "EXPLAIN QUERY PLAN " + lookupSQL, arguments: [0, 0, 0])
        return !plan.contains { row in
            guard let detail = String.fromDatabaseValue(row["detail"]) else { return false }
            // An automatic index is made for each look-up, by a scan.
            return detail.hasPrefix("SCAN") || detail.contains(" AUTOMATIC ")
        }
    }
}
#endif
