/// How long to leave something alone after it has failed: longer each time, and never quite the same.
///
/// The n-th failure in a row waits between half and all of `first * 2^(n-1)`, at most ``longest``: the random half keeps
/// clients that failed together from coming back together.
public struct Backoff: Hashable, Sendable {
    /// The wait after the first failure.
    public var first: Duration
    /// No wait is longer.
    public var longest: Duration

    /// Makes a rule.
    public init(first: Duration = .seconds(1), longest: Duration = .seconds(300)) {
        self.first = first
        self.longest = longest
    }

    /// The wait after a number of failures in a row, in nanoseconds.
    package func nanoseconds(failures: Int, random: UInt64) -> UInt64 {
        let full = nanoseconds(failures: failures)
        let half = full / 2
        return half + random % (full - half + 1)
    }

    /// All of the wait after a number of failures in a row, in nanoseconds.
    func nanoseconds(failures: Int) -> UInt64 {
        let base = Swift.max(first.nanoseconds, 1)
        let ceiling = Swift.max(longest.nanoseconds, 1)
        let doublings = Swift.min(Swift.max(failures, 1) - 1, 62)
        let (product, overflow) = base.multipliedReportingOverflow(by: 1 << UInt64(doublings))
        return overflow ? ceiling : Swift.min(product, ceiling)
    }
}

extension Duration {
    /// In nanoseconds, kept within what 64 bits hold.
    package var nanoseconds: UInt64 {
        guard self > .zero else { return 0 }
        let (seconds, attoseconds) = components
        guard seconds < 9_000_000_000 else { return 9_000_000_000_000_000_000 }
        return UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)
    }
}
