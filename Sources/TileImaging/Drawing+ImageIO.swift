#if canImport(ImageIO)
import CoreGraphics
import Foundation
import ImageIO
import TileStore

extension TileImage {
    /// Draws a part of a picture whose sizes have been checked, through ImageIO and CoreGraphics.
    ///
    /// A palette becomes true colour with the same pixels: CoreGraphics has no palettes to write. WebP becomes PNG:
    /// ImageIO reads it and does not write it.
    static func draw(
        _ data: Data, _ header: PictureHeader, _ crop: PixelRect, _ width: Int, _ height: Int, _ options: ImagingOptions
    ) throws(ImagingError) -> Data {
        let reading = [kCGImageSourceShouldCache: false] as CFDictionary
        guard let source = CGImageSourceCreateWithData(data as CFData, reading),
            let picture = CGImageSourceCreateImageAtIndex(source, 0, reading),
            CGImageSourceGetStatusAtIndex(source, 0) == .statusComplete,
            picture.width == header.width, picture.height == header.height
        else { throw ImagingError(.damaged, "a damaged \(header.format.name)") }
        guard picture.colorSpace?.model != .cmyk else { throw ImagingError(.unsupported, "a JPEG for print (CMYK)") }
        let isOpaque = [.none, .noneSkipFirst, .noneSkipLast].contains(picture.alphaInfo) && !header.hasPalette
        let alpha = isOpaque ? CGImageAlphaInfo.noneSkipLast : .premultipliedLast
        guard let space = CGColorSpace(name: CGColorSpace.sRGB),
            let context = CGContext(
                data: nil, width: width, height: height, bitsPerComponent: 8, bytesPerRow: 0, space: space,
                bitmapInfo: alpha.rawValue)
        else { throw ImagingError(.failed, "there is no memory") }
        context.interpolationQuality = header.hasPalette ? .none : .low
        // The whole picture, so much larger and so shifted that the part fills the context: interpolation then sees the
        // pixels just outside of the part. The context's rows are counted from the south.
        let (scaleX, scaleY) = (Double(width) / Double(crop.width), Double(height) / Double(crop.height))
        context.draw(
            picture,
            in: CGRect(
                x: -Double(crop.x) * scaleX, y: -Double(header.height - crop.y - crop.height) * scaleY,
                width: Double(header.width) * scaleX, height: Double(header.height) * scaleY))
        guard let drawn = context.makeImage() else { throw ImagingError(.failed, "there is no memory") }
        let result = NSMutableData()
        let type = header.format == .jpeg ? "public.jpeg" : "public.png"
        guard let destination = CGImageDestinationCreateWithData(result, type as CFString, 1, nil) else {
            throw ImagingError(.failed, "no \(header.format.name) could be made")
        }
        let quality = Double(min(max(options.jpegQuality, 1), 100)) / 100
        CGImageDestinationAddImage(
            destination, drawn, [kCGImageDestinationLossyCompressionQuality: quality] as CFDictionary)
        guard CGImageDestinationFinalize(destination) else {
            throw ImagingError(.failed, "no \(header.format.name) could be made")
        }
        return result as Data
    }
}
#endif
