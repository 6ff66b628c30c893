import CacheEngine
import NIOCore
import TileStore

/// What the cache has to do with the store and must wait for: on threads of its own, never on an event loop.
final class StoreWorker: Sendable {
    private let store: TileStore
    private let threads: BlockingPool

    init(store: TileStore, threads: Int = 4) {
        self.store = store
        self.threads = BlockingPool(threads: threads)
    }

    /// Runs a body on a thread that may wait, then another with its result on the loop.
    func run<T: Sendable>(
        on loop: any EventLoop, _ body: @escaping @Sendable (TileStore) throws -> T,
        then finish: @escaping @Sendable (Result<T, any Error>) -> Void
    ) {
        let store = store
        threads.submit {
            let result = Result { () throws -> T in try body(store) }
            loop.execute { finish(result) }
        }
    }

    /// Ends once everything that was asked for is done.
    func shutdown() async { await threads.finish() }
}
