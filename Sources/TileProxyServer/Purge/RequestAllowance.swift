/// How many requests of one kind there may be: some at once, and then one each time that a while has passed.
struct RequestAllowance {
    /// How many may come at once.
    let burst: Int
    /// After how many nanoseconds there is one more.
    let interval: UInt64
    /// When all of them will be back (ticks).
    private var fullAt: UInt64 = 0

    init(burst: Int, interval: UInt64) { (self.burst, self.interval) = (burst, interval) }

    /// Takes one.
    ///
    /// - Parameter ticks: Nanoseconds of a clock that goes forward.
    /// - Returns: `nil` if there was one; else how many nanoseconds there is none for.
    mutating func take(at ticks: UInt64) -> UInt64? {
        let most = UInt64(burst) &* interval
        let next = max(fullAt, ticks) &+ interval
        guard next &- ticks <= most else { return next &- ticks &- most }
        fullAt = next
        return nil
    }
}
