import HTTPCaching
import HTTPTypes
import TileStore

/// A stored response that matches a request.
struct Candidate: Sendable {
    /// The key that it lies under: the URL's, or a variant's.
    let key: TileKey
    /// The entry with its bytes.
    let tile: StoredTile
    /// The response that the entry was made from.
    let response: StoredResponse
    /// How `Vary` chose it; `nil` if the URL has one response for all.
    let choice: VariantChoice?

    /// The length of the stored body.
    var length: Int { tile.data?.count ?? 0 }
}

/// How a variant was chosen.
struct VariantChoice: Sendable {
    /// The entry of the URL's marker.
    let marker: TileEntry
    /// The fields that chose it.
    let names: [HTTPField.Name]
    /// Whether all of the URL's responses named these fields.
    let isOnlyChoice: Bool
}

/// What the store has for a request.
enum Lookup: Sendable {
    /// Nothing for its URL.
    case miss
    /// Something for its URL, but not for its fields.
    case varyMiss
    /// A response.
    case found(Candidate)
    /// Only a read that may wait can tell.
    case mustWait

    /// Looks, by means of a way to read an entry: at the URL's key, and where a marker stands there, at its variants.
    ///
    /// Of several variants that match, the latest counts (RFC 9111 §4.1).
    static func find(
        _ request: ProxyRequest, _ keys: ResourceKeys, read: (TileKey) throws -> TileStore.ImmediateRead
    ) rethrows -> Lookup {
        guard let primary = request.key else { return .miss }
        let tile: StoredTile
        switch try read(primary) {
        case .miss: return .miss
        case .mustWait: return .mustWait
        case .tile(let found): tile = found
        }
        guard let marker = VaryMarker(tile.entry.metadata) else {
            return .found(Candidate(key: primary, tile, nil))
        }
        var best: Candidate?
        for names in marker.sets {
            guard let key = keys.variant(of: primary, names, epoch: marker.epoch, for: request.fields) else { continue }
            switch try read(key) {
            case .miss: continue
            case .mustWait: return .mustWait
            case .tile(let found):
                let choice = VariantChoice(
                    marker: tile.entry, names: names, isOnlyChoice: marker.sets.count == 1)
                let candidate = Candidate(key: key, found, choice)
                if best.map({ $0.tile.entry.metadata.storedAt < found.entry.metadata.storedAt }) ?? true {
                    best = candidate
                }
            }
        }
        return best.map { .found($0) } ?? .varyMiss
    }
}

extension Candidate {
    init(key: TileKey, _ tile: StoredTile, _ choice: VariantChoice?) {
        self.init(key: key, tile: tile, response: TileProxyServer.response(of: tile.entry.metadata), choice: choice)
    }
}
