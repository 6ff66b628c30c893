/// A named set of tiles of one source that is kept whatever the limits say, on an account of its own.
public struct PinnedRegion: Hashable, Sendable {
    /// Its name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///
    /// Pinning another region of that name replaces it.
    public let name: String
    /// The source whose tiles it pins, in every scale and format.
    public let source: SourceName
    /// What it covers, at most 65,536 rectangles.
    public let spans: [TileSpan]
    /// The box that it was made from, in degrees, for people; the spans decide.
    public let box: GeoBox?

    /// Checks and takes a region.
    ///
    /// - Throws: `StoreError` with `StoreError.Code.invalidValue`.
    public init(name: String, source: SourceName, spans: [TileSpan], box: GeoBox? = nil) throws {
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isSourceByte) else {
            throw StoreError(
                .invalidValue, "region name \(quoted(name)) must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
        }
        guard (1...65536).contains(spans.count) else {
            throw StoreError(.invalidValue, "region \(name) has \(spans.count) rectangles; 1 to 65536 are possible")
        }
        self.name = name
        self.source = source
        self.spans = spans
        self.box = box
    }

    /// How many tiles it covers, those that overlap counted once for each rectangle; `Int.max` if they are more.
    public var tileCount: Int {
        spans.reduce(0) { sum, span in
            let (total, overflow) = sum.addingReportingOverflow(span.count)
            return overflow ? Int.max : total
        }
    }

    /// Whether it covers a tile.
    public func contains(z: Int, x: Int, y: Int) -> Bool {
        spans.contains { $0.contains(z: z, x: x, y: y) }
    }
}
