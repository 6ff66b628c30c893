#if MBTiles
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

    private static let longestName = 1000
    private static let longestValue = 4 << 20
    /// Of all values together.
    private static let mostBytes = 16 << 20
    private static let mostRows = 1000

    /// Reads the table; what cannot be used of it is a warning, since the file still has all its tiles.
    init(_ db: Database, path: String, limits: MBTilesLimits) throws {
        let rows: [(name: String, value: String)]
        do {
            rows = try QueryMeter(seconds: limits.metadataSeconds).watch(db) { try read(db, path) }
        } catch let error as DatabaseError where error.resultCode == .SQLITE_ERROR {
            warnings.append("\(path): it has no usable table 'metadata'")
            return
        } catch let error as DatabaseError
            where [.SQLITE_INTERRUPT, .SQLITE_TOOBIG, .SQLITE_NOMEM].contains(error.resultCode)
        {
            warnings.append("\(path): its 'metadata' takes too much time or memory to read and is not used")
            return
        }
        var members: [JSON.Member] = []
        for (name, value) in rows {
            switch name {
            case "scheme": rowsFromNorth = value.lowercased() == "xyz"
            case "json":
                guard let inside = JSON(Data(value.utf8))?.members else {
                    warnings.append("\(path): 'json' in its metadata is no JSON object and is not used")
                    continue
                }
                members += inside
            default: members.append(JSON.Member(name, .string(value)))
            }
        }
        let leftOut = metadata.take(members)
        if leftOut > 0 {
            warnings.append(
                "\(path): \(leftOut) names of its metadata are not kept: they are more than \(ArchiveMetadata.mostOthers)"
            )
        }
    }

    private mutating func read(_ db: Database, _ path: String) throws -> [(name: String, value: String)] {
        let cursor = try Row.fetchCursor(
            db,
            sql: """
                SELECT CASE WHEN length(name) <= \(Self.longestName) THEN CAST(name AS TEXT) END, \
                CASE WHEN length(value) <= \(Self.longestValue) THEN CAST(value AS TEXT) END, length(value) \
                FROM metadata LIMIT \(Self.mostRows + 1)
                """)
        var rows: [(name: String, value: String)] = []
        var (seen, bytes) = (0, 0)
        while let row = try cursor.next() {
            seen += 1
            guard seen <= Self.mostRows else {
                warnings.append("\(path): its 'metadata' has more than \(Self.mostRows) rows; the rest is not used")
                break
            }
            guard let name = String.fromDatabaseValue(row[0]) else { continue }
            guard let value = String.fromDatabaseValue(row[1]) else {
                if let length = Int.fromDatabaseValue(row[2]), length > Self.longestValue {
                    warnings.append(
                        "\(path): '\(name.prefix(100))' in its metadata has \(length) characters, more than "
                            + "\(Self.longestValue), and is not used")
                }
                continue
            }
            bytes += value.utf8.count
            guard bytes <= Self.mostBytes else {
                warnings.append(
                    "\(path): its 'metadata' has more than \(Self.mostBytes >> 20) MiB; the rest is not used")
                break
            }
            rows.append((name, value))
        }
        return rows
    }
}
#endif
