/// How often something took how long: counts in fixed steps, as Prometheus wants them.
package struct Histogram: Hashable, Sendable {
    /// The upper bounds of the steps in seconds; what is longer is counted beyond the last.
    package static let bounds: [Double] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]

    /// By step; one more than there are bounds.
    package private(set) var counts = [Int](repeating: 0, count: bounds.count + 1)
    /// The sum of all times in seconds.
    package private(set) var sum = 0.0

    package init() {}

    /// How many there were.
    package var count: Int { counts.reduce(0, +) }

    /// Counts one.
    package mutating func add(seconds: Double) {
        let step = Self.bounds.firstIndex { seconds <= $0 } ?? Self.bounds.count
        counts[step] += 1
        sum += seconds
    }

    /// Adds another's counts.
    package static func += (a: inout Histogram, b: Histogram) {
        for i in a.counts.indices { a.counts[i] += b.counts[i] }
        a.sum += b.sum
    }

    /// About the time that a share of all stayed below, in seconds: the bound of its step; `nil` without any.
    package func quantile(_ share: Double) -> Double? {
        let total = count
        guard total > 0 else { return nil }
        var seen = 0
        for (step, count) in counts.enumerated() {
            seen += count
            if Double(seen) >= share * Double(total) { return step < Self.bounds.count ? Self.bounds[step] : .infinity }
        }
        return nil
    }
}
