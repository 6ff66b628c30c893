import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Writes a package: contents once, then tiles that name them, in the order of ``TileID``.
///
/// The file appears under its name when ``finish(_:)`` returns; a writer that goes before leaves nothing.
package protocol ArchiveWriter: AnyObject {
    /// Writes a content and returns the number to name it by.
    func add(_ data: Data) throws -> UInt64

    /// Gives a tile its content; tiles come in ascending order, each once.
    func place(_ tile: UInt64, content: UInt64, length: Int) throws

    /// Writes what describes the package, and gives the file its name.
    func finish(_ summary: ArchiveSummary) throws
}

/// What a package is said to be, once all its tiles are known.
package struct ArchiveSummary {
    /// With zooms, bounds and format as they are.
    package var metadata: ArchiveMetadata
    /// What every tile is compressed with, for a package that says so once for all.
    package var compression: PMTilesCompression

    package init(metadata: ArchiveMetadata, compression: PMTilesCompression = .none) {
        self.metadata = metadata
        self.compression = compression
    }

    /// Fills in the fields of a PMTiles header that describe the map.
    package func describe(_ header: inout PMTilesHeader) {
        let types: [String: UInt8] = ["pbf": 1, "png": 2, "jpg": 3, "webp": 4, "avif": 5]
        header.tileType = metadata.tileFormat.flatMap { types[$0] } ?? 0
        header.tileCompression = compression.rawValue
        if let zooms = metadata.zooms {
            header.minZoom = UInt8(clamping: zooms.lowerBound)
            header.maxZoom = UInt8(clamping: zooms.upperBound)
        }
        func scaled(_ degrees: Double) -> Int32 { Int32(clamping: Int((degrees * 1e7).rounded())) }
        if let box = metadata.bounds {
            header.bounds = (scaled(box.west), scaled(box.south), scaled(box.east), scaled(box.north))
        }
        if let center = metadata.center {
            header.center = (scaled(center.longitude), scaled(center.latitude))
            header.centerZoom = UInt8(clamping: center.zoom)
        }
    }
}
