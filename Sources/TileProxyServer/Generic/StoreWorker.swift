import HTTPCaching
import HTTPTypes
import Logging
import NIOCore
import NIOPosix
import OriginClient
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What the cache has to do with the store and must wait for: on threads of its own, never on an event loop.
final class StoreWorker: Sendable {
    private let store: TileStore
    private let threads: NIOThreadPool
    private let logger: Logger

    init(store: TileStore, threads: Int = 4, logger: Logger) {
        self.store = store
        self.threads = NIOThreadPool(numberOfThreads: threads)
        self.logger = logger
        self.threads.start()
    }

    /// Runs a body on a thread that may wait, then another with its result on the loop.
    func run<T: Sendable>(
        on loop: any EventLoop, _ body: @escaping @Sendable (TileStore) throws -> T,
        then finish: @escaping @Sendable (Result<T, any Error>) -> Void
    ) {
        let store = store
        threads.submit { state in
            let result = Result { () throws -> T in
                guard state == .active else { throw UpstreamFailure.cancelled }
                return try body(store)
            }
            loop.execute { finish(result) }
        }
    }

    /// Ends once everything that was asked for is done.
    func shutdown() async throws { try await threads.shutdownGracefully() }
}

/// What is written to the store about one response; carried out on a thread that may wait.
enum StoreJob: Sendable {
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
    static func update(_ candidate: Candidate, _ stored: StoredResponse, for request: ProxyRequest) -> StoreJob {
        let names = Vary(stored.fields).names
        guard names != candidate.choice?.names ?? [], let primary = request.key else {
            return .refresh(
                candidate, entry(status: stored.status, fields: stored.fields, freshness: stored.freshness))
        }
        let intent = OriginDecision.StoreIntent(fields: stored.fields, freshness: stored.freshness, vary: names)
        return .move(candidate, from: candidate.key, primary: primary, intent, stored.status, request.fields)
    }

    /// What became of a job.
    struct Outcome: Sendable {
        /// Whether the store has what the job was to leave there.
        var isStored = true
        /// Where a response's body lies now.
        var place: (key: TileKey, blob: BlobDigest)?
    }

    /// Carries it out.
    func perform(_ store: TileStore, _ keys: ResourceKeys) throws -> Outcome {
        switch self {
        case .put(let primary, let intent, let status, let body, let request):
            return try Self.put(primary, intent, status, body, request, store, keys)
        case .refresh(let candidate, let metadata):
            let version = EntryVersion(candidate.entry)
            _ = try store.refresh(candidate.key, from: version, metadata: metadata)
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
        let metadata = TileProxyServer.entry(status: status, fields: intent.fields, freshness: intent.freshness)
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
