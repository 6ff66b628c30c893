import TileStore

/// What a request to purge must show: known by its digest alone, so that no message and no dump of memory gives it away.
package struct PurgeToken: Hashable, Sendable {
    private let digest: BlobDigest

    /// The longest.
    static let longest = 1024

    /// - Returns: `nil` if the text cannot be the credentials of a `Bearer` (RFC 6750 §2.1).
    package init?(_ text: String) {
        guard (1...Self.longest).contains(text.utf8.count), text.utf8.allSatisfy(Self.isTokenByte) else { return nil }
        digest = Self.digest(of: text)
    }

    /// Whether the credentials of an `Authorization` field are this token's.
    ///
    /// Takes the same time wherever they differ: digests of one length are compared, and all of their bytes.
    func admits(_ field: String) -> Bool {
        let parts = field.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return false }
        let shown = parts[1].drop { $0 == " " }
        guard shown.utf8.count <= Self.longest else { return false }
        let (own, other) = (digest.description.utf8, Self.digest(of: String(shown)).description.utf8)
        var difference: UInt8 = 0
        for (a, b) in zip(own, other) { difference |= a ^ b }
        return difference == 0
    }

    private static func digest(of text: String) -> BlobDigest {
        Array(text.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
    }

    /// Letters, digits and `-._~+/=`.
    private static func isTokenByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "-._~+/=".utf8.contains(byte)
        }
    }
}
