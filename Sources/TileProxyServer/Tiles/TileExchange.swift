import CacheEngine
import HTTPCaching
import HTTPListener
import HTTPTypes
import NIOCore
import TileStore

/// One tile that is asked for: carries out what its transaction says.
///
/// Belongs to its event loop and is used on it alone.
final class TileExchange: TileAnswering, @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    /// How it ends.
    enum Outcome {
        /// A tile, or the knowledge that there is none.
        ///
        /// - Parameter isKept: Whether it may be kept by others, as the cache does.
        case tile(Candidate, CacheStatus, CacheTransaction.ServedFrom, isKept: Bool)
        case refused(Refusal, CacheStatus, TileFill.Failure?)
    }

    private let tiles: TileLoop
    private let source: ServedSource
    private let key: TileKey
    private let subject: TileSubject
    /// Whether the server is asked whatever is stored.
    private let reloads: Bool
    private var transaction: CacheTransaction
    private var finish: ((Outcome) -> Void)?
    /// Its place among those who wait for the tile.
    private var seat: TileFlights.Seat?
    /// Whether what was found is not in the store.
    private var isHeld = false
    /// Whether what the fill brought is stored.
    private var isStored = true
    private(set) var failure: TileFill.Failure?
    /// Events that came of an action that is being carried out, until it is its turn.
    private var events: [CacheTransaction.Event] = []
    private var isActing = false

    /// - Parameters:
    ///   - onlyIfCached: Whether the server is not to be asked.
    ///   - subject: What is under the key.
    ///   - reloads: Whether the server is asked whatever is stored.
    ///   - finish: Called once, on the loop, unless it is left before.
    init(
        _ tiles: TileLoop, _ source: ServedSource, _ key: TileKey, onlyIfCached: Bool,
        subject: TileSubject = .tile, reloads: Bool = false, _ finish: @escaping (Outcome) -> Void
    ) {
        self.tiles = tiles
        self.source = source
        self.key = key
        self.subject = subject
        self.reloads = reloads
        self.finish = finish
        let request = CacheRequest(tile: key, onlyIfCached: onlyIfCached, reloads: reloads)
        transaction = CacheTransaction(request, source.use)
    }

    /// Begins.
    func start() { take(.begin) }

    /// Nobody waits for it any more.
    func leave() {
        finish = nil
        take(.clientGone)
    }

    /// Hands an event to the transaction, and does what it says.
    private func take(_ event: CacheTransaction.Event) {
        events.append(event)
        guard !isActing else { return }
        isActing = true
        defer { isActing = false }
        while !events.isEmpty {
            for action in transaction.on(events.removeFirst(), at: tiles.time.now) { perform(action) }
        }
    }

    private func perform(_ action: CacheTransaction.Action) {
        switch action {
        case .look(let mayWait): look(mayWait: mayWait)
        case .fetch(let forwarding, _, _): fetch(forwarding)
        case .leaveFill:
            if let seat { tiles.service.flights.leave(seat) }
            seat = nil
        case .answer(let candidate, _, _, let status, let from): end(.tile(candidate, status, from, isKept: true))
        case .give(let candidate, let status, let from): end(.tile(candidate, status, from, isKept: isStored))
        case .refuse(let refusal, let status): end(.refused(refusal, status, failure))
        case .refreshBehind(let candidate): tiles.refresh(source, candidate, isHeld: isHeld, subject)
        // Ready answers of tiles are made from the tables. The rest is of clients' own requests.
        case .makeReady, .awaitWrites, .askLeave, .abandonProbe, .startPatience, .relay, .abort, .done: break
        }
    }

    private func end(_ outcome: Outcome) {
        let finish = finish
        self.finish = nil
        finish?(outcome)
    }

    // MARK: Looking

    private func look(mayWait: Bool) {
        guard mayWait else {
            do { found(try tiles.lookNow(key)) } catch { storeFailed(error) }
            return
        }
        tiles.look(key) { result in
            switch result {
            case .success(let tile): self.found(self.tiles.newest(self.key, tile))
            case .failure(let error): self.storeFailed(error)
            }
        }
    }

    private func found(_ found: TileLoop.Found) {
        isHeld = found.isHeld
        take(.looked(subject.judged(found.lookup, at: tiles.time.now)))
    }

    /// A store that cannot be read is no reason to leave a client without an answer.
    private func storeFailed(_ error: any Error) {
        tiles.service.notRead(key, error)
        found(tiles.newest(key, nil))
    }

    // MARK: Asking the server

    private func fetch(_ forwarding: Forwarding) {
        let (loop, flights) = (tiles.loop, tiles.service.flights)
        let place = flights.follow(source.flight(key, of: subject.version, isReload: reloads), .visible, nil) { news in
            if loop.inEventLoop { self.hear(news) } else { loop.execute { self.hear(news) } }
        }
        guard let place else {
            // The proxy goes down.
            let none = TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: false)
            take(.follows)
            take(.heard(.noTile(.noAnswer(none), retryAfter: nil)))
            return
        }
        seat = place.seat
        guard let ticket = place.leads else { return take(.follows) }
        take(.leads)
        TileAsking(
            tiles, source, key, forwarding.candidate, isHeld: isHeld, ticket, isRefresh: false, subject: subject,
            reloads: reloads
        ).start()
    }

    private func hear(_ news: FillEnd) {
        guard seat != nil else { return }
        seat = nil
        switch news {
        case .tile(let tile): isStored = tile.isStored
        case .noTile(let why, _): failure = why
        default: break
        }
        take(.heard(news))
    }
}

extension CacheRequest {
    /// The cache's own request for a tile.
    fileprivate init(tile key: TileKey, onlyIfCached: Bool, reloads: Bool) {
        self.init(method: .get, fields: [:], target: "", key: key, hasBody: false)
        asking.onlyIfCached = onlyIfCached
        asking.noCache = reloads
    }
}
