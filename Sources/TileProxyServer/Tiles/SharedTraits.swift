import HTTPTypes
import SharedTier
import TileCache

extension SourceConfiguration {
    /// The source as the fleet knows it; `nil` if nothing of it is shared.
    ///
    /// Files are each machine's own. What is had by credentials, or stored against the server's word, is given to others only if
    /// the operator says so.
    var sharedSource: SharedSource? {
        guard !isLocal, isShared != false else { return nil }
        let names = ["authorization", "cookie", "proxy-authorization"]
        let isPrivate = headers.contains { names.contains($0.name.canonicalName) }
        guard isShared == true || !(isPrivate || lifetimes.overridesServer) else { return nil }
        var traits = [Self.withoutSecrets(template), "\(servedKind)"]
        for (name, value) in values.sorted(by: { $0.key < $1.key }) where !Self.isSecret(name) {
            traits.append("\(name)=\(value)")
        }
        return SharedSource(name, traits: traits)
    }

    /// A template without the values of those parameters that may be keys: keys change, and the tiles stay the same.
    static func withoutSecrets(_ template: String) -> String {
        let path = template.prefix { $0 != "?" }
        let query = template.dropFirst(path.count + 1)
        let parameters = query.split(separator: "&").map { parameter -> String in
            let name = parameter.prefix { $0 != "=" }
            return isSecret(String(name)) ? "\(name)=" : String(parameter)
        }
        return path + (parameters.isEmpty ? "" : "?" + parameters.joined(separator: "&"))
    }

    /// Whether a parameter of this name may be a key.
    private static func isSecret(_ name: String) -> Bool {
        let name = name.lowercased()
        return ["key", "token", "secret", "sig", "auth", "pass", "access", "appid", "app_id", "client", "user"]
            .contains { name.contains($0) }
    }
}
