import ContentCoding

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A PNG of true colour (Portable Network Graphics, third edition), which takes nothing but zlib.
enum PNGFile {
    /// Encodes rows of pixels, three bytes each.
    static func encode(width: Int, height: Int, rgb: [UInt8]) throws -> Data {
        var raw = Data(capacity: (width * 3 + 1) * height)
        for row in 0..<height {
            raw.append(0)
            raw.append(contentsOf: rgb[row * width * 3..<(row + 1) * width * 3])
        }
        // A gzip file without a name is ten bytes, deflate's, and eight bytes; zlib's format (RFC 1950) has others there.
        let deflated = try Gzip.encode(raw).dropFirst(10).dropLast(8)
        var file = Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
        append("IHDR", big(UInt32(width)) + big(UInt32(height)) + Data([8, 2, 0, 0, 0]), to: &file)
        append("IDAT", Data([0x78, 0x9C]) + deflated + big(adler(raw)), to: &file)
        append("IEND", Data(), to: &file)
        return file
    }

    private static func append(_ name: String, _ content: Data, to file: inout Data) {
        let body = Data(name.utf8) + content
        file.append(big(UInt32(content.count)) + body + big(checksum(body)))
    }

    private static func big(_ value: UInt32) -> Data {
        Data((0..<4).map { UInt8(truncatingIfNeeded: value >> (24 - 8 * $0)) })
    }

    private static let table: [UInt32] = (0..<256).map { number in
        (0..<8).reduce(UInt32(number)) { value, _ in value & 1 == 1 ? value >> 1 ^ 0xEDB8_8320 : value >> 1 }
    }

    /// CRC-32 as PNG has it (annex D).
    private static func checksum(_ bytes: Data) -> UInt32 {
        ~bytes.reduce(0xFFFF_FFFF) { sum, byte in table[Int((sum ^ UInt32(byte)) & 255)] ^ sum >> 8 }
    }

    /// Adler-32 (RFC 1950 §8).
    private static func adler(_ bytes: Data) -> UInt32 {
        var (a, b): (UInt32, UInt32) = (1, 0)
        for byte in bytes {
            a = (a + UInt32(byte)) % 65521
            b = (b + a) % 65521
        }
        return b << 16 | a
    }
}
