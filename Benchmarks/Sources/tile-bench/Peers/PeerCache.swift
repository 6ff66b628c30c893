import Foundation
import TileStore

/// The stores that are measured beside ours.
enum Peer: String, CaseIterable {
    case sqlite
    case lmdb

    /// Its name in the table.
    var title: String {
        switch self {
        case .sqlite: "SQLite"
        case .lmdb: "LMDB"
        }
    }

    /// Those that this program was built with.
    static var installed: [Peer] {
        #if canImport(CLMDB)
        allCases
        #else
        [.sqlite]
        #endif
    }

    /// Opens a cache of its kind; makes it if it is missing.
    func open(at path: String) throws -> any PeerCache {
        switch self {
        case .sqlite: return try SQLiteCache(at: path)
        case .lmdb:
            #if canImport(CLMDB)
            return try LMDBCache(at: path)
            #else
            throw BenchError("this program was built without LMDB")
            #endif
        }
    }
}

/// A tile cache as one would build it on another store: each distinct content once, validators, expiry, last use.
protocol PeerCache {
    /// Reads a tile; records no use, as a write for every read would be no match.
    func read(_ key: TileKey) throws -> Data?
    /// Puts one tile in a transaction of its own.
    func put(_ tile: TilePut, use: Int) throws
    /// Puts tiles in one transaction.
    func put(_ tiles: ArraySlice<TilePut>, use: Int) throws
    /// Drops the least recently used entries and the contents that nothing names any more, in one transaction.
    func evict(entries: Int) throws
    /// How many entries there are.
    func count() throws -> Int
    /// Brings everything into its main file.
    func checkpoint() throws
    /// Closes its files.
    func close() throws
}
