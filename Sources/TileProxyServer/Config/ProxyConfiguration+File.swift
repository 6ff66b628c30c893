import HTTPListener
import HTTPTypes
import HTTPWire
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension ProxyConfiguration {
    /// Reads a configuration file over what is set already.
    ///
    /// - Throws: ``ConfigError`` for the first thing that is wrong; then nothing has changed.
    package mutating func read(file: String, secrets: SecretPlaces = .system) throws(ConfigError) {
        let text: String
        do { text = try String(contentsOfFile: file, encoding: .utf8) } catch {
            throw ConfigError(place: file, "cannot be read, or is not UTF-8")
        }
        try read(yaml: text, file: file, secrets: secrets)
    }

    /// Reads a configuration's text over what is set already.
    package mutating func read(yaml: String, file: String, secrets: SecretPlaces = .system) throws(ConfigError) {
        var new = self
        let root = try ConfigNode(yaml: yaml, file: file)
        try new.read(root, secrets)
        self = new
    }

    private mutating func read(_ root: ConfigNode, _ secrets: SecretPlaces) throws(ConfigError) {
        for (name, node) in try root.members() {
            switch name {
            case "cache": cache = try node.text()
            case "listen":
                let all = try node.list()
                guard !all.isEmpty else { throw node.fail("expected at least one address") }
                listen = []
                for one in all {
                    let address = try one.value(ConfigValue.listenForms, ConfigValue.listenAddress)
                    if let problem = Self.problem(with: address, after: listen) { throw one.fail(problem) }
                    listen.append(address)
                }
            case "socketMode":
                socketMode = try node.value("rights in octal, such as 0660", ConfigValue.fileMode)
            case "tls": tls = try Self.tls(node)
            case "redirectToHTTPS": redirectsToHTTPS = try node.truth()
            case "threads": threads = try node.integer(1...64)
            case "capacity": capacity = try node.size()
            case "entries": entries = try node.integer(0...4_000_000_000)
            case "memory": memoryBytes = try node.size()
            case "durability": isDurable = try node.choice(["relaxed": false, "durable": true])
            case "publicURL": publicURL = try node.publicURL()
            case "hosts":
                for name in try node.list() {
                    hosts.append(try name.value("a host's name without a port, such as tiles.example.org", Self.host))
                }
            case "userAgent": userAgent = try node.fieldValue()
            case "certificateAuthorities": certificateAuthorities = try node.text()
            case "page": hasPage = try node.truth()
            case "leaflet": leaflet = try node.text()
            case "metrics": hasMetrics = try node.truth()
            case "trustedProxies":
                for proxy in try node.list() {
                    trustedProxies.add(
                        try proxy.value(
                            "an address or a network, such as 10.0.0.0/8, or unix for Unix sockets",
                            TrustedProxies.Member.init))
                }
            case "proxyProtocol": proxyProtocol = try Self.proxyProtocol(node)
            case "accessLog": accessLog = try Self.accessLog(node)
            case "log": try readLog(node)
            case "limits": try readLimits(node)
            case "shared": shared = try Self.shared(node, secrets)
            case "purge": purgeToken = try Self.purgeToken(node, secrets)
            case "sources":
                for (name, source) in try node.members() {
                    let read = try SourceConfiguration(name, source, secrets)
                    sources.removeAll { $0.name == read.name }
                    sources.append(read)
                }
            case "upstreams":
                for upstream in try node.list() {
                    let text = try upstream.text()
                    do throws(ProxyRoute.ParseError) { routes.append(try ProxyRoute(text)) } catch {
                        throw upstream.fail(error.description)
                    }
                }
            default: try root.unknown(name, node, Self.keys)
            }
        }
    }

    private static let keys = [
        "cache", "listen", "socketMode", "tls", "redirectToHTTPS", "threads", "capacity", "entries", "memory",
        "durability",
        "publicURL", "hosts",
        "userAgent", "certificateAuthorities", "page", "leaflet", "metrics", "trustedProxies",
        "proxyProtocol", "accessLog", "log", "limits", "shared", "purge", "sources", "upstreams",
    ]

    private static func host(_ text: String) -> String? {
        let isOne = !text.contains(":") && Array(text.utf8).withUnsafeBytes(RequestTarget.isAuthority)
        return isOne ? text : nil
    }

    private static func proxyProtocol(_ node: ConfigNode) throws(ConfigError) -> ProxyProtocol {
        let all = try node.list()
        if all.count == 1, let truth = ConfigValue.truth(try all[0].text()) {
            return truth ? .everywhere : .nowhere
        }
        var addresses: [ListenAddress] = []
        for one in all {
            addresses.append(
                try one.value("true, false, or addresses as they stand under listen", ConfigValue.listenAddress))
        }
        return .at(addresses)
    }

    private static func shared(
        _ node: ConfigNode, _ secrets: SecretPlaces
    ) throws(ConfigError) -> SharedConfiguration {
        var shared = SharedConfiguration(url: "", places: secrets)
        for (name, value) in try node.members() {
            switch name {
            case "s3": shared.url = try value.text()
            case "region": shared.region = try value.text()
            case "accessKey": shared.accessKey = try value.secret(secrets, plainIsFine: false)
            case "secretKey": shared.secretKey = try value.secret(secrets, plainIsFine: false)
            case "sessionToken": shared.sessionToken = try value.secret(secrets, plainIsFine: false)
            case "addressing": shared.isVirtualHost = try value.choice(["path": false, "virtual-host": true])
            case "timeout":
                shared.timeout = try value.boundedTime()
                guard shared.timeout <= .seconds(1) else { throw value.fail("expected at most 1s") }
            case "write": shared.writes = try value.truth()
            default:
                try node.unknown(
                    name, value,
                    [
                        "s3", "region", "accessKey", "secretKey", "sessionToken", "addressing", "timeout", "write",
                    ])
            }
        }
        _ = try shared.parts(or: node.fail)
        return shared
    }

    private static func tls(_ node: ConfigNode) throws(ConfigError) -> TLSFiles {
        var (certificate, key) = ("", "")
        for (name, value) in try node.members() {
            switch name {
            case "certificate": certificate = try value.text()
            case "key": key = try value.text()
            default: try node.unknown(name, value, ["certificate", "key"])
            }
        }
        guard !certificate.isEmpty, !key.isEmpty else {
            throw node.fail("it needs both certificate and key, each a PEM file")
        }
        return TLSFiles(certificate: certificate, key: key)
    }

    private static func purgeToken(_ node: ConfigNode, _ secrets: SecretPlaces) throws(ConfigError) -> PurgeToken {
        var token: PurgeToken?
        for (name, value) in try node.members() {
            switch name {
            case "token":
                token = PurgeToken(try value.secret(secrets, plainIsFine: false))
                guard token != nil else {
                    throw value.fail("a token has letters, digits and -._~+/=, at most \(PurgeToken.longest) of them")
                }
            default: try node.unknown(name, value, ["token"])
            }
        }
        guard let token else { throw node.fail("it needs a token, such as ENV:PURGE_TOKEN") }
        return token
    }

    private static func accessLog(_ node: ConfigNode) throws(ConfigError) -> AccessLog {
        var log = AccessLog()
        for (name, value) in try node.members() {
            switch name {
            case "path": log.path = try value.text()
            case "format": log.format = try value.choice(["combined": .combined, "json": .json])
            default: try node.unknown(name, value, ["path", "format"])
            }
        }
        return log
    }

    private mutating func readLog(_ node: ConfigNode) throws(ConfigError) {
        let levels = ["trace", "debug", "info", "notice", "warning", "error", "critical"]
        for (name, value) in try node.members() {
            switch name {
            case "level": logLevel = try value.choice(Dictionary(uniqueKeysWithValues: levels.map { ($0, $0) }))
            case "format": logFormat = try value.choice(["text": .text, "json": .json])
            default: try node.unknown(name, value, ["level", "format"])
            }
        }
    }

    private mutating func readLimits(_ node: ConfigNode) throws(ConfigError) {
        for (name, value) in try node.members() {
            switch name {
            case "connections": limits.connections = try value.integer(1...1_000_000)
            case "headBytes": limits.headBytes = try value.boundedSize(1024...1 << 20)
            case "bodyBytes": limits.bodyBytes = try value.boundedSize(0...1 << 40)
            case "idle": limits.idle = try value.boundedTime()
            case "requestHead": limits.requestHead = try value.boundedTime()
            case "requestsPerHost": limits.requestsPerHost = try value.integer(1...1024)
            case "shutdown": limits.shutdown = try value.boundedTime()
            default:
                try node.unknown(
                    name, value,
                    ["connections", "headBytes", "bodyBytes", "idle", "requestHead", "requestsPerHost", "shutdown"])
            }
        }
    }
}

extension SourceConfiguration {
    fileprivate static let keys = [
        "template", "mirrors", "subdomains", "values", "zooms", "overzoom", "bbox", "tileSize", "format", "kind",
        "title",
        "attribution", "cors", "headers", "ttl", "offline", "shared", "bodyLimit", "timeout", "attempts", "watch",
        "capacity",
    ]

    fileprivate init(_ name: String, _ node: ConfigNode, _ secrets: SecretPlaces) throws(ConfigError) {
        guard let sourceName = try? SourceName(name) else {
            throw node.fail("a source's name is 1 to 64 characters of A-Z a-z 0-9 . _ -")
        }
        self.init(name: sourceName, template: "")
        for (name, value) in try node.members() { try read(name, value, node, secrets) }
        guard !template.isEmpty else {
            throw node.fail("it needs a template, such as https://host/{z}/{x}/{y}.png, or the path of an archive")
        }
        guard mirrors.isEmpty || !isLocal else { throw node.fail("files have no mirrors") }
        try check(or: node.fail)
    }

    private mutating func read(
        _ name: String, _ value: ConfigNode, _ node: ConfigNode, _ secrets: SecretPlaces
    ) throws(ConfigError) {
        switch name {
        case "template": template = try value.secret(secrets, plainIsFine: true)
        case "mirrors": for mirror in try value.list() { mirrors.append(try mirror.origin()) }
        case "subdomains": for part in try value.list() { subdomains.append(try part.text()) }
        case "values":
            for (name, part) in try value.members() { values[name] = try part.secret(secrets, plainIsFine: true) }
        case "zooms": zooms = try value.value("zooms such as 0-19", ConfigValue.zooms)
        case "overzoom": overzoom = try value.integer(0...8)
        case "bbox": box = try value.value("west,south,east,north in degrees", ConfigValue.box)
        case "tileSize": tileSize = try value.choice(["256": 256, "512": 512])
        case "format":
            format = try value.value("a file extension such as png") { text in
                let isOne = (1...12).contains(text.utf8.count) && text.utf8.allSatisfy(isExtensionByte)
                return isOne ? text : nil
            }
        case "kind": kind = try value.choice(["image": .image, "vector": .vector, "json": .json, "any": .any])
        case "title": title = try value.text()
        case "attribution": attribution = try value.text()
        case "cors": sharing = try value.sharing()
        case "headers": headers = try value.secretFields(secrets)
        case "ttl": try readLifetimes(value)
        case "offline": isAlwaysOffline = try value.choice(["allowed": false, "always": true])
        case "shared": isShared = try value.truth()
        case "bodyLimit": bodyLimit = try value.boundedSize(1...1 << 30)
        case "timeout": timeout = try value.boundedTime()
        case "attempts": attempts = try value.integer(1...10)
        case "watch": isWatched = try value.truth()
        case "capacity":
            capacity = try value.text() == "none" ? nil : value.value("a size such as 20GiB, or none", ConfigValue.size)
        default: try node.unknown(name, value, Self.keys)
        }
    }

    private mutating func readLifetimes(_ node: ConfigNode) throws(ConfigError) {
        for (name, value) in try node.members() {
            switch name {
            case "unstated": lifetimes.unstated = try value.duration()
            case "minimum": lifetimes.minimum = try value.duration()
            case "override": lifetimes.overridesServer = try value.truth()
            case "absent": lifetimes.absent = try value.duration()
            case "staleOnError": lifetimes.staleOnError = try value.duration()
            default:
                try node.unknown(name, value, ["unstated", "minimum", "override", "absent", "staleOnError"])
            }
        }
        if lifetimes.overridesServer, lifetimes.minimum == nil {
            throw node.fail("override makes minimum stronger than the server's word, and there is no minimum")
        }
    }
}

/// Whether a byte can be in a tile's file extension.
@inline(__always) func isExtensionByte(_ byte: UInt8) -> Bool {
    (97...122).contains(byte) || (48...57).contains(byte)
}

extension ConfigNode {
    fileprivate func boundedSize(_ range: ClosedRange<Int>) throws(ConfigError) -> Int {
        let size = try size()
        guard range.contains(size) else {
            throw fail("expected \(range.lowerBound) to \(range.upperBound) bytes, not \(size)")
        }
        return size
    }

    fileprivate func boundedTime() throws(ConfigError) -> Duration {
        let time = try duration()
        guard time > .zero, time <= .seconds(86_400) else { throw fail("expected more than nothing and at most a day") }
        return time
    }

    fileprivate func fieldValue() throws(ConfigError) -> String {
        try value("a text that can be in a header field") { $0.isEmpty || !HTTPField.isValidValue($0) ? nil : $0 }
    }

    fileprivate func sharing() throws(ConfigError) -> SourceConfiguration.Sharing {
        try value("\"*\", none, or an origin such as https://maps.example.org") { text in
            switch text {
            case "*": return .all
            case "none": return SourceConfiguration.Sharing.none
            default: return Self.isOrigin(text) ? .origin(text) : nil
            }
        }
    }

    fileprivate func origin() throws(ConfigError) -> String {
        try value("scheme and host alone, such as https://b.example.org") { Self.isOrigin($0) ? $0 : nil }
    }

    fileprivate func publicURL() throws(ConfigError) -> String {
        try value("a URL such as https://tiles.example.org/maps") { text in
            var text = text[...]
            while text.hasSuffix("/") { text.removeLast() }
            guard let end = text.firstRange(of: "://")?.upperBound else { return nil }
            let host = text[end...].prefix { $0 != "/" }
            let path = text[end...].dropFirst(host.count)
            let isPlain = path.utf8.allSatisfy { $0 > 32 && $0 < 127 && !"\"<>\\?#{}".utf8.contains($0) }
            return Self.isOrigin(String(text[..<host.endIndex])) && isPlain ? String(text) : nil
        }
    }

    /// `http(s)://host[:port]` and nothing behind it.
    private static func isOrigin(_ text: String) -> Bool {
        for scheme in ["http://", "https://"] where text.hasPrefix(scheme) {
            return Array(text.utf8.dropFirst(scheme.utf8.count)).withUnsafeBytes { RequestTarget.isAuthority($0) }
        }
        return false
    }

    /// A key that nobody knows is an error, which names the nearest known one.
    fileprivate func unknown(_ name: String, _ value: ConfigNode, _ known: [String]) throws(ConfigError) {
        let near = known.min { distance($0, name) < distance($1, name) }
        let hint = near.flatMap { distance($0, name) <= 3 ? "; did you mean \($0)?" : nil } ?? ""
        throw value.fail("there is no such key\(hint)")
    }
}
