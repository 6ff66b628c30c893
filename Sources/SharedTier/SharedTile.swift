package import TileStore

/// A tile that another proxy of the fleet has brought, whole and fresh, or the knowledge that there is none.
package struct SharedTile: Sendable {
    /// What is known of it, by this machine's clock.
    package let metadata: TileMetadata
    /// Its bytes, which have the name that their entry says; `nil` if there is no such tile.
    package let body: HashedBody?

    package init(metadata: TileMetadata, body: HashedBody?) { (self.metadata, self.body) = (metadata, body) }

    /// Whether it says more than what a node has stored, which is stale.
    ///
    /// What was asked for later does, unless somebody has expired what is stored in this node alone: then the origin is to be asked, or
    /// what was asked for since is taken. Nothing tells a tile that was expired from one whose time was over, but that its time was
    /// shorter than the one that the origin gives.
    package func isNews(for stored: TileMetadata) -> Bool {
        guard metadata.storedAt > stored.storedAt else { return false }
        return metadata.storedAt >= stored.expires.adding(seconds: Marks.slack)
            || Self.lifetime(stored) + Marks.slack >= Self.lifetime(metadata)
    }

    /// How long an answer is fresh from its generation on, in seconds; two proxies may hear of it at different ages.
    private static func lifetime(_ metadata: TileMetadata) -> Int64 {
        metadata.expires.seconds - metadata.storedAt.seconds + Int64(metadata.initialAge)
    }
}
