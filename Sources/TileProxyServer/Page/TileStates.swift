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
    }

    var source: String
    var z: Int
    var tiles: [Tile]

    /// So many tiles at most are told of at once.
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
    /// Costs about a microsecond a tile.
    init(_ query: Query, _ source: ServedSource, store: TileStore, now: HTTPDate) throws {
        self.source = query.source
        z = query.z
        tiles = []
        for y in query.y {
            // What is made from lower zooms is not a tile of its own.
            for x in query.x where source.covers(z: query.z, x: x, y: y) && !source.overzooms(query.z) {
                guard !source.configuration.isLocal else {
                    tiles.append(Tile(x: x, y: y, state: "local"))
                    continue
                }
                let entry = try store.entry(for: try source.tiles.key(z: query.z, x: x, y: y))
                tiles.append(Self.tile(x, y, entry, now))
            }
        }
    }

    private static func tile(_ x: Int, _ y: Int, _ entry: TileEntry?, _ now: HTTPDate) -> Tile {
        guard let entry else { return Tile(x: x, y: y, state: "missing") }
        let freshness = StoredFreshness(entry.metadata)
        let isFresh = freshness.isFresh(at: now) && !entry.metadata.response.noCache
        return Tile(
            x: x, y: y, state: !isFresh ? "stale" : entry.blob == nil ? "negative" : "fresh",
            age: freshness.age(at: now), ttl: freshness.expires.seconds(since: now),
            size: entry.blob == nil ? nil : entry.size, blob: entry.blob.map { String($0.description.prefix(12)) })
    }
}
