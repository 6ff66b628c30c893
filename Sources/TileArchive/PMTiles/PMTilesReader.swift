import ContentCoding
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reads PMTiles, version 3.
///
/// A look-up costs one read of the file once its directory is known; directories are kept up to a bound.
package final class PMTilesReader: GlancingReader, CountingReader {
    /// The largest tile that is read.
    package static let largestTile = 32 << 20

    package let path: String
    package let metadata: ArchiveMetadata
    package let warnings: [String]
    private let layout: PMTilesLayout
    var header: PMTilesHeader { layout.header }
    private let file: InputFile
    private let root: PMTilesDirectory
    private let leaves: Locked<LeafCache>

    /// Opens a file and reads its header, root directory and metadata.
    ///
    /// - Throws: ``ArchiveError``.
    package init(_ path: String) throws {
        self.path = path
        file = try InputFile(path)
        let start = try file.read(Int(clamping: min(file.size, UInt64(PMTilesHeader.length))), at: 0, "the header")
        layout = PMTilesLayout(try PMTilesHeader(start, path: path), path: path)
        try layout.check(size: file.size)
        let file = file
        root = try layout.directory(layout.header.root, tiles: 0..<TileID.formatEnd, name: "the root directory") {
            try file.read(Int(clamping: $0.length), at: $0.offset, "the root directory")
        }
        var warnings: [String] = []
        metadata = try layout.metadata(&warnings) {
            try file.read(Int(clamping: $0.length), at: $0.offset, "the metadata")
        }
        self.warnings = warnings
        leaves = Locked(LeafCache())
    }

    package var format: ArchiveFormat { .pmtiles }
    package var modified: Int64? { file.modified }
    package var tileCount: Int? { header.addressedTiles > 0 ? Int(exactly: header.addressedTiles) : nil }

    // MARK: Directories

    /// Reads a leaf: its tiles must lie in its entry's range, so that no leaf can lead back to an earlier one.
    private func leaf(_ entry: PMTilesEntry, tiles: Range<UInt64>) throws -> PMTilesDirectory {
        let name = "the leaf directory for tile \(entry.tile)"
        return try layout.directory(layout.section(of: entry), tiles: tiles, name: name) {
            try file.read(Int(clamping: $0.length), at: $0.offset, name)
        }
    }

    /// A leaf from memory, else from the file.
    private func cachedLeaf(_ entry: PMTilesEntry, tiles: Range<UInt64>) throws -> PMTilesDirectory {
        if let known = leaves.withLock({ $0.find(entry.offset, tiles) }) { return known }
        let read = try leaf(entry, tiles: tiles)
        leaves.withLock { $0.insert(read, entry.offset, tiles) }
        return read
    }

    // MARK: Tiles

    package func tile(z: Int, x: Int, y: Int) throws -> ArchivedTile? {
        guard (0...28).contains(z), (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y) else { return nil }
        // An archive may be open for months, its directories in memory: looked at last, and where the bytes make no sense.
        let found: ArchivedTile?
        do { found = try look(z: z, x: x, y: y) } catch {
            try file.checkUnchanged()
            throw error
        }
        try file.checkUnchanged()
        return found
    }

    private func look(z: Int, x: Int, y: Int) throws -> ArchivedTile? {
        let tile = TileID.number(z: z, x: x, y: y)
        var directory = root
        var tiles: Range<UInt64> = 0..<TileID.formatEnd
        for _ in 0..<PMTilesLayout.mostLevels {
            switch directory.place(of: tile, in: tiles) {
            case .absent: return nil
            case .tile(let entry):
                guard entry.length <= Self.largestTile else { return nil }
                return content(try bytes(of: entry, at: tile))
            case .leaf(let entry, let range):
                tiles = range
                directory = try cachedLeaf(entry, tiles: range)
            }
        }
        throw tooDeep
    }

    /// A tile from the page cache, by directories that are in memory.
    package func tileNow(z: Int, x: Int, y: Int) throws -> ArchiveGlance {
        guard (0...28).contains(z), (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y) else { return .absent }
        let tile = TileID.number(z: z, x: x, y: y)
        var directory = root
        var tiles: Range<UInt64> = 0..<TileID.formatEnd
        for _ in 0..<PMTilesLayout.mostLevels {
            switch directory.place(of: tile, in: tiles) {
            case .absent:
                try file.checkUnchanged()
                return .absent
            case .tile(let entry):
                // A large one takes its time even from memory.
                guard entry.length <= 256 << 10,
                    let data = file.readNow(Int(entry.length), at: try layout.section(of: entry).offset)
                else { return .mustWait }
                try file.checkUnchanged()
                return .tile(content(data))
            case .leaf(let entry, let range):
                guard let leaf = leaves.withLock({ $0.find(entry.offset, range) }) else { return .mustWait }
                (directory, tiles) = (leaf, range)
            }
        }
        return .mustWait
    }

    private var tooDeep: ArchiveError { layout.tooDeep }

    private func bytes(of entry: PMTilesEntry, at tile: UInt64) throws -> Data {
        try file.read(Int(entry.length), at: try layout.section(of: entry).offset, "tile \(tile)")
    }

    private func content(_ data: Data) -> ArchivedTile { layout.tile(data, format: metadata.tileFormat) }

    package func forEachTile(_ body: (ArchiveStep) throws -> Bool) throws {
        _ = try visit(root, tiles: 0..<TileID.formatEnd, level: 0, body)
    }

    /// Counts tiles in the directories alone: one entry of a few bytes may stand for billions.
    package func hasMoreTiles(than most: Int) -> Bool {
        do { return try count(root, tiles: 0..<TileID.formatEnd, level: 0, below: UInt64(max(0, most))) == nil } catch {
            // The tiles before the damage can be read all the same.
            return false
        }
    }

    package func tileCount(atMost most: Int) throws -> Int? {
        try count(root, tiles: 0..<TileID.formatEnd, level: 0, below: UInt64(max(0, most))).map { Int($0) }
    }

    /// How many tiles a directory and those below it have; `nil` if they are more than that.
    private func count(
        _ directory: PMTilesDirectory, tiles: Range<UInt64>, level: Int, below most: UInt64
    ) throws -> UInt64? {
        var sum: UInt64 = 0
        for (index, entry) in directory.entries.enumerated() {
            if entry.run == 0 {
                guard level + 1 < PMTilesLayout.mostLevels else { throw tooDeep }
                let tiles = directory.range(of: index, in: tiles)
                guard let more = try count(leaf(entry, tiles: tiles), tiles: tiles, level: level + 1, below: most - sum)
                else { return nil }
                sum += more
            } else if entry.tile < TileID.end {
                sum += min(entry.end, TileID.end) - entry.tile
            }
            if sum > most { return nil }
        }
        return sum
    }

    /// Visits a directory and those below it; `false` once the body wants no more.
    private func visit(
        _ directory: PMTilesDirectory, tiles: Range<UInt64>, level: Int, _ body: (ArchiveStep) throws -> Bool
    ) throws -> Bool {
        for (index, entry) in directory.entries.enumerated() {
            if entry.run == 0 {
                guard level + 1 < PMTilesLayout.mostLevels else { throw tooDeep }
                let tiles = directory.range(of: index, in: tiles)
                let leaf = try leaf(entry, tiles: tiles)
                guard try visit(leaf, tiles: tiles, level: level + 1, body) else { return false }
            } else {
                guard try visit(entry, body) else { return false }
            }
        }
        return true
    }

    private func visit(_ entry: PMTilesEntry, _ body: (ArchiveStep) throws -> Bool) throws -> Bool {
        if entry.end > TileID.end {
            let beyond = entry.end - max(entry.tile, TileID.end)
            let step = ArchiveStep.skipped(
                what: "\(path): tile \(max(entry.tile, TileID.end))", why: "its zoom is above 28",
                count: Int(clamping: beyond))
            guard try body(step) else { return false }
        }
        guard entry.tile < TileID.end else { return true }
        guard entry.length <= Self.largestTile else {
            return try body(
                .skipped(
                    what: "\(path): tile \(entry.tile)", why: "it has \(entry.length) bytes, which is no tile",
                    count: Int(entry.run)))
        }
        // One reading for the whole run.
        let tile = content(try bytes(of: entry, at: entry.tile))
        for number in entry.tile..<min(entry.end, TileID.end) {
            guard let place = TileID.tile(number) else { break }
            let step = ArchiveStep.tile(
                z: place.z, x: place.x, y: place.y, scale: 1, fileExtension: nil, tile)
            guard try body(step) else { return false }
        }
        return true
    }
}
