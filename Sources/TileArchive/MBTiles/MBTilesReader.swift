#if MBTiles
import ContentCoding
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
package final class MBTilesReader: GlancingReader, StoppableReader {
    /// The largest tile that is read.
    package static let largestTile = 32 << 20

    package let path: String
    package let metadata: ArchiveMetadata
    package let modified: Int64?
    package let warnings: [String]
    private let rows: Rows
    private let limits: MBTilesLimits
    private let session: Locked<MBTilesSession>

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
    package init(_ path: String, rows: Rows = .asDeclared, limits: MBTilesLimits = MBTilesLimits()) throws {
        self.path = path
        self.rows = rows
        self.limits = limits
        let session = try MBTilesSession(MBTilesDatabase(path), limits: limits)
        self.session = Locked(session)
        modified = session.database.file.modified
        metadata = session.contents.metadata
        var warnings = session.database.warnings + session.contents.warnings
        if !session.isSearchable {
            warnings.append(
                "\(path): no index on zoom_level, tile_column, tile_row: each look-up of a tile reads the whole table "
                    + "(importing it does not)")
        }
        self.warnings = warnings
    }

    package var format: ArchiveFormat { .mbtiles }

    package var tileCount: Int? { tileCount(unless: { false }) }

    package func tileCount(unless isStopped: () -> Bool) -> Int? {
        // Only for showing how far something is: where it cannot be had, nothing is lost.
        try? session.withLock({ $0 }).count(unless: isStopped)
    }

    /// The row of a tile, as the file counts them.
    private func row(_ z: Int, _ y: Int, _ session: MBTilesSession) -> Int {
        let isFromSouth =
            switch rows {
            case .asDeclared: !session.contents.rowsFromNorth
            case .fromNorth: false
            case .fromSouth: true
            }
        return isFromSouth ? (1 << z) - 1 - y : y
    }

    /// A session on the file as it is now: another one if it has been written since.
    ///
    /// What SQLite has in memory of a file may be of another one by then, if it was copied over and not written by SQLite.
    private func current() throws -> MBTilesSession {
        let session = session.withLock { $0 }
        if session.database.isUnchanged { return session }
        let next = try MBTilesSession(MBTilesDatabase(session.database.file.examinedAnew()), limits: limits)
        self.session.withLock { $0 = next }
        return next
    }

    /// A tile by pages that are in memory: SQLite's own, and the system's.
    package func tileNow(z: Int, x: Int, y: Int) -> ArchiveGlance {
        guard (0...28).contains(z), (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y) else { return .absent }
        let session = session.withLock { $0 }
        return switch session.lookNow(z, x, row(z, y, session)) {
        case .bytes(let data): .tile(tile(data))
        case .absent: .absent
        case .mustWait: .mustWait
        }
    }

    package func tile(z: Int, x: Int, y: Int) throws -> ArchivedTile? {
        switch tileNow(z: z, x: x, y: y) {
        case .tile(let tile): return tile
        case .absent: return nil
        case .mustWait: break
        }
        for isLast in [false, true] {
            let session = try current()
            try session.prepareCached()
            let found = try session.look(z, x, row(z, y, session))
            // A writer that asks for SQLite's locks may write all the time, and is no reason to give up.
            if session.database.isUnchanged || isLast && !session.database.isImmutable { return found.map { tile($0) } }
        }
        throw ArchiveError(.busy, "\(path) is being written over: try again when that is done")
    }

    private func tile(_ data: Data) -> ArchivedTile {
        let content = TileContent(of: data, format: metadata.tileFormat)
        return ArchivedTile(data: data, mediaType: content.mediaType, contentEncoding: content.contentEncoding)
    }

    package func forEachTile(_ body: (ArchiveStep) throws -> Bool) throws {
        try forEachTile(unless: { false }, body)
    }

    package func forEachTile(unless isStopped: () -> Bool, _ body: (ArchiveStep) throws -> Bool) throws {
        // A connection of its own: the body may look up tiles meanwhile.
        let session = try current()
        let database = session.database
        let queue = try database.open()
        try withoutActuallyEscaping(isStopped) { isStopped in
            let meter = QueryMeter(steps: limits.stepsBetweenRows, isStopped: isStopped)
            do {
                // One transaction, so that a writer's changes are seen all or not at all.
                try queue.read { db in
                    try meter.watch(db) {
                        let rows = try Row.fetchCursor(db, sql: session.shape.scanSQL)
                        while let row = try rows.next() {
                            meter.restart()
                            guard try body(step(row, session)) else { return }
                        }
                    }
                }
            } catch let error as DatabaseError where error.resultCode == .SQLITE_INTERRUPT {
                guard meter.wasStopped else {
                    throw ArchiveError(
                        .unsupported,
                        "\(path): its view 'tiles' computes for too long without giving a tile: it may have no end")
                }
            } catch let error as DatabaseError { throw ArchiveError(error, path) }
        }
        try database.checkUnchanged()
    }

    private func step(_ row: Row, _ session: MBTilesSession) -> ArchiveStep {
        let (zoom, column, line) = (Self.integer(row[0]), Self.integer(row[1]), Self.integer(row[2]))
        func skipped(_ why: String) -> ArchiveStep {
            let place = (0..<3).map { i -> String in
                let value: DatabaseValue = row[i]
                return String("\(value)".prefix(40))
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
                z: zoom, x: column, y: self.row(zoom, line, session), scale: 1, fileExtension: nil,
                tile(data))
        case .unusable(let why): return skipped(why)
        }
    }

    private enum Content {
        case bytes(Data)
        case unusable(String)
    }

    private static func content(_ value: DatabaseValue, _ length: @autoclosure () -> DatabaseValue) -> Content {
        switch value.storage {
        case .blob(let data): return data.isEmpty ? .unusable("it is empty") : .bytes(data)
        default: break
        }
        switch length().storage {
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
#endif
