/// The version in which a client speaks.
@usableFromInline package enum HTTPVersion: Sendable {
    case http10, http11, http2

    /// Written out, because the one that the compiler makes is a call in other modules.
    @inlinable package static func == (a: HTTPVersion, b: HTTPVersion) -> Bool {
        switch (a, b) {
        case (.http10, .http10), (.http11, .http11), (.http2, .http2): true
        default: false
        }
    }

    /// `HTTP/1.1`, as logs have it.
    package var text: String {
        switch self {
        case .http10: "HTTP/1.0"
        case .http11: "HTTP/1.1"
        case .http2: "HTTP/2.0"
        }
    }
}
