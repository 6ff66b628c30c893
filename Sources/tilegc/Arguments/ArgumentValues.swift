import ArgumentParser
import TileStore

/// The values of options: each parser takes the text and throws a message that says what was expected.
enum ArgumentValues {
    /// `200MB`, `1.5GiB`, `4096`.
    static func size(_ text: String) throws -> Int {
        let units: [(String, Double)] = [
            ("kib", 1024), ("mib", 1_048_576), ("gib", 1_073_741_824), ("tib", 1_099_511_627_776),
            ("kb", 1e3), ("mb", 1e6), ("gb", 1e9), ("tb", 1e12), ("b", 1), ("", 1),
        ]
        let lower = text.lowercased()
        guard let unit = units.first(where: { lower.hasSuffix($0.0) }),
            let bytes = amount(lower.dropLast(unit.0.utf8.count), unit: unit.1)
        else {
            throw ValidationError("expected a size such as 200MB, 1.5GiB or a number of bytes, not '\(text)'")
        }
        return bytes
    }

    /// A size, or `none`.
    static func sizeOrNone(_ text: String) throws -> SizeLimit {
        text.lowercased() == "none" ? .unlimited : .bytes(try size(text))
    }

    /// A whole number from 0 on.
    static func count(_ text: String) throws -> Int {
        guard let number = amount(text[...], unit: 1), !text.contains(".") else {
            throw ValidationError("expected a whole number from 0 on, not '\(text)'")
        }
        return number
    }

    /// Seconds of `30d`, `12h`, `90s`, also `m` for minutes and `w` for weeks.
    static func age(_ text: String) throws -> Int {
        let units: [Character: Double] = ["s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800]
        guard let last = text.last, let unit = units[last], let seconds = amount(text.dropLast(), unit: unit) else {
            throw ValidationError("expected an age such as 30d, 12h or 90s (also m for minutes, w), not '\(text)'")
        }
        return seconds
    }

    /// Milliseconds of `2s`, `0.5s`, `250ms`, `1m`: 0.1 s to 1 h.
    static func interval(_ text: String) throws -> Int {
        let units: [(String, Double)] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("", 1000)]
        guard let unit = units.first(where: { text.hasSuffix($0.0) }),
            let milliseconds = amount(text.dropLast(unit.0.utf8.count), unit: unit.1),
            (100...3_600_000).contains(milliseconds)
        else { throw ValidationError("expected an interval from 0.1s to 1h such as 2s, 500ms or 1m, not '\(text)'") }
        return milliseconds
    }

    /// `7` or `0-7`.
    static func zooms(_ text: String) throws -> ClosedRange<Int> {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false).map { zoom($0) }
        switch (parts.count, parts.first, parts.last) {
        case (1...2, .some(let first?), .some(let last?)) where first <= last: return first...last
        default: throw ValidationError("expected a zoom such as 7 or 0-7 (zooms are 0 to 28), not '\(text)'")
        }
    }

    /// `7`.
    static func oneZoom(_ text: String) throws -> Int {
        guard let zoom = zoom(text[...]) else { throw ValidationError("expected a zoom from 0 to 28, not '\(text)'") }
        return zoom
    }

    /// `/zxy`, ` xyz`.
    static func listFormat(_ text: String) throws -> TileListFormat {
        guard let format = TileListFormat(text) else {
            throw ValidationError(
                "expected a separator and the letters z, x and y in their order, such as '/zxy' or ' xyz', not '\(text)'"
            )
        }
        return format
    }

    /// `west,south,east,north` in degrees.
    static func box(_ text: String) throws -> GeoBox {
        let parts = text.split(separator: ",", omittingEmptySubsequences: false).map { part in
            Double(part.filter { $0 != " " })
        }
        guard parts.count == 4, let west = parts[0], let south = parts[1], let east = parts[2], let north = parts[3]
        else {
            throw ValidationError("expected west,south,east,north in degrees such as -10,50,2.5,60, not '\(text)'")
        }
        return try checked { try GeoBox(west: west, south: south, east: east, north: north) }
    }

    /// `source/z/x/y[@2x][.ext]` or `source:path`.
    static func key(_ text: String) throws -> TileKey { try checked { try TileKey(text) } }

    /// A source's name.
    static func source(_ text: String) throws -> SourceName { try checked { try SourceName(text) } }

    /// What the store finds wrong with a value is wrong usage.
    private static func checked<T>(_ body: () throws -> T) throws -> T {
        do { return try body() } catch let error as StoreError { throw ValidationError(error.message) }
    }

    private static func zoom(_ text: Substring) -> Int? {
        guard let number = amount(text, unit: 1), !text.contains("."), number <= 28 else { return nil }
        return number
    }

    /// Digits with at most one point, times the unit; `nil` where that is no whole number that fits.
    private static func amount(_ text: Substring, unit: Double) -> Int? {
        guard (1...30).contains(text.utf8.count), text.first != ".", text.last != ".",
            text.utf8.allSatisfy({ (0x30...0x39).contains($0) || $0 == 0x2E })
        else { return nil }
        if unit == 1 || !text.contains(".") {
            // Exact: a Double would round what lies above 2^53.
            guard let number = Int(text) else { return nil }
            let (product, overflow) = number.multipliedReportingOverflow(by: Int(unit))
            return overflow ? nil : product
        }
        guard let number = Double(text) else { return nil }
        return Int(exactly: (number * unit).rounded())
    }
}

/// A lasting limit in bytes, or none.
enum SizeLimit {
    case unlimited
    case bytes(Int)
}
