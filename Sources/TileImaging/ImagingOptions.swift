/// What is refused before it is unpacked, and how pictures are written.
public struct ImagingOptions: Hashable, Sendable {
    /// The most bytes of a picture that is read.
    ///
    /// 16 MiB, as many as the cache takes for a tile.
    public var maximumBytes = 16 << 20
    /// The most pixels (width times height) of a picture that is read or made.
    ///
    /// 2048 by 2048, far above any tile. Such a picture takes 16 MiB unpacked, and so much memory is used at most twice
    /// for each picture that is being made.
    public var maximumPixels = 2048 * 2048
    /// The quality that JPEGs are written with, 1 to 100.
    public var jpegQuality = 85
    /// The quality that lossy WebPs are written with, 1 to 100; lossless ones stay lossless.
    public var webPQuality = 80
    /// How hard zlib tries for a PNG, 0 to 9.
    public var pngLevel = 6

    /// The values above.
    public init() {}
}
