package import HTTPCaching
package import HTTPTypes
package import TileStore

/// A stored response that matches a request.
///
/// A class for the same reason as ``Forwarding``.
package final class Candidate: Sendable {
    /// The key that it lies under: the URL's, or a variant's.
    package let key: TileKey
    /// The entry.
    package let entry: TileEntry
    /// Its bytes: in memory, or an open file that is read as the client takes them.
    package let body: StoredBody
    /// The response that the entry was made from.
    package var response: StoredResponse { made ?? storedResponse(of: entry.metadata) }
    /// The same, made once, for who looks at it more than once.
    private let made: StoredResponse?
    /// How `Vary` chose it; `nil` if the URL has one response for all.
    package let choice: VariantChoice?
    /// What accounts for the memory of bytes that are not stored.
    package let owner: HeldBody?

    private init(
        key: TileKey, entry: TileEntry, body: StoredBody, response: StoredResponse?, choice: VariantChoice?,
        owner: HeldBody?
    ) {
        self.key = key
        self.entry = entry
        self.body = body
        made = response
        self.choice = choice
        self.owner = owner
    }

    /// The length of the stored body.
    package var length: Int { body.count }

    /// Bodies up to this size are read whole; larger ones are sent from their files, so that a client that reads slowly
    /// holds no copy of them in memory.
    package static let wholeUpTo = 120 << 10
}

/// An answer that is not in the store for others: held in memory for those who have been waiting for it.
///
/// A class so that what may carry one stays small.
package final class HeldAnswer: Sendable {
    package let candidate: Candidate
    /// Whether it must not be used again without asking the origin (`no-cache`, stale at once).
    ///
    /// Then it answers only requests that are equal in all their fields: each of them would have been answered by the
    /// origin, which may look at any field. If not, it could not be stored, on a full disk say, and `Vary` decides.
    package let isForEqualRequests: Bool
    /// The request fields that chose it.
    private let vary: [HTTPField.Name]
    private let fields: HTTPFields

    /// - Parameters:
    ///   - vary: The names of the request fields that chose it.
    ///   - request: The request that it answers.
    package init(
        _ candidate: Candidate, vary: [HTTPField.Name], for request: HTTPFields, isForEqualRequests: Bool = false
    ) {
        self.candidate = candidate
        self.vary = vary
        self.isForEqualRequests = isForEqualRequests
        fields = request
    }

    /// Whether it answers a request for the same URL.
    package func isFor(_ request: CacheRequest) -> Bool {
        if isForEqualRequests { return request.fields == fields }
        return vary.isEmpty
            || Vary.fields(vary).selectionText(for: request.fields) == Vary.fields(vary).selectionText(for: fields)
    }
}

/// How a variant was chosen.
package struct VariantChoice: Sendable {
    /// The entry of the URL's marker.
    package let marker: TileEntry
    /// The fields that chose it.
    package let names: [HTTPField.Name]
    /// Whether all of the URL's responses named these fields.
    package let isOnlyChoice: Bool
}

/// What the store has for a request.
package enum Lookup: Sendable {
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
    /// Of several variants that match, the one with the latest `Date` counts, then the one received last (RFC 9111 §4.1).
    package static func find(
        _ request: CacheRequest, _ keys: ResourceKeys, read: (TileKey) throws -> TileStore.ImmediateOpen
    ) rethrows -> Lookup {
        guard let primary = request.key else { return .miss }
        let tile: OpenedTile
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
                if best.map({ $0.entry.metadata.order < found.entry.metadata.order }) ?? true {
                    best = candidate
                }
            }
        }
        return best.map { .found($0) } ?? .varyMiss
    }
}

extension Candidate {
    /// The same, stale since a time.
    package func expired(at time: Timestamp) -> Candidate {
        var metadata = entry.metadata
        metadata.expires = min(metadata.expires, time)
        return with(metadata)
    }

    /// The same bytes, of which something else is said.
    package func with(_ metadata: TileMetadata) -> Candidate {
        let entry = TileEntry(
            key: entry.key, blob: entry.blob, size: entry.size, metadata: metadata, lastUsed: entry.lastUsed,
            recency: entry.recency, isPinned: entry.isPinned)
        return Candidate(key: key, OpenedTile(entry: entry, body: body), choice, owner: owner)
    }

    package convenience init(
        key: TileKey, _ tile: OpenedTile, _ choice: VariantChoice?, owner: HeldBody? = nil
    ) {
        self.init(
            key: key, entry: tile.entry, body: tile.body, response: storedResponse(of: tile.entry.metadata),
            choice: choice, owner: owner)
    }

    /// What stands in for an entry that could not be written.
    package convenience init(key: TileKey, _ metadata: TileMetadata, _ body: StoredBody, _ owner: HeldBody?) {
        let entry = TileEntry(
            key: key, blob: nil, size: body.count, metadata: metadata, lastUsed: metadata.storedAt, recency: 0,
            isPinned: false)
        self.init(key: key, OpenedTile(entry: entry, body: body), nil, owner: owner)
    }

    /// A tile as its fill brought it.
    ///
    /// - Parameter blob: The name of its bytes, if that is known.
    package convenience init(
        tile key: TileKey, _ metadata: TileMetadata, _ body: StoredBody, _ owner: HeldBody?, blob: BlobDigest?
    ) {
        let entry = TileEntry(
            key: key, blob: blob, size: body.count, metadata: metadata, lastUsed: metadata.storedAt, recency: 0,
            isPinned: false)
        self.init(key: key, entry: entry, body: body, response: nil, choice: nil, owner: owner)
    }
}
