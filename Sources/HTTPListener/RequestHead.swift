public import HTTPWire
public import NIOCore

/// A request's head as it came, checked: one reading of it is possible, and no other.
@usableFromInline package struct RequestHead: Sendable {
    /// The methods that the server tells apart.
    @usableFromInline package enum Method: Sendable {
        case get, head, options, other

        /// Written out, because the one that the compiler makes is a call in other modules.
        @inlinable package static func == (a: Method, b: Method) -> Bool {
            switch (a, b) {
            case (.get, .get), (.head, .head), (.options, .options), (.other, .other): true
            default: false
            }
        }
    }

    /// What follows the head.
    @usableFromInline package enum Body: Hashable, Sendable {
        case none
        case length(Int64)
        case chunked

        /// Written out for the same reason.
        @inlinable package static func == (a: Body, b: Body) -> Bool {
            switch (a, b) {
            case (.none, .none), (.chunked, .chunked): true
            case (.length(let a), .length(let b)): a == b
            default: false
            }
        }
    }

    /// The method, as far as the server cares.
    @usableFromInline package let method: Method
    /// The version in which it came.
    @usableFromInline package let version: HTTPVersion
    /// Whether it came over TLS.
    @usableFromInline package let isSecure: Bool
    /// The fields.
    @usableFromInline package let fields: HeadFields
    /// What follows.
    @usableFromInline package let body: Body
    /// Whether the client wants to go on after the answer.
    @usableFromInline package let keepAlive: Bool

    let methodRange: Range<Int>
    /// Where the path lies in the head.
    @usableFromInline package let pathRange: Range<Int>
    @usableFromInline let queryRange: Range<Int>?
    let authorityRange: Range<Int>?

    /// HTTP/1.1 or later rather than 1.0.
    @inlinable package var isHTTP11: Bool { version != .http10 }
    /// The scheme of the URL that was asked for.
    package var scheme: String { isSecure ? "https" : "http" }
    /// The method verbatim.
    package var methodText: String { text(methodRange) }
    /// The path verbatim: it begins with `/`, or is `*`.
    package var path: String { pathRange.isEmpty ? "/" : text(pathRange) }
    /// The query verbatim, without `?`.
    package var query: String? { queryRange.map(text) }
    /// Path and query.
    package var target: String { path + (query.map { "?" + $0 } ?? "") }
    /// The host, with its port, that the request is for.
    ///
    /// That of a target which is a whole URL; `Host` counts only without one (RFC 9112 §3.2.2).
    package var host: String? { authorityRange.map(text) ?? fields.first(.host) }

    /// Whether the request is one that a stored response may answer as it is: a GET or HEAD without conditions, a range,
    /// or wishes about caching.
    @inlinable package var isPlainRead: Bool {
        (method == .get || method == .head) && body == .none
            && fields.present.isDisjoint(with: FieldSet.conditions.union(.cacheWishes))
    }

    /// Runs a body on the bytes of path and query as they stand in the request line.
    @inlinable package func withTargetBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
        let end = queryRange?.upperBound ?? pathRange.upperBound
        return fields.bytes.withUnsafeReadableBytes { body($0.part(pathRange.lowerBound, end)) }
    }

    private func text(_ range: Range<Int>) -> String {
        fields.bytes.withUnsafeReadableBytes {
            String(decoding: $0.part(range.lowerBound, range.upperBound), as: UTF8.self)
        }
    }
}
