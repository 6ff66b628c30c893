import HTTPTypes
import TileStore

/// Numbers of requests, none of them twice in a process.
private let lastRequest = Locked<UInt64>(0)

extension TileCache {
    /// Tells of what has happened.
    @inline(__always)
    package func tell(_ event: @autoclosure () -> TileCacheEvent) {
        if let onEvent = configuration.onEvent { onEvent(event()) }
    }

    /// Sends a request, and tells of it.
    func send(
        _ request: TransportRequest, for key: TileKey?, by background: BackgroundTransport? = nil
    ) async throws(TransportError) -> TransportResponse {
        let transport: any TileTransport = background ?? self.transport
        guard let onEvent = configuration.onEvent else { return try await transport.send(request) }
        let number = lastRequest.withLock { last in
            last += 1
            return last
        }
        let event = RequestEvent(number: number, key: key, host: request.head.host)
        onEvent(.requestBegan(event))
        let start = clock.ticks()
        do throws(TransportError) {
            let answer = try await transport.send(request)
            let outcome = RequestOutcome.answered(status: answer.head.status.code, bytes: answer.body.count)
            onEvent(.requestEnded(event, outcome, after: elapsed(since: start)))
            return answer
        } catch {
            onEvent(.requestEnded(event, .failed(error.code), after: elapsed(since: start)))
            throw error
        }
    }

    private func elapsed(since start: UInt64) -> Duration {
        let now = clock.ticks()
        return .nanoseconds(Int64(clamping: now > start ? now - start : 0))
    }

    /// Tells of what this process has evicted since the last time, if there is anything; for after something was stored.
    func tellOfEvictions() {
        guard let onEvent = configuration.onEvent else { return }
        let report = toldEvictions.withLock { told -> RemovalReport in
            let now = store.evictedHere
            var report = RemovalReport()
            report.removedEntries = now.removedEntries - told.removedEntries
            report.removedBlobs = now.removedBlobs - told.removedBlobs
            report.freedBytes = now.freedBytes - told.freedBytes
            told = now
            return report
        }
        if report != RemovalReport() { onEvent(.evicted(report)) }
    }
}
