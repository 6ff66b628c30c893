import CacheEngine
import ContentCoding
import HTTPCaching
public import HTTPTypes
package import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What carries a request to a server and brings the whole answer back.
///
/// A transport sends what it is given and adds nothing that changes the answer: no cache of its own, no cookies (unless an app
/// configures it so: ``URLSessionTransport/init(configuration:headLimit:)``), no
/// `Accept-Encoding` beyond the request's (or `identity`), no decompression; where the system decodes all the same, the
/// head no longer names the coding. It follows no redirects: a 3xx is an answer like any other.
/// Retries, back-off, coalescing and freshness are the cache's work, not its own. The one exception is a request that
/// went out on a kept connection just when the server closed it: that may be sent once more.
///
/// Contract, the same for every transport:
/// - It returns an answer whatever its status, once the head and the whole body have arrived. Interim answers (1xx) are
///   passed over. Repeated header fields all arrive, in order, one by one or joined by commas.
/// - A body exactly as long as ``TransportRequest/bodyLimit`` is let through. The `Content-Length` of an answer that has no
///   body (to `HEAD`, 204, 304) is not held against the limit.
/// - It throws ``TransportError`` and nothing else.
/// - A body above ``TransportRequest/bodyLimit`` is ``TransportError/Code/bodyTooLarge``, found while reading: at most a
///   few reads more than the limit are ever held in memory.
/// - A body that ends before its `Content-Length` or its last chunk is ``TransportError/Code/truncated``.
/// - ``TransportRequest/timeout`` is for the whole exchange, last body byte included.
/// - Cancelling the task closes the exchange and throws ``TransportError/Code/cancelled``.
public protocol TileTransport: Sendable {
    /// How many requests to one host it carries at once; `nil` if it does not limit them.
    ///
    /// The cache sends no more than that: a request that waits inside the transport spends its own time there.
    var requestsPerHost: Int? { get }

    /// Sends a request and waits for the whole answer.
    ///
    /// - Throws: ``TransportError``.
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse
}

extension TileTransport {
    /// No limit of its own.
    public var requestsPerHost: Int? { nil }
}

/// A request to send: always without a body.
public struct TransportRequest: Sendable {
    /// Method, scheme (`http` or `https`), authority, path with query, and header fields.
    public var head: HTTPRequest
    /// How many bytes of body are read at most.
    public var bodyLimit: Int
    /// How long the whole exchange may take.
    public var timeout: Duration
    /// Which networks it may use: not all of them for a download whose ``DownloadOptions/networks`` say so.
    ///
    /// ``URLSessionTransport`` heeds it on Apple platforms; elsewhere nothing is known of networks.
    public var networks = NetworkUse.any
    /// Whether a server's redirect has led to this host.
    ///
    /// Who stands within a network can refuse by this to be led to its neighbours. ``URLSessionTransport`` keeps the header
    /// fields of an app's own configuration from such a host.
    package var isRedirected = false

    /// Describes a request.
    public init(head: HTTPRequest, bodyLimit: Int = 32 << 20, timeout: Duration = .seconds(30)) {
        self.head = head
        self.bodyLimit = bodyLimit
        self.timeout = timeout
    }
}

/// An answer, complete.
public struct TransportResponse: Sendable {
    /// Status and header fields.
    public var head: HTTPResponse
    /// The body as the server sent it, in whatever content coding it has.
    public var body: Data
    /// When it had come, where that is longer ago than its being handed over: the system took it for a process that was suspended.
    package var arrivedAt: Timestamp?

    /// Describes an answer.
    public init(head: HTTPResponse, body: Data = Data()) {
        self.head = head
        self.body = body
    }
}

extension TransportResponse {
    /// Takes away the name of gzip from bytes that are none, and that of any other coding from a plain picture: as some
    /// servers send them, no client could read them.
    package mutating func dropFalseCoding() {
        guard let coding = head.headerFields.combined(.contentEncoding)?.lowercased(), !body.isEmpty else { return }
        let isFalse =
            coding == "gzip" || coding == "x-gzip"
            ? !Gzip.isMarked(body) : BodySignature(body).pictureType != nil
        guard isFalse else { return }
        head.headerFields[.contentEncoding] = nil
    }
}

/// Why no answer came.
public struct TransportError: Error, Sendable, CustomStringConvertible {
    /// The kinds of failure that a caller can tell apart.
    ///
    /// More may be added.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Kind: String {
            case timeout, nameNotFound, connection, tls, truncated, malformed, headTooLarge, bodyTooLarge, cancelled,
                unsupported
        }
        private let kind: Kind

        /// The whole answer had not come in time.
        public static let timeout = Code(kind: .timeout)
        /// The host's name is not known.
        public static let nameNotFound = Code(kind: .nameNotFound)
        /// The connection could not be made, or broke.
        public static let connection = Code(kind: .connection)
        /// The server's certificate or the encryption was refused.
        public static let tls = Code(kind: .tls)
        /// The body ended before it was complete.
        public static let truncated = Code(kind: .truncated)
        /// What came is no HTTP.
        public static let malformed = Code(kind: .malformed)
        /// The header fields are larger than the transport takes.
        public static let headTooLarge = Code(kind: .headTooLarge)
        /// The body is larger than the request allowed.
        public static let bodyTooLarge = Code(kind: .bodyTooLarge)
        /// The caller's task was cancelled.
        public static let cancelled = Code(kind: .cancelled)
        /// The request cannot be sent by this transport: its scheme, say.
        public static let unsupported = Code(kind: .unsupported)

        /// The name of the code.
        public var description: String { kind.rawValue }
    }

    /// Which kind of failure this is.
    public var code: Code
    /// What happened, with which host; one line, for people.
    ///
    /// Names the host and never the path, the query or a header field, which may hold secrets.
    public var message: String
    /// The error underneath, where there is one.
    public var cause: (any Error)?
    /// Whether the host was not asked at all, so that this says nothing about it.
    package var isUnasked = false

    /// Makes an error.
    public init(_ code: Code, _ message: String, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    /// The message, with its code.
    public var description: String { "\(message) [\(code)]" }
}

extension HTTPRequest {
    /// Host and port as messages may show them: without the user and password that some put before an `@`.
    package var host: String {
        guard let authority else { return "" }
        let mark = authority.utf8.lastIndex(of: UInt8(ascii: "@"))
        return mark.map { String(authority[authority.index(after: $0)...]) } ?? authority
    }
}
