/// Tiles of one source, as rectangles.
public struct SourceTiles: Hashable, Sendable {
    /// The source.
    public let source: SourceName
    /// Its tiles, in every scale and format.
    public let spans: [TileSpan]

    /// Names tiles of a source.
    public init(source: SourceName, spans: [TileSpan]) {
        self.source = source
        self.spans = spans
    }

    /// How many tiles there are, those that overlap counted once for each rectangle; `Int.max` if they are more.
    var count: Int {
        spans.reduce(0) { sum, span in
            let (total, overflow) = sum.addingReportingOverflow(span.count)
            return overflow ? Int.max : total
        }
    }
}

/// A named set of tiles and other resources that is kept whatever the limits say, on an account of its own.
///
/// Most regions have tiles of one source. What a whole map needs may be one region, too: tiles of several sources, and the resources
/// that its style names.
public struct PinnedRegion: Hashable, Sendable {
    /// Its name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///
    /// Pinning another region of that name replaces it.
    public let name: String
    /// The source whose tiles it pins, in every scale and format.
    ///
    /// Of several sources the first; without any tiles, that of its resources.
    public let source: SourceName
    /// What it covers of ``source``; empty only for a region of resources alone.
    public let spans: [TileSpan]
    /// The box that it was made from, in degrees, for people; the spans decide.
    public let box: GeoBox?
    /// Further sources whose tiles it pins.
    public let others: [SourceTiles]
    /// The resources that it pins, with all their variants, in the order of their keys.
    public let resources: [TileKey]

    /// At most so many rectangles, of all sources together.
    package static let mostSpans = 65_536
    /// At most so many resources.
    package static let mostResources = 65_536
    /// At most so many sources.
    package static let mostSources = 256
    /// At most so many bytes of the resources' keys: a region is one line of the manifest.
    static let longestResources = 16 << 20

    /// Checks and takes a region of tiles of one source.
    ///
    /// - Throws: `StoreError` with `StoreError.Code.invalidValue`.
    public init(name: String, source: SourceName, spans: [TileSpan], box: GeoBox? = nil) throws {
        try self.init(name: name, tiles: [SourceTiles(source: source, spans: spans)], resources: [], box: box)
    }

    /// Checks and takes a region.
    ///
    /// - Parameters:
    ///   - name: Its name.
    ///   - tiles: The tiles, each source once.
    ///   - resources: Keys of resources, without a variant.
    ///   - box: The box that it was made from.
    /// - Throws: `StoreError` with `StoreError.Code.invalidValue`.
    public init(name: String, tiles: [SourceTiles], resources: [TileKey], box: GeoBox? = nil) throws {
        func refuse(_ why: String) -> StoreError { StoreError(.invalidValue, why) }
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isSourceByte) else {
            throw refuse("region name \(quoted(name)) must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
        }
        let rectangles = tiles.reduce(0) { $0 + $1.spans.count }
        guard rectangles <= Self.mostSpans, tiles.allSatisfy({ !$0.spans.isEmpty }),
            let source = tiles.first?.source ?? resources.first?.source
        else {
            throw refuse("region \(name) has \(rectangles) rectangles; 1 to \(Self.mostSpans) are possible")
        }
        guard tiles.count <= Self.mostSources, Set(tiles.map(\.source)).count == tiles.count else {
            throw refuse(
                "region \(name) has tiles of \(tiles.count) sources; at most \(Self.mostSources) are possible, each once"
            )
        }
        let keys = Set(resources)
        guard keys.count <= Self.mostResources, keys.allSatisfy(\.isResourceForAll),
            keys.reduce(0, { $0 + $1.pathLength }) <= Self.longestResources
        else {
            throw refuse(
                "region \(name) has \(keys.count) resources; at most \(Self.mostResources) are possible, of "
                    + "\(Self.longestResources >> 20) MiB of keys, none of them a tile or a variant")
        }
        self.name = name
        self.source = source
        self.spans = tiles.first?.spans ?? []
        self.box = box
        others = Array(tiles.dropFirst())
        self.resources = keys.sorted()
    }

    /// The tiles of all its sources.
    public var tiles: [SourceTiles] { spans.isEmpty ? [] : [SourceTiles(source: source, spans: spans)] + others }

    /// Whether it is of tiles of one source, and of nothing else.
    public var isOfOneSource: Bool { others.isEmpty && resources.isEmpty }

    /// Its part that is of one source's tiles; `nil` if it has none of them.
    public func part(of source: SourceName) -> PinnedRegion? {
        guard let tiles = tiles.first(where: { $0.source == source }) else { return nil }
        return PinnedRegion(self, tiles)
    }

    private init(_ region: PinnedRegion, _ tiles: SourceTiles) {
        (name, box) = (region.name, region.box)
        (source, spans, others, resources) = (tiles.source, tiles.spans, [], [])
    }

    /// How many tiles it covers, those that overlap counted once for each rectangle; `Int.max` if they are more.
    public var tileCount: Int {
        tiles.reduce(0) { sum, tiles in
            let (total, overflow) = sum.addingReportingOverflow(tiles.count)
            return overflow ? Int.max : total
        }
    }

    /// Whether it covers a tile of ``source``.
    public func contains(z: Int, x: Int, y: Int) -> Bool {
        spans.contains { $0.contains(z: z, x: x, y: y) }
    }

    /// Whether it pins a key.
    public func contains(_ key: TileKey) -> Bool {
        guard let tile = key.tile else { return key.forAllVariants.map(resources.contains) ?? false }
        return tiles.contains { tiles in
            tiles.source == key.source && tiles.spans.contains { $0.contains(z: tile.z, x: tile.x, y: tile.y) }
        }
    }

    /// The sources of all that it pins.
    var sources: Set<SourceName> { Set(tiles.map(\.source) + resources.map(\.source)) }
}

extension TileKey {
    /// The key that all variants of a resource have in common; `nil` for a tile.
    var forAllVariants: TileKey? {
        guard case .resource(let resource) = address else { return nil }
        return TileKey(source: source, resource: resource.forAllVariants)
    }

    /// Whether it is a resource's that is no variant.
    fileprivate var isResourceForAll: Bool {
        if case .resource(let resource) = address { resource.variant == nil } else { false }
    }

    fileprivate var pathLength: Int {
        if case .resource(let resource) = address { resource.path.utf8.count + 104 } else { 0 }
    }
}
