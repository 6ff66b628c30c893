package import NIOCore

/// What the proxy gives an origin: time, connections, sizes.
package struct UpstreamLimits: Sendable {
    /// How long connecting may take, TLS included.
    package var connect = TimeAmount.seconds(5)
    /// How long the head of a response may take from the end of the request.
    package var head = TimeAmount.seconds(30)
    /// How long a body may pause.
    package var bodyStall = TimeAmount.seconds(30)
    /// How long a connection is kept open without use.
    package var idle = TimeAmount.seconds(20)
    /// Connections to one origin from one event loop, besides those that wait for their own clients.
    package var connections = 128
    /// Connections to one origin from one event loop that wait for their own clients.
    ///
    /// They wait for more of a request's body, or for a client to read. If there are more, and another request waits, the
    /// slowest client is given up.
    package var held = 128
    /// For how long a client may be slow before it can be given up for that.
    package var heldGrace = TimeAmount.seconds(2)
    /// Requests that wait for one of them.
    package var waiting = 8192
    /// Bytes of a response's head, and of all interim responses before it.
    package var headBytes = 128 << 10
    /// Fields of a response's head.
    package var fieldCount = 512
    /// How often connections are looked at for the times above.
    package var sweep = TimeAmount.milliseconds(500)

    package init() {}
}

/// Why an origin gave no answer, or no whole one.
package enum UpstreamFailure: Error, Hashable, Sendable {
    /// No connection: refused, or no way there.
    case unreachable(String)
    /// The host's name is not known.
    case nameNotFound
    /// No encryption that can be trusted: a certificate that nobody vouches for, or no TLS.
    case untrusted(String)
    /// The host leads to an address that is not for those who asked.
    case forbidden(String)
    /// No connection in time.
    case connectTimeout
    /// It took too long.
    case timeout
    /// The connection broke before the response's head.
    case closed
    /// What came is no HTTP.
    case malformed(String)
    /// The head, the trailers or what came before the head are larger than the limits.
    case headTooLarge(String)
    /// Too many requests wait for this origin already.
    case overloaded
    /// The client was slow, and others needed the connection.
    case clientTooSlow
    /// The client had ended its side, as one does that goes away, and others needed the connection.
    case clientMayBeGone
    /// The one who asked gave up.
    case cancelled
}
