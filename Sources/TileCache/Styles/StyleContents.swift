import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// All that a map with some styles needs, and where it comes from.
struct StyleContents: Sendable {
    /// The resources by their keys: their URLs.
    private(set) var urls: [TileKey: URL] = [:]
    /// Their keys, in the order in which they are asked for.
    private(set) var resources: [TileKey] = []
    /// Those of them that say what else there is: as they were read.
    private(set) var documents: Set<TileKey> = []
    /// The sources of tiles that the cache has as such.
    private(set) var sources: [SourceName: TileSource] = [:]
    /// Their tiles.
    private(set) var coverages: [(source: SourceName, coverage: TileCoverage)] = []

    /// What tells the tiles of one source that are downloaded together.
    private struct Tiles: Hashable {
        let source: SourceName
        let scale: Int
    }

    private let keys: ResourceKeyMaker
    private let map: StyledRegion
    private let bulkAllowedHosts: Set<String>
    private var zooms: [Tiles: Set<Int>] = [:]

    init(_ map: StyledRegion, _ keys: ResourceKeyMaker, bulkAllowedHosts: Set<String>) {
        (self.map, self.keys, self.bulkAllowedHosts) = (map, keys, bulkAllowedHosts)
    }

    /// Adds a resource by its URL.
    ///
    /// - Throws: ``TileCacheError``, with ``TileCacheError/Code/forbidden`` if its host's terms forbid it.
    mutating func add(_ text: String, _ place: String) throws {
        // An encoded host is another way to write one that is forbidden.
        guard let url = URL(string: text), let host = URIReference(text)?.authority, !host.contains("%"),
            let key = keys.key(of: url)
        else {
            throw TileCacheError(
                .invalidStyle, "\(place) names a URL that cannot be kept: it is none, or longer than 1024 characters")
        }
        if let error = BulkPolicy.objection(toHost: host.afterUser, allowed: bulkAllowedHosts) { throw error }
        guard urls.updateValue(url, forKey: key) == nil else { return }
        resources.append(key)
        guard resources.count <= PinnedRegion.mostResources else { throw tooMany(place) }
    }

    /// Adds a style or a TileJSON by its URL.
    mutating func addDocument(_ url: URL, _ place: String) throws {
        try add(url.absoluteString, place)
        if let key = keys.key(of: url) { documents.insert(key) }
    }

    /// Adds the tiles of a style's source: as tiles where they are of a source that the cache has, else as resources.
    ///
    /// - Parameter source: Which source's tile a URL is of.
    mutating func add(
        _ tiles: TileSet, _ place: String, source: (HTTPRequest) -> (TileSource, TileKey)?
    ) throws {
        guard let wanted = tiles.zooms(for: map.zooms) else { return }
        for zoom in wanted {
            let coverage = try TileCoverage(map.shape, zooms: zoom...zoom)
            guard let known = match(tiles, coverage, source) else {
                try addByURL(tiles, coverage, place)
                continue
            }
            sources[known.source.name] = known.source
            // What lies beyond its last zoom is made of that one.
            zooms[Tiles(source: known.source.name, scale: known.scale), default: []]
                .insert(min(max(zoom, known.source.zooms.lowerBound), known.source.zooms.upperBound))
        }
    }

    /// The source of the cache whose URLs a style's template makes.
    ///
    /// One tile does not tell: where its column and its row are equal, they may stand in either order.
    private func match(
        _ tiles: TileSet, _ coverage: TileCoverage, _ source: (HTTPRequest) -> (TileSource, TileKey)?
    ) -> (source: TileSource, scale: Int)? {
        var found: (source: TileSource, scale: Int)?
        for sample in coverage.tiles().prefix(16) {
            let request = URL(string: tiles.url(of: sample, scale: map.scale)).flatMap { HTTPRequest(getting: $0) }
            guard let request, let (source, key) = source(request), let tile = key.tile,
                (tile.z, tile.x, tile.y) == (sample.z, sample.x, sample.y),
                found.map({ $0.source.name == source.name && $0.scale == tile.scale }) ?? true
            else { return nil }
            found = (source, tile.scale)
        }
        return found
    }

    /// Adds tiles as resources.
    private mutating func addByURL(_ tiles: TileSet, _ coverage: TileCoverage, _ place: String) throws {
        // One that has no tile there asks for nothing.
        guard coverage.tileCount > 0 else { return }
        guard !tiles.hasBoxes else {
            throw TileCacheError(
                .invalidStyle,
                "\(place) asks for tiles by their boxes, which each program writes in its own way: name a TileSource for them"
            )
        }
        guard coverage.tileCount <= PinnedRegion.mostResources else { throw tooMany(place) }
        for tile in coverage.tiles() where tiles.covers(tile) {
            try add(tiles.url(of: tile, scale: map.scale), place)
        }
    }

    private func tooMany(_ place: String) -> TileCacheError {
        TileCacheError(
            .invalidStyle,
            "\(place) needs more than \(PinnedRegion.mostResources) files at these zooms: name TileSources for its tiles, "
                + "or choose a smaller area, fewer zooms or fewer glyphs")
    }

    /// The region that all of it is, once everything was added.
    mutating func region(named name: String) throws -> PinnedRegion {
        var pinned: [SourceTiles] = []
        do {
            coverages = []
            for source in sources.values.sorted(by: { $0.name < $1.name }) {
                var spans: [TileSpan] = []
                for (tiles, zooms) in zooms.sorted(by: { $0.key.scale < $1.key.scale })
                where tiles.source == source.name {
                    for zoom in zooms.sorted() {
                        let coverage = try TileCoverage(
                            map.shape, zooms: zoom...zoom, scale: tiles.scale, format: source.format)
                        coverages.append((source.name, coverage))
                        let rectangles = try coverage.spans()
                        if !spans.contains(where: { $0.zoom == zoom }) { spans += rectangles }
                    }
                }
                pinned.append(SourceTiles(source: source.name, spans: spans))
            }
            var box: GeoBox?
            if case .box(let given) = map.shape { box = given }
            return try PinnedRegion(name: name, tiles: pinned, resources: resources, box: box)
        } catch let error as StoreError {
            throw TileCacheError(.invalidRegion, error.message, cause: error)
        }
    }

    /// How many there are of everything.
    var total: Int {
        coverages.reduce(resources.count) { sum, item in
            let (total, overflow) = sum.addingReportingOverflow(item.coverage.tileCount)
            return overflow ? Int.max : total
        }
    }

    /// All keys, resources first.
    var iterator: StyleIterator { StyleIterator(self) }
}

extension TileSource {
    /// Stands where a download has many sources: it has no tiles, and is asked for none.
    static let ofStyles = TileSource(unavailable: .resources, local: NoTiles(), zooms: 0...0)
}

private final class NoTiles: LocalTiles {
    func tile(_ address: TileAddress) throws -> LocalTile? { nil }
}

extension String {
    /// An authority's host and port, without a user.
    fileprivate var afterUser: String { lastIndex(of: "@").map { String(self[index(after: $0)...]) } ?? self }
}

/// The keys of all that a map needs.
struct StyleIterator: IteratorProtocol, Sendable {
    private var resources: ArraySlice<TileKey>
    private var left: ArraySlice<(source: SourceName, coverage: TileCoverage)>
    private var tiles: KeyIterator?

    init(_ contents: StyleContents) {
        resources = contents.resources[...]
        left = contents.coverages[...]
    }

    mutating func next() -> TileKey? {
        if let key = resources.popFirst() { return key }
        while true {
            if let key = tiles?.next() { return key }
            guard let next = left.popFirst() else { return nil }
            tiles = KeyIterator(source: next.source, next.coverage)
        }
    }
}
