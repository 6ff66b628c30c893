package import HTTPCaching
package import HTTPTypes
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What is written to the store about one response; carried out on a thread that may wait.
package enum StoreJob: Sendable {
    /// A response, with the marker that leads to it if it varies.
    case put(primary: TileKey, OriginDecision.StoreIntent, HTTPResponse.Status, body: Data?, request: HTTPFields)
    /// New metadata for a response that stays under its key.
    case refresh(Candidate, TileMetadata)
    /// A confirmed response whose `Vary` has changed: it moves to the key that its new fields lead to.
    case move(Candidate, from: TileKey, primary: TileKey, OriginDecision.StoreIntent, HTTPResponse.Status, HTTPFields)
    /// Responses that must not be used again.
    case remove([TileKey])

    /// What brings a stored response up to date after a 304, or a 200 to HEAD, has confirmed it.
    ///
    /// The update may name other fields in `Vary` than those that the response was stored under. The stored bytes then
    /// answer only requests whose fields are those of this request (RFC 9111 §4.1), so the response moves to that
    /// variant, and its former key, which other requests lead to, is removed.
    package static func update(_ candidate: Candidate, _ stored: StoredResponse, for request: CacheRequest) -> StoreJob
    {
        let names = Vary(stored.fields).names
        guard names != candidate.choice?.names ?? [], let primary = request.key else {
            return .refresh(
                candidate, storedEntry(status: stored.status, fields: stored.fields, freshness: stored.freshness))
        }
        let intent = OriginDecision.StoreIntent(fields: stored.fields, freshness: stored.freshness, vary: names)
        return .move(candidate, from: candidate.key, primary: primary, intent, stored.status, request.fields)
    }

    /// What became of a job.
    package struct Outcome: Sendable {
        /// Whether the store has what the job was to leave there.
        package var isStored = true
        /// Where a response's body lies now.
        package var place: (key: TileKey, blob: BlobDigest)?

        /// Whether the response that was to be brought up to date was still there as it had been.
        package var isCurrent = true

        package init(isStored: Bool = true, isCurrent: Bool = true) {
            self.isStored = isStored
            self.isCurrent = isCurrent
        }
    }

    /// Carries it out.
    package func perform(_ store: TileStore, _ keys: ResourceKeys) throws -> Outcome {
        switch self {
        case .put(let primary, let intent, let status, let body, let request):
            return try Self.put(primary, intent, status, body, request, store, keys)
        case .refresh(let candidate, let metadata):
            let version = EntryVersion(candidate.entry)
            let isCurrent = try store.refresh(candidate.key, from: version, metadata: metadata)
            return Outcome(isStored: isCurrent, isCurrent: isCurrent)
        case .move(let candidate, let former, let primary, let intent, let status, let request):
            guard let tile = try store.read(former), EntryVersion(tile.entry) == EntryVersion(candidate.entry) else {
                return Outcome(isStored: false)
            }
            // The former key goes first: if this fails half-way, the response is fetched anew and never mistaken.
            _ = try store.remove([former], includingPinned: true)
            return try Self.put(primary, intent, status, tile.data, request, store, keys)
        case .remove(let gone): _ = try store.remove(gone, includingPinned: true)
        }
        return Outcome()
    }

    private static func put(
        _ primary: TileKey, _ intent: OriginDecision.StoreIntent, _ status: HTTPResponse.Status, _ body: Data?,
        _ request: HTTPFields, _ store: TileStore, _ keys: ResourceKeys
    ) throws -> Outcome {
        let metadata = storedEntry(status: status, fields: intent.fields, freshness: intent.freshness)
        guard !intent.vary.isEmpty else {
            return Outcome(try store.put(body, for: primary, metadata: metadata), primary)
        }
        let known = try store.entry(for: primary).flatMap { VaryMarker($0.metadata) }
        let marker = known?.adding(intent.vary) ?? VaryMarker(sets: [intent.vary], epoch: newEpoch())
        guard let variant = keys.variant(of: primary, intent.vary, epoch: marker.epoch, for: request) else {
            return Outcome(isStored: false)
        }
        var puts = [TilePut(key: variant, data: body, metadata: metadata)]
        if marker != known {
            let now = intent.freshness.storedAt
            puts.append(TilePut(key: primary, data: nil, metadata: marker.metadata(at: now)))
        }
        return Outcome(try store.put(puts).first ?? .olderThanStored, variant)
    }

    private static func newEpoch() -> String { String(UInt64.random(in: 0...UInt64.max), radix: 36) }
}

extension StoreJob.Outcome {
    fileprivate init(_ outcome: PutOutcome, _ key: TileKey) {
        switch outcome {
        case .stored(let blob, _): place = blob.map { (key, $0) }
        case .olderThanStored: break
        case .largerThanCapacity: isStored = false
        }
    }
}
