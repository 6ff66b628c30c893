import HTTPCaching
import TileCache
import TileStore

/// What `/_tileproxy/states.json` says: how a rectangle of tiles stands in the cache.
///
/// Nothing is fetched for it.
struct TileStates: Encodable {
    /// One tile.
    struct Tile: Encodable, Equatable {
        var x: Int
        var y: Int
        /// `fresh`, `stale`, `negative`, `missing`, or `local` for a file.
        var state: String
        /// Seconds since the origin made it.
        var age: Int?
        /// Seconds that it stays fresh, negative if it is stale.
        var ttl: Int?
        var size: Int?
        /// The first digits of its blob's name: equal tiles have equal ones.
        var blob: String?
        /// For a tile past the source's last zoom: the zoom of the tile that it is made from, which the other fields
        /// describe.
        var from: Int?
    }

    var source: String
    var z: Int
    var tiles: [Tile]

    /// The most tiles in one answer.
    static let limit = 1024

    /// What a query asks for.
    struct Query: Equatable {
        var source: String
        var z: Int
        var x: ClosedRange<Int>
        var y: ClosedRange<Int>

        /// Reads `source=NAME&z=3&x=0-7&y=0-7`; `nil` if something is missing, wrong or too much.
        init?(_ query: String?) {
            var values: [Substring: String] = [:]
            for pair in (query ?? "").split(separator: "&") {
                guard let mark = pair.firstIndex(of: "=") else { return nil }
                values[pair[..<mark]] = String(pair[pair.index(after: mark)...])
            }
            guard let source = values["source"], let z = values["z"].flatMap({ Int($0) }), (0...28).contains(z),
                let x = values["x"].flatMap({ Self.range($0, z) }), let y = values["y"].flatMap({ Self.range($0, z) }),
                x.count <= TileStates.limit, y.count <= TileStates.limit, x.count * y.count <= TileStates.limit
            else { return nil }
            (self.source, self.z, self.x, self.y) = (source, z, x, y)
        }

        private static func range(_ text: String, _ z: Int) -> ClosedRange<Int>? {
            let parts = text.split(separator: "-", omittingEmptySubsequences: false).map { Int($0) }
            guard (1...2).contains(parts.count), let first = parts[0], let last = parts[parts.count - 1], first >= 0,
                first <= last, last < 1 << z
            else { return nil }
            return first...last
        }
    }

    /// Looks the tiles up.
    ///
    /// Costs about a microsecond a tile; past the source's last zoom, at most that for each level of overzoom.
    init(_ query: Query, _ source: ServedSource, store: TileStore, now: HTTPDate) throws {
        self.source = query.source
        z = query.z
        tiles = []
        for y in query.y {
            for x in query.x where source.covers(z: query.z, x: x, y: y) {
                tiles.append(try Self.tile(query.z, x, y, source, store, now))
            }
        }
    }

    private static func tile(
        _ z: Int, _ x: Int, _ y: Int, _ source: ServedSource, _ store: TileStore, _ now: HTTPDate
    ) throws -> Tile {
        guard source.overzooms(z) else {
            guard !source.isLocal else { return Tile(x: x, y: y, state: "local") }
            return tile(x, y, try store.entry(for: try source.tiles.key(z: z, x: x, y: y)), now)
        }
        let last = source.tiles.zooms.upperBound
        guard !source.isLocal else { return Tile(x: x, y: y, state: "local", from: last) }
        // In the order in which the proxy asks: what is known to be absent leads to the next lower zoom.
        var found = Tile(x: x, y: y, state: "missing", from: last)
        let candidates = Overzoom.candidates(
            for: try TileAddress(z: z, x: x, y: y), within: source.tiles.zooms,
            maximumDepth: source.tiles.overzoom.levels)
        for ancestor in candidates.map(\.ancestor) {
            let key = try source.tiles.key(z: ancestor.z, x: ancestor.x, y: ancestor.y)
            let next = tile(x, y, try store.entry(for: key), now, from: ancestor.z)
            if next.state != "negative" { return next }
            if found.state != "negative" { found = next }
        }
        return found
    }

    private static func tile(_ x: Int, _ y: Int, _ entry: TileEntry?, _ now: HTTPDate, from: Int? = nil) -> Tile {
        guard let entry else { return Tile(x: x, y: y, state: "missing", from: from) }
        let freshness = StoredFreshness(entry.metadata)
        let isFresh = freshness.isFresh(at: now) && !entry.metadata.response.noCache
        return Tile(
            x: x, y: y, state: !isFresh ? "stale" : entry.blob == nil ? "negative" : "fresh",
            age: freshness.age(at: now), ttl: freshness.expires.seconds(since: now),
            size: entry.blob == nil ? nil : entry.size, blob: entry.blob.map { String($0.description.prefix(12)) },
            from: from)
    }
}
