import ContentCoding

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// How the parts of a PMTiles file are read, wherever their bytes come from: a file of this machine, or a server.
///
/// All bounds are here: a part is refused before its bytes are asked for where its length alone is too much.
package struct PMTilesLayout: Sendable {
    /// Directories nest at most so deep; the format's own readers go no further.
    package static let mostLevels = 4
    /// More bytes of metadata than that are not used, whatever they expand to.
    package static let mostMetadata = 4 << 20

    package let header: PMTilesHeader
    /// What messages call the file.
    package let path: String

    package init(_ header: PMTilesHeader, path: String) {
        (self.header, self.path) = (header, path)
    }

    /// Checks that all sections lie within the file.
    ///
    /// - Throws: ``ArchiveError``.
    package func check(size: UInt64) throws {
        let sections = [
            ("root directory", header.root), ("metadata", header.metadata), ("leaf directories", header.leaves),
            ("tile data", header.data),
        ]
        for (name, section) in sections where section.length > 0 {
            guard let end = section.offset.adding(section.length), end <= size else {
                throw ArchiveError(
                    .damaged,
                    "\(path): the \(name) should be \(section.length) bytes at \(section.offset), but the file ends "
                        + "at \(size): it is cut short or its header is damaged")
            }
        }
        guard header.root.length > 0 else {
            throw ArchiveError(.damaged, "\(path): its header says that there is no root directory")
        }
    }

    /// What the file says of its map.
    ///
    /// - Parameters:
    ///   - warnings: Takes what a user should know.
    ///   - bytes: Reads the section of metadata; called only if it is there and not too long.
    package func metadata(
        _ warnings: inout [String], bytes: (PMTilesHeader.Section) throws -> Data
    ) rethrows -> ArchiveMetadata {
        var metadata = ArchiveMetadata()
        if header.metadata.length > 0 {
            // Without its metadata an archive still has all its tiles.
            if let bytes = try unpacked(header.metadata, limit: Self.mostMetadata, bytes),
                let members = JSON(bytes)?.members
            {
                let leftOut = metadata.take(members)
                if leftOut > 0 {
                    warnings.append(
                        "\(path): \(leftOut) names of its metadata are not kept: they are more than "
                            + "\(ArchiveMetadata.mostOthers)")
                }
            } else {
                warnings.append("\(path): its metadata is no JSON, or too large, and is not used")
            }
        }
        metadata.tileFormat = tileFormat ?? metadata.tileFormat
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
        if header.hasTextVersion {
            warnings.append("\(path): its version is the character \"3\" instead of the number 3; read all the same")
        }
        return metadata
    }

    /// The format of its tiles as the header says it; `nil` where it does not.
    package var tileFormat: String? {
        let formats = ["pbf", "png", "jpg", "webp", "avif"]
        return (1...formats.count).contains(Int(header.tileType)) ? formats[Int(header.tileType) - 1] : nil
    }

    /// A section's bytes without their compression; `nil` if they are no sound gzip or too large.
    private func unpacked(
        _ section: PMTilesHeader.Section, limit: Int, _ bytes: (PMTilesHeader.Section) throws -> Data
    ) rethrows -> Data? {
        guard section.length <= UInt64(limit) else { return nil }
        let packed = try bytes(section)
        if header.internalCompression == .gzip { return Gzip.decode(packed, limit: limit) }
        return packed.count <= limit ? packed : nil
    }

    /// Reads a directory.
    ///
    /// - Parameters:
    ///   - tiles: Those that may occur in it: so no leaf can lead back to an earlier one.
    ///   - name: What messages call it.
    ///   - bytes: Reads the section; called only if it is not too long.
    /// - Throws: ``ArchiveError``, and what the closure throws.
    package func directory(
        _ section: PMTilesHeader.Section, tiles: Range<UInt64>, name: @autoclosure () -> String,
        bytes: (PMTilesHeader.Section) throws -> Data
    ) throws -> PMTilesDirectory {
        guard let bytes = try unpacked(section, limit: PMTilesDirectory.mostBytes, bytes) else {
            throw ArchiveError(
                .damaged,
                "\(path): \(name()) at \(section.offset) is no sound gzip, or larger than "
                    + "\(PMTilesDirectory.mostBytes >> 20) MiB")
        }
        return try PMTilesDirectory(
            bytes, tiles: tiles, dataLength: header.data.length, leavesLength: header.leaves.length,
            name: "\(path): \(name()) at \(section.offset)")
    }

    /// Where the bytes of an entry lie: a tile's, or a leaf directory's.
    ///
    /// - Throws: ``ArchiveError`` if no file can be so long.
    package func section(of entry: PMTilesEntry) throws -> PMTilesHeader.Section {
        let (base, what) = entry.run == 0 ? (header.leaves, "leaf directory for tile") : (header.data, "tile")
        guard let offset = base.offset.adding(entry.offset) else {
            throw ArchiveError(.damaged, "\(path): the \(what) \(entry.tile) lies outside of the file")
        }
        return PMTilesHeader.Section(offset: offset, length: UInt64(entry.length))
    }

    /// A tile's bytes with what they are.
    ///
    /// - Parameter format: The format that the archive claims.
    package func tile(_ data: Data, format: String?) -> ArchivedTile {
        let content = TileContent(of: data, format: format)
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

    package var tooDeep: ArchiveError {
        ArchiveError(.damaged, "\(path): its directories are nested more than \(Self.mostLevels) deep")
    }
}

extension PMTilesDirectory {
    /// Where the way to a tile leads on.
    package enum Place {
        case absent
        case tile(PMTilesEntry)
        /// To a directory that may have it, and the tiles that may occur in that.
        case leaf(PMTilesEntry, tiles: Range<UInt64>)
    }

    /// Where the way to a tile leads on from here.
    ///
    /// - Parameter tiles: Those that may occur in this directory.
    package func place(of tile: UInt64, in tiles: Range<UInt64>) -> Place {
        guard let index = index(for: tile) else { return .absent }
        let entry = entries[index]
        return entry.run > 0 ? .tile(entry) : .leaf(entry, tiles: range(of: index, in: tiles))
    }

    /// The tiles of an entry's directory: up to the next entry.
    package func range(of index: Int, in tiles: Range<UInt64>) -> Range<UInt64> {
        entries[index].tile..<(index + 1 < entries.count ? entries[index + 1].tile : tiles.upperBound)
    }
}
