// They look at pixels and damage as libpng, libjpeg-turbo and libwebp see them.
#if !canImport(ImageIO)
import CTileImaging
import Foundation
import Testing
import TileImaging

/// A PNG made by hand, so that tests know each pixel and each chunk.
struct MadePNG {
    var width: Int
    var height: Int
    var depth = 8
    /// 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA.
    var colours = 6
    var palette: [UInt8] = []
    var alpha: [UInt8] = []
    var isInterlaced = false
    /// Rows of packed samples.
    var row: (Int) -> [UInt8]

    var data: Data {
        var bytes: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
        bytes += chunk("IHDR", big(width) + big(height) + [UInt8(depth), UInt8(colours), 0, 0, isInterlaced ? 1 : 0])
        if !palette.isEmpty { bytes += chunk("PLTE", palette) }
        if !alpha.isEmpty { bytes += chunk("tRNS", alpha) }
        var raw: [UInt8] = []
        if isInterlaced {
            // The seven passes of Adam7, for one byte a sample.
            let channels = [0: 1, 2: 3, 3: 1, 4: 2, 6: 4][colours, default: 1]
            for (x, y, dx, dy) in [
                (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2),
            ] where x < width {
                for line in stride(from: y, to: height, by: dy) {
                    let all = row(line)
                    raw.append(0)
                    for column in stride(from: x, to: width, by: dx) {
                        raw += all[column * channels..<(column + 1) * channels]
                    }
                }
            }
        } else {
            for line in 0..<height { raw += [0] + row(line) }
        }
        bytes += chunk("IDAT", stored(raw)) + chunk("IEND", [])
        return Data(bytes)
    }

    private func big(_ value: Int) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: value >> (24 - 8 * $0)) } }

    private func chunk(_ name: String, _ content: [UInt8]) -> [UInt8] {
        let body = Array(name.utf8) + content
        var crc: UInt32 = 0xFFFF_FFFF
        for byte in body {
            crc ^= UInt32(byte)
            for _ in 0..<8 { crc = crc & 1 == 1 ? crc >> 1 ^ 0xEDB8_8320 : crc >> 1 }
        }
        return big(content.count) + body + big(Int(~crc))
    }

    /// A zlib stream without compression (RFC 1950, RFC 1951 §3.2.4).
    private func stored(_ raw: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = [0x78, 0x01]
        for start in stride(from: 0, to: raw.count, by: 65535) {
            let block = raw[start..<min(start + 65535, raw.count)]
            let isLast = start + 65535 >= raw.count
            let (low, high) = (UInt8(block.count & 255), UInt8(block.count >> 8))
            bytes += [isLast ? 1 : 0, low, high, ~low, ~high] + block
        }
        var (a, b): (UInt32, UInt32) = (1, 0)
        for byte in raw {
            a = (a + UInt32(byte)) % 65521
            b = (b + a) % 65521
        }
        return bytes + big(Int(b << 16 | a))
    }
}

/// The pixels of a picture, as the libraries see them.
struct Seen: Equatable {
    var width: Int
    var height: Int
    var channels: Int
    var bytes: [UInt8]
    var palette: [UInt8]
    var alpha: [UInt8]
    var depth: Int
    var isLossless: Bool

    init(_ data: Data) throws {
        let header = try TileImage.header(of: data)
        var picture = cti_picture()
        defer { cti_free(picture.pixels) }
        let window = cti_window(
            picture_width: UInt32(header.width), picture_height: UInt32(header.height), x: 0, y: 0,
            width: UInt32(header.width), height: UInt32(header.height))
        var message = [CChar](repeating: 0, count: Int(CTI_MESSAGE_SIZE))
        let code = data.withUnsafeBytes { bytes in
            let start = bytes.bindMemory(to: UInt8.self).baseAddress
            return switch header.format {
            case .png: cti_png_decode(start, bytes.count, window, &picture, &message)
            case .jpeg: cti_jpeg_decode(start, bytes.count, window, &picture, &message)
            case .webP: cti_webp_decode(start, bytes.count, window, &picture, &message)
            }
        }
        try #require(code == 0)
        (width, height, channels) = (header.width, header.height, Int(picture.channels))
        bytes = Array(UnsafeBufferPointer(start: picture.pixels, count: width * height * channels))
        palette = withUnsafeBytes(of: picture.palette) { Array($0.prefix(3 * Int(picture.palette_count))) }
        alpha = withUnsafeBytes(of: picture.alpha) { Array($0.prefix(Int(picture.alpha_count))) }
        depth = header.bitDepth
        isLossless = picture.is_lossless != 0
    }

    subscript(x: Int, y: Int) -> [UInt8] {
        let start = (y * width + x) * channels
        return Array(bytes[start..<start + channels])
    }
}

/// Pictures of each kind, small enough to cut and bend them many times.
enum Pictures {
    /// A JPEG or WebP of 16 by 16 pixels.
    static func encoded(
        _ format: PictureFormat, channels: Int = 3, lossless: Bool = false, side: Int = 16,
        _ pixel: (Int, Int) -> [UInt8] = slope
    ) throws -> Data {
        var picture = cti_picture()
        picture.width = UInt32(side)
        picture.height = UInt32(side)
        picture.channels = UInt32(channels)
        picture.is_lossless = lossless ? 1 : 0
        var bytes: [UInt8] = []
        for y in 0..<side { for x in 0..<side { bytes += pixel(x, y).prefix(channels) } }
        var (out, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        defer { cti_free(out) }
        var message = [CChar](repeating: 0, count: Int(CTI_MESSAGE_SIZE))
        let code = bytes.withUnsafeMutableBufferPointer { pixels in
            picture.pixels = pixels.baseAddress
            return format == .jpeg
                ? cti_jpeg_encode(&picture, 90, &out, &count, &message)
                : cti_webp_encode(&picture, 90, &out, &count, &message)
        }
        try #require(code == 0)
        return Data(UnsafeBufferPointer(start: out, count: count))
    }

    /// 16 by 16 pixels, a palette of 16 colours, one of them half transparent.
    static let palette = MadePNG(
        width: 16, height: 16, depth: 4, colours: 3, palette: (0..<48).map { UInt8($0 * 5) }, alpha: [255, 128],
        row: paletteRow
    ).data
    static let rgba = MadePNG(width: 16, height: 16, row: rgbaRow).data
    static let interlaced = MadePNG(width: 16, height: 16, isInterlaced: true, row: rgbaRow).data
    static let grey16 = MadePNG(width: 16, height: 16, depth: 16, colours: 0, row: grey16Row).data

    private static func paletteRow(_ y: Int) -> [UInt8] {
        (0..<8).map { x -> UInt8 in
            let (left, right) = ((2 * x + y) & 15, (2 * x + 1 + y) & 15)
            return UInt8(left << 4 | right)
        }
    }

    private static func rgbaRow(_ y: Int) -> [UInt8] {
        var row: [UInt8] = []
        for x in 0..<16 { row += [UInt8(x * 16), UInt8(y * 16), 77, UInt8(255 - x * 15)] }
        return row
    }

    private static func grey16Row(_ y: Int) -> [UInt8] {
        var row: [UInt8] = []
        for x in 0..<16 { row += [UInt8(x * 16), UInt8(y)] }
        return row
    }

    static func base64(_ text: String) -> Data { Data(base64Encoded: text) ?? Data() }

    static func slope(_ x: Int, _ y: Int) -> [UInt8] {
        [UInt8(x * 16 & 255), UInt8(y * 16 & 255), 128, UInt8(x * 9 & 255)]
    }

    /// 16 by 16 pixels in ten scans, made with libjpeg-turbo's cjpeg settings for progressive files.
    static let progressive = base64(progressiveText)

    /// 16 by 16 pixels of cyan, magenta, yellow and black.
    static let cmyk = base64(cmykText)

    /// The head of an animated WebP (RFC 9649 §2.7), and bytes that are no frames.
    static let animated: Data = {
        var data = Data("RIFF".utf8) + Data([30, 0, 0, 0])
        data += Data("WEBPVP8X".utf8) + Data([10, 0, 0, 0, 2, 0, 0, 0, 15, 0, 0, 15, 0, 0])
        return data + Data("ANIM".utf8) + Data([0, 0, 0, 0])
    }()

    /// One of each kind that can be drawn.
    static func all() throws -> [(name: String, data: Data)] {
        [
            ("palette", palette), ("rgba", rgba), ("interlaced", interlaced), ("grey16", grey16),
            ("progressive", progressive), ("jpeg", try encoded(.jpeg)), ("grey jpeg", try encoded(.jpeg, channels: 1)),
            ("webp", try encoded(.webP)), ("webp alpha", try encoded(.webP, channels: 4)),
            ("webp lossless", try encoded(.webP, channels: 4, lossless: true)),
        ]
    }
}

private let progressiveText = """
    /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAxNDQ0Hyc5PT\
    gyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wgARCAAQ\
    ABADASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAABQb/xAAVAQEBAAAAAAAAAAAAAAAAAAABAv/aAAwDAQACEAMQAAABn00lKP/EABYQAA\
    MAAAAAAAAAAAAAAAAAAAACA//aAAgBAQABBQJICQEgJA//xAAWEQADAAAAAAAAAAAAAAAAAAAABAX/2gAIAQMBAT8Bnun/xAAWEQADAAAAAAAA\
    AAAAAAAAAAAAAwT/2gAIAQIBAT8BbUf/xAAUEAEAAAAAAAAAAAAAAAAAAAAg/9oACAEBAAY/Ah//xAAVEAEBAAAAAAAAAAAAAAAAAAAAYf/aAA\
    gBAQABPyGSSST/2gAMAwEAAgADAAAAECf/xAAWEQADAAAAAAAAAAAAAAAAAAAAITH/2gAIAQMBAT8Qiz//xAAVEQEBAAAAAAAAAAAAAAAAAAAA\
    Yf/aAAgBAgEBPxC7/8QAFRABAQAAAAAAAAAAAAAAAAAAADH/2gAIAQEAAT8QizZsX//Z
    """

private let cmykText = """
    /9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAIBgYHBgUIBwcHCQkICgwUDQwLCwwZEhMPFB0aHx4dGhwcICQuJyAiLCMcHCg3KSwwMTQ0NB8nOT04Mj\
    wuMzQy/8AAFAgAEAAQBEMRAE0RAFkRAEsRAP/EABYAAQEBAAAAAAAAAAAAAAAAAAAIB//EABkQAQACAwAAAAAAAAAAAAAAAAAGFkNjof/aAA4E\
    QwBNAFkASwAAPwDN4djZvTtfBk6gIdjKdr4Cf4djUBTtfAUBDsZTtfAf/9k=
    """
#endif
