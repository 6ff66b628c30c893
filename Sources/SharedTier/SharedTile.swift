package import TileStore

/// A tile that another proxy of the fleet has brought, whole and fresh, or the knowledge that there is none.
package struct SharedTile: Sendable {
    /// What is known of it, by this machine's clock.
    package let metadata: TileMetadata
    /// Its bytes, which have the name that their entry says; `nil` if there is no such tile.
    package let body: HashedBody?

    package init(metadata: TileMetadata, body: HashedBody?) { (self.metadata, self.body) = (metadata, body) }
}
