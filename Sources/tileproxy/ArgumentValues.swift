import ArgumentParser
import TileProxyServer

/// The values of options: each parser takes the text and throws a message that says what was expected.
enum ArgumentValues {
    /// `200MB`, `1.5GiB`, `4096`.
    static func size(_ text: String) throws -> Int {
        guard let size = ConfigValue.size(text) else {
            throw ValidationError("expected a size such as 200MB, 1.5GiB or a number of bytes, not '\(text)'")
        }
        return size
    }

    /// A whole number within a range.
    static func number(_ range: ClosedRange<Int>) -> @Sendable (String) throws -> Int {
        { text in
            guard let number = Int(text), range.contains(number) else {
                throw ValidationError("expected a whole number from \(range.lowerBound) to \(range.upperBound)")
            }
            return number
        }
    }

    /// `NAME=TEMPLATE`.
    static func source(_ text: String) throws -> SourceConfiguration {
        do throws(ConfigError) { return try SourceConfiguration(argument: text) } catch {
            throw ValidationError(error.description)
        }
    }

    /// `[NAME:]PREFIX=BASEURL`.
    static func route(_ text: String) throws -> ProxyRoute {
        do throws(ProxyRoute.ParseError) { return try ProxyRoute(text) } catch {
            throw ValidationError(error.description)
        }
    }
}
