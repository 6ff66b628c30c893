import TileArchive
import TileSets
import TileStore

/// A version of a published set, as routes name it: `/tiles/NAME@ID/…`.
struct SourceVersion: Hashable, Sendable {
    /// What names all of its tiles.
    let root: BlobDigest
    /// When another one took its place; `nil` for the latest.
    let replaced: Timestamp?

    /// Its root's first digits, as descriptions have them.
    var identifier: String { String(root.description.prefix(16)) }

    /// Whether its root begins with some hexadecimal digits, of which there have to be eight at least.
    func begins(with digits: UnsafeRawBufferPointer) -> Bool {
        let root = root.description.utf8
        return (SetReader.fewestDigits...root.count).contains(digits.count) && root.starts(with: digits)
    }

    /// Whether some bytes can be the first digits of a root.
    static func isNamed(by digits: UnsafeRawBufferPointer) -> Bool {
        (SetReader.fewestDigits...64).contains(digits.count)
            && digits.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
    }

    /// All versions that a set has, the latest first.
    static func all(of document: SetDocument) -> [SourceVersion] {
        [SourceVersion(root: document.root, replaced: nil)]
            + document.kept.map { SourceVersion(root: $0.root, replaced: $0.replaced) }
    }
}
