/// What a cache has of a tile, as far as it decides about drawing and asking.
public struct CachedTileState: Hashable, Sendable {
    /// What is there.
    public enum Content: Hashable, Sendable, CaseIterable {
        /// Nothing is known of the tile.
        case missing
        /// Its bytes.
        case picture
        /// The knowledge that there is no such tile.
        case absent
    }

    /// What is there.
    public var content: Content
    /// Whether it should be asked for again, although it may be used meanwhile.
    public var isStale: Bool
    /// Whether a region keeps it whatever the limits say.
    public var isPinned: Bool
    /// Differs where the bytes differ; 0 for a cache that does not know.
    ///
    /// Only compared within one process.
    public var version: Int

    /// Describes what is there.
    public init(_ content: Content, isStale: Bool = false, isPinned: Bool = false, version: Int = 0) {
        self.content = content
        self.isStale = isStale
        self.isPinned = isPinned
        self.version = version
    }

    /// Nothing.
    public static let missing = CachedTileState(.missing)
}
