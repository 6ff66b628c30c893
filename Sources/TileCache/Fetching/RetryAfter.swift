import HTTPCaching
import HTTPTypes
import TileStore

/// Reads `Retry-After`: seconds or a date (RFC 9110 §10.2.3), at most an hour.
///
/// - Returns: `nil` if there is none, or none that can be read.
func retryAfter(_ fields: HTTPFields, now: Timestamp) -> Duration? {
    guard let text = fields[.retryAfter] else { return nil }
    let longest: Int64 = 3600
    let digits = text.utf8.drop { $0 == 0x20 }.prefix { (0x30...0x39).contains($0) }
    if !digits.isEmpty, text.utf8.first.map({ (0x30...0x39).contains($0) || $0 == 0x20 }) == true,
        text.utf8.allSatisfy({ (0x30...0x39).contains($0) || $0 == 0x20 })
    {
        return .seconds(min(Int64(String(decoding: digits, as: UTF8.self)) ?? longest, longest))
    }
    guard let date = HTTPDate(parsing: text, now: HTTPDate(now)) else { return nil }
    return .seconds(max(0, min(date.seconds &- now.seconds, longest)))
}
