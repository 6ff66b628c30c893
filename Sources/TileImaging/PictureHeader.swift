#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The formats of pictures that are dealt with.
public enum PictureFormat: Hashable, Sendable, CaseIterable {
    /// Portable Network Graphics.
    case png
    /// JPEG.
    case jpeg
    /// WebP, lossy or lossless.
    case webP

    /// The media type.
    public var mediaType: String {
        switch self {
        case .png: "image/png"
        case .jpeg: "image/jpeg"
        case .webP: "image/webp"
        }
    }

    /// The name for people.
    public var name: String {
        switch self {
        case .png: "PNG"
        case .jpeg: "JPEG"
        case .webP: "WebP"
        }
    }
}

/// What the first bytes of a picture say about it.
public struct PictureHeader: Hashable, Sendable {
    /// The format.
    public var format: PictureFormat
    /// Pixels from the west edge to the east edge.
    public var width: Int
    /// Pixels from the north edge to the south edge.
    public var height: Int
    /// Bits for each sample; for a palette, bits for each pixel.
    public var bitDepth: Int
    /// Whether its pixels are numbers of colours in a palette.
    public var hasPalette = false
    /// Whether it moves.
    ///
    /// Of a PNG nothing is known here: such a one has a still picture for those who ignore the rest.
    public var isAnimated = false

    init(format: PictureFormat, width: Int, height: Int, bitDepth: Int) {
        self.format = format
        self.width = width
        self.height = height
        self.bitDepth = bitDepth
    }

    init(_ data: Data) throws(ImagingError) {
        let parsed = data.withUnsafeBytes { bytes in
            Result { () throws(ImagingError) in try PictureHeader(bytes: HeaderBytes(bytes)) }
        }
        self = try parsed.get()
    }

    private init(bytes: HeaderBytes) throws(ImagingError) {
        if bytes.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) {
            self = try Self.png(bytes)
        } else if bytes.starts(with: [0xFF, 0xD8, 0xFF]) {
            self = try Self.jpeg(bytes)
        } else if bytes.starts(with: Array("RIFF".utf8)), bytes.has("WEBP", at: 8) {
            self = try Self.webP(bytes)
        } else {
            throw ImagingError(.unsupported, "neither PNG nor JPEG nor WebP")
        }
        guard width > 0, height > 0 else {
            throw ImagingError(.damaged, "a \(format.name) of \(width)x\(height) pixels")
        }
    }

    /// `IHDR` is the first chunk (Portable Network Graphics, third edition, 11.2.1).
    private static func png(_ bytes: HeaderBytes) throws(ImagingError) -> PictureHeader {
        guard let length = bytes.big32(8), let width = bytes.big32(16), let height = bytes.big32(20),
            let depth = bytes[24], let colours = bytes[25]
        else { throw cutOff(.png) }
        guard length == 13, bytes.has("IHDR", at: 12), width <= 1 << 31 - 1, height <= 1 << 31 - 1,
            [1, 2, 4, 8, 16].contains(depth)
        else { throw ImagingError(.damaged, "a PNG without a proper header") }
        var header = PictureHeader(format: .png, width: width, height: height, bitDepth: depth)
        header.hasPalette = colours == 3
        return header
    }

    /// The frame header, `SOF`, comes after any number of other segments (ITU-T T.81, B.2.2).
    private static func jpeg(_ bytes: HeaderBytes) throws(ImagingError) -> PictureHeader {
        var offset = 2
        while true {
            guard let prefix = bytes[offset], var marker = bytes[offset + 1] else { throw cutOff(.jpeg) }
            guard prefix == 0xFF else { throw ImagingError(.damaged, "a JPEG with bytes between its segments") }
            // Any number of fill bytes may come before a marker.
            while marker == 0xFF {
                offset += 1
                guard let next = bytes[offset + 1] else { throw cutOff(.jpeg) }
                marker = next
            }
            switch marker {
            case 0x01, 0xD0...0xD7:
                offset += 2
            case 0xC0...0xC3, 0xC5...0xC7, 0xC9...0xCB, 0xCD...0xCF:
                guard let depth = bytes[offset + 4], let height = bytes.big16(offset + 5),
                    let width = bytes.big16(offset + 7)
                else { throw cutOff(.jpeg) }
                return PictureHeader(format: .jpeg, width: width, height: height, bitDepth: depth)
            case 0xD8, 0xD9, 0xDA, 0x00:
                throw ImagingError(.damaged, "a JPEG without a frame")
            default:
                guard let length = bytes.big16(offset + 2) else { throw cutOff(.jpeg) }
                guard length >= 2 else { throw ImagingError(.damaged, "a JPEG with a segment without a length") }
                offset += 2 + length
            }
        }
    }

    /// The three kinds of a first chunk (RFC 9649 §2.5 to 2.7; RFC 6386 §9.1 for the frame of a lossy one).
    private static func webP(_ bytes: HeaderBytes) throws(ImagingError) -> PictureHeader {
        if bytes.has("VP8X", at: 12) {
            guard let flags = bytes[20], let width = bytes.little24(24), let height = bytes.little24(27) else {
                throw cutOff(.webP)
            }
            var header = PictureHeader(format: .webP, width: width + 1, height: height + 1, bitDepth: 8)
            header.isAnimated = flags & 2 != 0
            return header
        }
        if bytes.has("VP8L", at: 12) {
            guard let signature = bytes[20], let low = bytes.little24(21), let high = bytes[24] else {
                throw cutOff(.webP)
            }
            guard signature == 0x2F else { throw ImagingError(.damaged, "a WebP without a proper header") }
            let both = low | high << 24
            return PictureHeader(
                format: .webP, width: both & 0x3FFF + 1, height: both >> 14 & 0x3FFF + 1, bitDepth: 8)
        }
        if bytes.has("VP8 ", at: 12) {
            guard let start = bytes.little24(23), let width = bytes.little24(26), let height = bytes.little24(28),
                bytes[29] != nil
            else { throw cutOff(.webP) }
            guard start == 0x2A019D else { throw ImagingError(.damaged, "a WebP without a proper header") }
            return PictureHeader(format: .webP, width: width & 0x3FFF, height: height & 0x3FFF, bitDepth: 8)
        }
        guard bytes[15] != nil else { throw cutOff(.webP) }
        throw ImagingError(.damaged, "a WebP without a proper header")
    }

    private static func cutOff(_ format: PictureFormat) -> ImagingError {
        ImagingError(.damaged, "a \(format.name) that is cut off in its header")
    }
}

/// Bytes that can be asked about any place.
private struct HeaderBytes {
    private let bytes: UnsafeRawBufferPointer

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    subscript(offset: Int) -> Int? { offset >= 0 && offset < bytes.count ? Int(bytes[offset]) : nil }

    func starts(with prefix: [UInt8]) -> Bool { bytes.starts(with: prefix) }

    func has(_ text: StaticString, at offset: Int) -> Bool {
        (0..<text.utf8CodeUnitCount).allSatisfy { self[offset + $0] == Int(text.utf8Start[$0]) }
    }

    func big16(_ offset: Int) -> Int? {
        guard let high = self[offset], let low = self[offset + 1] else { return nil }
        return high << 8 | low
    }

    func big32(_ offset: Int) -> Int? {
        guard let high = big16(offset), let low = big16(offset + 2) else { return nil }
        return high << 16 | low
    }

    func little24(_ offset: Int) -> Int? {
        guard let low = self[offset], let middle = self[offset + 1], let high = self[offset + 2] else { return nil }
        return high << 16 | middle << 8 | low
    }
}
