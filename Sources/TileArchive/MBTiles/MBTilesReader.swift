import GRDB
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reads MBTiles 1.3, and files that only resemble it: views, other schemas, no indexes, no metadata.
///
/// Nothing is written, neither to the file nor next to it.
package final class MBTilesReader: ArchiveReader {
    /// The largest tile that is read.
    package static let largestTile = 32 << 20

    package let path: String
    package let metadata: ArchiveMetadata
    package let modified: Int64?
    package let warnings: [String]
    private let database: MBTilesDatabase
    private let queue: DatabaseQueue
    private let shape: MBTilesShape
    private let lookupSQL: String
    private let rowsFromSouth: Bool

    /// How the rows of an MBTiles file are counted.
    package enum Rows: Sendable {
        /// As its metadata says in `scheme`; from the south where that is silent, as the format has it.
        case asDeclared
        /// From the north, whatever it says.
        case fromNorth
        /// From the south, whatever it says.
        case fromSouth
    }

    /// Opens a file and reads its metadata.
    ///
    /// - Throws: ``ArchiveError``.
    package init(_ path: String, rows: Rows = .asDeclared) throws {
        self.path = path
        let database = try MBTilesDatabase(path)
        let queue = try database.open()
        self.database = database
        self.queue = queue
        modified = database.modified
        var warnings = database.warnings
        let contents = try database.reporting {
            try queue.read { db in
                let shape = try MBTilesShape(db, path: path)
                return (shape, try MBTilesMetadata(db, path: path), try shape.isSearchable(db))
            }
        }
        shape = contents.0
        lookupSQL = shape.lookupSQL
        metadata = contents.1.metadata
        switch rows {
        case .asDeclared: rowsFromSouth = !contents.1.rowsFromNorth
        case .fromNorth: rowsFromSouth = false
        case .fromSouth: rowsFromSouth = true
        }
        warnings += contents.1.warnings
        if !contents.2 {
            warnings.append(
                "\(path): no index on zoom_level, tile_column, tile_row: each look-up of a tile reads the whole table "
                    + "(importing it does not)")
        }
        self.warnings = warnings
    }

    package var format: ArchiveFormat { .mbtiles }

    package var tileCount: Int? {
        // Only for showing how far something is: where it cannot be had, nothing is lost.
        try? queue.read { db in try Row.fetchOne(db, sql: shape.countSQL)?[0] as Int? }
    }

    package func tile(z: Int, x: Int, y: Int) throws -> ArchivedTile? {
        guard (0...28).contains(z), (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y) else { return nil }
        let row = rowsFromSouth ? (1 << z) - 1 - y : y
        return try database.reporting {
            try queue.unsafeRead { db in
                let statement = try db.cachedStatement(sql: lookupSQL)
                // There are three, and they are numbers.
                statement.setUncheckedArguments([z, x, row])
                return try Data.fetchOne(statement).flatMap { $0.isEmpty ? nil : $0 }
            }
        }.map { tile($0) }
    }

    private func tile(_ data: Data) -> ArchivedTile {
        let content = TileContent(of: data, format: metadata.tileFormat)
        return ArchivedTile(data: data, mediaType: content.mediaType, contentEncoding: content.contentEncoding)
    }

    package func forEachTile(_ body: (ArchiveStep) throws -> Bool) throws {
        // A connection of its own: the body may look up tiles meanwhile.
        let queue = try database.open()
        try database.reporting {
            // One transaction, so that a writer's changes are seen all or not at all.
            try queue.read { db in
                let rows = try Row.fetchCursor(db, sql: shape.scanSQL)
                while let row = try rows.next() {
                    guard try body(step(row)) else { return }
                }
            }
        }
        try database.checkUnchanged()
    }

    private func step(_ row: Row) -> ArchiveStep {
        let (zoom, column, line) = (Self.integer(row[0]), Self.integer(row[1]), Self.integer(row[2]))
        func skipped(_ why: String) -> ArchiveStep {
            let place = (0..<3).map { i -> String in
                let value: DatabaseValue = row[i]
                return "\(value)"
            }
            return .skipped(what: "\(path): row \(place.joined(separator: "/"))", why: why, count: 1)
        }
        guard let zoom, let column, let line else { return skipped("its place is not made of whole numbers") }
        guard (0...28).contains(zoom) else { return skipped("its zoom is not in 0...28") }
        guard (0..<(1 << zoom)).contains(column), (0..<(1 << zoom)).contains(line) else {
            return skipped("it is outside of the pyramid")
        }
        switch Self.content(row[3], row[4]) {
        case .bytes(let data):
            return .tile(
                z: zoom, x: column, y: rowsFromSouth ? (1 << zoom) - 1 - line : line, scale: 1, fileExtension: nil,
                tile(data))
        case .unusable(let why): return skipped(why)
        }
    }

    private enum Content {
        case bytes(Data)
        case unusable(String)
    }

    private static func content(_ value: DatabaseValue, _ length: DatabaseValue) -> Content {
        switch value.storage {
        case .blob(let data): return data.isEmpty ? .unusable("it is empty") : .bytes(data)
        default: break
        }
        switch length.storage {
        case .null: return .unusable("its tile_data is NULL")
        case .int64(let length) where length > 0:
            return .unusable(
                length > Int64(largestTile) ? "it has \(length) bytes, which is no tile" : "its tile_data is a number")
        default: return .unusable("it is empty")
        }
    }

    /// A whole number, also from a text or a fraction that is one: columns without a type keep what they were given.
    private static func integer(_ value: DatabaseValue) -> Int? {
        switch value.storage {
        case .int64(let number): Int(exactly: number)
        case .double(let number): Int(exactly: number)
        case .string(let text): TileFileName.number(text)
        default: nil
        }
    }
}
