package import HTTPCaching

/// Why an origin gave no answer, or no whole one, as far as it decides what a client is told.
package enum OriginTrouble: Hashable, Sendable {
    /// There was no connection: refused, no such host, no TLS, an address that is forbidden.
    case unreachable(String)
    /// There was no connection in time.
    case connectTimeout
    /// It took too long.
    case timeout
    /// The connection broke.
    case closed
    /// What came is no HTTP, or no answer to the question.
    case malformed(String)
    /// Too many requests wait for the origin already.
    case overloaded
    /// The client was slow, and others needed the connection.
    case clientTooSlow
    /// The client had ended its side, as one does that goes away, and others needed the connection.
    case clientMayBeGone
    /// The one who asked gave up.
    case cancelled
    /// It failed lately, and is not asked for now.
    case leftAlone(OriginFailure)

    /// Whether there was no connection in the first place.
    var isConnecting: Bool {
        switch self {
        case .unreachable, .connectTimeout: true
        default: false
        }
    }

    /// Whether it says something about the origin: after the head of an answer only what happens while connecting could,
    /// and that is over by then.
    func isOrigins(hasHead: Bool) -> Bool {
        switch self {
        case .unreachable, .connectTimeout: true
        case .timeout, .closed, .malformed: !hasHead
        case .overloaded, .clientTooSlow, .clientMayBeGone, .cancelled, .leftAlone: false
        }
    }

    /// Whether it is the same for everybody who asks, and not about the one who did.
    var isForAll: Bool {
        switch self {
        case .unreachable, .connectTimeout, .timeout, .closed, .malformed, .overloaded, .leftAlone: true
        case .clientTooSlow, .clientMayBeGone, .cancelled: false
        }
    }

    /// Whether an operator is told of it.
    var isReported: Bool {
        switch self {
        case .cancelled, .clientMayBeGone, .leftAlone: false
        default: true
        }
    }
}

/// An answer of the cache's own: an error, in a few words.
package struct Refusal: Hashable, Sendable {
    /// The status.
    package let status: Int
    /// What happened, for people.
    package let words: String
    /// After how many seconds it makes sense to ask again, if that is known.
    package var retryAfter: Int?

    package init(status: Int, words: String) {
        self.status = status
        self.words = words
    }

    /// What a client is told when the origin gave no whole answer and nothing stored may stand in.
    ///
    /// - Parameter mustRevalidate: Whether what is stored forbids to be used without the origin (RFC 9111 §5.2.2.2).
    static func after(_ trouble: OriginTrouble, mustRevalidate: Bool) -> Refusal {
        switch trouble {
        case .connectTimeout, .timeout: notInTime("The origin did not answer in time.")
        case .clientTooSlow:
            Refusal(status: 408, words: "The request came too slowly, and others needed its place.")
        case .clientMayBeGone: Refusal(status: 503, words: "The connection was ended, and others needed its place.")
        case .overloaded: Refusal(status: 503, words: "The origin has too much to do.")
        case .leftAlone: Refusal(status: 503, words: "The origin failed lately, and is not asked for now.")
        case .unreachable, .closed, .malformed, .cancelled:
            Refusal(status: mustRevalidate ? 504 : 502, words: "The origin gave no answer.")
        }
    }

    /// What a client is told of an origin that is silent: it makes sense to ask again when it has had some time.
    private static func notInTime(_ words: String) -> Refusal {
        var refusal = Refusal(status: 504, words: words)
        refusal.retryAfter = 5
        return refusal
    }

    /// What a client is told where there is no memory for a large tile.
    package static var noRoom: Refusal {
        var refusal = Refusal(status: 503, words: "Too many large tiles are being sent; ask again.")
        refusal.retryAfter = 1
        return refusal
    }

    /// What a client is told when there is no tile, and nothing stored may stand in.
    static func after(_ failure: TileFill.Failure, retryAfter: Duration?) -> Refusal {
        var refusal =
            switch failure {
            case .waiting:
                Refusal(status: 504, words: "The tile server has failed; it is left alone for a while.")
            case .noAnswer(let none) where none.isTimeout: notInTime("The tile server gives no answer.")
            case .noAnswer: Refusal(status: 502, words: "The tile server gives no answer.")
            case .status(let status, _, _):
                Refusal(status: 502, words: "The tile server answers with an error (\(status)).")
            case .unusable(.notModified, _, _):
                Refusal(status: 502, words: "The tile server answers with an error (304).")
            case .unusable(.body, _, _), .unusable(.incomplete, _, _):
                Refusal(status: 502, words: "The tile server sent something that is no tile.")
            case .noRoom: noRoom
            case .unusable(.otherVersion, _, _):
                Refusal(status: 502, words: "The archive at the tile server changes while it is read.")
            case .unusable(.redirect, _, _), .hook, .forbidden:
                Refusal(status: 502, words: "The tile cannot be had from the tile server.")
            }
        if let retryAfter { refusal.retryAfter = Int(clamping: max(1, retryAfter.components.seconds)) }
        return refusal
    }
}
