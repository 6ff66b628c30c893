import Yams

/// A piece of a configuration file that knows its line and its key, so that every complaint can name both.
struct ConfigNode {
    let file: String
    let line: Int?
    let key: String
    private let node: Node

    /// Reads a file's text; an empty one is an empty mapping.
    ///
    /// - Throws: ``ConfigError``.
    init(yaml: String, file: String) throws(ConfigError) {
        do {
            node = try Yams.compose(yaml: yaml) ?? Node.mapping(Node.Mapping([]))
        } catch let error as YamlError {
            throw Self.describe(error, file)
        } catch { throw ConfigError(place: file, "is no YAML: \(error)") }
        self.file = file
        line = 1
        key = ""
    }

    private init(_ node: Node, _ file: String, _ key: String) {
        self.node = node
        self.file = file
        self.key = key
        line = node.mark?.line
    }

    private static func describe(_ error: YamlError, _ file: String) -> ConfigError {
        switch error {
        case .scanner(_, let problem, let mark, _), .parser(_, let problem, let mark, _),
            .composer(_, let problem, let mark, _):
            return ConfigError(place: file, line: mark.line, "is no YAML: \(problem)")
        case .duplicatedKeysInMapping(let duplicates, let context):
            let names = duplicates.map { "\($0)" }.joined(separator: ", ")
            return ConfigError(place: file, line: context.mark.line, "these keys stand there twice: \(names)")
        default: return ConfigError(place: file, "is no YAML: \(error)")
        }
    }

    /// A complaint about this piece.
    func fail(_ message: String) -> ConfigError { ConfigError(place: file, line: line, key: key, message) }

    /// Whether the key is there without a value.
    var isEmpty: Bool { node.scalar.map { $0.style == .plain && ["", "~", "null"].contains($0.string) } ?? false }

    /// The text of a scalar: numbers and truth values as they are written.
    func text() throws(ConfigError) -> String {
        guard let scalar = node.scalar else { throw fail("expected a single value") }
        return scalar.string
    }

    /// The members of a list; a single value is a list of one.
    func list() throws(ConfigError) -> [ConfigNode] {
        if let sequence = node.sequence {
            return sequence.enumerated().map { ConfigNode($1, file, "\(key)[\($0)]") }
        }
        guard node.scalar != nil else { throw fail("expected a list") }
        return isEmpty ? [] : [self]
    }

    /// The members of a mapping, in their order.
    func members() throws(ConfigError) -> [(name: String, value: ConfigNode)] {
        if isEmpty { return [] }
        guard let mapping = node.mapping else { throw fail("expected keys with values") }
        var members: [(String, ConfigNode)] = []
        for (name, value) in mapping {
            guard let text = name.scalar?.string else {
                throw ConfigError(place: file, line: name.mark?.line, key: key, "a key must be a plain word")
            }
            var member = ConfigNode(value, file, key.isEmpty ? text : "\(key).\(text)")
            // An empty value has no place of its own.
            if member.isEmpty { member = ConfigNode(member, line: name.mark?.line) }
            members.append((text, member))
        }
        return members
    }

    private init(_ other: ConfigNode, line: Int?) {
        (node, file, key) = (other.node, other.file, other.key)
        self.line = line
    }
}

/// How many letters have to be changed, added or left out to get from one word to another.
func distance(_ a: String, _ b: String) -> Int {
    let (a, b) = (Array(a.lowercased().utf8), Array(b.lowercased().utf8.prefix(64)))
    var row = Array(0...b.count)
    for (i, x) in a.enumerated() {
        var diagonal = row[0]
        row[0] = i + 1
        for (j, y) in b.enumerated() {
            let change = diagonal + (x == y ? 0 : 1)
            diagonal = row[j + 1]
            row[j + 1] = min(change, row[j] + 1, row[j + 1] + 1)
        }
    }
    return row[b.count]
}
