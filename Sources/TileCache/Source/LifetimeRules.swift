import TileStore

/// How long tiles of a source are fresh where the server leaves that open, and what a source may add to the server's word.
public struct LifetimeRules: Hashable, Sendable {
    /// The lifetime of a tile (status 200) about whose caching the server says nothing at all: no `Cache-Control`, no
    /// `Expires`, no `Pragma`.
    ///
    /// 7 days, which OpenStreetMap's tile usage policy asks of clients that cannot read headers.
    public var unstated: Duration
    /// Every tile is fresh for at least so long; `nil` for as long as the server says.
    ///
    /// Does not override `no-store`, `no-cache` or `must-revalidate`, unless ``overridesServer`` says so.
    public var minimum: Duration?
    /// Whether ``minimum`` is stronger than the server's `no-store`, `no-cache` and `must-revalidate`.
    ///
    /// For servers that are known to send them without meaning it; check their terms.
    public var overridesServer: Bool
    /// How long it is remembered that a tile does not exist (204, 404, 410) where the server does not say.
    public var absent: Duration
    /// How long past its expiry a tile may be served when the server answers with an error and has not said itself
    /// (`stale-if-error`).
    ///
    /// Where there is no answer at all, any age will do. `must-revalidate` and `no-cache` forbid both.
    public var staleOnError: Duration

    /// Makes rules.
    public init(
        unstated: Duration = .seconds(7 * 86_400), minimum: Duration? = nil, overridesServer: Bool = false,
        absent: Duration = .seconds(3600), staleOnError: Duration = .seconds(7 * 86_400)
    ) {
        self.unstated = unstated
        self.minimum = minimum
        self.overridesServer = overridesServer
        self.absent = absent
        self.staleOnError = staleOnError
    }
}

/// Whether tiles that must not be served stale may be served all the same when the server cannot be asked.
public enum OfflineUse: Hashable, Sendable {
    /// Only where the server's directives allow it; tiles that a region pins always.
    case whenAllowed
    /// Always, marked `StaleReason.offline`.
    case always
}
