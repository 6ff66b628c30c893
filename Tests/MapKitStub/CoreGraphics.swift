// swift-format-ignore-file

// The signatures are Apple's, and documented there.
public import Foundation

// What of CoreGraphics and ImageIO the adapter uses, with Apple's signatures; the bodies record what they are asked to do.
// For Linux alone: an Apple platform has the real ones.
#if canImport(Darwin)
#error("This is no MapKit; it only takes its place where there is none.")
#endif

/// What a context was asked to draw, in the coordinates that it had at first.
public enum Drawn: Hashable, Sendable {
    /// A picture by its name; one that stands on its head has a positive height.
    case image(String, CGRectValue, clip: CGRectValue?)
    case fill(CGRectValue, color: [Double])
    case stroke(CGRectValue, color: [Double])
}

/// A rectangle that can be compared.
public struct CGRectValue: Hashable, Sendable {
    public var x, y, width, height: Double
    public init(_ rect: CGRect) {
        (x, y) = (Double(rect.origin.x), Double(rect.origin.y))
        (width, height) = (Double(rect.size.width), Double(rect.size.height))
    }
    public init(_ x: Double, _ y: Double, _ width: Double, _ height: Double) {
        (self.x, self.y, self.width, self.height) = (x, y, width, height)
    }
}

/// Records what is drawn into it. Used by one thread at a time, as a real one is.
public final class CGContext {
    private struct State {
        var (tx, ty, sx, sy) = (0.0, 0.0, 1.0, 1.0)
        var clip: CGRectValue?
        var (fill, stroke): ([Double], [Double]) = ([], [])
    }
    private var state = State()
    private var saved: [State] = []
    public private(set) var drawn: [Drawn] = []

    public init() {}
    /// How often the state was saved and not restored.
    public var depth: Int { saved.count }
    public func saveGState() { saved.append(state) }
    public func restoreGState() { state = saved.removeLast() }
    public func translateBy(x tx: CGFloat, y ty: CGFloat) {
        state.tx += Double(tx) * state.sx
        state.ty += Double(ty) * state.sy
    }
    public func scaleBy(x sx: CGFloat, y sy: CGFloat) {
        state.sx *= Double(sx)
        state.sy *= Double(sy)
    }
    private func place(_ rect: CGRect) -> CGRectValue {
        let value = CGRectValue(rect)
        return CGRectValue(
            state.tx + value.x * state.sx, state.ty + value.y * state.sy, value.width * state.sx,
            value.height * state.sy)
    }
    public func draw(_ image: CGImage, in rect: CGRect, byTiling: Bool = false) {
        drawn.append(.image(image.name, place(rect), clip: state.clip))
    }
    public func clip(to rect: CGRect) { state.clip = place(rect) }
    public func fill(_ rect: CGRect) { drawn.append(.fill(place(rect), color: state.fill)) }
    public func fill(_ rects: [CGRect]) { for rect in rects { fill(rect) } }
    public func stroke(_ rect: CGRect, width: CGFloat) { drawn.append(.stroke(place(rect), color: state.stroke)) }
    public func setFillColor(red: CGFloat, green: CGFloat, blue: CGFloat, alpha: CGFloat) {
        state.fill = [Double(red), Double(green), Double(blue), Double(alpha)]
    }
    public func setStrokeColor(red: CGFloat, green: CGFloat, blue: CGFloat, alpha: CGFloat) {
        state.stroke = [Double(red), Double(green), Double(blue), Double(alpha)]
    }
}

public final class CGImage {
    /// What tells it apart in a test: the text behind the head of its bytes.
    public let name: String
    public let width, height: Int
    init(name: String, width: Int, height: Int) { (self.name, self.width, self.height) = (name, width, height) }
    public var bytesPerRow: Int { width * 4 }
}

// MARK: ImageIO

public typealias CFData = NSData
public typealias CFDictionary = NSDictionary
public typealias CFString = NSString

nonisolated(unsafe) public let kCGImageSourceShouldCache: CFString = "kCGImageSourceShouldCache"
nonisolated(unsafe) public let kCGImageSourceShouldCacheImmediately: CFString = "kCGImageSourceShouldCacheImmediately"
nonisolated(unsafe) public let kCGImagePropertyPixelWidth: CFString = "PixelWidth"
nonisolated(unsafe) public let kCGImagePropertyPixelHeight: CFString = "PixelHeight"

/// Takes for a picture what begins as PNG does and goes on with width and height of four bytes each and a name.
public final class CGImageSource {
    let image: CGImage?
    init(_ data: Data) {
        let bytes = Array(data)
        guard bytes.count >= 16, bytes.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) else {
            image = nil
            return
        }
        func number(_ at: Int) -> Int { bytes[at..<at + 4].reduce(0) { $0 << 8 | Int($1) } }
        image = CGImage(
            name: String(decoding: bytes[16...], as: UTF8.self), width: number(8), height: number(12))
    }
}

public func CGImageSourceCreateWithData(_ data: CFData, _ options: CFDictionary?) -> CGImageSource? {
    CGImageSource(Data(referencing: data))
}
public func CGImageSourceCopyPropertiesAtIndex(
    _ source: CGImageSource, _ index: Int, _ options: CFDictionary?
) -> CFDictionary? {
    guard let image = source.image else { return nil }
    return NSDictionary(
        objects: [NSNumber(value: image.width), NSNumber(value: image.height)],
        forKeys: [kCGImagePropertyPixelWidth, kCGImagePropertyPixelHeight])
}
public func CGImageSourceCreateImageAtIndex(
    _ source: CGImageSource, _ index: Int, _ options: CFDictionary?
) -> CGImage? {
    source.image
}
