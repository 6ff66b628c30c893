import Logging
import TileStore

extension ProxyConfiguration {
    /// The lasting limits that the cache has under this configuration.
    ///
    /// - Parameter known: The limits that it has now.
    func limits(over known: StoreLimits) -> StoreLimits {
        guard capacity != nil || entries != nil else { return known }
        return StoreLimits(
            capacity: capacity ?? known.capacity, entryLimit: entries ?? (capacity == nil ? known.entryLimit : nil))
    }

    /// What single sources may take of the cache.
    var sourceCapacities: [SourceName: Int] {
        Dictionary(sources.compactMap { source in source.capacity.map { (source.name, $0) } }, uniquingKeysWith: min)
    }

    /// Sets the capacities of sources and the cache's lasting limits, and logs which of these were replaced: `tilegc limit` may have
    /// set them.
    ///
    /// Blocks.
    /// - Throws: `StoreError`.
    func setLimits(of store: TileStore, _ logger: Logger) throws {
        // That of the whole first, as it makes room on a full disk. Neither waits for the other to succeed.
        let failure: (any Error)?
        do {
            try setWholeLimits(of: store, logger)
            failure = nil
        } catch { failure = error }
        if !store.isReadOnly { try store.setSourceCapacities(sourceCapacities) }
        if let failure { throw failure }
    }

    private func setWholeLimits(of store: TileStore, _ logger: Logger) throws {
        let known = try store.limits()
        let limits = limits(over: known)
        // Where nothing can be stored they bound nothing; the next start on a disk that can be written sets them.
        guard limits != known, !store.isReadOnly else { return }
        if known != StoreLimits(capacity: nil) {
            logger.notice(
                "the configuration replaces the cache's limits (capacity, entries)",
                metadata: [
                    "was": "\(Self.description(of: known))", "now": "\(Self.description(of: limits))",
                ])
        }
        try store.setLimits(limits)
    }

    private static func description(of limits: StoreLimits) -> String {
        "\(limits.capacity.map { "\($0) bytes" } ?? "no limit on bytes"), \(limits.entryLimit) entries"
    }
}
