import HTTPCaching
import Testing
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)))
struct HTTPDateTests {
    /// 1994-11-06 08:49:37 UTC, the example of RFC 9110.
    static let example = HTTPDate(seconds: 784_111_777)

    struct Row: CustomTestStringConvertible {
        let text: String
        let time: HTTPDate?
        let rule: String
        var testDescription: String { "\(rule): \(text)" }
        init(_ text: String, _ time: HTTPDate?, _ rule: String) {
            (self.text, self.time, self.rule) = (text, time, rule)
        }
    }

    static let rows = [
        Row("Sun, 06 Nov 1994 08:49:37 GMT", example, "9110 §5.6.7 IMF-fixdate"),
        Row("Sunday, 06-Nov-94 08:49:37 GMT", example, "9110 §5.6.7 RFC 850"),
        Row("Sun Nov  6 08:49:37 1994", example, "9110 §5.6.7 asctime"),
        Row("Sun Nov 16 08:49:37 1994", example.plus(864_000), "9110 §5.6.7 asctime, two-digit day"),
        Row("  Sun, 06 Nov 1994 08:49:37 GMT\t", example, "9110 §5.5 blanks around a value"),
        Row("sun, 06 nov 1994 08:49:37 gmt", example, "lower case"),
        Row("SUN, 06 NOV 1994 08:49:37 GMT", example, "upper case"),
        Row("Sun, 6 Nov 1994 08:49:37 GMT", example, "day without a zero"),
        Row("Sun, 06 Nov 1994 8:49:37 GMT", example, "hour without a zero"),
        Row("Sun, 06-Nov-1994 08:49:37 GMT", example, "dashes with a full year, as in cookies"),
        Row("Sun, 06 Nov 94 08:49:37 GMT", example, "two-digit year with spaces"),
        Row("Sun 06 Nov 1994 08:49:37 GMT", example, "missing comma"),
        Row("06 Nov 1994 08:49:37 GMT", example, "missing day of the week"),
        Row("Sun, 06  Nov  1994 08:49:37 GMT", example, "several spaces"),
        Row("Sun, 06 Nov 1994 08:49:37 UTC", example, "UTC is GMT"),
        Row("Mon, 06 Nov 1994 08:49:37 GMT", example, "wrong day of the week"),
        Row("Sat, 31 Dec 2016 23:59:60 GMT", HTTPDate(seconds: 1_483_228_800), "9110 §5.6.7 leap second"),
        Row("Thu, 29 Feb 2024 00:00:00 GMT", HTTPDate(seconds: 1_709_164_800), "leap day"),
        Row("Thu, 01 Jan 1970 00:00:00 GMT", HTTPDate(seconds: 0), "the epoch"),
        Row("Wed, 31 Dec 1969 23:59:59 GMT", HTTPDate(seconds: -1), "before the epoch"),
        Row("Fri, 31 Dec 9999 23:59:59 GMT", HTTPDate(seconds: 253_402_300_799), "the last date there is"),
        Row("0", nil, "9111 §5.3 Expires: 0"),
        Row("-1", nil, "9111 §5.3 Expires: -1"),
        Row("", nil, "empty"),
        Row("now", nil, "a word"),
        Row("Sun, 06 Nov 1994 08:49:37", nil, "no zone"),
        Row("Sun, 06 Nov 1994 08:49:37 EST", nil, "another zone"),
        Row("Sun, 06 Nov 1994 08:49:37 +0000", nil, "an offset"),
        Row("Sun, 06 Nov 1994 08.49.37 GMT", nil, "dots in the time"),
        Row("Sun, 06 Nov 1994 08:49 GMT", nil, "no seconds"),
        Row("Sun, 06 Nov 1994 24:00:00 GMT", nil, "hour 24"),
        Row("Sun, 06 Nov 1994 08:60:37 GMT", nil, "minute 60"),
        Row("Sun, 06 Nov 1994 08:49:61 GMT", nil, "second 61"),
        Row("Sun, 00 Nov 1994 08:49:37 GMT", nil, "day 0"),
        Row("Sun, 31 Nov 1994 08:49:37 GMT", nil, "31 November"),
        Row("Wed, 29 Feb 2023 00:00:00 GMT", nil, "29 February in a common year"),
        Row("Sun, 06 Foo 1994 08:49:37 GMT", nil, "no month"),
        Row("Xyz, 06 Nov 1994 08:49:37 GMT", nil, "no day of the week"),
        Row("Sun, 06 Nov 994 08:49:37 GMT", nil, "three-digit year"),
        Row("Sun, 06 Nov 0000 08:49:37 GMT", nil, "year 0"),
        Row("1994-11-06T08:49:37Z", nil, "RFC 3339"),
        Row("Sun, 06-11-1994 08:49:37 GMT", nil, "month as a number"),
        Row("Sun, -06 Nov 1994 08:49:37 GMT", nil, "negative day"),
        Row("784111777", nil, "seconds"),
        Row("Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT", nil, "two dates"),
        Row("Sun, 06 Nov 1994 08:49:37 GMT" + String(repeating: " ", count: 10000), nil, "too long"),
        Row("Sun, ٠٦ Nov 1994 08:49:37 GMT", nil, "digits that are not ASCII"),
    ]

    /// The forms that `Expires` may have, and letters in any case (RFC 9110 §5.6.7, RFC 9111 §4.2).
    private static let exact: Set<String> = [
        "9110 §5.6.7 IMF-fixdate", "9110 §5.6.7 RFC 850", "9110 §5.6.7 asctime", "9110 §5.6.7 asctime, two-digit day",
        "9110 §5.5 blanks around a value", "lower case", "upper case", "wrong day of the week",
        "9110 §5.6.7 leap second", "leap day", "the epoch", "before the epoch", "the last date there is",
    ]

    @Test(arguments: rows)
    func onlyTheThreeFormsAreReadWhereAnInvalidDateHasAMeaning(row: Row) {
        let expected = Self.exact.contains(row.rule) ? row.time : nil
        #expect(HTTPDate(exactly: row.text, now: noon) == expected)
    }

    @Test(arguments: [
        "Sun, 06-Nov-94 08:49:37 GMT", "Sunday, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sunday Nov  6 08:49:37 1994", "Sun Nov 06 08:49:37 94", "Sun, 06 Nov 1994 08:49:37 GMT;",
        "Sun, 06\tNov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMTX",
    ])
    func aMixtureOfFormsIsNone(text: String) { #expect(HTTPDate(exactly: text, now: noon) == nil) }

    @Test(arguments: rows)
    func aDateIsReadAsServersSendIt(row: Row) {
        #expect(HTTPDate(parsing: row.text, now: noon) == row.time)
    }

    @Test(
        arguments: [
            // now, digits, year: at most 50 years ahead (9110 §5.6.7)
            (2026, "26", 2026), (2026, "75", 2075), (2026, "76", 2076), (2026, "77", 1977), (2026, "99", 1999),
            (2026, "00", 2000), (2090, "10", 2110), (2090, "41", 2041), (1999, "48", 2048), (1999, "50", 1950),
        ] as [(Int, String, Int)])
    func aTwoDigitYearIsAtMost50YearsAhead(now: Int, digits: String, year: Int) throws {
        let now = try #require(HTTPDate(parsing: "01 Jul \(now) 00:00:00 GMT", now: noon))
        let expected = try #require(HTTPDate(parsing: "01 Jan \(year) 00:00:00 GMT", now: noon))
        #expect(HTTPDate(parsing: "Monday, 01-Jan-\(digits) 00:00:00 GMT", now: now) == expected)
    }

    @Test func theFiftyYearsEndToTheSecond() throws {
        // Noon, 21 Nov 2026: the same in 2076 is 50 years ahead, a second later is 1976.
        let limit = try #require(HTTPDate(parsing: "Saturday, 21-Nov-76 12:00:00 GMT", now: noon))
        #expect(limit.description == "Sat, 21 Nov 2076 12:00:00 GMT")
        let past = try #require(HTTPDate(parsing: "Saturday, 21-Nov-76 12:00:01 GMT", now: noon))
        #expect(past.description == "Sun, 21 Nov 1976 12:00:01 GMT")
    }

    @Test func aDateIsPrintedAsIMFFixdate() {
        #expect(Self.example.description == "Sun, 06 Nov 1994 08:49:37 GMT")
        #expect(HTTPDate(seconds: .max).description == "Fri, 31 Dec 9999 23:59:59 GMT")
        #expect(HTTPDate(seconds: .min).description == "Mon, 01 Jan 0001 00:00:00 GMT")
    }

    @Test func daysFrom1970To2106AreReadAsTheyArePrinted() {
        var random = SplitMix64(seed: 1)
        for day in stride(from: Int64(0), through: 49_710, by: 3) {
            let time = HTTPDate(seconds: day * 86400 + Int64(random.below(86400)))
            #expect(HTTPDate(parsing: time.description, now: noon) == time)
        }
    }

    /// A second blank takes a text off the quick way, and changes nothing of what it means.
    @Test func aFixdateMeansTheSameByTheQuickWay() {
        var random = SplitMix64(seed: 2)
        let spare = Array(" ,:;-/0129afgmnosuGMTZ\u{e9}".utf8)
        for round in 0..<20_000 {
            let seconds = Int64(bitPattern: random.next()) % 60_000_000_000
            var text = Array(HTTPDate(seconds: seconds).description.utf8)
            // All dates that are whole, then some with a byte or two of something else.
            for _ in 0..<(round < 5_000 ? 0 : 1 + random.below(2)) {
                text[Int(random.below(29))] = spare[Int(random.below(spare.count))]
            }
            let date = String(decoding: text, as: UTF8.self)
            let slow = HTTPDate(parsing: date + " ", now: noon)
            #expect(HTTPDate(parsing: date, now: noon) == slow, "\(date)")
            let exactly = HTTPDate(exactly: date, now: noon)
            #expect(exactly == HTTPDate(exactly: " " + date, now: noon), "\(date)")
        }
    }

    @Test(arguments: 1...12)
    func aMonthHasTheDaysThatItHas(month: Int) {
        let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        for year in [1600, 1900, 1999, 2000, 2023, 2024, 2100, 9999] {
            let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
            let days = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
            for day in 0...39 {
                let text = "Sun, \(day < 10 ? "0" : "")\(day) \(names[month - 1]) \(year) 00:00:00 GMT"
                #expect((HTTPDate(parsing: text, now: noon) != nil) == (1...days).contains(day), "\(text)")
            }
        }
    }

    @Test func arithmeticStopsAtTheEnds() {
        let last = HTTPDate(seconds: .max)
        let first = HTTPDate(seconds: .min)
        #expect(last.plus(1) == last)
        #expect(first.plus(-1) == first)
        #expect(last.seconds(since: first) == .max)
        #expect(first.seconds(since: last) == .min)
    }
}
