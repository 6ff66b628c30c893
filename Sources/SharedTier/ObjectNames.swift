package import TileStore

/// The names of a fleet's objects in its bucket: one for each tile of a source's epoch, and one for the index of marks.
///
/// `<prefix>v1/<source>-<fingerprint>/<epoch>/<zoom>/<hh>/<rest>`, where `hh` are the first two digits of the SHA-256 of the
/// tile's key, so that listings and servers that divide by name have 256 parts of equal size, and `rest` is `x/y` with scale and
/// format. No name leaves the prefix.
package struct ObjectNames: Hashable, Sendable {
    /// What all names begin with: empty, or with a slash at its end.
    package let prefix: String

    /// - Parameter prefix: Slashes at its ends do not count.
    package init(prefix: String) {
        let inner = prefix.split(separator: "/").joined(separator: "/")
        self.prefix = inner.isEmpty ? "" : inner + "/"
    }

    /// The version of the layout; another one would be another tree.
    private static let version = "v1/"

    /// What all tiles' names begin with.
    package var tiles: String { prefix + Self.version }

    /// What the names of a source's tiles begin with, those of any source of that name and of all epochs.
    package func tiles(ofSourcesNamed name: SourceName) -> String { "\(tiles)\(name)-" }

    /// The index of marks.
    ///
    /// It is no tile's: those have a source's name with a fingerprint there.
    package var index: String { prefix + "marks.json" }

    /// The object of a tile; `nil` for what is no tile, and where the name would be longer than a bucket takes.
    package func name(of key: TileKey, _ source: SharedSource, _ epoch: Epoch) -> String? {
        guard key.source == source.name, let tile = key.tile else { return nil }
        let text = key.description
        // After the source and the zoom.
        let rest = text.utf8.dropFirst(source.name.description.utf8.count + 1 + "\(tile.z)/".utf8.count)
        guard let rest = String(rest) else { return nil }
        let name = "\(tiles)\(source.description)/\(epoch)/\(tile.z)/\(Self.part(of: text))/\(rest)"
        return name.utf8.count <= 1024 ? name : nil
    }

    private static func part(of text: String) -> String {
        let digest = Array(text.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        return String(digest.description.prefix(2))
    }

    /// Whether an object's name is that of a tile, of any source of a name where one is given.
    func isTile(_ name: String, of source: SourceName?) -> Bool {
        guard let parts = parts(of: name) else { return false }
        return source.map { $0 == parts.key.source } ?? true
    }

    /// What an object's name says.
    package struct Parts: Hashable, Sendable {
        package var key: TileKey
        package var source: SharedSource
        package var epoch: Epoch
    }

    /// Reads the name of a tile's object; `nil` for any other name.
    package func parts(of name: String) -> Parts? {
        guard name.hasPrefix(tiles) else { return nil }
        let parts = name.dropFirst(tiles.count).split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 6, let source = SharedSource(parts[0]), let epoch = Epoch(parts[1]),
            let key = try? TileKey("\(source.name)/\(parts[2])/\(parts[4])/\(parts[5])"),
            // Only the one way of writing it counts.
            self.name(of: key, source, epoch) == name
        else { return nil }
        return Parts(key: key, source: source, epoch: epoch)
    }
}
