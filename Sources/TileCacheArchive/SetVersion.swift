package import TileSets
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A version of a set: its root, and the length of that.
package struct SetVersion: Hashable, Sendable {
    package let root: BlobDigest
    package let length: Int

    /// The version whose root begins with some digits, or the latest one without any; `nil` if there is none, or several are.
    package init?(_ digits: String?, of document: SetDocument) {
        let former = document.kept.filter { $0.root != document.root }
        let roots = [(document.root, document.rootLength)] + former.map { ($0.root, $0.length) }
        let found = digits.map { digits in roots.filter { $0.0.description.hasPrefix(digits) } } ?? [roots[0]]
        guard found.count == 1 else { return nil }
        (root, length) = found[0]
    }

    /// Its chunks, from the file that a set has of its root.
    ///
    /// - Throws: ``SetError``.
    package func list(_ stored: Data) throws -> SetRoot {
        guard let bytes = SetList.unpacked([UInt8](stored), root, length: length) else {
            throw SetError(.damaged, "the list \(root) is damaged")
        }
        return try SetRoot(bytes)
    }
}
