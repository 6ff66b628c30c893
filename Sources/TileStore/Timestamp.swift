#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A point in time in whole seconds since 1970-01-01 00:00:00 UTC, as HTTP dates have it.
///
/// The store keeps times from 1970 to 2106; what lies outside is kept as the nearest of the two ends.
public struct Timestamp: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    public var seconds: Int64

    /// Makes a time from seconds since 1970.
    public init(seconds: Int64) { self.seconds = seconds }

    /// Makes a time from a date, dropping fractions of a second.
    public init(_ date: Date) {
        let value = date.timeIntervalSince1970.rounded(.down)
        seconds = value >= 9.2e18 ? .max : value <= -9.2e18 ? .min : value.isNaN ? 0 : Int64(value)
    }

    /// The first time that the store can keep: 1970-01-01.
    public static let distantPast = Timestamp(seconds: 0)
    /// The last time that the store can keep: in 2106.
    ///
    /// As an expiry it means "never".
    public static let distantFuture = Timestamp(seconds: Int64(UInt32.max) - 1)

    /// The same time as a Foundation date.
    public var date: Date { Date(timeIntervalSince1970: TimeInterval(seconds)) }

    /// The time a number of seconds later; stops at the ends of the range instead of overflowing.
    public func adding(seconds delta: Int64) -> Timestamp {
        let (sum, overflow) = seconds.addingReportingOverflow(delta)
        return Timestamp(seconds: overflow ? (delta > 0 ? .max : .min) : sum)
    }

    /// Whether one time is before another.
    public static func < (a: Timestamp, b: Timestamp) -> Bool { a.seconds < b.seconds }

    /// RFC 3339 in UTC, such as `2026-01-31T12:00:00Z`.
    public var description: String {
        guard seconds > -62_000_000_000, seconds < 250_000_000_000 else { return "@\(seconds)" }
        let day = seconds >= 0 ? seconds / 86400 : -((86399 - seconds) / 86400)
        let second = Int(seconds - day * 86400)
        // Days to year, month and day: Howard Hinnant's "civil from days".
        let shifted = Int(day) + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let dayOfMonth = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        func pad(_ n: Int, _ width: Int) -> String {
            let digits = String(n)
            return String(repeating: "0", count: max(0, width - digits.count)) + digits
        }
        return "\(pad(year, 4))-\(pad(month, 2))-\(pad(dayOfMonth, 2))T"
            + "\(pad(second / 3600, 2)):\(pad(second / 60 % 60, 2)):\(pad(second % 60, 2))Z"
    }

    /// The form in which tables keep a time: 32 bits, with ``absent`` for "none".
    var packed: UInt32 { UInt32(clamping: max(0, min(seconds, Int64(UInt32.max) - 1))) }
    init(packed: UInt32) { seconds = Int64(packed) }
    static let absent = UInt32.max
}
