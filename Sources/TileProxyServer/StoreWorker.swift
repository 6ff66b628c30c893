import CacheEngine
import NIOCore
import TileStore

/// The threads for what the proxy must wait for, or what takes its time: one set for all routes, and never an event loop.
///
/// Reads have threads that nothing else takes: a disk that is slow to write does not hold up what is there to be read, nor
/// does a tile that takes long to decompress.
final class StoreWorker: Sendable {
    private let store: TileStore
    private let writers: BlockingPool
    private let readers: BlockingPool
    /// Look through tiles and decompress them.
    let computing: BlockingPool
    /// Write bodies that come in pieces: others, so that no put waits behind them.
    let staging: BlockingPool

    /// - Parameter threads: So many that read, and so many that write, at most.
    init(store: TileStore, threads: Int = 4) {
        self.store = store
        writers = BlockingPool(threads: threads)
        readers = BlockingPool(threads: threads)
        computing = BlockingPool(threads: 2)
        staging = BlockingPool(threads: 2)
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

    /// The same for a body that only computes.
    func compute<T: Sendable>(
        on loop: any EventLoop, _ body: @escaping @Sendable () -> T, then finish: @escaping @Sendable (T) -> Void
    ) {
        computing.submit {
            let result = body()
            loop.execute { finish(result) }
        }
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

    /// What was not done when the threads were waited for no longer.
    struct Unfinished: Equatable {
        /// Puts, and pieces of bodies that were to be put.
        var writes = 0
        /// Reads, and what was being computed.
        var others = 0
    }

    /// Ends once everything that was asked for is done.
    ///
    /// - Parameter limit: How long it waits at most; `nil` for as long as it takes.
    @discardableResult
    func shutdown(within limit: Duration? = nil) async -> Unfinished {
        let end = limit.map { ContinuousClock.now + $0 }
        func left() -> Duration? { end.map { max(.zero, $0 - .now) } }
        var unfinished = Unfinished()
        for pool in [staging, writers] { unfinished.writes += await pool.finish(within: left()) }
        for pool in [readers, computing] { unfinished.others += await pool.finish(within: left()) }
        return unfinished
    }
}
