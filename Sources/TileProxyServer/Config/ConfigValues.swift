package import HTTPListener
import HTTPTypes
import HTTPWire
import TileCache
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Values as people write them: sizes, times, zooms, boxes; the same on the command line and in the file.
package enum ConfigValue {
    /// `200MB`, `1.5GiB`, `4096`.
    package static func size(_ text: String) -> Int? {
        let units: [(String, Double)] = [
            ("kib", 1024), ("mib", 1_048_576), ("gib", 1_073_741_824), ("tib", 1_099_511_627_776),
            ("kb", 1e3), ("mb", 1e6), ("gb", 1e9), ("tb", 1e12), ("b", 1), ("", 1),
        ]
        return number(text, units).flatMap { $0 < 9e18 ? Int($0) : nil }
    }

    /// `30d`, `12h`, `5m`, `90s`, `250ms`, `90`.
    package static func duration(_ text: String) -> Duration? {
        let units: [(String, Double)] = [
            ("ms", 0.001), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1), ("", 1),
        ]
        return number(text, units).flatMap { $0 <= 1e9 ? .milliseconds(Int64($0 * 1000)) : nil }
    }

    private static func number(_ text: String, _ units: [(String, Double)]) -> Double? {
        let lower = text.lowercased().filter { $0 != " " && $0 != "_" }
        guard let unit = units.first(where: { lower.hasSuffix($0.0) }) else { return nil }
        let digits = lower.dropLast(unit.0.utf8.count)
        guard let first = digits.utf8.first, (48...57).contains(first),
            digits.utf8.allSatisfy({ (48...57).contains($0) || $0 == 46 }), let number = Double(digits)
        else { return nil }
        return number * unit.1
    }

    /// `true`, `no`.
    static func truth(_ text: String) -> Bool? {
        ["true": true, "yes": true, "false": false, "no": false][text.lowercased()]
    }

    /// `7` or `0-7`, within 0 to 28.
    package static func zooms(_ text: String) -> ClosedRange<Int>? {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false).map { Int($0) }
        guard (1...2).contains(parts.count), let first = parts[0], let last = parts[parts.count - 1],
            first <= last, first >= 0, last <= 28
        else { return nil }
        return first...last
    }

    /// `west,south,east,north` in degrees.
    package static func box(_ text: String) -> GeoBox? {
        let parts = text.split(separator: ",", omittingEmptySubsequences: false).map {
            Double($0.filter { $0 != " " })
        }
        guard parts.count == 4, let west = parts[0], let south = parts[1], let east = parts[2], let north = parts[3]
        else { return nil }
        return try? GeoBox(west: west, south: south, east: east, north: north)
    }

    /// `https://host:port`, `http://[::1]:8080`, `host:port`, or a port alone; `unix:/path` or `https://unix:/path`.
    ///
    /// Without a scheme it is not encrypted. Without a port it is 8080, or 8443 with TLS.
    package static func listenAddress(_ text: String) -> ListenAddress? {
        for (start, isSecure) in [("unix:", false), ("http://unix:", false), ("https://unix:", true)]
        where text.lowercased().hasPrefix(start) {
            let path = text.dropFirst(start.count)
            // A port would be a number.
            guard path.hasPrefix("/") else { break }
            return ListenAddress(socket: String(path), isSecure: isSecure)
        }
        for (scheme, isSecure, port) in [("http://", false, 8080), ("https://", true, ProxyConfiguration.securePort)]
        where text.lowercased().hasPrefix(scheme) {
            var rest = text.dropFirst(scheme.count)
            if rest.hasSuffix("/") { rest.removeLast() }
            guard Array(rest.utf8).withUnsafeBytes({ RequestTarget.isAuthority($0) }) else { return nil }
            if let (host, port) = address(String(rest)), let host {
                return ListenAddress(host: host, port: port, isSecure: isSecure)
            }
            // What is left is a host alone.
            guard !rest.hasSuffix(":") else { return nil }
            if rest.hasPrefix("[") { rest = rest.dropFirst().dropLast() }
            return ListenAddress(host: String(rest), port: port, isSecure: isSecure)
        }
        guard let (host, port) = address(text) else { return nil }
        return ListenAddress(host: host ?? "127.0.0.1", port: port)
    }

    /// How an address to listen on is written.
    package static let listenForms = "http://host:port, https://host:port, host:port, a port or unix:/path"

    /// Rights of a file in octal, such as `0660`, of the nine that there are for owner, group and others.
    package static func fileMode(_ text: String) -> Int? {
        guard (3...4).contains(text.utf8.count), text.utf8.allSatisfy({ (48...55).contains($0) }) else { return nil }
        return Int(text, radix: 8).flatMap { $0 <= 0o777 ? $0 : nil }
    }

    /// `host:port`, `[::1]:8080`, or a port alone.
    package static func address(_ text: String) -> (host: String?, port: Int)? {
        if let port = Int(text) { return (0...65535).contains(port) ? (nil, port) : nil }
        guard let colon = text.lastIndex(of: ":"), let port = Int(text[text.index(after: colon)...]),
            (0...65535).contains(port)
        else { return nil }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") { host = host.dropFirst().dropLast() }
        return host.isEmpty ? nil : (String(host), port)
    }
}

/// Where secrets come from: the environment and files, never the command line or the configuration itself.
package struct SecretPlaces: Sendable {
    package var environment: @Sendable (String) -> String?
    package var file: @Sendable (String) throws -> String

    package init(
        environment: @escaping @Sendable (String) -> String?, file: @escaping @Sendable (String) throws -> String
    ) {
        self.environment = environment
        self.file = file
    }

    /// This process's environment and this machine's files.
    package static let system = SecretPlaces(
        environment: { ProcessInfo.processInfo.environment[$0] },
        file: { try String(contentsOfFile: $0, encoding: .utf8) })

    /// What a reference (`ENV:NAME`, `FILE:PATH`) stands for: its first line; `nil` if the text is no reference.
    ///
    /// - Throws: ``Unavailable``, with a message that names the place and never the value.
    func value(of reference: String) throws(Unavailable) -> String? {
        let found: String
        if reference.hasPrefix("ENV:") {
            let name = String(reference.dropFirst(4))
            guard let value = environment(name), !value.isEmpty else {
                throw Unavailable(message: "the environment variable \(name) is not set")
            }
            found = value
        } else if reference.hasPrefix("FILE:") {
            let path = String(reference.dropFirst(5))
            do { found = try file(path) } catch { throw Unavailable(message: "\(path) cannot be read") }
        } else {
            return nil
        }
        let line = found.split(whereSeparator: \.isNewline).first.map(String.init) ?? ""
        guard !line.isEmpty else { throw Unavailable(message: "\(reference) is empty") }
        return line
    }

    struct Unavailable: Error { var message: String }
}

extension ConfigNode {
    /// A value that a function understands.
    func value<T>(_ expected: String, _ parse: (String) -> T?) throws(ConfigError) -> T {
        let text = try text()
        guard let value = parse(text) else {
            throw fail("expected \(expected), not \"\(Redacted.text(text).prefix(60))\"")
        }
        return value
    }

    func size() throws(ConfigError) -> Int { try value("a size such as 200MB or 1.5GiB", ConfigValue.size) }
    func duration() throws(ConfigError) -> Duration {
        try value("a time such as 30d, 12h or 90s", ConfigValue.duration)
    }
    func truth() throws(ConfigError) -> Bool {
        try value("true or false", ConfigValue.truth)
    }
    func integer(_ range: ClosedRange<Int>) throws(ConfigError) -> Int {
        try value("a number from \(range.lowerBound) to \(range.upperBound)") { text in
            Int(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }
    func choice<T>(_ choices: [String: T]) throws(ConfigError) -> T {
        try value("one of \(choices.keys.sorted().joined(separator: ", "))") { choices[$0] }
    }

    /// A value that may be secret: `ENV:NAME` and `FILE:PATH` are looked up; a plain text is refused or taken.
    func secret(_ places: SecretPlaces, plainIsFine: Bool) throws(ConfigError) -> String {
        let text = try text()
        let found: String?
        do throws(SecretPlaces.Unavailable) { found = try places.value(of: text) } catch { throw fail(error.message) }
        if let found { return found }
        guard plainIsFine else {
            throw fail("a value that may be secret comes from ENV:VARIABLE or FILE:PATH, not from this file")
        }
        return text
    }

    /// Fields by name, with their values from elsewhere.
    func secretFields(_ places: SecretPlaces) throws(ConfigError) -> HTTPFields {
        var fields = HTTPFields()
        for (name, node) in try members() {
            guard let fieldName = HTTPField.Name(name) else { throw node.fail("this is no header field's name") }
            let value = try node.secret(places, plainIsFine: false)
            guard HTTPField.isValidValue(value) else { throw node.fail("its value cannot be in a header field") }
            fields.append(HTTPField(name: fieldName, value: value))
        }
        return fields
    }
}
