import CacheEngine
import HTTPCaching
import HTTPTypes
import TileCache
import TileStore

/// Carries requests for tiles to their origins: counts, times, and goes on to the next host where one fails.
final class UpstreamTransport: TileTransport {
    private let base: any TileTransport
    private let statistics: Statistics
    private let storedSize: @Sendable (TileKey) -> Int
    private let ticks: @Sendable () -> UInt64
    private let mirrors = Mirrors()

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
    func adopt(_ table: SourceTable) { mirrors.adopt(table.sources.map(\.configuration)) }

    /// Sends a request to the first of its hosts that answers.
    ///
    /// An answer counts as none if it is an error of the server's (5xx) or asks for less (429), as long as another host is left.
    /// - Throws: ``TransportError`` of the last one, if none has answered at all.
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        var request = request
        let key = request.head.headerFields[.tileKey].flatMap { try? TileKey($0) }
        request.head.headerFields[.tileKey] = nil
        let own = Mirrors.Host(scheme: request.head.scheme ?? "https", authority: request.head.authority ?? "")
        let redirected = request.redirect
        if let redirected, isOwn(own, redirected) { request.redirect = nil }
        // A redirect to another host has no key: it is nobody's mirror.
        guard let key else {
            guard let source = redirected?.source else { return try await base.send(request) }
            return try await ask(request, of: source, nil)
        }
        let start = ticks()
        let hosts = mirrors.order(own, of: key.source, at: start)
        guard hosts.count > 1 else { return try await ask(request, of: key.source, key) }
        let whole = request.timeout
        var last = Result<TransportResponse, TransportError>.failure(
            TransportError(.timeout, "\(own.authority): no answer in time, nor from its mirrors"))
        for (index, host) in hosts.enumerated() {
            // Each gets its share of the time that is left, so that one that hangs does not use up all of it.
            let left = whole - .nanoseconds(Int64(clamping: ticks() &- start))
            guard left > .zero else { break }
            if index > 0 { statistics.upstream(key.source) { $0.failovers += 1 } }
            request.head.scheme = host.scheme
            request.head.authority = host.authority
            request.timeout = left / (hosts.count - index)
            do throws(TransportError) {
                let response = try await ask(request, of: key.source, key)
                let isFailure = response.head.status.code >= 500 || response.head.status.code == 429
                // The time of day is not known here: a date counts from the answer's own `Date`, and as now without one.
                let pause = retryAfter(response.head.headerFields, now: HTTPDate(seconds: 4_000_000_000))
                mirrors.note(host, failed: isFailure, pause: isFailure ? pause : nil, at: ticks())
                guard isFailure else { return response }
                last = .success(response)
            } catch {
                if error.code == .cancelled { throw error }
                mirrors.note(host, failed: true, at: ticks())
                // An answer, an error though it is, says more than none.
                if case .failure = last { last = .failure(error) }
            }
        }
        var response = try last.get()
        if response.head.headerFields[.retryAfter] != nil {
            // What one of them has asked for is noted. Together they can be asked again when the first of them has rested.
            let rest = mirrors.shortestRest(of: hosts, at: ticks())
            response.head.headerFields[.retryAfter] = String(max(1, rest.components.seconds))
        }
        return response
    }

    /// Whether a redirect stays with the host that the source was configured with, or leads to one of its mirrors: these
    /// may lie in a private network.
    private func isOwn(_ host: Mirrors.Host, _ origin: RedirectOrigin) -> Bool {
        let name = host.name
        return Mirrors.Host(scheme: host.scheme, authority: origin.authority).name == name
            || mirrors.contains(hostName: name, of: origin.source)
    }

    /// Asks one host, and counts.
    ///
    /// - Parameter key: The tile; `nil` for what a redirect leads to.
    private func ask(
        _ request: TransportRequest, of source: SourceName, _ key: TileKey?
    ) async throws(TransportError) -> TransportResponse {
        let start = ticks()
        do throws(TransportError) {
            let response = try await base.send(request)
            let seconds = Double(ticks() &- start) / 1e9
            let status = response.head.status.code
            let saved = status == 304 ? key.map(storedSize) ?? 0 : 0
            statistics.upstream(source) {
                $0.requests += 1
                $0.add(status: status, bytes: response.body.count, seconds: seconds)
                $0.bytesSaved += saved
            }
            return response
        } catch {
            statistics.upstream(source) {
                $0.requests += 1
                if error.code != .cancelled { $0.failures += 1 }
            }
            throw error
        }
    }
}
