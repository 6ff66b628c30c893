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
    /// Directories nest at most so deep; the format's own readers go no further.
    private static let mostLevels = 4
    private static let mostMetadata = 4 << 20

    package let path: String
    package let metadata: ArchiveMetadata
    package let warnings: [String]
    let header: PMTilesHeader
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
        header = try PMTilesHeader(start, path: path)
        try Self.check(header, file)
        root = try Self.directory(
            header.root, in: header, file, tiles: 0..<TileID.formatEnd, name: "the root directory")
        var warnings: [String] = []
        metadata = try Self.metadata(header, file, &warnings)
        if header.hasTextVersion {
            warnings.append("\(path): its version is the character \"3\" instead of the number 3; read all the same")
        }
        self.warnings = warnings
        leaves = Locked(LeafCache())
    }

    package var format: ArchiveFormat { .pmtiles }
    package var modified: Int64? { file.modified }
    package var tileCount: Int? { header.addressedTiles > 0 ? Int(exactly: header.addressedTiles) : nil }

    private static func check(_ header: PMTilesHeader, _ file: InputFile) throws {
        let sections = [
            ("root directory", header.root), ("metadata", header.metadata), ("leaf directories", header.leaves),
            ("tile data", header.data),
        ]
        for (name, section) in sections where section.length > 0 {
            guard let end = section.offset.adding(section.length), end <= file.size else {
                throw ArchiveError(
                    .damaged,
                    "\(file.path): the \(name) should be \(section.length) bytes at \(section.offset), but the file ends "
                        + "at \(file.size): it is cut short or its header is damaged")
            }
        }
        guard header.root.length > 0 else {
            throw ArchiveError(.damaged, "\(file.path): its header says that there is no root directory")
        }
    }

    private static func metadata(
        _ header: PMTilesHeader, _ file: InputFile, _ warnings: inout [String]
    ) throws -> ArchiveMetadata {
        var metadata = ArchiveMetadata()
        if header.metadata.length > 0 {
            // Without its metadata an archive still has all its tiles.
            if let bytes = try unpacked(header.metadata, header, file, limit: mostMetadata, "the metadata"),
                let members = JSON(bytes)?.members
            {
                let leftOut = metadata.take(members)
                if leftOut > 0 {
                    warnings.append(
                        "\(file.path): \(leftOut) names of its metadata are not kept: they are more than "
                            + "\(ArchiveMetadata.mostOthers)")
                }
            } else {
                warnings.append("\(file.path): its metadata is no JSON, or too large, and is not used")
            }
        }
        metadata.tileFormat = ["pbf", "png", "jpg", "webp", "avif"].at(Int(header.tileType) - 1) ?? metadata.tileFormat
        if header.minZoom <= header.maxZoom, header.maxZoom <= 31 {
            metadata.zooms = Int(header.minZoom)...Int(header.maxZoom)
        }
        let edges = [header.bounds.west, header.bounds.south, header.bounds.east, header.bounds.north]
        if edges.contains(where: { $0 != 0 }) {
            metadata.bounds = ArchiveMetadata.box(edges.map { Double($0) / 1e7 })
        }
        let center = (Double(header.center.longitude) / 1e7, Double(header.center.latitude) / 1e7)
        if metadata.bounds != nil, abs(center.0) <= 180, abs(center.1) <= 90, header.centerZoom <= 31 {
            metadata.center = .init(longitude: center.0, latitude: center.1, zoom: Int(header.centerZoom))
        }
        return metadata
    }

    // MARK: Directories

    /// A section's bytes without their compression; `nil` if they are no sound gzip or too large.
    private static func unpacked(
        _ section: PMTilesHeader.Section, _ header: PMTilesHeader, _ file: InputFile, limit: Int,
        _ name: @autoclosure () -> String
    ) throws -> Data? {
        guard section.length <= UInt64(limit) else { return nil }
        let bytes = try file.read(Int(section.length), at: section.offset, name())
        return header.internalCompression == .gzip ? Gzip.decode(bytes, limit: limit) : bytes
    }

    private static func directory(
        _ section: PMTilesHeader.Section, in header: PMTilesHeader, _ file: InputFile, tiles: Range<UInt64>,
        name: @autoclosure () -> String
    ) throws -> PMTilesDirectory {
        guard
            let bytes = try unpacked(
                section, header, file, limit: PMTilesDirectory.mostBytes, name())
        else {
            throw ArchiveError(
                .damaged,
                "\(file.path): \(name()) at \(section.offset) is no sound gzip, or larger than "
                    + "\(PMTilesDirectory.mostBytes >> 20) MiB")
        }
        return try PMTilesDirectory(
            bytes, tiles: tiles, dataLength: header.data.length, leavesLength: header.leaves.length,
            name: "\(file.path): \(name()) at \(section.offset)")
    }

    /// Reads a leaf: its tiles must lie in its entry's range, so that no leaf can lead back to an earlier one.
    private func leaf(_ entry: PMTilesEntry, tiles: Range<UInt64>) throws -> PMTilesDirectory {
        guard let offset = header.leaves.offset.adding(entry.offset) else {
            throw ArchiveError(.damaged, "\(path): a leaf directory lies outside of the file")
        }
        return try Self.directory(
            .init(offset: offset, length: UInt64(entry.length)), in: header, file, tiles: tiles,
            name: "the leaf directory for tile \(entry.tile)")
    }

    /// A leaf from memory, else from the file.
    private func cachedLeaf(_ entry: PMTilesEntry, tiles: Range<UInt64>) throws -> PMTilesDirectory {
        if let known = leaves.withLock({ $0.find(entry.offset, tiles) }) { return known }
        let read = try leaf(entry, tiles: tiles)
        leaves.withLock { $0.insert(read, entry.offset, tiles) }
        return read
    }

    /// The tiles of an entry's directory: up to the next entry.
    private func range(of index: Int, in directory: PMTilesDirectory, _ tiles: Range<UInt64>) -> Range<UInt64> {
        let entries = directory.entries
        return entries[index].tile..<(index + 1 < entries.count ? entries[index + 1].tile : tiles.upperBound)
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
        for _ in 0..<Self.mostLevels {
            guard let index = directory.index(for: tile) else { return nil }
            let entry = directory.entries[index]
            if entry.run > 0 {
                guard entry.length <= Self.largestTile else { return nil }
                return content(try bytes(of: entry, at: tile))
            }
            tiles = range(of: index, in: directory, tiles)
            directory = try cachedLeaf(entry, tiles: tiles)
        }
        throw tooDeep
    }

    /// A tile from the page cache, by directories that are in memory.
    package func tileNow(z: Int, x: Int, y: Int) throws -> ArchiveGlance {
        guard (0...28).contains(z), (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y) else { return .absent }
        let tile = TileID.number(z: z, x: x, y: y)
        var directory = root
        var tiles: Range<UInt64> = 0..<TileID.formatEnd
        for _ in 0..<Self.mostLevels {
            guard let index = directory.index(for: tile) else {
                try file.checkUnchanged()
                return .absent
            }
            let entry = directory.entries[index]
            if entry.run > 0 {
                // A large one takes its time even from memory.
                guard entry.length <= 256 << 10, let offset = header.data.offset.adding(entry.offset),
                    let data = file.readNow(Int(entry.length), at: offset)
                else { return .mustWait }
                try file.checkUnchanged()
                return .tile(content(data))
            }
            tiles = range(of: index, in: directory, tiles)
            guard let leaf = leaves.withLock({ $0.find(entry.offset, tiles) }) else { return .mustWait }
            directory = leaf
        }
        return .mustWait
    }

    private var tooDeep: ArchiveError {
        ArchiveError(.damaged, "\(path): its directories are nested more than \(Self.mostLevels) deep")
    }

    private func bytes(of entry: PMTilesEntry, at tile: UInt64) throws -> Data {
        guard let offset = header.data.offset.adding(entry.offset) else {
            throw ArchiveError(.damaged, "\(path): tile \(tile) lies outside of the file")
        }
        return try file.read(Int(entry.length), at: offset, "tile \(tile)")
    }

    private func content(_ data: Data) -> ArchivedTile {
        let content = TileContent(of: data, format: metadata.tileFormat)
        // Only for these two the bytes show nothing that the header does not say.
        let claimed: String? =
            switch PMTilesCompression(rawValue: header.tileCompression) {
            case .brotli?: "br"
            case .zstd?: "zstd"
            default: nil
            }
        return ArchivedTile(
            data: data, mediaType: content.mediaType, contentEncoding: content.contentEncoding ?? claimed)
    }

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
                guard level + 1 < Self.mostLevels else { throw tooDeep }
                let tiles = range(of: index, in: directory, tiles)
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
                guard level + 1 < Self.mostLevels else { throw tooDeep }
                let tiles = range(of: index, in: directory, tiles)
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

/// Leaf directories in memory, at most so many entries together; the least recently used go.
private struct LeafCache {
    private struct Slot {
        var directory: PMTilesDirectory
        var tiles: Range<UInt64>
        var use: UInt64
    }
    private var slots: [UInt64: Slot] = [:]
    private var entries = 0
    private var clock: UInt64 = 0
    /// 12 MiB of entries.
    private static let mostEntries = 512 << 10

    mutating func find(_ offset: UInt64, _ tiles: Range<UInt64>) -> PMTilesDirectory? {
        guard let slot = slots[offset], slot.tiles == tiles else { return nil }
        clock += 1
        slots[offset]?.use = clock
        return slot.directory
    }

    mutating func insert(_ directory: PMTilesDirectory, _ offset: UInt64, _ tiles: Range<UInt64>) {
        clock += 1
        if let old = slots.removeValue(forKey: offset) { entries -= old.directory.entries.count }
        while entries + directory.entries.count > Self.mostEntries,
            let oldest = slots.min(by: { $0.value.use < $1.value.use })
        {
            entries -= oldest.value.directory.entries.count
            slots.removeValue(forKey: oldest.key)
        }
        entries += directory.entries.count
        slots[offset] = Slot(directory: directory, tiles: tiles, use: clock)
    }
}

extension Array {
    /// An element; `nil` outside.
    fileprivate func at(_ index: Int) -> Element? { indices.contains(index) ? self[index] : nil }
}
