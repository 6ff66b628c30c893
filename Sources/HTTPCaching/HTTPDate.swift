/// A point in time as HTTP has it: whole seconds since 1970-01-01 00:00:00 UTC.
///
/// Nothing in this module has a clock: every function that needs the time takes one of these. Arithmetic stops at the
/// ends of the range instead of overflowing.
package struct HTTPDate: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    package var seconds: Int64

    /// Makes a time from seconds since 1970.
    package init(seconds: Int64) { self.seconds = seconds }

    /// Reads a date as servers send it; `nil` if it could mean more than one time, or none.
    ///
    /// Accepts the three forms of [RFC 9110 §5.6.7](https://www.rfc-editor.org/rfc/rfc9110.html#section-5.6.7)
    /// (IMF-fixdate, RFC 850, asctime) and, because they are common and can mean one thing only: names in any case, a
    /// day or an hour without its leading zero, dashes around the month with any year, a missing comma or day of the
    /// week, extra spaces, and `UTC` for `GMT`. The day of the week is not compared with the date: where they differ,
    /// it is the day's name that is wrong. Other zones, missing zones, time parted by dots and days that do not exist
    /// are refused.
    ///
    /// - Parameters:
    ///   - text: The field's value.
    ///   - now: A two-digit year is the last one with these digits that is at most 50 years after this time.
    package init?(parsing text: String, now: HTTPDate) {
        if let date = HTTPDate(fixdate: text) {
            self = date
            return
        }
        var bytes: [UInt8] = []
        for byte in text.utf8 {
            // No form is longer than 33 bytes; the rest is room for spaces.
            guard bytes.count < 64 else { return nil }
            bytes.append(byte.lowercased)
        }
        guard let seconds = DateReader(bytes).seconds(now: now) else { return nil }
        self.seconds = seconds
    }

    /// Reads one of the three forms of RFC 9110 §5.6.7 and nothing else, names in any case.
    ///
    /// For `Expires`: a cache must take any other form for a time in the past (RFC 9111 §5.3), and should not mind the
    /// case of letters (§4.2). See ``init(parsing:now:)`` for the parameters.
    package init?(exactly text: String, now: HTTPDate) {
        if let date = HTTPDate(fixdate: text) {
            self = date
            return
        }
        let bytes = Array(text.utf8.prefix(64))[...].trimmed.map(\.lowercased)
        guard datePatterns.contains(where: { fits(bytes, $0) }) else { return nil }
        self.init(parsing: text, now: now)
    }

    /// Reads an IMF-fixdate without taking it apart: nearly every date is one.
    ///
    /// - Returns: `nil` for every other text, and for a time that does not exist.
    private init?(fixdate text: String) {
        var text = text
        guard let seconds = text.withUTF8(fixdateSeconds) else { return nil }
        self.seconds = seconds
    }

    /// Whether one time is before another.
    package static func < (a: HTTPDate, b: HTTPDate) -> Bool { a.seconds < b.seconds }

    /// The time a number of seconds later; stops at the ends of the range.
    package func adding(seconds delta: Int64) -> HTTPDate {
        let (sum, overflow) = seconds.addingReportingOverflow(delta)
        return HTTPDate(seconds: overflow ? (delta > 0 ? .max : .min) : sum)
    }

    /// The time a number of seconds later; stops at the ends of the range.
    package func adding(seconds delta: Int) -> HTTPDate { adding(seconds: Int64(delta)) }

    /// How many seconds this time is after another, negative if before; stops at the ends of the range.
    package func seconds(since other: HTTPDate) -> Int {
        let (difference, overflow) = seconds.subtractingReportingOverflow(other.seconds)
        return overflow ? (seconds > other.seconds ? .max : .min) : Int(clamping: difference)
    }

    /// The time as IMF-fixdate, the only form that may be sent: `Sun, 06 Nov 1994 08:49:37 GMT`.
    ///
    /// Times outside the years 1 to 9999, for which there is no such text, are given as the nearest one inside.
    package var description: String {
        let clamped = min(max(seconds, -62_135_596_800), 253_402_300_799)
        let day = clamped >= 0 ? clamped / 86400 : -((86399 - clamped) / 86400)
        let second = Int(clamped - day * 86400)
        let (year, month, dayOfMonth) = civil(fromDay: Int(day))
        let weekday = Int(((day + 4) % 7 + 7) % 7)
        return String(unsafeUninitializedCapacity: 29) { text in
            func put(_ value: Int, at place: Int) {
                text[place] = UInt8(truncatingIfNeeded: 48 + value / 10 % 10)
                text[place + 1] = UInt8(truncatingIfNeeded: 48 + value % 10)
            }
            func put(name number: Int, of names: StaticString, at place: Int) {
                for index in 0..<3 { text[place + index] = names.utf8Start[number * 3 + index] }
            }
            let frame: StaticString = "Www, 00 Mmm 0000 00:00:00 GMT"
            for index in 0..<29 { text[index] = frame.utf8Start[index] }
            put(name: weekday, of: "SunMonTueWedThuFriSat", at: 0)
            put(dayOfMonth, at: 5)
            put(name: month - 1, of: "JanFebMarAprMayJunJulAugSepOctNovDec", at: 8)
            put(year / 100, at: 12)
            put(year % 100, at: 14)
            put(second / 3600, at: 17)
            put(second / 60 % 60, at: 20)
            put(second % 60, at: 23)
            return 29
        }
    }
}

/// The seconds since 1970 that an IMF-fixdate of an existing time means, names in any case; `nil` for all else.
private func fixdateSeconds(_ text: UnsafeBufferPointer<UInt8>) -> Int64? {
    guard text.count == 29, text[3] == UInt8(ascii: ","), text[19] == UInt8(ascii: ":"),
        text[22] == UInt8(ascii: ":"), text[4] & text[7] & text[11] & text[16] & text[25] == 32,
        text[4] | text[7] | text[11] | text[16] | text[25] == 32
    else { return nil }
    // Only a letter becomes a small letter by this bit.
    func name(_ place: Int) -> UInt32 {
        (UInt32(text[place]) << 16 | UInt32(text[place + 1]) << 8 | UInt32(text[place + 2])) | 0x202020
    }
    func pack(_ name: StaticString) -> UInt32 {
        UInt32(name.utf8Start[0]) << 16 | UInt32(name.utf8Start[1]) << 8 | UInt32(name.utf8Start[2])
    }
    var isNumeric = true
    func number(_ place: Int) -> Int {
        let (tens, ones) = (text[place] &- 48, text[place + 1] &- 48)
        isNumeric = isNumeric && tens < 10 && ones < 10
        return Int(tens) * 10 + Int(ones)
    }
    guard name(26) == pack("gmt") else { return nil }
    switch name(0) {
    case pack("sun"), pack("mon"), pack("tue"), pack("wed"), pack("thu"), pack("fri"), pack("sat"): break
    default: return nil
    }
    let month: Int
    switch name(8) {
    case pack("jan"): month = 1
    case pack("feb"): month = 2
    case pack("mar"): month = 3
    case pack("apr"): month = 4
    case pack("may"): month = 5
    case pack("jun"): month = 6
    case pack("jul"): month = 7
    case pack("aug"): month = 8
    case pack("sep"): month = 9
    case pack("oct"): month = 10
    case pack("nov"): month = 11
    case pack("dec"): month = 12
    default: return nil
    }
    let (dayOfMonth, year) = (number(5), number(12) * 100 + number(14))
    let (hour, minute, second) = (number(17), number(20), number(23))
    // A leap second is the first second of the next minute.
    guard isNumeric, year >= 1, dayOfMonth >= 1, hour < 24, minute < 60, second <= 60 else { return nil }
    let start = day(ofYear: year, month: month, day: 1)
    // No month is shorter than 28 days; what is beyond is compared with the next month's first.
    if dayOfMonth > 28 {
        let next = month == 12 ? day(ofYear: year + 1, month: 1, day: 1) : day(ofYear: year, month: month + 1, day: 1)
        guard dayOfMonth <= next - start else { return nil }
    }
    return Int64(start + dayOfMonth - 1) * 86400 + Int64(hour * 3600 + minute * 60 + second)
}

private let weekdayNames = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
private let monthNames = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

/// IMF-fixdate, asctime, and what follows the day's name in the form of RFC 850: `0` is a digit, `_` a digit or a
/// blank, `a` a letter.
private let datePatterns = ["aaa, 00 aaa 0000 00:00:00 gmt", "aaa aaa _0 00:00:00 0000", "day, 00-aaa-00 00:00:00 gmt"]

/// Whether a lower-case text has a pattern's form; what the letters say is for ``DateReader``.
private func fits(_ text: [UInt8], _ pattern: String) -> Bool {
    var text = text[...]
    var pattern = Array(pattern.utf8)[...]
    if pattern.starts(with: "day".utf8) {
        guard let name = weekdayNames.first(where: { text.starts(with: $0.utf8) }) else { return false }
        text = text.dropFirst(name.utf8.count)
        pattern = pattern.dropFirst(3)
    }
    guard text.count == pattern.count else { return false }
    return zip(text, pattern).allSatisfy { byte, sign in
        switch sign {
        case UInt8(ascii: "0"): byte.isDigit
        case UInt8(ascii: "_"): byte.isDigit || byte == UInt8(ascii: " ")
        case UInt8(ascii: "a"): (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
        default: byte == sign
        }
    }
}

/// Days since 1970-01-01 to year, month and day: Howard Hinnant's "civil from days".
private func civil(fromDay day: Int) -> (year: Int, month: Int, day: Int) {
    let shifted = day + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    return (year, month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
}

/// Year, month and day to days since 1970-01-01: its inverse.
private func day(ofYear year: Int, month: Int, day: Int) -> Int {
    let shiftedYear = month <= 2 ? year - 1 : year
    let era = (shiftedYear >= 0 ? shiftedYear : shiftedYear - 399) / 400
    let yearOfEra = shiftedYear - era * 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
}

/// Takes a lower-case date apart.
private struct DateReader {
    let bytes: [UInt8]

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    func seconds(now: HTTPDate) -> Int64? {
        var words = bytes.split(whereSeparator: { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") })
        if let first = words.first, let last = first.last {
            var name = first
            if last == UInt8(ascii: ",") { name.removeLast() }
            if isWeekday(name) {
                words.removeFirst()
            } else if last == UInt8(ascii: ",") {
                return nil
            }
        }
        // Dashes part nothing but day, month and year.
        if let first = words.first, first.contains(UInt8(ascii: "-")) {
            let parts = first.split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
            guard parts.count == 3 else { return nil }
            words.replaceSubrange(0..<1, with: parts)
        }
        if words.count == 5, isGMT(words[4]) {
            return time(day: words[0], month: words[1], year: words[2], clock: words[3], now: now)
        }
        if words.count == 4, words[3].count == 4 {
            return time(day: words[1], month: words[0], year: words[3], clock: words[2], now: now)
        }
        return nil
    }

    private func time(
        day dayText: ArraySlice<UInt8>, month monthText: ArraySlice<UInt8>, year yearText: ArraySlice<UInt8>,
        clock: ArraySlice<UInt8>, now: HTTPDate
    ) -> Int64? {
        guard let dayOfMonth = number(dayText, digits: 1...2), dayOfMonth >= 1,
            let month = monthNames.firstIndex(where: { $0.utf8.elementsEqual(monthText) }).map({ $0 + 1 }),
            let givenYear = number(yearText, digits: 2...4), yearText.count != 3
        else { return nil }
        let parts = clock.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
        guard parts.count == 3, let hour = number(parts[0], digits: 1...2), hour < 24,
            let minute = number(parts[1], digits: 2...2), minute < 60,
            // A leap second is the first second of the next minute.
            let second = number(parts[2], digits: 2...2), second <= 60
        else { return nil }
        func seconds(in year: Int) -> Int64? {
            let start = day(ofYear: year, month: month, day: 1)
            let next =
                month == 12 ? day(ofYear: year + 1, month: 1, day: 1) : day(ofYear: year, month: month + 1, day: 1)
            guard year >= 1, dayOfMonth <= next - start else { return nil }
            return Int64(start + dayOfMonth - 1) * 86400 + Int64(hour * 3600 + minute * 60 + second)
        }
        guard yearText.count == 2 else { return seconds(in: givenYear) }
        let current = min(max(now.seconds, -62_135_596_800), 250_000_000_000)
        let today = current >= 0 ? current / 86400 : -((86399 - current) / 86400)
        let (year, nowMonth, nowDay) = civil(fromDay: Int(today))
        let limit = Int64(day(ofYear: year + 50, month: nowMonth, day: nowDay)) * 86400 + (current - today * 86400)
        var candidate = (year + 50) / 100 * 100 + givenYear
        if candidate > year + 50 { candidate -= 100 }
        if let time = seconds(in: candidate), time > limit { candidate -= 100 }
        return seconds(in: candidate)
    }

    private func isWeekday(_ name: ArraySlice<UInt8>) -> Bool {
        weekdayNames.contains { $0.utf8.elementsEqual(name) || $0.utf8.prefix(3).elementsEqual(name) }
    }

    private func isGMT(_ zone: ArraySlice<UInt8>) -> Bool {
        zone.elementsEqual("gmt".utf8) || zone.elementsEqual("utc".utf8)
    }

    private func number(_ text: ArraySlice<UInt8>, digits: ClosedRange<Int>) -> Int? {
        guard digits.contains(text.count) else { return nil }
        var value = 0
        for byte in text {
            guard byte.isDigit else { return nil }
            value = value * 10 + Int(byte - 48)
        }
        return value
    }
}
