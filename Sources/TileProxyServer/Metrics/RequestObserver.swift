package import HTTPListener
import HTTPWire
package import NIOCore

/// Counts and logs every request when it is over.
package final class RequestObserver: ExchangeObserver {
    private let statistics: Statistics
    private let log: AccessLog?
    private let trusted: TrustedProxies
    private let isGeneric: @Sendable (RequestHead) -> Bool
    package let wantsAnswered: Bool

    /// - Parameters:
    ///   - trusted: Whose word about a client's address the log takes.
    ///   - wantsAnswered: Whether there is anything to do for requests that were answered.
    ///   - isGeneric: Whether a request went to the generic routes, which keep no figures of their own.
    package init(
        statistics: Statistics, log: AccessLog?, trusted: TrustedProxies = TrustedProxies(), wantsAnswered: Bool = true,
        isGeneric: @escaping @Sendable (RequestHead) -> Bool
    ) {
        self.statistics = statistics
        self.log = log
        self.trusted = trusted
        self.wantsAnswered = wantsAnswered
        self.isGeneric = isGeneric
    }

    package func finished(
        _ request: RequestHead, from client: SocketAddress?, _ answered: Answered, took: TimeAmount
    ) {
        if isGeneric(request) {
            statistics.other(answered.cache, status: answered.status, bytes: answered.bodyBytes)
        }
        log?.add(
            AccessLine(
                client: trusted.client(of: request.fields, peer: client), time: LoopTime.system(),
                method: request.methodText,
                path: request.path, version: request.version, status: answered.status, bytes: answered.bodyBytes,
                referrer: log == nil ? nil : request.fields.first(named: "referer"),
                agent: log == nil ? nil : request.fields.first(named: "user-agent"), cache: answered.cache.rawValue,
                microseconds: Int(clamping: took.nanoseconds / 1000)))
    }

    package func refused(status: Int, from client: SocketAddress?) {
        statistics.countRefusedMessage()
        // Nothing that was sent is repeated: it is no request.
        log?.add(
            AccessLine(
                client: client.clientName, time: LoopTime.system(), method: "-", path: "-", version: nil,
                status: status, bytes: 0, referrer: nil, agent: nil, cache: Answered.CacheResult.none.rawValue,
                microseconds: 0))
    }
}
