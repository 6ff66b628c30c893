import CacheEngine
import HTTPCaching
import NIOCore
import TileStore

/// A question for a tile, from which one can go away.
protocol TileAnswering: AnyObject, Sendable {
    /// Begins.
    func start()
    /// Nobody waits for it any more.
    func leave()
}

/// Questions that are asked one after another until a tile is there, for one client, who may leave.
///
/// Belongs to its event loop and is used on it alone.
final class StepsToTile: @unchecked Sendable {
    // Sendable as part of what waits for other threads; nothing is touched off the loop.

    /// What says which version there is, and how it was had.
    struct Opening {
        let candidate: Candidate
        let status: CacheStatus
        let from: CacheTransaction.ServedFrom
        let isKept: Bool

        /// `nil` if it could not be had.
        init?(_ outcome: TileExchange.Outcome) {
            guard case .tile(let candidate, let status, let from, let isKept) = outcome else { return nil }
            (self.candidate, self.status, self.from, self.isKept) = (candidate, status, from, isKept)
        }
    }

    let tiles: TileLoop
    let source: ServedSource
    /// Whether the server is not to be asked.
    let onlyIfCached: Bool
    private var finish: ((TileExchange.Outcome) -> Void)?
    /// What is asked for now.
    private var current: TileExchange?

    /// - Parameter finish: Called once, on the loop, unless it is left before.
    init(
        _ tiles: TileLoop, _ source: ServedSource, onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) {
        (self.tiles, self.source, self.onlyIfCached) = (tiles, source, onlyIfCached)
        self.finish = finish
    }

    /// Whether it has ended, or the client has left.
    var isOver: Bool { finish == nil }

    /// Why what was asked for last could not be had.
    var failure: TileFill.Failure? { current?.failure }

    /// Asks for what lies under a key.
    ///
    /// - Parameters:
    ///   - onlyIfCached: Whether the server is not to be asked for this.
    ///   - then: Called once, on the loop, unless it is left before.
    func ask(
        _ key: TileKey, _ subject: TileSubject, reloads: Bool = false, onlyIfCached: Bool = false,
        _ then: @escaping (TileExchange.Outcome) -> Void
    ) {
        let exchange = TileExchange(
            tiles, source, key, onlyIfCached: onlyIfCached || self.onlyIfCached, subject: subject, reloads: reloads
        ) { [weak self] outcome in
            guard let self, !isOver else { return }
            then(outcome)
        }
        current = exchange
        exchange.start()
    }

    /// The client has left.
    func leave() {
        finish = nil
        current?.leave()
        current = nil
    }

    /// Answers the client.
    func end(_ outcome: TileExchange.Outcome) {
        current = nil
        let finish = finish
        self.finish = nil
        finish?(outcome)
    }
}
