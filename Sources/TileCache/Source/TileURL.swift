package import HTTPTypes

/// Where a tile is got from, in the parts that a request has.
///
/// Path and query may hold secrets: neither `description` nor a mirror shows them. Ask for ``text`` to have them.
public struct TileURL: Hashable, Sendable {
    /// How it is got.
    public enum Scheme: String, Hashable, Sendable {
        /// Without encryption.
        case http
        /// With encryption.
        case https
        /// From a file of this computer.
        case file
    }

    /// How it is got.
    public let scheme: Scheme
    /// The host in lower case, with its port where one was given; empty for a file.
    public let authority: String
    /// The path with the query, percent-encoded, as a request line has it; for a file its path as the system takes it.
    public let path: String

    /// The whole URL, secrets included; for a file its path.
    public var text: String { scheme == .file ? path : "\(scheme.rawValue)://\(authority)\(path)" }
}

extension TileURL {
    /// The request for it, with some fields.
    func request(_ fields: HTTPFields) -> HTTPRequest {
        HTTPRequest(method: .get, scheme: scheme.rawValue, authority: authority, path: path, headerFields: fields)
    }
}

extension HTTPRequest {
    /// The same for another file.
    ///
    /// - Parameter path: Its path from the folder of the file that this one is for; the query stays.
    package func forFile(at path: String) -> HTTPRequest {
        guard let own = self.path else { return self }
        let (file, query) = (own.prefix { $0 != "?" }, own.drop { $0 != "?" })
        let folder = file.lastIndex(of: "/").map { file[...$0] } ?? "/"
        var request = self
        request.path = folder + path + query
        return request
    }
}

extension TileURL: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// Scheme and host; the rest may be secret.
    public var description: String { "\(scheme.rawValue)://\(authority)/…" }

    /// Scheme and host; the rest may be secret.
    public var debugDescription: String { description }

    /// Scheme and host; the rest may be secret.
    public var customMirror: Mirror {
        Mirror(self, children: ["scheme": scheme.rawValue, "authority": authority], displayStyle: .struct)
    }
}
