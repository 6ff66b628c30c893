package import HTTPCaching
package import HTTPTypes

/// Reads `Retry-After`: seconds or a date (RFC 9110 §10.2.3), at most an hour.
///
/// A date counts from the answer's own `Date`, since both come from the server's clock; without one, from the receipt.
/// - Returns: `nil` if there is none, or none that can be read.
package func retryAfter(_ fields: HTTPFields, now receipt: HTTPDate) -> Duration? {
    guard let text = fields[.retryAfter] else { return nil }
    let longest: Int64 = 3600
    let digits = text.utf8.drop { $0 == 0x20 }.prefix { (0x30...0x39).contains($0) }
    if !digits.isEmpty, text.utf8.first.map({ (0x30...0x39).contains($0) || $0 == 0x20 }) == true,
        text.utf8.allSatisfy({ (0x30...0x39).contains($0) || $0 == 0x20 })
    {
        return .seconds(min(Int64(String(decoding: digits, as: UTF8.self)) ?? longest, longest))
    }
    guard let date = HTTPDate(parsing: text, now: receipt) else { return nil }
    let made = fields[.date].flatMap { HTTPDate(parsing: $0, now: receipt) }
    return .seconds(max(0, min(date.seconds &- (made ?? receipt).seconds, longest)))
}
