import TileStore

/// Which hosts may be asked for more than a person looks at.
enum BulkPolicy {
    /// Hosts whose terms forbid bulk download and prefetching to everybody.
    ///
    /// https://operations.osmfoundation.org/policies/tiles/
    static let forbidden: Set<String> = [
        "tile.openstreetmap.org", "a.tile.openstreetmap.org", "b.tile.openstreetmap.org", "c.tile.openstreetmap.org",
        "tile.osm.org",
    ]

    /// What is wrong with asking a host; `nil` if it may be asked.
    static func objection(toHost host: String, allowed: Set<String>) -> TileCacheError? {
        var name = String(host.lowercased().prefix { $0 != ":" })
        // The same host, written in full.
        while name.hasSuffix(".") { name.removeLast() }
        let isForbidden = forbidden.contains(name) && !allowed.contains { $0.lowercased() == name }
        guard isForbidden else { return nil }
        return TileCacheError(
            .forbidden,
            "\(name) forbids downloading regions and prefetching in its terms; use another server, or name the host as "
                + "allowed if its operators have agreed")
    }
}
