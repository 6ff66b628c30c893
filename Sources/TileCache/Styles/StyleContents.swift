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
    /// Which source's tile a URL is answered with.
    typealias Route = @Sendable (HTTPRequest) -> (TileSource, TileKey)?

    /// The resources by their keys: their URLs.
    private(set) var urls: [TileKey: URL] = [:]
    /// Their keys, in the order in which they are asked for.
    private(set) var resources: [TileKey] = []
    /// Those of them that say what else there is, with the bodies' digests as they were read.
    private(set) var documents: [TileKey: BlobDigest] = [:]
    /// The sources of tiles that the cache has as such.
    private(set) var sources: [SourceName: TileSource] = [:]
    /// Their tiles: rectangles of one source, in one scale and format.
    private(set) var parts: [TilePart] = []
    /// Tiles that are in none of ``parts``.
    private(set) var tiles: [TileKey] = []

    /// What tells the tiles of one source that are downloaded together.
    private struct Tiles: Hashable {
        let source: SourceName
        let scale: Int
    }

    private let keys: ResourceKeyMaker
    private let map: StyledRegion
    private let bulkAllowedHosts: Set<String>
    private let route: Route
    private var zooms: [Tiles: Set<Int>] = [:]
    private var areas: [SourceName: [Int: [TileSpan]]] = [:]
    private var singles: Set<TileKey> = []
    private var urlsMade = 0

    /// So many URLs of tiles are made at most, equal ones counted each time.
    private static let mostURLs = 4 * PinnedRegion.mostResources

    /// - Parameter route: What requests for resources come to: a source's template may make a URL that a style names.
    init(_ map: StyledRegion, _ keys: ResourceKeyMaker, bulkAllowedHosts: Set<String>, route: @escaping Route) {
        (self.map, self.keys, self.bulkAllowedHosts, self.route) = (map, keys, bulkAllowedHosts, route)
    }

    /// Adds what a URL gives: a resource, or the tile of a source that it is answered with.
    ///
    /// - Throws: ``TileCacheError``, with ``TileCacheError/Code/forbidden`` if its host's terms forbid it.
    mutating func add(_ text: String, _ place: String) throws {
        let url = try checked(text, place)
        if let (source, key) = HTTPRequest(getting: url).flatMap(route) {
            sources[source.name] = source
            guard singles.insert(source.lastKept(key)).inserted else { return }
        } else {
            guard let key = keys.key(of: url) else { throw Self.noURL(place) }
            guard urls.updateValue(url, forKey: key) == nil else { return }
            resources.append(key)
        }
        guard resources.count + singles.count <= PinnedRegion.mostResources else { throw tooMany(place) }
    }

    private func checked(_ text: String, _ place: String) throws -> URL {
        // An encoded host is another way to write one that is forbidden.
        guard let url = URL(string: text), let host = URIReference(text)?.authority, !host.contains("%") else {
            throw Self.noURL(place)
        }
        if let error = BulkPolicy.objection(toHost: host.afterUser, allowed: bulkAllowedHosts) { throw error }
        return url
    }

    private static func noURL(_ place: String) -> TileCacheError {
        TileCacheError(
            .invalidStyle, "\(place) names a URL that cannot be kept: it is none, or longer than 1024 characters")
    }

    /// Adds a style or a TileJSON by its URL, before it is read.
    mutating func addDocument(_ url: URL, _ place: String) throws {
        if let (source, _) = try HTTPRequest(getting: checked(url.absoluteString, place)).flatMap(route) {
            throw TileCacheError(
                .invalidStyle,
                "\(place) has a URL that source \(source.name) has for one of its tiles: change its template")
        }
        try add(url.absoluteString, place)
    }

    /// Takes note of what was read of a style or a TileJSON.
    mutating func read(_ url: URL, _ body: Data) {
        if let key = keys.key(of: url) { documents[key] = body.withUnsafeBytes { BlobDigest(hashing: $0) } }
    }

    /// Adds the tiles of a style's source: as tiles where they are of a source that the cache has, else as resources.
    mutating func add(_ tiles: TileSet, _ place: String) throws {
        guard let wanted = tiles.zooms(for: map.zooms) else { return }
        for zoom in wanted {
            guard let known = try match(tiles, zoom) else {
                try addByURL(tiles, zoom, place)
                continue
            }
            let source = known.source
            sources[source.name] = source
            // What lies beyond its last zoom is made of that one.
            let kept = min(max(zoom, source.zooms.lowerBound), source.zooms.upperBound)
            zooms[Tiles(source: source.name, scale: known.scale), default: []].insert(kept)
            var spans = try spans(kept, of: tiles)
            // Where two have it with other bounds, all of the area is taken: no tile is named twice.
            if let others = areas[source.name]?[kept], others != spans { spans = try self.spans(kept) }
            areas[source.name, default: [:]][kept] = spans
        }
    }

    /// The map's area at a zoom, where a style's source has tiles.
    private func spans(_ zoom: Int, of tiles: TileSet? = nil) throws -> [TileSpan] {
        do {
            let all = try TileCoverage(map.shape, zooms: zoom...zoom).spans()
            guard let bounds = tiles?.bounds else { return all }
            let there = try TileCoverage(.box(bounds), zooms: zoom...zoom).spans()
            return try all.flatMap { span in try there.compactMap { try $0.common(with: span) } }
        } catch let error as StoreError {
            throw TileCacheError(.invalidRegion, error.message, cause: error)
        }
    }

    /// The source of the cache whose URLs a style's template makes at a zoom.
    ///
    /// Tiles from all over the zoom tell: of an area alone, all may have equal columns and rows, which may then stand in either order.
    private func match(_ tiles: TileSet, _ zoom: Int) throws -> (source: TileSource, scale: Int)? {
        var found: (source: TileSource, scale: Int)?
        for sample in Self.samples(zoom) {
            let request = URL(string: tiles.url(of: sample, scale: map.scale)).flatMap { HTTPRequest(getting: $0) }
            guard let request, let (source, key) = route(request), let tile = key.tile,
                (tile.z, tile.x, tile.y) == (sample.z, sample.x, sample.y),
                found.map({ $0.source.name == source.name && $0.scale == tile.scale }) ?? true
            else { return nil }
            found = (source, tile.scale)
        }
        return found
    }

    /// All tiles of a low zoom; of others 64 that lie without order.
    private static func samples(_ zoom: Int) -> [TileAddress] {
        let side = 1 << zoom
        if zoom <= 3 { return (0..<side * side).map { TileAddress(unchecked: zoom, $0 % side, $0 / side, 1, nil) } }
        // Steps of a linear congruential generator (Knuth, MMIX), of which the high bits are used.
        var state: UInt64 = 1
        func next() -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(state >> 33) & (side - 1)
        }
        return (0..<64).map { _ in TileAddress(unchecked: zoom, next(), next(), 1, nil) }
    }

    /// Adds tiles by their URLs.
    private mutating func addByURL(_ tiles: TileSet, _ zoom: Int, _ place: String) throws {
        let spans = try spans(zoom, of: tiles)
        // One that has no tile there asks for nothing.
        guard !spans.isEmpty else { return }
        guard !tiles.hasBoxes else {
            throw TileCacheError(
                .invalidStyle,
                "\(place) asks for tiles by their boxes, which each program writes in its own way: name a TileSource for them"
            )
        }
        for span in spans {
            guard span.count <= PinnedRegion.mostResources, urlsMade + span.count <= Self.mostURLs else {
                throw tooMany(place)
            }
            urlsMade += span.count
            for row in span.rows {
                for column in span.columns {
                    let tile = TileAddress(unchecked: zoom, column, row, 1, nil)
                    try add(tiles.url(of: tile, scale: map.scale), place)
                }
            }
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
        do {
            (parts, tiles) = ([], [])
            for (kind, zooms) in zooms.sorted(by: { ($0.key.source, $0.key.scale) < ($1.key.source, $1.key.scale) }) {
                let spans = zooms.sorted().flatMap { areas[kind.source]?[$0] ?? [] }
                guard !spans.isEmpty else { continue }
                let variant = try TileAddress(
                    z: 0, x: 0, y: 0, scale: kind.scale, format: sources[kind.source]?.format)
                parts.append(
                    TilePart(region: try PinnedRegion(name: name, source: kind.source, spans: spans), variant: variant))
            }
            tiles = singles.filter { key in !parts.contains { $0.contains(key) } }.sorted()
            var pinned: [SourceTiles] = []
            for source in sources.keys.sorted() {
                let area = (areas[source] ?? [:]).sorted { $0.key < $1.key }.flatMap(\.value)
                let spans = area + TileSpan.runs(of: tiles.filter { $0.source == source }.compactMap(\.tile))
                if !spans.isEmpty { pinned.append(SourceTiles(source: source, spans: spans)) }
            }
            var box: GeoBox?
            if case .box(let given) = map.shape { box = given }
            return try PinnedRegion(name: name, tiles: pinned, resources: resources, box: box)
        } catch let error as StoreError {
            throw TileCacheError(.invalidRegion, error.message, cause: error)
        }
    }

    /// The host and port of a resource; `nil` for a tile.
    func host(of key: TileKey) -> String? { urls[key].map { "\($0.host ?? ""):\($0.port ?? 0)" } }

    /// How many there are of everything.
    var total: Int {
        parts.reduce(resources.count + tiles.count) { sum, part in
            let (total, overflow) = sum.addingReportingOverflow(part.region.tileCount)
            return overflow ? Int.max : total
        }
    }

    /// All keys, resources first.
    var iterator: StyleIterator { StyleIterator(self) }
}

extension TileSource {
    /// The tile by which the cache has another one: beyond the last zoom, that which it is made of.
    fileprivate func lastKept(_ key: TileKey) -> TileKey {
        guard let tile = key.tile, tile.z > zooms.upperBound else { return key }
        let up = tile.z - zooms.upperBound
        return TileKey(source: key.source, tile: tile.at(zooms.upperBound, tile.x >> up, tile.y >> up))
    }
}

extension TileSpan {
    /// What two rectangles of one zoom have in common; `nil` for nothing.
    fileprivate func common(with other: TileSpan) throws -> TileSpan? {
        guard columns.overlaps(other.columns), rows.overlaps(other.rows) else { return nil }
        return try TileSpan(zoom: zoom, columns: columns.clamped(to: other.columns), rows: rows.clamped(to: other.rows))
    }

    /// Tiles as rectangles of one row each.
    fileprivate static func runs(of tiles: [TileAddress]) -> [TileSpan] {
        var runs: [(z: Int, y: Int, columns: ClosedRange<Int>)] = []
        for tile in tiles.sorted(by: { ($0.z, $0.y, $0.x) < ($1.z, $1.y, $1.x) }) {
            if let last = runs.last, (last.z, last.y) == (tile.z, tile.y), tile.x <= last.columns.upperBound + 1 {
                runs[runs.count - 1].columns = last.columns.lowerBound...tile.x
            } else {
                runs.append((tile.z, tile.y, tile.x...tile.x))
            }
        }
        // Addresses are within their zooms.
        return runs.compactMap { try? TileSpan(zoom: $0.z, columns: $0.columns, rows: $0.y...$0.y) }
    }
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
    /// What is left of what is in no rectangle.
    private(set) var keys: ArraySlice<TileKey>
    /// The rectangles that are left.
    private(set) var parts: ArraySlice<TilePart>
    private var tiles: SpanIterator?

    init(_ contents: StyleContents) {
        keys = (contents.resources + contents.tiles)[...]
        parts = contents.parts[...]
    }

    mutating func next() -> TileKey? {
        if let key = keys.popFirst() { return key }
        while true {
            if let key = tiles?.next() { return key }
            guard let next = parts.popFirst() else { return nil }
            tiles = SpanIterator(next.region, like: next.variant)
        }
    }
}

/// Rectangles of one source's tiles, in one scale and format.
struct TilePart: Sendable {
    let region: PinnedRegion
    /// A tile of that scale and format.
    let variant: TileAddress

    func contains(_ key: TileKey) -> Bool {
        guard let tile = key.tile else { return false }
        return (tile.scale, tile.format) == (variant.scale, variant.format) && region.contains(key)
    }
}
