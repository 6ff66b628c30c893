/// What an overlay has to know about tiles before it asks for one.
public struct TileLayout: Hashable, Sendable {
    /// The zooms that the source has.
    public var zooms: ClosedRange<Int>
    /// Points along a tile's edge.
    public var tileSize: Double
    /// The pixels per point that the source has tiles for; a screen with more gets the most of these.
    public var scales: ClosedRange<Int>
    /// Whether the tiles of the last zoom are enlarged where somebody looks closer than that.
    public var overzooms: Bool

    /// Describes tiles.
    public init(
        zooms: ClosedRange<Int> = 0...22, tileSize: Double = 256, scales: ClosedRange<Int> = 1...1,
        overzooms: Bool = true
    ) {
        self.zooms = zooms
        self.tileSize = tileSize
        self.scales = scales
        self.overzooms = overzooms
    }

    /// The scale to ask for on a screen.
    func scale(_ contentScale: Double) -> Int {
        guard contentScale.isFinite else { return scales.lowerBound }
        // Clamped as a number with a fraction: not every one of those is an Int.
        let wanted = min(max(contentScale.rounded(), Double(scales.lowerBound)), Double(scales.upperBound))
        return Int(wanted)
    }
}
