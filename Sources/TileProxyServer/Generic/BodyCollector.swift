import NIOCore
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The memory that bodies may take while they arrive to be stored, over all event loops.
final class StagingBudget: Sendable {
    private let limit: Int
    private let used = Locked(0)

    init(limit: Int) { self.limit = limit }

    func take(_ bytes: Int) -> Bool {
        used.withLock { used in
            guard used + bytes <= limit else { return false }
            used += bytes
            return true
        }
    }

    func give(_ bytes: Int) { used.withLock { $0 -= bytes } }

    /// Whether nobody has taken anything.
    var isUnused: Bool { used.withLock { $0 == 0 } }
}

/// Collects a body that is to be stored, up to a limit; beyond it the body is only passed on.
final class BodyCollector {
    private let limit: Int
    private let budget: StagingBudget
    private var data = Data()
    private var taken = 0

    /// `nil` if the body is known to be too large.
    init?(length: Int64?, limit: Int, budget: StagingBudget) {
        self.limit = limit
        self.budget = budget
        if let length {
            guard length <= Int64(limit) else { return nil }
            data.reserveCapacity(min(Int(length), 1 << 20))
        }
    }

    deinit { budget.give(taken) }

    /// Takes a part; `false` if it is too much.
    func append(_ bytes: ByteBuffer) -> Bool {
        let size = bytes.readableBytes
        guard taken + size <= limit, budget.take(size) else { return false }
        taken += size
        bytes.withUnsafeReadableBytes { data.append(contentsOf: $0) }
        return true
    }

    /// How many bytes have been taken.
    var count: Int { data.count }

    /// A copy of a stretch of what has been taken.
    func slice(_ range: Range<Int>) -> ByteBuffer { ByteBuffer(data, range) }

    /// The whole body; the collector has nothing any more.
    func finish() -> HeldBody {
        defer { (data, taken) = (Data(), 0) }
        return HeldBody(data, taken, budget)
    }
}

/// A body that has been collected, with its part of the budget, which it gives back at its end.
final class HeldBody: Sendable {
    let data: Data
    private let taken: Int
    private let budget: StagingBudget

    fileprivate init(_ data: Data, _ taken: Int, _ budget: StagingBudget) {
        self.data = data
        self.taken = taken
        self.budget = budget
    }

    deinit { budget.give(taken) }
}
