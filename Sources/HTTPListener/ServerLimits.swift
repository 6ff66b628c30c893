package import NIOCore

/// What a client may take of the server: everything has a bound.
package struct ServerLimits: Sendable {
    /// Bytes of a request's head: request line and fields.
    package var headBytes = 32 << 10
    /// Fields of a request's head, and of its trailers.
    package var fieldCount = 128
    /// Bytes of a request's target.
    package var targetBytes = 8 << 10
    /// Bytes of a request's body; a larger one is refused with 413.
    package var bodyBytes: Int64 = 1 << 30
    /// Connections at once; one more is closed as it comes.
    package var connections = 16384
    /// How long a connection may wait for its next request.
    package var idle = TimeAmount.seconds(75)
    /// How long a client may take to agree on encryption.
    package var handshake = TimeAmount.seconds(10)
    /// How long a request's head may take from its first byte.
    package var head = TimeAmount.seconds(15)
    /// How long a request's body may pause.
    package var bodyStall = TimeAmount.seconds(30)
    /// The slowest that a body may come over time, in bytes a second: a pause uses ``bodyStall`` up, and each byte gives
    /// back its share of a second.
    package var bodyRate = 512
    /// How long a client may leave what is sent to it unread.
    package var writeStall = TimeAmount.seconds(60)
    /// The slowest that a client may read over time, in bytes a second; ``writeStall`` is used up and given back as
    /// ``bodyStall`` is.
    package var readRate = 512
    /// For how long a client may be silent after its last answer before the connection is closed, if it may still be
    /// sending.
    package var linger = TimeAmount.seconds(2)
    /// How long that may take in all.
    package var lingerMost = TimeAmount.seconds(30)
    /// Bytes in all buffers of a connection.
    package var bufferedBytes = 256 << 10
    /// Bytes that may wait for a client before no more are written.
    package var waitingBytes = 64 << 10
    /// Bytes of answers to pipelined requests that go out in one write.
    package var pipelinedBytes = 16 << 10
    /// Bytes that are read from a client at a time.
    package var readBytes = 16 << 10
    /// Requests at once on a connection of HTTP/2.
    package var streams = 100
    /// Bytes of a body in HTTP/2 that a client may send before they are asked for.
    package var streamWindow = 64 << 10
    /// Requests that a client of HTTP/2 may take back in ``resetsWindow``: a map that is moved quickly takes back many.
    package var resets = 400
    package var resetsWindow = TimeAmount.seconds(5)
    /// PING, SETTINGS and PRIORITY frames in ``controlFramesWindow``.
    package var controlFrames = 300
    package var controlFramesWindow = TimeAmount.seconds(30)
    /// WINDOW_UPDATE frames beyond the two that each piece of an answer may have.
    package var windowUpdates = 4096
    /// Malformed requests of one connection of HTTP/2.
    package var malformedRequests = 200
    /// How often connections are looked at for the times above.
    package var sweep = TimeAmount.seconds(1)

    /// The defaults.
    package init() {}
}
