package import CacheEngine
import HTTPCaching
package import TileArchive
package import TileCache
import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// One version of a PMTiles archive at a server: what its beginning says, and those of its directories that were needed so far.
///
/// It never changes but for the directories that it remembers. Everything that is asked for with it is of this version.
package final class ArchiveVersion: Sendable {
    /// A leaf directory: where it lies, and the tiles that may occur in it.
    package struct Leaf: Sendable {
        fileprivate let entry: PMTilesEntry
        fileprivate let tiles: Range<UInt64>
        fileprivate let section: PMTilesHeader.Section

        /// What no other leaf of the version has.
        package var number: UInt64 { entry.offset }
        /// Which bytes of the file it is.
        package var bytes: Range<Int64> { section.bytes }
    }

    /// Where a tile is.
    package enum Place: Sendable {
        /// There is no such tile.
        case absent
        /// It is these bytes of the file.
        case tile(Range<Int64>)
        /// A directory has to be read first.
        case leaf(Leaf)
        /// The directories make no sense.
        case damaged(String)
    }

    /// The beginning of a file that is asked for: header and root directory, by the format's own rule.
    package static let startLength: Int64 = 16_384

    /// What tells it from all other versions.
    package let id: String
    /// The same, as the server tells it.
    package let file: FileVersion
    /// What its tiles are.
    package let kind: TileKind
    private let layout: PMTilesLayout
    private let root: PMTilesDirectory
    private let leaves = Locked(LeafCache())

    /// Reads the beginning of a file.
    ///
    /// - Throws: ``ArchiveError``.
    package init(_ start: Data, id: String, file: FileVersion, of name: String) throws {
        (self.id, self.file) = (id, file)
        layout = try Self.layout(start, length: file.length, name)
        root = try Self.root(layout, start)
        // Of pictures any will do: many archives of aerial pictures have PNG at the coast and JPEG elsewhere.
        switch layout.tileFormat {
        case "pbf": kind = .vector
        case .some: kind = .image
        case nil: kind = .any
        }
    }

    private static func layout(_ start: Data, length: Int64, _ name: String) throws -> PMTilesLayout {
        let layout = PMTilesLayout(
            try PMTilesHeader(start.prefix(PMTilesHeader.length), path: "the archive of \(name)"),
            path: "the archive of \(name)")
        try layout.check(size: UInt64(length))
        return layout
    }

    private static func root(_ layout: PMTilesLayout, _ start: Data) throws -> PMTilesDirectory {
        try layout.directory(layout.header.root, tiles: 0..<TileID.formatEnd, name: "the root directory") { section in
            let count = UInt64(start.count)
            guard section.offset <= count, section.length <= count - section.offset else {
                throw ArchiveError(
                    .damaged,
                    "\(layout.path): its root directory does not lie within the first \(startLength) bytes")
            }
            return Data(start.dropFirst(Int(section.offset)).prefix(Int(section.length)))
        }
    }

    /// What is wrong with the beginning of a file of some length; `nil` if it is that of an archive.
    package static func objection(toStart start: Data, length: Int64, of name: String) -> String? {
        do {
            _ = try root(layout(start, length: length, name), start)
            return nil
        } catch { return "\(error)" }
    }

    /// Where a tile is, by the directories that are known.
    package func place(of tile: TileAddress) -> Place {
        let number = TileID.number(z: tile.z, x: tile.x, y: tile.y)
        var (directory, tiles) = (root, 0..<TileID.formatEnd)
        do {
            for _ in 0..<PMTilesLayout.mostLevels {
                switch directory.place(of: number, in: tiles) {
                case .absent: return .absent
                case .tile(let entry): return .tile(try layout.section(of: entry).bytes)
                case .leaf(let entry, let below):
                    guard let known = leaves.withLock({ $0.find(entry.offset, below) }) else {
                        return .leaf(Leaf(entry: entry, tiles: below, section: try layout.section(of: entry)))
                    }
                    (directory, tiles) = (known, below)
                }
            }
            return .damaged("\(layout.tooDeep)")
        } catch { return .damaged("\(error)") }
    }

    /// Why a leaf is not asked for; `nil` if it may be.
    package func objection(to leaf: Leaf) -> String? {
        leaf.section.length <= UInt64(PMTilesDirectory.mostBytes)
            ? nil : "a directory of \(leaf.section.length) bytes, which is more than a directory may have"
    }

    /// What is wrong with the bytes of a leaf; `nil` if they are one.
    package func objection(to bytes: Data, as leaf: Leaf) -> String? {
        do {
            _ = try directory(bytes, leaf)
            return nil
        } catch { return "\(error)" }
    }

    /// Remembers a leaf.
    ///
    /// - Throws: ``ArchiveError``.
    package func take(_ bytes: Data, as leaf: Leaf) throws {
        let directory = try directory(bytes, leaf)
        leaves.withLock { $0.insert(directory, leaf.entry.offset, leaf.tiles) }
    }

    private func directory(_ bytes: Data, _ leaf: Leaf) throws -> PMTilesDirectory {
        try layout.directory(leaf.section, tiles: leaf.tiles, name: "the leaf directory for tile \(leaf.entry.tile)") {
            _ in bytes
        }
    }

    /// What a tile's bytes are.
    package func content(of tile: Data) -> (type: String?, coding: String?) {
        let tile = layout.tile(tile, format: layout.tileFormat)
        return (tile.mediaType, tile.contentEncoding)
    }

    /// Where the metadata lies; `nil` if there is none, or more than is read.
    package var metadataBytes: Range<Int64>? {
        let section = layout.header.metadata
        return section.length > 0 && section.length <= UInt64(PMTilesLayout.mostMetadata) ? section.bytes : nil
    }

    /// What the archive says of itself.
    ///
    /// - Parameter section: Its section of metadata, if it was read.
    package func metadata(_ section: Data?) -> ArchiveMetadata {
        var warnings: [String] = []
        return layout.metadata(&warnings) { _ in section ?? Data() }
    }
}

extension PMTilesHeader.Section {
    /// As a range of the file, within which it was checked to lie.
    fileprivate var bytes: Range<Int64> {
        let start = Int64(clamping: offset)
        let (end, overflow) = start.addingReportingOverflow(Int64(clamping: length))
        return start..<(overflow ? .max : end)
    }
}
