import HTTPListener
import NIOCore
package import TileStore

/// The proxy's figures.
///
/// Each event loop counts in stripes of its own, so that a request takes a lock that nobody else holds; they are added up
/// when somebody asks. Names of sources are the only labels, so what is kept is bounded by the configuration.
package final class Statistics: Sendable {
    /// The counts of one source on one event loop.
    final class Stripe: Sendable {
        private let counts = Locked(RequestCounts())

        @inline(__always)
        func add(_ result: Answered.CacheResult, status: Int, bytes: Int) {
            counts.withLock { $0.add(result, status: status, bytes: bytes) }
        }

        var value: RequestCounts { counts.withLock { $0 } }
    }

    private struct State {
        var stripes: [SourceName: [ObjectIdentifier: Stripe]] = [:]
        var upstream: [SourceName: UpstreamCounts] = [:]
        var other = RequestCounts()
        var refusedMessages = 0
        var notStored = 0
        var refreshFailures = 0
        var acceptFailures = 0
        var handshakeFailures = 0
        var reloads = 0
        var failedReloads = 0
    }
    private let state = Locked(State())
    let startedAt: Timestamp

    package init(startedAt: Timestamp) { self.startedAt = startedAt }

    /// Where a loop counts requests of a source; the same after the configuration was read again.
    func stripe(for source: SourceName, on loop: any EventLoop) -> Stripe {
        state.withLock { state in
            let id = ObjectIdentifier(loop)
            if let known = state.stripes[source]?[id] { return known }
            let new = Stripe()
            state.stripes[source, default: [:]][id] = new
            return new
        }
    }

    /// Counts something about a source's origin.
    func upstream(_ source: SourceName, _ change: (inout UpstreamCounts) -> Void) {
        state.withLock { change(&$0.upstream[source, default: UpstreamCounts()]) }
    }

    /// Counts a request of the generic routes.
    func other(_ result: Answered.CacheResult, status: Int, bytes: Int) {
        state.withLock { $0.other.add(result, status: status, bytes: bytes) }
    }

    func countRefusedMessage() { state.withLock { $0.refusedMessages += 1 } }
    func countNotStored() { state.withLock { $0.notStored += 1 } }
    func countRefreshFailure() { state.withLock { $0.refreshFailures += 1 } }
    func countAcceptFailure() { state.withLock { $0.acceptFailures += 1 } }
    func countHandshakeFailure() { state.withLock { $0.handshakeFailures += 1 } }
    func countReload(ok: Bool) { state.withLock { if ok { $0.reloads += 1 } else { $0.failedReloads += 1 } } }

    /// All figures at one moment.
    package struct Snapshot: Sendable {
        package var sources: [(name: SourceName, requests: RequestCounts, upstream: UpstreamCounts)] = []
        /// Requests of the generic routes.
        package var other = RequestCounts()
        /// Messages that broke the rules of HTTP or a limit.
        package var refusedMessages = 0
        /// Tiles that were fetched and could not be stored.
        package var notStored = 0
        /// Refreshes in the background that failed.
        package var refreshFailures = 0
        /// Connections that could not be accepted.
        package var acceptFailures = 0
        /// Connections on which the client and the server could not agree on encryption.
        package var handshakeFailures = 0
        package var reloads = 0
        package var failedReloads = 0
        package var startedAt = Timestamp.distantPast

        package init() {}
    }

    package var snapshot: Snapshot {
        state.withLock { state in
            var result = Snapshot()
            for name in Set(state.stripes.keys).union(state.upstream.keys).sorted() {
                var requests = RequestCounts()
                for stripe in (state.stripes[name] ?? [:]).values { requests += stripe.value }
                result.sources.append((name, requests, state.upstream[name] ?? UpstreamCounts()))
            }
            result.other = state.other
            result.refusedMessages = state.refusedMessages
            result.notStored = state.notStored
            result.refreshFailures = state.refreshFailures
            result.acceptFailures = state.acceptFailures
            result.handshakeFailures = state.handshakeFailures
            result.reloads = state.reloads
            result.failedReloads = state.failedReloads
            result.startedAt = startedAt
            return result
        }
    }
}
