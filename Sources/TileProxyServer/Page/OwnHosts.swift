#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The hosts under which the page and the figures are served.
///
/// A page of another site whose name its owner lets point to this machine (DNS rebinding) would else be able to read the
/// figures through a visitor's browser, past the firewall and the `allow` rules in front. Such a request names the other
/// site in `Host`, so what is not known to be this server's is refused. Known are addresses, names that no public DNS
/// has, and what the configuration says.
struct OwnHosts: Sendable {
    private let names: Set<String>

    /// - Parameters:
    ///   - listenHosts: What the server listens on.
    ///   - names: Further names.
    ///   - machine: The machine's own name.
    init(listenHosts: [String], names: [String], machine: String? = OwnHosts.machineName) {
        self.names = Set((names + listenHosts + (machine.map { [$0] } ?? [])).map(Self.normal))
    }

    /// Whether a request for this host is for this server.
    ///
    /// - Parameters:
    ///   - authority: Host and port as the request has them; `nil` in a request of HTTP/1.0, which no browser sends.
    ///   - publicURL: How clients reach this server.
    func contains(_ authority: String?, publicURL: String?) -> Bool {
        guard let authority, !authority.hasPrefix("[") else { return true }
        let host = Self.normal(String(authority.prefix { $0 != ":" }))
        // A name of one label is found in a local network only, `localhost` included.
        guard host.contains("."), !Self.isIPv4(host) else { return true }
        return names.contains(host) || Self.localEndings.contains(where: host.hasSuffix)
            || publicURL.flatMap(Self.host(ofURL:)) == host
    }

    /// What no public name server answers for (RFC 6761, RFC 6762, RFC 8375, and ICANN's `internal`).
    private static let localEndings = [".localhost", ".local", ".home.arpa", ".internal"]

    private static func normal(_ host: String) -> String {
        let lower = host.lowercased()
        return lower.hasSuffix(".") ? String(lower.dropLast()) : lower
    }

    private static func isIPv4(_ host: String) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 4, alignment: 4) { inet_pton(AF_INET, host, $0.baseAddress) == 1 }
    }

    private static func host(ofURL url: String) -> String? {
        guard let start = url.firstRange(of: "://")?.upperBound else { return nil }
        return normal(String(url[start...].prefix { $0 != "/" && $0 != ":" }))
    }

    private static var machineName: String? {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return nil }
        let text = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return text.isEmpty ? nil : text
    }
}
