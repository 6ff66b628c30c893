import HTTPCaching
import HTTPTypes
import Testing

@testable import CacheEngine

@Suite(.timeLimit(.minutes(60)))
struct RetryAfterTests {
    /// RFC 9110 §10.2.3, and what servers make of it.
    ///
    /// 1 700 000 000 is Tue, 14 Nov 2023 22:13:20 GMT.
    @Test(
        arguments: [
            ("120", 120), ("0", 0), (" 7 ", 7), ("3600", 3600), ("3601", 3600), ("99999999999999999999999", 3600),
            ("-1", nil), ("1.5", nil), ("soon", nil), ("", nil), ("   ", nil), ("12x", nil), ("+5", nil),
            ("Tue, 14 Nov 2023 22:14:20 GMT", 60), ("Tue, 14 Nov 2023 22:13:20 GMT", 0),
            ("Mon, 01 Jan 1990 00:00:00 GMT", 0), ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        ] as [(String, Int64?)])
    func secondsAndDatesAreReadAndBounded(text: String, expected: Int64?) {
        let found = retryAfter([.retryAfter: text], now: HTTPDate(seconds: 1_700_000_000))
        #expect(found == expected.map { Duration.seconds($0) })
    }

    @Test func withoutTheFieldThereIsNoWait() {
        #expect(retryAfter([:], now: HTTPDate(seconds: 0)) == nil)
    }
}
