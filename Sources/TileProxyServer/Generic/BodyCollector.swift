import CacheEngine
import NIOCore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Collects a body that is to be stored, up to a limit; beyond it the body is only passed on.
final class BodyCollector {
    private let limit: Int
    private let budget: StagingBudget
    private var data = Data()
    private var taken = 0

    /// - Parameter length: The body's length, if it is known.
    init(length: Int64?, limit: Int, budget: StagingBudget) {
        self.limit = limit
        self.budget = budget
        if let length { data.reserveCapacity(Int(clamping: min(length, 1 << 20))) }
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
