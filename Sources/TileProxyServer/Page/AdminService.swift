import HTTPListener
import NIOCore
package import SharedTier
import TileCache
import TileStore

/// What the page and the operator's routes share over all event loops.
package final class AdminService: Sendable {
    let tiles: TileService
    let figures: CacheFigures
    let statistics: Statistics
    let leaflet: LeafletFiles?
    /// The page as it is at the root, and as it is below `/_tileproxy/`.
    let rootPage: MapPage?
    let ownPage: MapPage?
    let hasMetrics: Bool
    /// Purges over HTTP; `nil` without a token.
    let purges: PurgeService?
    /// Whether the root is the page's; else it belongs to an upstream.
    let ownsRoot: Bool
    /// The hosts under which the page and the figures are served.
    private let hosts: OwnHosts
    private let stopping = Locked(false)

    package init(
        tiles: TileService, figures: CacheFigures, statistics: Statistics, configuration: ProxyConfiguration,
        marks: MarkWriter? = nil
    ) {
        purges = configuration.purgeToken.map { token in
            PurgeService(
                token, tiles: tiles, upstreams: configuration.routes.map(\.name), marks: marks, logger: tiles.logger)
        }
        self.tiles = tiles
        self.figures = figures
        self.statistics = statistics
        hasMetrics = configuration.hasMetrics
        hosts = OwnHosts(listenHosts: configuration.listen.compactMap(\.host), names: configuration.hosts)
        ownsRoot = !configuration.routes.contains { $0.prefix.isEmpty }
        leaflet = configuration.hasPage ? LeafletFiles(configuration) : nil
        let place: MapPage.Leaflet = leaflet == nil ? .network : .own
        let hasPage = configuration.hasPage
        rootPage = hasPage ? MapPage(leaflet: place, own: "_tileproxy/", root: "") : nil
        ownPage = hasPage ? MapPage(leaflet: place, own: "", root: "../") : nil
    }

    /// From now on the server says that it is not healthy, so that whoever spreads the load looks elsewhere.
    package func isStopping() { stopping.withLock { $0 = true } }
    var isGoingDown: Bool { stopping.withLock { $0 } }

    /// Whether a request for a host is for this server, and not for another site whose name points here.
    func isOwn(_ authority: String?) -> Bool { hosts.contains(authority, publicURL: tiles.table.publicURL) }

    /// What this process has evicted.
    var evicted: RemovalReport { tiles.store.evictedHere }
}
