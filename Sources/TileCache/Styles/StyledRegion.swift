public import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// An area of a map with all that its styles need, so that the whole map is there without a network.
///
/// ```swift
/// let map = StyledRegion(.box(box), zooms: 0...14, styles: [style])
/// let download = try await cache.download(map, named: "alps")
/// ```
public struct StyledRegion: Sendable {
    /// The area.
    public var shape: RegionShape
    /// The zooms of tiles, within what each of the styles' sources has.
    ///
    /// Of a source that ends before them, its last zoom is taken: a map draws that one enlarged.
    public var zooms: ClosedRange<Int>
    /// The styles (MapLibre, or Mapbox before its own version 3), by their `http` or `https` URLs.
    public var styles: [URL]
    /// Pixels per point of the screen: above 1, `{ratio}` in a template becomes `@2x`.
    public var scale = 1
    /// The characters that texts may have; whole ranges of 256 of them are asked for, for each font that a style names.
    public var glyphs = Self.commonGlyphs

    /// Latin, Greek, Cyrillic, Armenian and Hebrew with their marks, phonetic letters, and punctuation, signs and arrows: ten ranges.
    ///
    /// MapLibre Native draws the characters of Chinese, Japanese and Korean with the system's fonts, unless it is told otherwise.
    public static let commonGlyphs = [0...0x5FF, 0x1E00...0x21FF]
    /// All that styles can ask for: 256 ranges for each font.
    public static let allGlyphs = [0...0xFFFF]

    /// Names an area and its styles.
    public init(_ shape: RegionShape, zooms: ClosedRange<Int>, styles: [URL]) {
        self.shape = shape
        self.zooms = zooms
        self.styles = styles
    }

    /// The ranges of glyphs, as URLs name them.
    var glyphRanges: [String] {
        var blocks = Set<Int>()
        for range in glyphs {
            let whole = range.clamped(to: 0...0xFFFF)
            if range.overlaps(0...0xFFFF) { blocks.formUnion(whole.lowerBound / 256...whole.upperBound / 256) }
        }
        return blocks.sorted().map { "\($0 * 256)-\($0 * 256 + 255)" }
    }

    /// Tells it from others in the plans of a store; without the styles' queries, which may hold other tokens tomorrow.
    func fingerprint(in store: TileStore) throws -> String {
        let places = styles.map { $0.absoluteString.prefix { $0 != "?" && $0 != "#" } }
        let tiles = DownloadPlan.digest(of: try TileCoverage(shape, zooms: zooms).spans())
        let text = "styles\n\(places)\n\(tiles)\n\(scale)\n\(glyphRanges)"
        return store.fingerprint(of: text).description
    }
}
