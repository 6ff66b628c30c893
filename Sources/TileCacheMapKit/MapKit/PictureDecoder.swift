#if canImport(MapKit) && !os(watchOS)
import MapKit

#if canImport(ImageIO)
import CoreGraphics
import ImageIO
#endif

// Safe to share: a CGImage never changes, though not every SDK says so.
/// A decoded picture.
struct DecodedPicture: @unchecked Sendable {
    let image: CGImage
}

/// Makes pictures of bytes, whatever format the system knows.
enum PictureDecoder {
    /// No larger picture is decoded: a small file may claim to be gigabytes of pixels.
    static let mostPixels = 4096 * 4096

    /// A picture, decoded now and not when it is first drawn, and the bytes that it takes.
    static func picture(_ data: Data) -> (picture: DecodedPicture, cost: Int)? {
        let lazily = NSDictionary(object: NSNumber(value: false), forKey: kCGImageSourceShouldCache as NSString)
        guard let source = CGImageSourceCreateWithData(NSData(data: data) as CFData, lazily as CFDictionary),
            let properties = CGImageSourceCopyPropertiesAtIndex(source, 0, lazily as CFDictionary) as NSDictionary?,
            let width = (properties[kCGImagePropertyPixelWidth as NSString] as? NSNumber)?.intValue,
            let height = (properties[kCGImagePropertyPixelHeight as NSString] as? NSNumber)?.intValue,
            width > 0, height > 0, width <= mostPixels, height <= mostPixels / width
        else { return nil }
        let now = NSDictionary(
            object: NSNumber(value: true), forKey: kCGImageSourceShouldCacheImmediately as NSString)
        guard let image = CGImageSourceCreateImageAtIndex(source, 0, now as CFDictionary) else { return nil }
        return (DecodedPicture(image: image), image.bytesPerRow * image.height)
    }
}
#endif
