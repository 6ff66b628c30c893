import HTTPCaching
package import HTTPTypes
package import TileStore

/// What is written to the store about one response; carried out on a thread that may wait.
package enum StoreJob: Sendable {
    /// A response, with the marker that leads to it if it varies.
    case put(primary: TileKey, OriginDecision.StoreIntent, body: PutBody, request: HTTPFields)
    /// New metadata for a response that stays under its key.
    case refresh(Candidate, TileMetadata)
    /// A confirmed response whose `Vary` has changed: it moves to the key that its new fields lead to.
    case move(Candidate, from: TileKey, primary: TileKey, OriginDecision.StoreIntent, HTTPFields)
    /// Responses that must not be used again.
    case remove([TileKey])

    /// What brings a stored response up to date after a 304, or a 200 to HEAD, has confirmed it.
    ///
    /// The update may name other fields in `Vary` than those that the response was stored under. The stored bytes then
    /// answer only requests whose fields are those of this request (RFC 9111 §4.1), so the response moves to that
    /// variant, and its former key, which other requests lead to, is removed.
    package static func update(
        _ candidate: Candidate, _ intent: OriginDecision.StoreIntent, for request: CacheRequest
    ) -> StoreJob {
        guard intent.vary != candidate.choice?.names ?? [], let primary = request.key else {
            return .refresh(candidate, intent.metadata)
        }
        return .move(candidate, from: candidate.key, primary: primary, intent, request.fields)
    }

    /// What became of a job.
    package struct Outcome: Sendable {
        /// Whether the store has what the job was to leave there.
        package var isStored = true
        /// Whether it is not stored because it is larger than the whole capacity, or than its source's own.
        package var isTooLarge = false
        /// The blob that has the bytes of the body that was put.
        package var blob: BlobDigest?
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
        case .put(let primary, let intent, let body, let request):
            return try Self.put(primary, intent, body, request, store, keys)
        case .refresh(let candidate, let metadata):
            return try Self.refresh(candidate, metadata, store)
        case .move(let candidate, let former, let primary, let intent, let request):
            // Opened before it goes: its bytes stay readable.
            guard let tile = try store.open(former, wholeUpTo: Candidate.wholeUpTo),
                EntryVersion(tile.entry) == EntryVersion(candidate.entry)
            else { return Outcome(isStored: false) }
            let body = try Self.copy(of: tile.body, store)
            // The former key goes first: if this fails half-way, the response is fetched anew and never mistaken.
            _ = try store.remove([former], includingPinned: true)
            return try Self.put(primary, intent, body, request, store, keys)
        case .remove(let gone): _ = try store.remove(gone, includingPinned: true)
        }
        return Outcome()
    }

    private static func refresh(
        _ candidate: Candidate, _ metadata: TileMetadata, _ store: TileStore
    ) throws -> Outcome {
        var version = EntryVersion(candidate.entry)
        if try store.refresh(candidate.key, from: version, metadata: metadata) { return Outcome() }
        guard var entry = try store.entry(for: candidate.key), EntryVersion(entry) == version else {
            return Outcome(isStored: false, isCurrent: false)
        }
        if try sayOriginsDate(of: entry, store), let changed = try store.entry(for: candidate.key) {
            (entry, version) = (changed, EntryVersion(changed))
            if try store.refresh(candidate.key, from: version, metadata: metadata) { return Outcome() }
        }
        // The confirmation is older than what it confirms: it holds for those who wait, and is not kept.
        return Outcome(isStored: false)
    }

    /// Gives an entry that was written when every response counted as made at its receipt the origin's `Date`.
    ///
    /// Compared with the receipt, an origin whose clock is slow would not be believed for as long as it is behind.
    /// - Returns: Whether the entry was changed.
    private static func sayOriginsDate(of entry: TileEntry, _ store: TileStore) throws -> Bool {
        guard let metadata = entry.metadata.withOriginsDate else { return false }
        var undated = metadata
        undated.date = nil
        guard try store.refresh(entry.key, from: EntryVersion(entry), metadata: undated),
            let entry = try store.entry(for: entry.key)
        else { return false }
        return try store.refresh(entry.key, from: EntryVersion(entry), metadata: metadata)
    }

    /// The body of a stored response, to be put once more; a large one is copied piece by piece.
    ///
    /// No budget of a driver counts the copy in `staging/`. It is bounded all the same: a job makes one copy, on the thread that
    /// carries it out, and removes it before it ends. So there are no more copies at a time than the driver's pool has threads
    /// that write (four), each at most as large as a body that was stored, and 256 KiB of memory each.
    private static func copy(of body: StoredBody, _ store: TileStore) throws -> PutBody {
        switch body {
        case .none: return .none
        case .memory(let data): return .memory(data)
        case .file(let file):
            let writer = try store.beginBody(limit: file.size, inMemoryUpTo: 0)
            let room = UnsafeMutableRawBufferPointer.allocate(byteCount: min(file.size, 256 << 10), alignment: 16)
            defer { room.deallocate() }
            var offset = 0
            while offset < file.size {
                let piece = UnsafeMutableRawBufferPointer(rebasing: room[..<min(room.count, file.size - offset)])
                try file.read(into: piece, at: offset)
                try writer.append(UnsafeRawBufferPointer(piece))
                offset += piece.count
            }
            return .pieces(writer)
        }
    }

    private static func put(
        _ primary: TileKey, _ intent: OriginDecision.StoreIntent, _ body: PutBody, _ request: HTTPFields,
        _ store: TileStore, _ keys: ResourceKeys
    ) throws -> Outcome {
        let metadata = intent.metadata
        guard !intent.vary.isEmpty else { return try put(body, primary, metadata, [], store) }
        let known = try store.entry(for: primary).flatMap { VaryMarker($0.metadata) }
        let marker = known?.adding(intent.vary) ?? VaryMarker(sets: [intent.vary], epoch: newEpoch())
        guard let variant = keys.variant(of: primary, intent.vary, epoch: marker.epoch, for: request) else {
            return Outcome(isStored: false)
        }
        var others: [TilePut] = []
        if marker != known {
            others.append(TilePut(key: primary, data: nil, metadata: marker.metadata(at: HTTPDate(metadata.storedAt))))
        }
        return try put(body, variant, metadata, others, store)
    }

    private static func put(
        _ body: PutBody, _ key: TileKey, _ metadata: TileMetadata, _ others: [TilePut], _ store: TileStore
    ) throws -> Outcome {
        // Before the put: a body that came in pieces can be put only once.
        if let entry = try store.entry(for: key), metadata.isOlder(than: entry.metadata) {
            _ = try sayOriginsDate(of: entry, store)
        }
        switch try store.put(body, for: key, metadata: metadata, with: others).first ?? .olderThanStored {
        case .stored(let blob, _):
            var outcome = Outcome()
            outcome.blob = blob
            return outcome
        case .largerThanCapacity, .largerThanSourceCapacity:
            var outcome = Outcome(isStored: false)
            outcome.isTooLarge = true
            return outcome
        case .olderThanStored:
            // What is stored answers those who wait only if it is fresh: an origin's nodes may differ in their clocks, and a
            // stale entry must not send everybody to the origin.
            let known = try store.entry(for: key).map { StoredFreshness(of: $0.metadata) }
            let now = HTTPDate(metadata.storedAt)
            return Outcome(isStored: known.map { $0.isFresh(at: now) && !$0.noCache } ?? false)
        }
    }

    private static func newEpoch() -> String { String(UInt64.random(in: 0...UInt64.max), radix: 36) }
}
