import NIOCore
import TileCache
import TileStore

@testable import TileProxyServer

extension GenericCache {
    /// Waits until what is being fetched and stored is stored, then stops; the store itself is the caller's to close.
    func shutdown() async throws {
        try await quiesce(grace: .seconds(60))
        await worker.shutdown()
    }
}

extension TileService {
    /// Gives up what is being asked for, waits for what is being stored, and closes the store.
    func shutdown() async throws {
        giveUpFills()
        await worker.shutdown()
        try cache.close()
    }
}
