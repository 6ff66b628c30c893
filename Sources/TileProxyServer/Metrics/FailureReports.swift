import TileStore

/// Decides which of many like failures the log tells of: the first at once, then one line a minute with their number.
///
/// One line a failure would fill the log of a busy proxy while an origin is down. Subjects are bounded by the
/// configuration: names of routes.
final class FailureReports: Sendable {
    private struct Subject {
        var quietUntil: UInt64
        var unreported = 0
    }

    private static let pause: UInt64 = 60_000_000_000

    private let subjects = Locked<[SourceName: Subject]>([:])
    private let ticks: @Sendable () -> UInt64

    /// - Parameter ticks: Nanoseconds of a clock that never goes back.
    init(ticks: @escaping @Sendable () -> UInt64) { self.ticks = ticks }

    /// Counts a failure.
    ///
    /// - Returns: How many failures a line has to tell of now, this one included; `nil` for no line.
    func failed(_ name: SourceName) -> Int? {
        let now = ticks()
        return subjects.withLock { subjects in
            guard let known = subjects[name], now < known.quietUntil else {
                let count = (subjects[name]?.unreported ?? 0) + 1
                subjects[name] = Subject(quietUntil: now &+ Self.pause)
                return count
            }
            subjects[name]?.unreported += 1
            return nil
        }
    }
}
