import GRDB

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The table `metadata` of an MBTiles file.
struct MBTilesMetadata {
    private(set) var metadata = ArchiveMetadata()
    /// Whether rows are counted from the north, against the format, as `scheme` may say.
    private(set) var rowsFromNorth = false
    private(set) var warnings: [String] = []

    private static let longestValue = 4 << 20
    private static let mostRows = 1000

    init(_ db: Database, path: String) throws {
        let rows: [Row]
        do {
            rows = try Row.fetchAll(
                db,
                sql: """
                    SELECT CAST(name AS TEXT), CASE WHEN length(value) <= \(Self.longestValue) \
                    THEN CAST(value AS TEXT) END FROM metadata LIMIT \(Self.mostRows)
                    """)
        } catch let error as DatabaseError where error.resultCode == .SQLITE_ERROR {
            // Without its metadata a file still has all its tiles.
            warnings.append("\(path): it has no usable table 'metadata'")
            return
        }
        for row in rows {
            guard let name = String.fromDatabaseValue(row[0]), let value = String.fromDatabaseValue(row[1]) else {
                continue
            }
            switch name {
            case "scheme": rowsFromNorth = value.lowercased() == "xyz"
            case "json":
                guard let members = JSON(Data(value.utf8))?.members else {
                    warnings.append("\(path): 'json' in its metadata is no JSON object and is not used")
                    continue
                }
                for member in members { metadata.set(member.name, member.value) }
            default: metadata.set(name, .string(value))
            }
        }
    }
}
