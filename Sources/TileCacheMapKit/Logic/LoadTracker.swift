import TileCache
import TileStore

/// Which tiles have been asked for, and which are left alone for now.
///
/// A value with its rules; who owns it holds a lock. Bounded: of at most 16,384 tiles it remembers that they are held.
struct LoadTracker: Sendable {
    private struct Held {
        var until: UInt64
        var failures: Int
    }

    static let mostHeld = 16_384
    /// A tile that was got, and is still stale or not stored, is asked for again after so many nanoseconds.
    static let pause: UInt64 = 60_000_000_000
    /// After so many failures in a row nothing is drawn anew by itself: it is tried again when somebody moves the map.
    static let timedRetries = 5

    let backoff: Backoff
    private var loading: Set<TileAddress> = []
    private var held: [TileAddress: Held] = [:]

    init(backoff: Backoff = Backoff()) { self.backoff = backoff }

    var isIdle: Bool { loading.isEmpty }
    var heldCount: Int { held.count }

    func status(of tile: TileAddress, at now: UInt64) -> LoadStatus {
        if loading.contains(tile) { return .loading }
        if let held = held[tile], now < held.until { return .held }
        return .idle
    }

    /// Takes a tile for loading; `false` if somebody else has, or it is held.
    mutating func begin(_ tile: TileAddress, at now: UInt64) -> Bool {
        guard status(of: tile, at: now) == .idle else { return false }
        loading.insert(tile)
        return true
    }

    /// A tile came; `isSettled` says whether the cache now has it, and fresh.
    mutating func finished(_ tile: TileAddress, isSettled: Bool, at now: UInt64) {
        loading.remove(tile)
        if isSettled { held[tile] = nil } else { hold(tile, Held(until: now &+ Self.pause, failures: 0), now) }
    }

    /// A tile did not come.
    ///
    /// - Parameter asked: How long its server asked to be left alone.
    /// - Returns: How long it is left alone, if it is worth drawing anew after that; `nil` if not.
    mutating func failed(_ tile: TileAddress, asked: Duration?, at now: UInt64, random: UInt64) -> UInt64? {
        loading.remove(tile)
        let failures = (held[tile]?.failures ?? 0) + 1
        let wait = max(backoff.nanoseconds(failures: failures, random: random), Self.nanoseconds(asked ?? .zero))
        hold(tile, Held(until: now &+ wait, failures: failures), now)
        return failures <= Self.timedRetries ? wait : nil
    }

    /// A tile's loading was given up without an answer.
    mutating func abandoned(_ tile: TileAddress) { loading.remove(tile) }

    private mutating func hold(_ tile: TileAddress, _ new: Held, _ now: UInt64) {
        if held.count >= Self.mostHeld { held = held.filter { $0.value.until > now } }
        // All of them held at once: whoever asks again is still kept in check by the cache's own back-off.
        if held.count >= Self.mostHeld { held = [:] }
        held[tile] = new
    }

    /// At most a day: what a server asks for is not to be trusted beyond that.
    private static func nanoseconds(_ duration: Duration) -> UInt64 {
        let (seconds, attoseconds) = min(max(duration, .zero), .seconds(86_400)).components
        return UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)
    }
}
