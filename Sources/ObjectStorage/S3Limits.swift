package import NIOCore

/// What a bucket is given: time, connections, bytes.
package struct S3Limits: Sendable {
    /// How long connecting may take, TLS included.
    package var connect = TimeAmount.milliseconds(500)
    /// How long a request may take in all: waiting for a connection, both attempts, the whole answer.
    package var request = TimeAmount.seconds(1)
    /// How long to wait before a request is sent again that was answered with 500 or 503.
    package var retryPause = TimeAmount.milliseconds(50)
    /// How long a connection is kept open without use.
    package var idle = TimeAmount.seconds(20)
    /// Connections from one event loop.
    package var connections = 16
    /// Requests of one event loop that wait for one of them.
    package var waiting = 1024
    /// Bytes of an object, read or written.
    package var objectBytes = 16 << 20
    /// Bytes of a listing, or of another document: 1,000 keys of 1,024 bytes, percent-encoded, and what is around them.
    package var documentBytes = 8 << 20
    /// Bytes of an error's document; of a longer one only the status counts.
    package var errorBytes = 64 << 10
    /// Bytes of an answer's head.
    package var headBytes = 32 << 10

    package init() {}
}
