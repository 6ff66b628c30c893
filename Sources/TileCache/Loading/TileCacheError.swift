/// Why there is no tile, which one, and what to do about it.
///
/// Switch on ``code``; show ``message`` to people. It names the tile's key and the host, and never a URL, a query or a
/// header field, which may hold secrets.
public struct TileCacheError: Error, Sendable, CustomStringConvertible {
    /// The kinds of failure that a caller can tell apart.
    ///
    /// More may be added.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Kind: String {
            case invalidSource, invalidRegion, outOfBounds, noAnswer, badStatus, badBody, badRedirect, waiting,
                forbidden, cancelled, hookFailed, closed, notStored, invalidOptions, overBudget, invalidRequest,
                networkNotAllowed, invalidStyle
        }
        private let kind: Kind

        /// A template, a name, a zoom range or another part of a source is wrong.
        public static let invalidSource = Code(kind: .invalidSource)
        /// A region's shape or zooms are wrong.
        public static let invalidRegion = Code(kind: .invalidRegion)
        /// The source has no tile of that zoom or scale.
        public static let outOfBounds = Code(kind: .outOfBounds)
        /// The server gave no whole answer; ``TileCacheError/cause`` is a ``TransportError``.
        public static let noAnswer = Code(kind: .noAnswer)
        /// The server answered with a status that is neither a tile nor its absence.
        public static let badStatus = Code(kind: .badStatus)
        /// The server sent something that is no such tile: HTML, nothing, the wrong media type.
        public static let badBody = Code(kind: .badBody)
        /// The server sent the request elsewhere in a way that is not followed.
        public static let badRedirect = Code(kind: .badRedirect)
        /// The tile or its host failed lately and is not asked again before ``TileCacheError/retryAfter``.
        public static let waiting = Code(kind: .waiting)
        /// The host's terms forbid what was asked, such as downloading a region.
        public static let forbidden = Code(kind: .forbidden)
        /// The caller's task was cancelled.
        public static let cancelled = Code(kind: .cancelled)
        /// The source's own request hook threw; ``TileCacheError/cause`` is what it threw.
        public static let hookFailed = Code(kind: .hookFailed)

        /// The cache was closed.
        public static let closed = Code(kind: .closed)
        /// A tile came and could not be stored, or is not there any more: the server forbids storing it, the disk is full.
        public static let notStored = Code(kind: .notStored)
        /// A download's options make no sense.
        public static let invalidOptions = Code(kind: .invalidOptions)
        /// A download's budget of requests or bytes is used up.
        public static let overBudget = Code(kind: .overBudget)
        /// The network in use is one that a download's options do not allow (``DownloadOptions/networks``).
        public static let networkNotAllowed = Code(kind: .networkNotAllowed)
        /// A request for a resource cannot be sent: its method, scheme, host or path.
        public static let invalidRequest = Code(kind: .invalidRequest)

        /// A style, or a TileJSON that it names, is none, or names what cannot be downloaded.
        public static let invalidStyle = Code(kind: .invalidStyle)

        /// The name of the code.
        public var description: String { kind.rawValue }
    }

    /// Which kind of failure this is.
    public var code: Code
    /// What happened and what to do; one line, for people.
    public var message: String
    /// The tile, where there is one.
    public var key: TileKey?
    /// The status that the server answered with, for ``Code/badStatus``; for ``Code/waiting`` the last one, if it answered.
    public var status: Int?
    /// How long to wait before asking again makes sense, where that is known.
    public var retryAfter: Duration?
    /// The error underneath, where there is one.
    public var cause: (any Error)?

    /// Makes an error.
    public init(
        _ code: Code, _ message: String, key: TileKey? = nil, status: Int? = nil, retryAfter: Duration? = nil,
        cause: (any Error)? = nil
    ) {
        self.code = code
        self.message = message
        self.key = key
        self.status = status
        self.retryAfter = retryAfter
        self.cause = cause
    }

    /// The message, with its code.
    public var description: String { "\(message) [\(code)]" }
}
