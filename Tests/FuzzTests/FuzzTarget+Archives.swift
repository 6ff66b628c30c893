import ContentCoding
import Foundation
import TileStore

@testable import TileArchive
@testable import TileImaging
@testable import TileSets

extension FuzzTarget {
    /// What files of others hold.
    static let archives = [
        FuzzTarget(name: "pmtiles") { bytes in
            let data = Data(bytes)
            guard let header = try? PMTilesHeader(data.prefix(PMTilesHeader.length), path: "fuzz") else { return }
            let layout = PMTilesLayout(header, path: "fuzz")
            guard (try? layout.check(size: UInt64(data.count))) != nil else { return }
            var warnings: [String] = []
            func read(_ section: PMTilesHeader.Section) -> Data {
                Data(data.dropFirst(Int(section.offset)).prefix(Int(section.length)))
            }
            _ = layout.metadata(&warnings) { read($0) }
            _ = try? layout.directory(header.root, tiles: 0..<TileID.formatEnd, name: "root") { read($0) }
        },
        FuzzTarget(name: "pmtiles-directory") { bytes in
            let data = Data(bytes)
            guard
                let directory = try? PMTilesDirectory(
                    data, tiles: 0..<TileID.formatEnd, dataLength: 1 << 40, leavesLength: 1 << 30, name: "fuzz")
            else { return }
            var last: UInt64?
            for entry in directory.entries {
                try promise(last.map { $0 < entry.tile } ?? true, "entries out of order")
                last = entry.tile
                if entry.run > 0 { try promise(entry.offset + UInt64(entry.length) <= 1 << 40, "beyond the data") }
            }
            let again = try? PMTilesDirectory(
                PMTilesDirectory.encode(directory.entries), tiles: 0..<TileID.formatEnd, dataLength: 1 << 40,
                leavesLength: 1 << 30, name: "fuzz")
            try promise(again?.entries == directory.entries, "a directory that is written is another one")
        },
        FuzzTarget(name: "metadata") { bytes in
            guard let value = JSON(Data(bytes)) else { return }
            try promise(JSON(Data(value.text.utf8)) == value, "JSON that is written is another document")
            _ = ArchiveMetadata(sourceJSON: Data(bytes))
        },
        FuzzTarget(name: "set") { bytes in
            if let document = try? SetDocument(bytes, at: "fuzz") {
                let written = document.encoded
                try promise(
                    (try? SetDocument(written, at: "fuzz")) == document, "a set.json that is written is another one")
            }
            if let root = try? SetRoot(bytes) {
                try promise(root.items.count <= SetBounds.chunks, "\(root.items.count) chunks")
                try promise(
                    root.digest == bytes.withUnsafeBytes { BlobDigest(hashing: $0) }, "a root that is not canonical")
            }
            _ = try? SetDelta(bytes)
            let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
            for count in [1, 2, 3] {
                let item = SetRoot.Item(digest: digest, tiles: count, length: bytes.count)
                guard let tiles = try? SetList.decode(bytes, of: item) else { continue }
                try promise(tiles.count == count, "\(tiles.count) tiles")
                try promise(zip(tiles, tiles.dropFirst()).allSatisfy { $0.key < $1.key }, "tiles out of order")
            }
        },
        FuzzTarget(name: "gzip") { bytes in
            guard let plain = Gzip.decode(Data(bytes), limit: 1 << 20) else { return }
            try promise(plain.count <= 1 << 20, "more than the limit")
        },
        FuzzTarget(name: "picture") { bytes in
            let data = Data(bytes)
            _ = BodySignature(data).pictureType
            guard let header = try? TileImage.header(of: data), header.width <= 512, header.height <= 512 else {
                return
            }
            var options = ImagingOptions()
            options.maximumPixels = 1 << 18
            guard
                let made = try? TileImage.overzoomed(
                    data, crop: PixelRect(x: 0, y: 0, width: 1, height: 1), width: 8, height: 8, options: options),
                let again = try? TileImage.header(of: made)
            else { return }
            try promise(again.width == 8 && again.height == 8, "\(again)")
        },
    ]
}
