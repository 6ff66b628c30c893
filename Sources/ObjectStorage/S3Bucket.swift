import HTTPWire
package import OriginClient

/// A bucket and how it is addressed.
package struct S3Bucket: Hashable, Sendable {
    /// Where URLs have the bucket's name.
    package enum Style: Hashable, Sendable {
        /// `https://host/bucket/key`.
        case path
        /// `https://bucket.host/key`.
        case virtualHost
    }

    /// The longest key, in bytes.
    package static let keyLimit = 1024

    /// The bucket's name.
    package let name: String
    /// Its region, such as `us-east-1`; most servers that are not Amazon's take any.
    package let region: String
    let style: Style
    /// What is connected to, with the name that its URLs have.
    package let origin: Origin

    /// - Parameters:
    ///   - endpoint: The server's URL, without a path: `https://s3.eu-central-1.amazonaws.com`.
    ///   - name: Of the bucket.
    /// - Throws: Why there can be no such bucket.
    package init(endpoint: String, name: String, region: String, style: Style = .path) throws(S3Error) {
        guard Self.isName(name) else {
            throw S3Error(
                .invalid,
                "\(name.debugDescription) is no bucket's name: 3 to 63 of a-z, 0-9, - and ., a letter or digit at both ends"
            )
        }
        guard (1...64).contains(region.utf8.count), region.utf8.allSatisfy(Self.isRegion) else {
            throw S3Error(.invalid, "\(region.debugDescription) is no region; us-east-1 is what most servers take")
        }
        guard let server = Origin(endpoint), server.basePath.isEmpty else {
            throw S3Error(
                .invalid, "the endpoint is no URL of scheme, host and port alone, such as https://s3.example:9000")
        }
        switch style {
        case .path: origin = server
        case .virtualHost:
            guard !server.host.contains(":"), !server.host.utf8.allSatisfy({ $0.isDigit || $0 == 0x2E }) else {
                throw S3Error(
                    .invalid, "\(server.name) is an address: a bucket cannot be a part of its name; use paths")
            }
            guard !server.isSecure || !name.contains(".") else {
                throw S3Error(
                    .invalid, "no certificate covers \(name) below \(server.host): use paths for a name with dots")
            }
            guard let own = Origin("\(server.scheme)://\(name).\(server.authority)") else {
                throw S3Error(.invalid, "\(name).\(server.host) is no host's name: use paths")
            }
            origin = own
        }
        (self.name, self.region, self.style) = (name, region, style)
    }

    private static func isName(_ name: String) -> Bool {
        let bytes = Array(name.utf8)
        func isEnd(_ byte: UInt8?) -> Bool { byte.map { $0.isDigit || (0x61...0x7A).contains($0) } ?? false }
        guard (3...63).contains(bytes.count), isEnd(bytes.first), isEnd(bytes.last), !name.contains("..") else {
            return false
        }
        return bytes.allSatisfy { isEnd($0) || $0 == 0x2D || $0 == 0x2E }
    }

    private static func isRegion(_ byte: UInt8) -> Bool {
        byte.isDigit || (0x61...0x7A).contains(byte.lowercased) || byte == 0x2D || byte == 0x5F
    }

    /// The path of an object, or of the bucket without a key, as it is sent and signed.
    func path(of key: String?) -> String {
        let key = PercentEncoding.encode(path: key ?? "")
        return style == .path ? "/\(name)/\(key)" : "/\(key)"
    }

    /// Why there can be no object with this key; `nil` if there can.
    package static func objection(toKey key: String) -> String? {
        if key.isEmpty { return "an empty key, which would be the bucket itself" }
        let count = key.utf8.count
        return count > keyLimit ? "a key of \(count) bytes; \(keyLimit) are the most" : nil
    }
}
