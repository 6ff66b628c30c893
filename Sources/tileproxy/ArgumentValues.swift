import ArgumentParser
import TileProxyServer

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
            let number = Double(lower.dropLast(unit.0.utf8.count)), number >= 0, number * unit.1 < 9e18
        else {
            throw ValidationError("expected a size such as 200MB, 1.5GiB or a number of bytes, not '\(text)'")
        }
        return Int(number * unit.1)
    }

    /// `[NAME:]PREFIX=BASEURL`.
    static func route(_ text: String) throws -> ProxyRoute {
        do throws(ProxyRoute.ParseError) { return try ProxyRoute(text) } catch {
            throw ValidationError(error.description)
        }
    }
}
