import CacheEngine
import HTTPCaching
import HTTPTypes
import TileStore

/// What the requests for resources share.
struct ResourceParts: Sendable {
    /// The largest body that is stored.
    ///
    /// Nothing else bounds bodies here: the transport brings each one whole, within its caller's limit, and those who
    /// waited share that one copy.
    static let storedBodyBytes = 64 << 20

    /// The largest body that is read where the caller says nothing.
    static let bodyLimit = 32 << 20
    /// How long an exchange with a server may take where the caller says nothing.
    static let timeout = Duration.seconds(30)

    let use: CacheUse
    let flights = Flights<TileKey, ResourceFill.End>()
    let changes = Changes()
    let drivers = Drivers()

    init(isShared: Bool) {
        // Larger bodies are in memory as well, for those who wait; `ResourceFill` does not store them.
        var use = CacheUse(
            policy: CachePolicy(kind: isShared ? .shared : .private, usesHeuristic: true),
            storedBodyBytes: .max, name: "swift-tile-cache")
        use.sharesOutcomes = !isShared
        self.use = use
    }
}

/// A resource of a server, and how it is asked for: a value.
struct Resource: Sendable {
    /// On what terms a server is asked.
    struct Terms: Sendable {
        /// How urgent it is.
        var priority = FetchPriority.visible
        /// Which networks it may use.
        var networks = NetworkUse.any
        /// Counts what it costs.
        var meter: RequestMeter?
    }

    /// The request as it goes out, but for the fields that the cache adds.
    let head: HTTPRequest
    /// How the cache sees it.
    private(set) var request: CacheRequest
    let keys: ResourceKeys
    /// Scheme, host and port of the server, as messages name it.
    let origin: String
    /// What the path of its key begins with.
    private let prefix: String
    let bodyLimit: Int
    let timeout: Duration
    var terms = Terms()
    /// Whether a redirect has led from another origin to this one.
    var isRedirected = false

    /// Checks a request and takes it.
    ///
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidRequest``.
    init(
        _ given: HTTPRequest, _ keys: ResourceKeys, userAgent: String, bodyLimit: Int, timeout: Duration
    ) throws(TileCacheError) {
        func fail(_ why: String) -> TileCacheError {
            TileCacheError(.invalidRequest, "a request for a resource \(why)")
        }
        guard given.method == .get || given.method == .head else { throw fail("must be GET or HEAD") }
        guard let scheme = given.scheme?.lowercased(), scheme == "https" || scheme == "http" else {
            throw fail("must have the scheme https or http")
        }
        guard !(given.authority ?? "").contains("@") else {
            throw fail("must not have a user or password in its URL; use the header field Authorization")
        }
        guard let authority = given.authority?.lowercased(), isHostAndPort(authority) else {
            throw fail("must name its host")
        }
        let target = given.path ?? "/"
        guard target.hasPrefix("/"), target.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "#") })
        else {
            throw fail("must have a path that begins with / and is percent-encoded")
        }
        var head = given
        (head.scheme, head.authority, head.path) = (scheme, authority, target)
        if head.headerFields[.userAgent] == nil { head.headerFields[.userAgent] = userAgent }
        let parts = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        self.head = head
        self.keys = keys
        self.bodyLimit = bodyLimit
        self.timeout = timeout
        origin = "\(scheme)://\(authority)"
        prefix = "\(scheme)/\(head.originName)"
        request = CacheRequest(
            method: head.method, fields: head.headerFields, target: target,
            key: keys.primary(rest: prefix + parts[0], query: parts.count > 1 ? parts[1] : nil), hasBody: false,
            isOwners: true)
    }

    /// The same, asked for by the cache itself.
    var refreshing: Resource {
        var same = self
        same.request = request.refreshing
        return same
    }

    /// Has the server asked whatever is stored, and nothing stale instead of its answer; no field of the request says so.
    mutating func asksServer() { request.asking.noCache = true }

    /// The server, as what is known of its failures names it.
    var host: String { head.originName }
    /// What tells one question from another.
    var question: Int { request.question(to: prefix) }

    /// Which URLs of the server have keys.
    var scope: ResourceScope {
        let (keys, prefix) = (keys, prefix)
        return ResourceScope(origin: origin) { path, query in keys.primary(rest: prefix + path, query: query) }
    }

    /// The request with these fields.
    func outgoing(_ fields: HTTPFields) -> TransportRequest {
        var head = head
        (head.method, head.headerFields) = (request.method, fields)
        var request = TransportRequest(head: head, bodyLimit: bodyLimit, timeout: timeout)
        request.isRedirected = isRedirected
        request.networks = terms.networks
        return request
    }
}

extension SourceName {
    /// What resources are stored under where the caller says nothing.
    static let resources = SourceName(unchecked: "resources")
}

/// Whether a text is a host, or an address in brackets, with or without a port.
private func isHostAndPort(_ text: String) -> Bool {
    var (name, rest) = (text[...], text[text.endIndex...])
    if text.hasPrefix("[") {
        guard let end = text.firstIndex(of: "]") else { return false }
        (name, rest) = (text[text.index(after: text.startIndex)..<end], text[text.index(after: end)...])
    } else if let colon = text.firstIndex(of: ":") {
        (name, rest) = (text[..<colon], text[colon...])
    }
    guard !name.isEmpty, name.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"/?#\\[]".utf8.contains($0) }) else {
        return false
    }
    guard rest.hasPrefix(":") else { return rest.isEmpty }
    let port = rest.dropFirst()
    return port.isEmpty || (Int(port).map { (1...65535).contains($0) } ?? false) && port.allSatisfy(\.isNumber)
}

extension OriginTrouble {
    /// What an error of the transport comes to.
    init(_ error: TransportError) {
        switch error.code {
        case .timeout: self = .timeout
        case .cancelled: self = .cancelled
        case .truncated: self = .closed
        case .malformed, .headTooLarge, .bodyTooLarge: self = .malformed(error.message)
        default: self = .unreachable(error.message)
        }
    }
}
