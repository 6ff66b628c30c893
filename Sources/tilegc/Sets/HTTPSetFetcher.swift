import Foundation
import HTTPTypes
import TileCache
import TileCacheNIO
import TileSets
import TileStore

/// A set on any server of files.
struct HTTPSetFetcher: SetFetcher {
    let place: String
    private let scheme: String
    private let authority: String
    private let path: String
    private let fields: HTTPFields
    private let transport: AsyncHTTPClientTransport

    /// How long a file may take.
    private static let timeout: Duration = .seconds(300)
    /// How long is waited before a file is asked for again, where the server does not answer.
    private static let pauses: [Duration] = [.milliseconds(200), .seconds(1), .seconds(3)]

    /// Whether a place is an address of HTTP.
    static func isURL(_ text: String) -> Bool {
        let start = text.prefix(8).lowercased()
        return start.hasPrefix("http://") || start.hasPrefix("https://")
    }

    /// - Parameter url: The set's folder, or its `set.json`.
    init(_ url: String, fields: HTTPFields, connections: Int) throws {
        let mark = url.range(of: "://")
        guard let mark, !url.contains(where: { $0 == "?" || $0 == "#" || !$0.isASCII || $0.isWhitespace }) else {
            throw Failure(
                .usage, "\(url.printable) is not the URL of a set: expected http(s)://HOST/PATH without ? and #")
        }
        scheme = url[..<mark.lowerBound].lowercased()
        let rest = url[mark.upperBound...]
        authority = String(rest.prefix { $0 != "/" })
        guard !authority.isEmpty, !authority.contains("@") else {
            throw Failure(.usage, "the URL of a set names a host, and no user or password: give secrets with --header")
        }
        var path = String(rest.dropFirst(authority.count))
        if path.hasSuffix("/" + SetDocument.path) { path.removeLast(SetDocument.path.count) }
        while path.hasSuffix("/") { path.removeLast() }
        self.path = path
        place = "\(scheme)://\(authority)\(path)"
        var fields = fields
        fields[.userAgent] = fields[.userAgent] ?? "tilegc/\(LibraryVersion.text) swift-tile-cache"
        fields[.acceptEncoding] = "identity"
        self.fields = fields
        var configuration = AsyncHTTPClientTransport.Configuration()
        configuration.connectionsPerHost = connections
        transport = AsyncHTTPClientTransport(configuration: configuration)
    }

    /// Whether what comes could be another's on the way.
    var isPlain: Bool { scheme == "http" }

    func shutdown() async { await transport.shutdown() }

    func fetch(_ file: String, limit: Int) async throws -> [UInt8]? {
        var attempt = 0
        while true {
            do { return try await once(file, limit: limit) } catch let error as SetError {
                // A request that was given up says nothing about the server.
                if Task.isCancelled {
                    throw SetError(.stopped, "interrupted: what was fetched so far is used when it is run again")
                }
                guard error.code == .unreachable, attempt < Self.pauses.count else { throw error }
                // A pause that is cut short ends with the next request.
                do { try await Task.sleep(for: Self.pauses[attempt]) } catch is CancellationError {}
                attempt += 1
            }
        }
    }

    private func once(_ file: String, limit: Int) async throws -> [UInt8]? {
        let head = HTTPRequest(
            method: .get, scheme: scheme, authority: authority, path: "\(path)/\(file)", headerFields: fields)
        let answer: TransportResponse
        do {
            answer = try await transport.send(TransportRequest(head: head, bodyLimit: limit, timeout: Self.timeout))
        } catch {
            if error.code == .bodyTooLarge {
                throw SetError(.damaged, "\(place)/\(file) has more than the \(limit) bytes that were expected")
            }
            throw SetError(.unreachable, error.message)
        }
        switch answer.head.status.code {
        case 200: return [UInt8](answer.body)
        case 404, 410: return nil
        case 401, 403: throw SetError(.refused, "\(place) refuses \(file): status \(answer.head.status.code)")
        case 300..<400:
            throw SetError(
                .notASet, "\(place) leads elsewhere (status \(answer.head.status.code)): name the URL that it leads to")
        default:
            throw SetError(.unreachable, "\(place) answers with status \(answer.head.status.code) for \(file)")
        }
    }
}
