import ArgumentParser
import HTTPListener
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

    /// `http://host:port`, `unix:/path`.
    static func listenAddress(_ text: String) throws -> ListenAddress {
        guard let address = ConfigValue.listenAddress(text) else {
            throw ValidationError("expected \(ConfigValue.listenForms), not '\(text)'")
        }
        return address
    }

    /// `0660`.
    static func fileMode(_ text: String) throws -> Int {
        guard let mode = ConfigValue.fileMode(text) else {
            throw ValidationError("expected rights in octal, such as 0660, not '\(text)'")
        }
        return mode
    }

    /// `NAME=TEMPLATE`, each.
    static func sources(_ texts: [String]) throws(ConfigError) -> [SourceConfiguration] {
        var sources: [SourceConfiguration] = []
        for text in texts {
            let source = try SourceConfiguration(argument: text)
            if sources.contains(where: { $0.name == source.name }) {
                throw ConfigError(
                    place: "--source", key: "\(source.name)", "given twice; each source has a name of its own")
            }
            sources.append(source)
        }
        return sources
    }

    /// `[NAME:]PREFIX=BASEURL`, each.
    static func routes(_ texts: [String]) throws(ConfigError) -> [ProxyRoute] {
        var routes: [ProxyRoute] = []
        for text in texts {
            do throws(ProxyRoute.ParseError) { routes.append(try ProxyRoute(text)) } catch {
                throw ConfigError(place: "--upstream", error.description)
            }
        }
        return routes
    }
}
