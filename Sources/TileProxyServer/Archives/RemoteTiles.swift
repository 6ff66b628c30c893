import CacheEngine
import TileStore

/// The tiles of an archive or of a published set at a server.
protocol RemoteTiles: Sendable {
    /// The versions that were seen last and can be asked for, the latest first; empty where there is no choice.
    var versions: [SourceVersion] { get }

    /// A question for a tile that is to be begun.
    ///
    /// - Parameters:
    ///   - version: The first digits of the version's root; `nil` for the latest one.
    ///   - onlyIfCached: Whether the server is not to be asked.
    ///   - finish: Called once, on the loop, unless it is left before.
    func question(
        _ key: TileKey, version: String?, of source: ServedSource, on tiles: TileLoop, onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) -> any TileAnswering

    /// What a version says of itself, read if need be.
    ///
    /// - Parameter finish: Called once, on the loop.
    func describe(
        version: String?, of source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (RemoteDescription) -> Void)
}

/// What is known of the map at a server.
enum RemoteDescription: Sendable {
    /// What it says of itself, with what the operator says; and which version of a set it is, if one was asked for.
    ///
    /// - Parameter isWhole: Whether that is all that it says, and not what can be had of it now.
    case said(SourceConfiguration, MapDescription, SourceVersion?, isWhole: Bool)
    /// It cannot be had, and never could.
    case unknown
    /// Whether there is such a version cannot be known now.
    case unknownVersion
    /// There is no such version.
    case noVersion
}

extension Refusal {
    /// Neither the set nor what is cached of it says what was asked for.
    static var unreadableSet: Refusal { Refusal(status: 502, words: "The set at the tile server cannot be read.") }
}
