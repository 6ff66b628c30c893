/// A point in time as HTTP has it: whole seconds since 1970-01-01 00:00:00 UTC.
///
/// Nothing in this module has a clock: every function that needs the time takes one of these.
public struct HTTPDate: Hashable, Comparable, Sendable {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    public var seconds: Int64

    /// Makes a time from seconds since 1970.
    public init(seconds: Int64) { self.seconds = seconds }

    /// Whether one time is before another.
    public static func < (a: HTTPDate, b: HTTPDate) -> Bool { a.seconds < b.seconds }
}
