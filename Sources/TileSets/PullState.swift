import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a cache knows of the set that a source was pulled from: an entry of its own, `NAME:pull/state`.
///
/// It is written when everything else is recorded, and removed before anything is: while it is there the tiles are those of that set,
/// unless somebody else has changed them since.
struct PullState: Equatable {
    /// The root that the source's tiles are those of.
    var root: BlobDigest
    /// When they turn stale.
    var expires: Timestamp

    private static let folder = "pull/"
    private static let name = "state"

    /// The key of a source's state.
    static func key(_ source: SourceName) throws -> TileKey {
        TileKey(source: source, resource: try ResourceAddress(path: folder + name))
    }

    /// The key under which a pull keeps a blob until the tiles are recorded.
    static func key(_ source: SourceName, _ blob: BlobDigest) throws -> TileKey {
        TileKey(source: source, resource: try ResourceAddress(path: folder + blob.description))
    }

    /// Whether a key is that of a blob that a pull keeps.
    static func isPart(_ key: TileKey) -> Bool {
        guard case .resource(let resource) = key.address, resource.path.hasPrefix(folder) else { return false }
        return BlobDigest(String(resource.path.dropFirst(folder.count))) != nil
    }

    var encoded: Data {
        var json = CanonicalJSON()
        json.value(
            .object([
                "root": .string(root.description), "expires": .integer(expires.seconds),
            ]))
        return Data(json.bytes)
    }

    init(root: BlobDigest, expires: Timestamp) { (self.root, self.expires) = (root, expires) }

    /// `nil` if it is none.
    init?(_ data: Data) {
        guard let object = [UInt8](data).json?.object, let root = object["root"]?.string.flatMap({ BlobDigest($0) }),
            let expires = object["expires"]?.integer
        else { return nil }
        self.init(root: root, expires: Timestamp(seconds: expires))
    }
}
