package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A source as all proxies of a fleet know it: by its name, and by what its tiles are.
///
/// Two proxies whose sources of one name differ in their servers or in the kind of their tiles share nothing of them.
package struct SharedSource: Hashable, Sendable {
    /// Its name.
    package let name: SourceName
    /// Sixteen characters that tell it from others of its name.
    package let fingerprint: String

    /// - Parameter traits: What its tiles depend on: the template without secrets, the kind, the scales. In this order for all.
    package init(_ name: SourceName, traits: [String]) {
        self.name = name
        // Each with its length, so that no two lists give the same text.
        let text = traits.map { "\($0.utf8.count):\($0)" }.joined(separator: ",")
        let digest = Array(text.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        fingerprint = String(digest.description.prefix(16))
    }

    /// What is known of a source by the name of an object.
    init?(_ text: Substring) {
        guard let dash = text.lastIndex(of: "-"), let name = try? SourceName(String(text[..<dash])) else { return nil }
        let fingerprint = text[text.index(after: dash)...]
        guard fingerprint.utf8.count == 16, fingerprint.utf8.allSatisfy(isHexadecimal) else { return nil }
        self.name = name
        self.fingerprint = String(fingerprint)
    }

    /// As the names of objects have it.
    package var description: String { "\(name)-\(fingerprint)" }
}

/// Whether a byte is a digit or one of `a` to `f`.
func isHexadecimal(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte) }
