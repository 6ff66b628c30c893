/// What is wrong with the configuration, and where: for an operator, in one line.
package struct ConfigError: Error, Hashable, CustomStringConvertible {
    /// The file, or the flag, that says so.
    package var place: String
    /// The line in the file, from 1.
    package var line: Int?
    /// The key's path, such as `sources.osm.zooms`.
    package var key: String
    /// What is wrong and what was expected; never a secret.
    package var message: String

    package init(place: String, line: Int? = nil, key: String = "", _ message: String) {
        self.place = place
        self.line = line
        self.key = key
        self.message = message
    }

    /// `tileproxy.yaml:12: sources.osm.zooms: expected …`.
    package var description: String {
        let location = place + (line.map { ":\($0)" } ?? "")
        return key.isEmpty ? "\(location): \(message)" : "\(location): \(key): \(message)"
    }
}
