#if !canImport(ImageIO)
import CTileImaging
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TileImage {
    /// Draws a part of a picture whose sizes have been checked, through libpng, libjpeg-turbo and libwebp.
    static func draw(
        _ data: Data, _ header: PictureHeader, _ crop: PixelRect, _ width: Int, _ height: Int, _ options: ImagingOptions
    ) throws(ImagingError) -> Data {
        // One pixel more on each side, if it is there: what interpolation needs so that neighbours meet.
        let margin = header.hasPalette ? 0 : 1
        let columns = max(0, crop.x - margin)..<min(header.width, crop.x + crop.width + margin)
        let rows = max(0, crop.y - margin)..<min(header.height, crop.y + crop.height + margin)
        var picture = cti_picture()
        defer { cti_free(picture.pixels) }
        let window = cti_window(
            picture_width: UInt32(header.width), picture_height: UInt32(header.height),
            x: UInt32(columns.lowerBound), y: UInt32(rows.lowerBound), width: UInt32(columns.count),
            height: UInt32(rows.count))
        try check(header.format) { message in
            data.withUnsafeBytes { bytes in
                let start = bytes.bindMemory(to: UInt8.self).baseAddress
                return switch header.format {
                case .png: cti_png_decode(start, bytes.count, window, &picture, message)
                case .jpeg: cti_jpeg_decode(start, bytes.count, window, &picture, message)
                case .webP: cti_webp_decode(start, bytes.count, window, &picture, message)
                }
            }
        }
        let channels = Int(picture.channels)
        let source = UnsafeBufferPointer(start: picture.pixels, count: columns.count * rows.count * channels)
        let across = Sampling(
            start: crop.x - columns.lowerBound, count: crop.width, available: 0..<columns.count, size: width)
        let down = Sampling(
            start: crop.y - rows.lowerBound, count: crop.height, available: 0..<rows.count, size: height)
        var drawn =
            picture.palette_count > 0
            ? Resampling.nearest(source, width: columns.count, channels: channels, across, down)
            : Resampling.bilinear(source, width: columns.count, channels: channels, across, down)
        var result = picture
        result.width = UInt32(width)
        result.height = UInt32(height)
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        defer { cti_free(bytes) }
        try check(header.format) { message in
            drawn.withUnsafeMutableBufferPointer { pixels in
                result.pixels = pixels.baseAddress
                return switch header.format {
                case .png: cti_png_encode(&result, Int32(clamped(options.pngLevel, 0...9)), &bytes, &count, message)
                case .jpeg:
                    cti_jpeg_encode(&result, Int32(clamped(options.jpegQuality, 1...100)), &bytes, &count, message)
                case .webP:
                    cti_webp_encode(&result, Int32(clamped(options.webPQuality, 1...100)), &bytes, &count, message)
                }
            }
        }
        return Data(UnsafeBufferPointer(start: bytes, count: count))
    }

    private static func clamped(_ value: Int, _ range: ClosedRange<Int>) -> Int {
        min(max(value, range.lowerBound), range.upperBound)
    }

    /// Calls a function of the libraries, and turns its code and message into an error.
    private static func check(
        _ format: PictureFormat, _ call: (UnsafeMutablePointer<CChar>?) -> Int32
    ) throws(ImagingError) {
        var message = [CChar](repeating: 0, count: Int(CTI_MESSAGE_SIZE))
        let code = message.withUnsafeMutableBufferPointer { call($0.baseAddress) }
        guard code != CTI_OK.rawValue else { return }
        let words = String(decoding: message.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        switch UInt32(bitPattern: code) {
        case CTI_CORRUPT.rawValue: throw ImagingError(.damaged, "a damaged \(format.name): \(words)")
        case CTI_UNSUPPORTED.rawValue: throw ImagingError(.unsupported, words)
        default: throw ImagingError(.failed, "no \(format.name) could be made: \(words)")
        }
    }
}
#endif
