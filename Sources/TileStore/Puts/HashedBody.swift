#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Bytes and their digest, for one who needs it before they are stored: they are hashed once.
///
/// There is no other way to make one than to hash the bytes, so a digest can never be that of others.
package struct HashedBody: Sendable {
    /// The bytes.
    package let data: Data
    /// Their digest.
    package let digest: BlobDigest

    /// Hashes the bytes.
    package init(_ data: Data) {
        self.data = data
        digest = data.withUnsafeBytes { BlobDigest(hashing: $0) }
    }
}
