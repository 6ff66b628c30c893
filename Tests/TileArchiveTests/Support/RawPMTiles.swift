import Foundation
import TileArchive

/// A PMTiles file put together by hand, so that it can break every rule.
struct RawPMTiles {
    var header = PMTilesHeader()
    var root = Data()
    var metadata = Data("{}".utf8)
    var leaves = Data()
    var data = Data()

    init() {
        header.internalCompression = .none
        header.tileType = 2
        header.maxZoom = 3
    }

    init(_ entries: [PMTilesEntry], data: Data) {
        self.init()
        root = PMTilesDirectory.encode(entries)
        self.data = data
    }

    /// The file, with the sections where they are.
    var bytes: Data {
        var header = header
        var at = UInt64(PMTilesHeader.length)
        func place(_ section: Data) -> PMTilesHeader.Section {
            defer { at += UInt64(section.count) }
            return .init(offset: at, length: UInt64(section.count))
        }
        header.root = place(root)
        header.metadata = place(metadata)
        header.leaves = place(leaves)
        header.data = place(data)
        return header.bytes + root + metadata + leaves + data
    }
}

/// A number as PMTiles writes it.
func varint(_ value: UInt64) -> Data {
    var value = value
    var bytes = Data()
    while value >= 0x80 {
        bytes.append(UInt8(truncatingIfNeeded: value) | 0x80)
        value >>= 7
    }
    bytes.append(UInt8(value))
    return bytes
}
