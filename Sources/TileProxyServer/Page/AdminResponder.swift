import HTTPCaching
package import HTTPListener
import HTTPTypes
import HTTPWire
package import NIOCore
import SharedTier
import TileCache
import TileStore

/// Answers the page and what else is below `/_tileproxy/` on one event loop.
package final class AdminResponder {
    private let service: AdminService
    private let purges: PurgeResponder?
    private let loop: any EventLoop
    private let time: LoopTime

    static let prefix = "/_tileproxy"

    package init(_ service: AdminService, loop: any EventLoop, time: LoopTime) {
        self.service = service
        purges = service.purges.map { PurgeResponder($0, loop: loop) }
        self.loop = loop
        self.time = time
    }

    /// Whether a path is the page's or the operator's.
    package func owns(_ path: String) -> Bool {
        path == Self.prefix || path.hasPrefix(Self.prefix + "/") || path == "/" && service.ownsRoot
    }

    package func respond(_ exchange: Exchange) {
        let path = exchange.head.path
        let isPurge = path == Self.prefix + "/purge"
        guard isPurge || exchange.head.method == .get || exchange.head.method == .head else {
            exchange.reply(405, "This can only be read.", fields: [.allow: "GET, HEAD"])
            return
        }
        // Who spreads the load asks for health by whatever name it has, and learns nothing else.
        guard path == Self.prefix + "/health" || service.isOwn(exchange.head.host) else {
            exchange.reply(
                421,
                "The page and the figures are not served under this host name. If it is yours, name it in the "
                    + "configuration: publicURL, or hosts.")
            return
        }
        switch path {
        case Self.prefix + "/purge":
            guard let purges else { return exchange.reply(404, "There is nothing here.") }
            purges.respond(exchange)
        case "/": page(service.rootPage, exchange)
        case Self.prefix:
            let fields: HTTPFields = [.location: "_tileproxy/"]
            exchange.reply(308, "The page is at /_tileproxy/.", fields: fields)
        case Self.prefix + "/": page(service.ownPage, exchange)
        case Self.prefix + "/health": health(exchange)
        case Self.prefix + "/stats.json" where service.ownPage != nil: stats(exchange)
        case Self.prefix + "/states.json" where service.ownPage != nil: states(exchange)
        case Self.prefix + "/metrics" where service.hasMetrics: metrics(exchange)
        default: file(path, exchange)
        }
    }

    // MARK: The page

    private func page(_ page: MapPage?, _ exchange: Exchange) {
        guard let page else {
            exchange.reply(404, "There is no page here.")
            return
        }
        var fields: HTTPFields = [
            .contentType: "text/html; charset=utf-8", .cacheControl: "no-cache", .eTag: page.tag,
            .contentSecurityPolicy: page.policy, .xContentTypeOptions: "nosniff",
        ]
        if let name = HTTPField.Name("Referrer-Policy") { fields[name] = "no-referrer" }
        if isKnown(page.tag, exchange) {
            exchange.reply(HTTPResponse(status: .notModified, headerFields: fields))
            return
        }
        exchange.reply(HTTPResponse(status: .ok, headerFields: fields), body: page.html)
    }

    private func isKnown(_ tag: String, _ exchange: Exchange) -> Bool {
        guard exchange.head.fields.contains(.ifNoneMatch), let own = EntityTag(tag) else { return false }
        return EntityTagList(.ifNoneMatch, in: exchange.head.fields.all)?.matchesWeakly(own) ?? false
    }

    private func file(_ path: String, _ exchange: Exchange) {
        let start = Self.prefix + "/leaflet/"
        guard path.hasPrefix(start), let file = service.leaflet?.files[String(path.dropFirst(start.count))] else {
            exchange.reply(404, "There is nothing here.")
            return
        }
        let fields: HTTPFields = [
            .contentType: file.type, .cacheControl: "public, max-age=86400", .xContentTypeOptions: "nosniff",
        ]
        exchange.reply(HTTPResponse(status: .ok, headerFields: fields), body: file.bytes)
    }

    // MARK: Figures

    private func health(_ exchange: Exchange) {
        let isStopping = service.isGoingDown
        let isReadOnly = service.tiles.store.isReadOnly
        let text = "{\"status\":\"\(isStopping ? "stopping" : "ok")\",\"readOnly\":\(isReadOnly)}\n"
        reply(exchange, isStopping ? 503 : 200, "application/json", text)
    }

    private func reply(_ exchange: Exchange, _ status: Int, _ type: String, _ text: String) {
        let fields: HTTPFields = [
            .contentType: type, .cacheControl: "no-store", .xContentTypeOptions: "nosniff",
        ]
        exchange.reply(
            HTTPResponse(status: .init(code: status), headerFields: fields), body: ByteBuffer(string: text))
    }

    private func stats(_ exchange: Exchange) {
        withFigures(exchange) { me, store in
            let service = me.service
            let report = StatsReport(
                service.tiles.table, service.statistics.snapshot, store: store, evicted: service.evicted,
                shared: service.tiles.shared?.figures, now: Timestamp(seconds: me.time.now.seconds))
            me.reply(exchange, 200, "application/json", JSONText.of(report))
        }
    }

    private func metrics(_ exchange: Exchange) {
        withFigures(exchange) { me, store in
            let service = me.service
            let text = PrometheusText(
                service.statistics.snapshot, store: store, evicted: service.evicted,
                shared: service.tiles.shared?.figures
            ).text
            me.reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", text)
        }
    }

    /// Waits for the store's figures and comes back to the loop.
    private func withFigures(
        _ exchange: Exchange, _ body: @escaping @Sendable (AdminResponder, StoreStatistics?) -> Void
    ) {
        let me = NIOLoopBound(self, eventLoop: loop)
        let loop = loop
        service.figures.get { figures in
            loop.execute { body(me.value, figures) }
        }
    }

    private func states(_ exchange: Exchange) {
        guard let query = TileStates.Query(exchange.head.query) else {
            let most = TileStates.limit
            exchange.reply(400, "Expected ?source=NAME&z=3&x=0-7&y=0-7, with at most \(most) tiles.")
            return
        }
        guard let source = service.tiles.table.source(named: query.source) else {
            exchange.reply(404, "There is no such source.")
            return
        }
        do {
            let states = try TileStates(query, source, store: service.tiles.store, now: time.now)
            reply(exchange, 200, "application/json", JSONText.of(states))
        } catch {
            exchange.reply(500, "The cache failed; see the log.")
        }
    }
}
