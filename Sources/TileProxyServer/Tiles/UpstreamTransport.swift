import HTTPTypes
import TileCache
import TileStore

/// Carries requests for tiles to their origins: counts, times, and goes on to the next host where one fails.
///
/// Hosts that failed lately are asked last, for a while that doubles with each failure up to a minute.
final class UpstreamTransport: TileTransport {
    private struct Health {
        var failures = 0
        var restUntil: UInt64 = 0
    }

    private let base: any TileTransport
    private let statistics: Statistics
    private let storedSize: @Sendable (TileKey) -> Int
    private let ticks: @Sendable () -> UInt64
    private let mirrors = Locked<[SourceName: [Origin]]>([:])
    private let health = Locked<[Origin: Health]>([:])

    /// Scheme and authority.
    struct Origin: Hashable, Sendable {
        var scheme: String
        var authority: String
    }

    init(
        base: any TileTransport, statistics: Statistics, storedSize: @escaping @Sendable (TileKey) -> Int,
        ticks: @escaping @Sendable () -> UInt64
    ) {
        self.base = base
        self.statistics = statistics
        self.storedSize = storedSize
        self.ticks = ticks
    }

    /// Takes over the mirrors of other sources.
    func adopt(_ table: SourceTable) {
        var new: [SourceName: [Origin]] = [:]
        for source in table.sources where !source.configuration.mirrors.isEmpty {
            new[source.name] = source.configuration.mirrors.compactMap { text in
                guard let mark = text.firstRange(of: "://") else { return nil }
                return Origin(scheme: String(text[..<mark.lowerBound]), authority: String(text[mark.upperBound...]))
            }
        }
        mirrors.withLock { $0 = new }
        health.withLock { $0 = [:] }
    }

    /// Sends a request to the first of its hosts that answers.
    ///
    /// - Throws: ``TransportError`` of the last one.
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        var request = request
        let key = request.head.headerFields[.tileKey].flatMap { try? TileKey($0) }
        request.head.headerFields[.tileKey] = nil
        if let origin = request.redirect, isOwn(request.head, origin) { request.redirect = nil }
        // A redirect to another host has no key: it is nobody's mirror.
        guard let key else { return try await base.send(request) }
        let own = Origin(scheme: request.head.scheme ?? "https", authority: request.head.authority ?? "")
        let others = mirrors.withLock { $0[key.source] ?? [] }
        guard !others.isEmpty else { return try await ask(request, key) }
        let origins = inOrder([own] + others.filter { $0 != own })
        let start = ticks()
        let whole = request.timeout
        var last: TransportError?
        for (index, origin) in origins.enumerated() {
            if index > 0 { statistics.upstream(key.source) { $0.failovers += 1 } }
            request.head.scheme = origin.scheme
            request.head.authority = origin.authority
            // Each gets its share of the time that is left, so that one that hangs does not use up all of it.
            let left = whole - .nanoseconds(Int64(clamping: ticks() &- start))
            guard left > .zero else { break }
            request.timeout = left / (origins.count - index)
            do throws(TransportError) {
                let response = try await ask(request, key)
                let isFailure = response.head.status.code >= 500 || response.head.status.code == 429
                note(origin, failed: isFailure)
                if !isFailure || index == origins.count - 1 { return response }
            } catch {
                if error.code == .cancelled { throw error }
                note(origin, failed: true)
                last = error
            }
        }
        throw last ?? TransportError(.timeout, "\(own.authority): no answer in time, nor from its mirrors")
    }

    /// Whether a redirect stays with the host that the source was configured with, or leads to one of its mirrors: these
    /// may lie in a private network.
    private func isOwn(_ head: HTTPRequest, _ origin: RedirectOrigin) -> Bool {
        let name = head.hostName
        func isNamed(_ authority: String) -> Bool {
            HTTPRequest(method: .get, scheme: nil, authority: authority, path: nil).hostName == name
        }
        return isNamed(origin.authority)
            || mirrors.withLock { $0[origin.source] ?? [] }.contains { isNamed($0.authority) }
    }

    /// Asks one host, and counts.
    private func ask(_ request: TransportRequest, _ key: TileKey) async throws(TransportError) -> TransportResponse {
        let start = ticks()
        do throws(TransportError) {
            let response = try await base.send(request)
            let seconds = Double(ticks() &- start) / 1e9
            let status = response.head.status.code
            let saved = status == 304 ? storedSize(key) : 0
            statistics.upstream(key.source) {
                $0.requests += 1
                $0.add(status: status, bytes: response.body.count, seconds: seconds)
                $0.bytesSaved += saved
            }
            return response
        } catch {
            statistics.upstream(key.source) {
                $0.requests += 1
                if error.code != .cancelled { $0.failures += 1 }
            }
            throw error
        }
    }

    /// Those that rest come last; else as they were written.
    private func inOrder(_ origins: [Origin]) -> [Origin] {
        let now = ticks()
        return health.withLock { health in
            origins.filter { (health[$0]?.restUntil ?? 0) <= now }
                + origins.filter { (health[$0]?.restUntil ?? 0) > now }
        }
    }

    private func note(_ origin: Origin, failed: Bool) {
        let now = ticks()
        health.withLock { health in
            guard failed else {
                health[origin] = nil
                return
            }
            var state = health[origin] ?? Health()
            state.failures = min(state.failures + 1, 6)
            state.restUntil = now &+ min(60, 1 << UInt64(state.failures)) * 1_000_000_000
            health[origin] = state
        }
    }
}

extension HTTPRequest {
    /// The host without its port, and without the brackets of an IPv6 address.
    var hostName: String {
        var name = host[...]
        if name.hasPrefix("[") {
            name = name.dropFirst().prefix { $0 != "]" }
        } else if let colon = name.lastIndex(of: ":") {
            name = name[..<colon]
        }
        return name.lowercased()
    }
}
