import HTTPTypes
import SharedTier
import TileCache

extension SourceConfiguration {
    /// The source as the fleet knows it; `nil` if nothing of it is shared.
    ///
    /// Files are each machine's own. What is had by fields of the request that may be credentials, or stored for longer than the server
    /// said, is given to others only if the operator says so. Tiles of an archive at a server hang on its version, which a bucket does not
    /// know.
    var sharedSource: SharedSource? {
        guard !isLocal, remoteFormat == nil, isShared != false else { return nil }
        let isPrivate = headers.contains { !Self.harmless.contains($0.name.canonicalName) }
        let isProlonged = lifetimes.overridesServer || lifetimes.minimum != nil
        guard isShared == true || !(isPrivate || isProlonged) else { return nil }
        var traits = [Self.withoutSecrets(template), "\(servedKind)"] + plainValues
        for subdomain in subdomains.sorted() { traits.append("subdomain \(subdomain)") }
        let fields = headers.map { (name: $0.name.canonicalName, value: $0.value) }
        for field in fields.sorted(by: { ($0.name, $0.value) < ($1.name, $1.value) })
        where !Self.who.contains(field.name) && !Self.isSecret(field.name) {
            traits.append("\(field.name): \(field.value)")
        }
        return SharedSource(name, traits: traits)
    }

    /// What placeholders stand for, without values that may be keys.
    var plainValues: [String] {
        values.sorted { $0.key < $1.key }.compactMap { Self.isSecret($0.key) ? nil : "\($0.key)=\($0.value)" }
    }

    /// Fields that say who asks: the tiles are the same.
    private static let who: Set<String> = ["user-agent", "referer", "from", "origin"]
    /// Fields that are no credentials; what tiles depend on among them tells sources apart.
    private static let harmless = who.union(["accept", "accept-language", "accept-encoding", "host"])

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

    /// Whether what has this name may be a key, by its last word: `api_key` and `mapKey` are, `keyword` and `design` are not.
    ///
    /// Who asks is none, as two users have maps of their own; nor is a session, which may choose the kind of map.
    private static func isSecret(_ name: String) -> Bool {
        var words: [String] = [""]
        var wasSmall = false
        for character in name {
            if !character.isLetter && !character.isNumber || character.isUppercase && wasSmall { words.append("") }
            wasSmall = character.isLowercase
            if character.isLetter || character.isNumber { words[words.count - 1] += character.lowercased() }
        }
        words.removeAll(where: \.isEmpty)
        guard let last = words.last else { return false }
        return secretWords.contains(last) || secretWords.contains(words.joined())
    }

    private static let secretWords: Set<String> = [
        "key", "apikey", "accesskey", "mapkey", "subscriptionkey", "token", "accesstoken", "apitoken", "authtoken",
        "secret", "sig", "signature", "hmac", "auth", "authorization", "cookie", "pass", "password", "passwd",
        "credential", "credentials", "jwt", "bearer", "appid", "appcode",
    ]
}
