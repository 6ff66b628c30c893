#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// How bytes in a PMTiles file are compressed.
package enum PMTilesCompression: UInt8 {
    case unknown = 0
    case none, gzip, brotli, zstd
}

/// The first 127 bytes of a PMTiles file.
///
/// https://github.com/protomaps/PMTiles/blob/main/spec/v3/spec.md, "Header Design".
package struct PMTilesHeader: Equatable, Sendable {
    package static let length = 127
    /// Header and root directory fit into the first 16 KiB, so that one request gets both.
    package static let longestRoot = 16_384 - length

    /// Where a section of the file lies.
    package struct Section: Equatable, Sendable {
        package var offset: UInt64
        package var length: UInt64

        package init(offset: UInt64 = 0, length: UInt64 = 0) {
            self.offset = offset
            self.length = length
        }
    }

    package var root = Section()
    package var metadata = Section()
    package var leaves = Section()
    package var data = Section()
    /// Tiles; 0 if not known.
    package var addressedTiles: UInt64 = 0
    /// Entries of all directories that are tiles; 0 if not known.
    package var entries: UInt64 = 0
    /// Different contents; 0 if not known.
    package var contents: UInt64 = 0
    package var isClustered = false
    package var internalCompression = PMTilesCompression.gzip
    package var tileCompression: UInt8 = 0
    package var tileType: UInt8 = 0
    package var minZoom: UInt8 = 0
    package var maxZoom: UInt8 = 0
    /// West, south, east, north in degrees times ten million.
    package var bounds: (west: Int32, south: Int32, east: Int32, north: Int32) = (0, 0, 0, 0)
    package var centerZoom: UInt8 = 0
    package var center: (longitude: Int32, latitude: Int32) = (0, 0)
    /// Whether the version is written as the character "3", as some early writers did.
    package var hasTextVersion = false

    package init() {}

    /// Reads the first bytes of a file.
    ///
    /// - Throws: ``ArchiveError`` that tells another kind of file from another version, damage and a compression that is
    ///   not read here.
    package init(_ bytes: Data, path: String) throws {
        let bytes = [UInt8](bytes)
        if bytes.starts(with: Array("SQLite format 3\0".utf8)) {
            throw ArchiveError(.notAnArchive, "\(path) is an SQLite file, not PMTiles: is it an .mbtiles?")
        }
        guard bytes.starts(with: Array("PM".utf8)) else {
            throw ArchiveError(.notAnArchive, "\(path) is no PMTiles file: it does not begin with \"PMTiles\"")
        }
        guard bytes.starts(with: Array("PMTiles".utf8)) else {
            guard bytes.count >= 4 else {
                throw ArchiveError(.damaged, "\(path) is cut short: it has \(bytes.count) bytes")
            }
            // Versions 1 and 2 begin with "PM" and a 16-bit number.
            let version = Int(bytes[2]) | Int(bytes[3]) << 8
            if version == 1 || version == 2 {
                throw ArchiveError(
                    .unsupported, "\(path) is PMTiles version \(version); 3 is read here ('pmtiles convert' makes it)")
            }
            throw ArchiveError(.notAnArchive, "\(path) is no PMTiles file: it does not begin with \"PMTiles\"")
        }
        guard bytes.count >= Self.length else {
            throw ArchiveError(
                .damaged, "\(path) is cut short: it has \(bytes.count) bytes, and the header alone has \(Self.length)")
        }
        switch bytes[7] {
        case 3: break
        case UInt8(ascii: "3"): hasTextVersion = true
        case let version:
            throw ArchiveError(.unsupported, "\(path) is PMTiles version \(version); only version 3 is known here")
        }
        func word(_ at: Int) -> UInt64 {
            (0..<8).reduce(0) { $0 | UInt64(bytes[at + $1]) << UInt64(8 * $1) }
        }
        func degrees(_ at: Int) -> Int32 {
            Int32(bitPattern: (0..<4).reduce(0) { $0 | UInt32(bytes[at + $1]) << UInt32(8 * $1) })
        }
        func section(_ at: Int) -> Section { Section(offset: word(at), length: word(at + 8)) }
        root = section(8)
        metadata = section(24)
        leaves = section(40)
        data = section(56)
        addressedTiles = word(72)
        entries = word(80)
        contents = word(88)
        isClustered = bytes[96] == 1
        switch PMTilesCompression(rawValue: bytes[97]) {
        case .unknown?, .none?: internalCompression = .none
        case .gzip?: internalCompression = .gzip
        case .brotli?: throw Self.refusal(path, "brotli")
        case .zstd?: throw Self.refusal(path, "zstd")
        case nil: throw Self.refusal(path, "a method of number \(bytes[97])")
        }
        tileCompression = bytes[98]
        tileType = bytes[99]
        minZoom = bytes[100]
        maxZoom = bytes[101]
        bounds = (degrees(102), degrees(106), degrees(110), degrees(114))
        centerZoom = bytes[118]
        center = (degrees(119), degrees(123))
    }

    private static func refusal(_ path: String, _ method: String) -> ArchiveError {
        ArchiveError(
            .unsupported,
            "\(path): its directories are compressed with \(method); gzip and none are read here ('pmtiles convert' or "
                + "the program that made it can write those)")
    }

    /// The 127 bytes.
    package var bytes: Data {
        var bytes = Data("PMTiles".utf8)
        bytes.append(3)
        func word(_ value: UInt64) { withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) } }
        func degrees(_ value: Int32) { withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) } }
        for section in [root, metadata, leaves, data] {
            word(section.offset)
            word(section.length)
        }
        word(addressedTiles)
        word(entries)
        word(contents)
        bytes.append(contentsOf: [
            isClustered ? 1 : 0, internalCompression.rawValue, tileCompression, tileType, minZoom, maxZoom,
        ])
        degrees(bounds.west)
        degrees(bounds.south)
        degrees(bounds.east)
        degrees(bounds.north)
        bytes.append(centerZoom)
        degrees(center.longitude)
        degrees(center.latitude)
        return bytes
    }

    package static func == (a: PMTilesHeader, b: PMTilesHeader) -> Bool {
        a.bytes == b.bytes && a.hasTextVersion == b.hasTextVersion
    }
}
