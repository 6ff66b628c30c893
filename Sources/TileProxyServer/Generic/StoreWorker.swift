import CacheEngine
import NIOCore
import TileStore

/// What the cache has to do with the store and must wait for: on threads of its own, never on an event loop.
///
/// Reads have threads that writes do not take: a disk that is slow to write does not hold up what is there to be read.
final class StoreWorker: Sendable {
    private let store: TileStore
    private let writers: BlockingPool
    private let readers: BlockingPool

    /// - Parameter threads: So many of each kind, at most.
    init(store: TileStore, threads: Int = 4) {
        self.store = store
        writers = BlockingPool(threads: threads)
        readers = BlockingPool(threads: threads)
    }

    /// Runs a body that may write on a thread that may wait, then another with its result on the loop.
    func run<T: Sendable>(
        on loop: any EventLoop, _ body: @escaping @Sendable (TileStore) throws -> T,
        then finish: @escaping @Sendable (Result<T, any Error>) -> Void
    ) {
        submit(to: writers, on: loop, body, then: finish)
    }

    /// The same for a body that only reads.
    func read<T: Sendable>(
        on loop: any EventLoop, _ body: @escaping @Sendable (TileStore) throws -> T,
        then finish: @escaping @Sendable (Result<T, any Error>) -> Void
    ) {
        submit(to: readers, on: loop, body, then: finish)
    }

    private func submit<T: Sendable>(
        to threads: BlockingPool, on loop: any EventLoop, _ body: @escaping @Sendable (TileStore) throws -> T,
        then finish: @escaping @Sendable (Result<T, any Error>) -> Void
    ) {
        let store = store
        threads.submit {
            let result = Result { () throws -> T in try body(store) }
            loop.execute { finish(result) }
        }
    }

    /// Ends once everything that was asked for is done.
    func shutdown() async {
        await writers.finish()
        await readers.finish()
    }
}
