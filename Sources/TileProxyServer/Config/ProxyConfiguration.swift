package import HTTPListener
import TileStore

/// Everything that an operator can set: a value, made from the file and the flags, compared when it is read again.
package struct ProxyConfiguration: Hashable, Sendable {
    /// The form of a log line.
    package enum LogFormat: Hashable, Sendable { case text, json }

    /// One line for each request.
    package struct AccessLog: Hashable, Sendable {
        /// The form of a line.
        package enum Format: Hashable, Sendable {
            /// The combined log format that nginx and Apache write.
            case combined
            /// A JSON object.
            case json
        }
        /// A file, or `-` for standard output.
        package var path = "-"
        package var format = Format.combined

        package init(path: String = "-", format: Format = .combined) {
            self.path = path
            self.format = format
        }
    }

    /// Where connections begin with a header of the PROXY protocol.
    package enum ProxyProtocol: Hashable, Sendable {
        case nowhere
        case everywhere
        /// At these addresses, which are among those that are listened on.
        case at([ListenAddress])
    }

    /// What clients may take.
    package struct Limits: Hashable, Sendable {
        package var connections = 16_384
        package var headBytes = 32 << 10
        package var bodyBytes = 1 << 30
        package var idle = Duration.seconds(75)
        package var requestHead = Duration.seconds(15)
        package var requestsPerHost = 16
        /// How long requests may take to end when the proxy stops, and then what is being stored.
        package var shutdown = Duration.seconds(30)
    }

    package var cache: String?
    package var listen = [ListenAddress(port: 8080)]
    /// The rights of the files of Unix sockets.
    package var socketMode = ListeningSocket.defaultMode
    /// The certificate and its key, for the addresses that are secure.
    package var tls: TLSFiles?
    /// Whether requests that come without TLS are sent to where it is spoken.
    package var redirectsToHTTPS = false
    package var threads = 1
    /// Bytes on disk; `nil` keeps the cache's own limit.
    package var capacity: Int?
    /// Entries; `nil` derives the limit from ``capacity``, or keeps the cache's own if that is `nil` too.
    package var entries: Int?
    package var memoryBytes = 64 << 20
    package var isDurable = false
    /// How clients reach this server, without a slash at the end; `nil` for what they say in `Host`.
    package var publicURL: String?
    /// Names under which the page and the figures are served, besides that of ``publicURL``.
    package var hosts: [String] = []
    package var userAgent: String?
    /// A PEM file of certificate authorities that `https` servers may have besides the system's.
    package var certificateAuthorities: String?
    /// Whether the page and the figures it shows are served.
    package var hasPage = true
    /// The folder with Leaflet's files, for the page's map, or `network` for unpkg.com.
    ///
    /// `nil` for Debian's folder if Leaflet is installed there, else unpkg.com. A folder that is named must have the files.
    package var leaflet: String?
    /// Whether the figures for Prometheus are served.
    package var hasMetrics = true
    package var accessLog: AccessLog?
    /// The servers in front whose word about a client's address is taken.
    package var trustedProxies = TrustedProxies()
    package var proxyProtocol = ProxyProtocol.nowhere
    package var logLevel = "info"
    package var logFormat = LogFormat.text
    package var limits = Limits()
    /// The bucket that is shared with other proxies, if there is one.
    package var shared: SharedConfiguration?
    /// What a request to purge must show; `nil` where there is no purging over HTTP.
    package var purgeToken: PurgeToken?
    package var sources: [SourceConfiguration] = []
    package var routes: [ProxyRoute] = []

    package init() {}

    /// Looks at what no single key can say.
    ///
    /// - Throws: ``ConfigError``.
    package func validate(_ place: String) throws(ConfigError) {
        func fail(_ key: String, _ message: String) -> ConfigError {
            ConfigError(place: place, key: key, message)
        }
        guard cache != nil else { throw fail("cache", "where is the cache? Say --cache DIR, or cache: in the file") }
        var names = Set<SourceName>()
        for source in sources where !names.insert(source.name).inserted {
            throw fail("sources.\(source.name)", "two sources have this name")
        }
        for route in routes where !names.insert(route.name).inserted {
            throw fail("upstreams", "the name \(route.name) is taken already; write NAME:PREFIX=BASEURL")
        }
        guard Set(routes.map(\.prefix)).count == routes.count else {
            throw fail("upstreams", "two upstreams have the same prefix")
        }
        if !sources.isEmpty,
            let route = routes.first(where: { $0.prefix == "/tiles" || $0.prefix.hasPrefix("/tiles/") })
        {
            throw fail("upstreams", "\(route.prefix) would never be asked: tiles of the sources are below /tiles/")
        }
        try validateListening(fail)
        try validateProxyProtocol(fail)
        guard !(sources.isEmpty && routes.isEmpty) else {
            throw fail("", "there is nothing to serve: name a source (--source) or an upstream (--upstream)")
        }
    }

    /// What differs between two configurations and needs a new start: nothing of it takes effect on reload.
    package func needingRestart(from old: ProxyConfiguration) -> [String] {
        var keys: [String] = []
        func compare<T: Equatable>(_ key: String, _ path: (ProxyConfiguration) -> T) {
            if path(self) != path(old) { keys.append(key) }
        }
        compare("cache", \.cache)
        compare("listen", \.listen)
        compare("socketMode", \.socketMode)
        // Another certificate is read at once; none, or a first one, changes where it listens.
        compare("tls") { $0.tls == nil }
        compare("redirectToHTTPS", \.redirectsToHTTPS)
        compare("threads", \.threads)
        compare("memory", \.memoryBytes)
        compare("durability", \.isDurable)
        compare("userAgent", \.userAgent)
        compare("hosts", \.hosts)
        compare("certificateAuthorities", \.certificateAuthorities)
        compare("limits", \.limits)
        compare("shared", \.shared)
        compare("purge", \.purgeToken)
        compare("upstreams", \.routes)
        compare("page") { [$0.hasPage, $0.hasMetrics] }
        compare("leaflet", \.leaflet)
        compare("log.level", \.logLevel)
        compare("log.format", \.logFormat)
        compare("trustedProxies", \.trustedProxies)
        compare("proxyProtocol", \.proxyProtocol)
        compare("accessLog") { [$0.accessLog?.path ?? "", "\(String(describing: $0.accessLog?.format))"] }
        return keys
    }
}
