public import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Makes pictures of tiles out of the pictures of other tiles.
///
/// PNG, JPEG and WebP; through libpng, libjpeg-turbo and libwebp on Linux and through ImageIO on Apple platforms. Pure
/// functions that compute for about a millisecond or a few: call them from a thread of your own and not from an event loop.
/// Bytes may come from anywhere: what is damaged, cut off or too large is an error.
public enum TileImage {
    /// What the first bytes of a picture say about it, without unpacking anything.
    ///
    /// Costs less than a microsecond, but for JPEGs with large profiles.
    /// - Throws: ``ImagingError`` with ``ImagingError/Code/unsupported`` for bytes of another format and
    ///   ``ImagingError/Code/damaged`` for a header that is cut off or makes no sense.
    public static func header(of data: Data) throws(ImagingError) -> PictureHeader {
        try PictureHeader(data)
    }

    /// The picture of a tile, made from its ancestor's, in the same format and of the same size.
    ///
    /// - Parameters:
    ///   - data: The picture of `Overzoom.ancestor`.
    ///   - overzoom: Which tile is made from it.
    /// - Throws: ``ImagingError``.
    public static func overzoomed(
        _ data: Data, _ overzoom: Overzoom, options: ImagingOptions = ImagingOptions()
    ) throws(ImagingError) -> Data {
        let header = try PictureHeader(data)
        guard let crop = overzoom.crop(width: header.width, height: header.height) else {
            throw ImagingError(
                .invalidCrop,
                "a picture of \(header.width)x\(header.height) pixels has none for a tile \(overzoom.depth) zooms on")
        }
        return try enlarged(data, header, crop, header.width, header.height, options)
    }

    /// A part of a picture, drawn at another size, in the same format.
    ///
    /// The colours of a picture with a palette stay exactly those, transparent ones included: each pixel is repeated. All
    /// others are interpolated (bilinear, with the pixels just outside of the part, so that the parts of one picture meet
    /// without a seam). 16 bits become 8; interlaced PNGs come out plain; profiles and other metadata are left out. Of an
    /// animated PNG the still picture is used. It is meant for enlarging: a much smaller size looks coarse.
    ///
    /// The same bytes give the same bytes, with one version of the libraries. On Apple platforms, where WebP can be read
    /// and not written, a WebP comes out as a PNG.
    /// - Parameters:
    ///   - data: The picture.
    ///   - crop: The part of it.
    ///   - width: The width to draw it at, in pixels.
    ///   - height: The height to draw it at, in pixels.
    /// - Throws: ``ImagingError``. What is too large is refused before anything is unpacked.
    public static func overzoomed(
        _ data: Data, crop: PixelRect, width: Int, height: Int, options: ImagingOptions = ImagingOptions()
    ) throws(ImagingError) -> Data {
        try enlarged(data, PictureHeader(data), crop, width, height, options)
    }

    private static func enlarged(
        _ data: Data, _ header: PictureHeader, _ crop: PixelRect, _ width: Int, _ height: Int, _ options: ImagingOptions
    ) throws(ImagingError) -> Data {
        guard data.count <= options.maximumBytes else {
            throw ImagingError(.tooLarge, "a picture of \(data.count) bytes; the limit is \(options.maximumBytes)")
        }
        for (what, width, height) in [("a picture", header.width, header.height), ("the result", width, height)] {
            guard width > 0, height > 0 else { throw ImagingError(.invalidCrop, "\(what) has no pixels") }
            let (pixels, overflow) = width.multipliedReportingOverflow(by: height)
            // The formats' own limits are higher than this one, on which 32 bits rely.
            guard !overflow, pixels <= options.maximumPixels, width <= 1 << 15, height <= 1 << 15 else {
                throw ImagingError(
                    .tooLarge, "\(what) of \(width)x\(height) pixels; the limit is \(options.maximumPixels)")
            }
        }
        guard crop.isWithin(width: header.width, height: header.height) else {
            throw ImagingError(
                .invalidCrop, "\(crop) is not within a picture of \(header.width)x\(header.height) pixels")
        }
        guard !header.isAnimated || header.format == .png else {
            throw ImagingError(.unsupported, "an animated \(header.format.name)")
        }
        return try draw(data, header, crop, width, height, options)
    }
}

extension TileImage {
    /// What draws tiles for a cache: its `TileCacheConfiguration.magnifier`.
    public static func magnifier(
        options: ImagingOptions = ImagingOptions()
    ) -> @Sendable (_ ancestor: Data, _ overzoom: Overzoom) throws -> Data {
        { ancestor, overzoom in try overzoomed(ancestor, overzoom, options: options) }
    }
}
