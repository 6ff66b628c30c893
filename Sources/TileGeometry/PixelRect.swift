/// A rectangle of whole pixels in a tile's picture, from its north-west corner.
public struct PixelRect: Hashable, Sendable {
    /// Pixels between the picture's west edge and this rectangle's.
    public let x: Int
    /// Pixels between the picture's north edge and this rectangle's.
    public let y: Int
    /// How many pixels wide it is.
    public let width: Int
    /// How many pixels high it is.
    public let height: Int

    /// Takes a rectangle; none of its numbers is checked.
    public init(x: Int, y: Int, width: Int, height: Int) {
        self.x = x
        self.y = y
        self.width = width
        self.height = height
    }

    /// Whether it has a pixel, and none outside of a picture of a size.
    public func isWithin(width: Int, height: Int) -> Bool {
        self.width > 0 && self.height > 0 && x >= 0 && y >= 0 && self.width <= width && self.height <= height
            && x <= width - self.width && y <= height - self.height
    }
}

extension PixelRect: CustomStringConvertible {
    /// Size and place, such as `64x64+128+0`.
    public var description: String { "\(width)x\(height)+\(x)+\(y)" }
}
