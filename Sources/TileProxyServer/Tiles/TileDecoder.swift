import CacheEngine
import ContentCoding
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Decodes gzip'd tiles for clients that do not take gzip: once for all who ask for the same bytes, on threads that may be
/// busy for long, and never more than a fixed amount in all.
final class TileDecoder: Sendable {
    /// What came of decoding.
    enum Outcome: Sendable {
        case decoded(DecodedTile)
        /// It is no sound gzip, or holds more than a tile may: it can only be sent as it is.
        case undecodable
        /// Too much is being decoded, or read by clients that are slow.
        case busy
    }

    struct Limits: Sendable {
        /// The largest tile that is decoded; vector tiles of more than a few hundred kilobytes are rare.
        var tileBytes = 16 << 20
        /// Bytes of decoded tiles in memory, those included that clients are still reading.
        var bytes = 96 << 20
        /// Bytes of decoded tiles that are kept for those who ask next.
        var keptBytes = 16 << 20
        /// Tiles that are decoded at the same time.
        var threads = 2
        /// Different tiles that wait for their turn.
        var waiting = 256
    }

    private struct State {
        var askers: [BlobDigest: [@Sendable (Outcome) -> Void]] = [:]
        var queue: [(digest: BlobDigest, data: Data)] = []
        var running = 0
        /// The latest first.
        var kept: [(digest: BlobDigest, tile: DecodedTile)] = []
        /// Those that cannot be decoded: finding that out once more would cost as much as decoding them.
        var undecodable: Set<BlobDigest> = []
    }

    private let limits: Limits
    private let threads: BlockingPool
    private let state = Locked(State())
    private let memory: StagingBudget
    /// How many tiles were decoded; for tests.
    private let decodings = Locked(0)

    /// - Parameter threads: Those that decode.
    init(_ limits: Limits = Limits(), on threads: BlockingPool = BlockingPool(threads: 2)) {
        self.limits = limits
        self.threads = threads
        memory = StagingBudget(limit: limits.bytes)
    }

    /// How many tiles have been decoded so far.
    var count: Int { decodings.withLock { $0 } }

    /// Decodes a tile.
    ///
    /// - Parameters:
    ///   - digest: That of the bytes.
    ///   - finish: Called once, on any thread.
    func decode(_ data: Data, _ digest: BlobDigest, _ finish: @escaping @Sendable (Outcome) -> Void) {
        // Looked up in one step with joining: else what is finished in between would be decoded once more.
        let known = state.withLock { state -> Outcome? in
            if let known = Self.known(digest, &state) { return known }
            if state.askers[digest] != nil {
                state.askers[digest]?.append(finish)
                return nil
            }
            guard state.queue.count < limits.waiting else { return .busy }
            state.askers[digest] = [finish]
            state.queue.append((digest, data))
            return nil
        }
        if let known { finish(known) } else { startNext() }
    }

    private static func known(_ digest: BlobDigest, _ state: inout State) -> Outcome? {
        if state.undecodable.contains(digest) { return .undecodable }
        guard let place = state.kept.firstIndex(where: { $0.digest == digest }) else { return nil }
        let found = state.kept.remove(at: place)
        state.kept.insert(found, at: 0)
        return .decoded(found.tile)
    }

    /// Starts what waits, as far as there are threads for it.
    private func startNext() {
        let next = state.withLock { state -> (digest: BlobDigest, data: Data)? in
            guard state.running < limits.threads, !state.queue.isEmpty else { return nil }
            state.running += 1
            return state.queue.removeFirst()
        }
        guard let next else { return }
        threads.submit {
            let outcome = self.decodeNow(next.data)
            self.finish(next.digest, outcome)
        }
    }

    private func finish(_ digest: BlobDigest, _ outcome: Outcome) {
        // Dropped outside of the lock: the end of a tile takes another one.
        var dropped: [DecodedTile] = []
        defer { withExtendedLifetime(dropped) {} }
        let askers = state.withLock { state in
            state.running -= 1
            switch outcome {
            case .decoded(let tile): dropped = keep(tile, digest, &state)
            case .undecodable:
                if state.undecodable.count >= 1024 { state.undecodable = [] }
                state.undecodable.insert(digest)
            case .busy: break
            }
            return state.askers.removeValue(forKey: digest) ?? []
        }
        for asker in askers { asker(outcome) }
        startNext()
    }

    private func keep(_ tile: DecodedTile, _ digest: BlobDigest, _ state: inout State) -> [DecodedTile] {
        guard tile.data.count <= limits.keptBytes else { return [] }
        state.kept.insert((digest, tile), at: 0)
        var dropped: [DecodedTile] = []
        var sum = state.kept.reduce(0) { $0 + $1.tile.data.count }
        while sum > limits.keptBytes || state.kept.count > 1024, let last = state.kept.popLast() {
            sum -= last.tile.data.count
            dropped.append(last.tile)
        }
        return dropped
    }

    private func decodeNow(_ data: Data) -> Outcome {
        // As much as it may become is set aside first; the rest is given back when its size is known.
        guard memory.take(limits.tileBytes) || dropKept() && memory.take(limits.tileBytes) else { return .busy }
        decodings.withLock { $0 += 1 }
        guard let decoded = Gzip.decode(data, limit: limits.tileBytes) else {
            memory.give(limits.tileBytes)
            return .undecodable
        }
        memory.give(limits.tileBytes - decoded.count)
        // A copy of its own size: the decoder's has grown by doubling.
        return .decoded(DecodedTile(decoded.withUnsafeBytes { Data($0) }, memory))
    }

    /// Lets go of the tiles that are kept for those who ask next.
    ///
    /// - Returns: Whether there were any.
    private func dropKept() -> Bool {
        let dropped = state.withLock { state in
            defer { state.kept = [] }
            return state.kept
        }
        return !dropped.isEmpty
    }
}

/// A decoded tile, with its part of the memory that all of them may take, which it gives back at its end.
final class DecodedTile: Sendable {
    let data: Data
    private let memory: StagingBudget

    fileprivate init(_ data: Data, _ memory: StagingBudget) {
        self.data = data
        self.memory = memory
    }

    deinit { memory.give(data.count) }
}
