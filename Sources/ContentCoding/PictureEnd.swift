#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

extension BodySignature {
    /// Whether the bytes of a picture break off: without its header, or before its end, as far as its format tells.
    ///
    /// Reads lengths, not pixels: some steps for a tile of any size, except that the end of a JPEG without one is searched
    /// for in all of it. A picture whose first part is another than its format has is left to its decoder.
    package func isCutShort(_ body: Data) -> Bool {
        body.withUnsafeBytes { bytes in
            switch self {
            case .png: Self.isCutPNG(bytes)
            case .jpeg: Self.isCutJPEG(bytes)
            case .webp: Self.isCutWebP(bytes)
            case .avif: Self.isCutAVIF(bytes)
            case .gif: bytes.count < 13
            case .gzip, .html, .xml, .json, .empty, .unknown: false
            }
        }
    }

    /// A signature, then chunks of length, type, content and checksum, from IHDR to IEND.
    private static func isCutPNG(_ bytes: UnsafeRawBufferPointer) -> Bool {
        let header: [UInt8] = [0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52]
        guard header.starts(with: bytes.dropFirst(8).prefix(8)) else { return false }
        var at = 8
        while bytes.count - at >= 12 {
            let length = Int(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self)))
            guard bytes.count - at - 12 >= length else { return true }
            if bytes.loadUnaligned(fromByteOffset: at + 4, as: UInt32.self).bigEndian == 0x4945_4E44 { return false }
            at += 12 + length
        }
        return true
    }

    /// Segments with their length up to the first scan, then coded data up to the marker of the end.
    private static func isCutJPEG(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var at = 2
        while true {
            // Fill bytes may precede a marker.
            while at + 1 < bytes.count, bytes[at] == 0xFF, bytes[at + 1] == 0xFF { at += 1 }
            guard bytes.count - at >= 4 else { return true }
            guard bytes[at] == 0xFF else { return false }
            let length = Int(UInt16(bigEndian: bytes.loadUnaligned(fromByteOffset: at + 2, as: UInt16.self)))
            guard length >= 2 else { return false }
            guard bytes.count - at - 2 >= length else { return true }
            let isScan = bytes[at + 1] == 0xDA
            at += 2 + length
            if isScan { break }
        }
        // Coded data never holds this marker. Some servers send bytes behind it.
        var end = bytes.count - 1
        while end > at {
            if bytes[end] == 0xD9, bytes[end - 1] == 0xFF { return false }
            end -= 1
        }
        return true
    }

    /// The length of the whole file is in its header.
    private static func isCutWebP(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard bytes.count >= 20 else { return true }
        return Int(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self))) > bytes.count - 8
    }

    /// Boxes with their lengths.
    private static func isCutAVIF(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var at = 0
        // A picture has a handful.
        for _ in 0..<64 {
            if at == bytes.count { return false }
            guard bytes.count - at >= 8 else { return true }
            var length = UInt64(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self)))
            // 0: up to the end of the file; 1: a longer length follows.
            if length == 0 { return false }
            if length == 1 {
                guard bytes.count - at >= 16 else { return true }
                length = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: at + 8, as: UInt64.self))
            }
            guard length >= 8 else { return false }
            guard length <= UInt64(bytes.count - at) else { return true }
            at += Int(length)
        }
        return false
    }
}
