package import TileSets
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A version of a set: its root, and the length of that if it is known.
package struct SetVersion: Hashable, Sendable {
    package let root: BlobDigest
    package let length: Int?

    /// The version whose root begins with some digits, or the latest one without any; `nil` if there is none, or several are.
    package init?(_ digits: String?, of document: SetDocument) {
        let latest = SetVersion(root: document.root, length: document.rootLength)
        guard let digits else {
            self = latest
            return
        }
        let found = ([latest] + Self.former(of: document).map(\.version)).filter {
            $0.root.description.hasPrefix(digits)
        }
        guard found.count == 1 else { return nil }
        self = found[0]
    }

    private init(root: BlobDigest, length: Int?) { (self.root, self.length) = (root, length) }

    /// The version that all digits of its root name, whether a `set.json` names it or not; `nil` if they are not all of them.
    init?(allDigits digits: String) {
        guard let root = BlobDigest(digits) else { return nil }
        self.init(root: root, length: nil)
    }

    /// The versions that were the latest one before, the last of them first, each once, and since when they are not.
    package static func former(of document: SetDocument) -> [(version: SetVersion, replaced: Timestamp)] {
        document.former.map { (SetVersion(root: $0.root, length: $0.length), $0.replaced) }
    }

    /// Its chunks, from the body of an answer.
    ///
    /// - Throws: ``SetError``.
    package func list(_ body: Data) throws -> SetRoot {
        guard let bytes = SetList.received([UInt8](body), root, length: length) else {
            throw SetError(.damaged, "the list \(root) is damaged")
        }
        return try SetRoot(bytes)
    }
}
