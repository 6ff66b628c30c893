import CacheEngine
import HTTPCaching
import HTTPListener
import HTTPWire
package import OriginClient
package import TileStore

/// A prefix of paths that is answered from an origin through the cache: `[NAME:]PREFIX=BASEURL`.
package struct ProxyRoute: Hashable, Sendable {
    /// The name that its resources are stored under.
    package let name: SourceName
    /// What its paths begin with: empty for all, else a path without a slash at its end.
    package let prefix: String
    /// Where it sends requests.
    package let origin: Origin

    /// Why a text is no route; without the user, password and query of its URL.
    package struct ParseError: Error, CustomStringConvertible {
        package let description: String
    }

    /// Reads the text form; without a name it is made from the prefix, and is `root` for `/`.
    ///
    /// - Throws: ``ParseError``, saying what is wrong.
    package init(_ text: String) throws(ParseError) {
        func fail(_ why: String) -> ParseError {
            ParseError(
                description:
                    "\(Redacted.text(text)): \(why); expected [NAME:]PREFIX=BASEURL, such as fonts:/fonts=https://host/path"
            )
        }
        guard let mark = text.firstIndex(of: "=") else { throw fail("there is no =") }
        var left = text[..<mark]
        var name: String?
        if !left.hasPrefix("/") {
            guard let colon = left.firstIndex(of: ":") else { throw fail("the prefix must begin with /") }
            name = String(left[..<colon])
            left = left[left.index(after: colon)...]
        }
        guard left.hasPrefix("/") else { throw fail("the prefix must begin with /") }
        while left.hasSuffix("/") { left.removeLast() }
        let bytes = Array((left.isEmpty ? "/" : left).utf8)
        guard !left.contains("?"), bytes.withUnsafeBytes({ (try? RequestTarget($0, isOptions: false)) != nil }) else {
            throw fail("the prefix is no plain path")
        }
        guard left != AdminResponder.prefix, !left.hasPrefix(AdminResponder.prefix + "/") else {
            throw fail("what is below \(AdminResponder.prefix) is the proxy's own")
        }
        guard let origin = Origin(String(text[text.index(after: mark)...])) else {
            throw fail("the base URL must be http or https, with a host, and without user, query and fragment")
        }
        prefix = String(left)
        self.origin = origin
        do {
            self.name = try SourceName(name ?? Self.name(for: prefix))
        } catch { throw fail("its name must be 1 to 64 characters of A-Z a-z 0-9 . _ -") }
    }

    private static func name(for prefix: String) -> String {
        guard !prefix.isEmpty else { return "root" }
        let letters = prefix.dropFirst().map {
            $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "." || $0 == "_") ? $0 : "-"
        }
        return String(letters)
    }

    /// What follows the prefix in a path; `nil` if the path is not below it.
    ///
    /// Whole segments are compared: `/fonts` is no prefix of `/fontsets`.
    package func rest(of path: String) -> String? {
        guard path.hasPrefix(prefix) else { return nil }
        let rest = path.dropFirst(prefix.count)
        if rest.isEmpty { return prefix.isEmpty ? "/" : "" }
        return rest.hasPrefix("/") ? String(rest) : nil
    }

    /// The target at the origin.
    package func target(rest: String, query: String?) -> String {
        let path = origin.basePath + rest
        return (path.isEmpty ? "/" : path) + (query.map { "?" + $0 } ?? "")
    }

    /// Which URLs of the origin have keys in the cache.
    func scope(_ keys: ResourceKeys) -> ResourceScope {
        let route = self
        return ResourceScope(origin: origin.name) { path, query in
            route.rest(ofTargetPath: path).flatMap { keys.primary(rest: $0, query: query) }
        }
    }

    /// The names that clients have for a request's URL.
    ///
    /// Whether they speak TLS to a server in front of the proxy is not known here, so a `Host` counts with either scheme.
    func aliases(_ keys: ResourceKeys, _ head: RequestHead, publicURL: String?) -> [ResourceScope.Alias] {
        let route = self
        var bases = head.host.map { ["http://" + $0, "https://" + $0] } ?? []
        if let publicURL { bases.append(publicURL) }
        return bases.compactMap { base in
            guard let url = URIReference(base), let target = URIReference(base + head.target) else { return nil }
            return ResourceScope.Alias(target: target) { path, query in
                guard path.hasPrefix(url.path) else { return nil }
                return route.rest(of: String(path.dropFirst(url.path.count))).flatMap {
                    keys.primary(rest: $0, query: query)
                }
            }
        }
    }

    /// What is below the base path in a path at the origin; `nil` if the path is elsewhere.
    func rest(ofTargetPath path: String) -> String? {
        guard path.hasPrefix(origin.basePath) else { return nil }
        let rest = path.dropFirst(origin.basePath.count)
        return rest.isEmpty || rest.hasPrefix("/") ? String(rest) : nil
    }
}
