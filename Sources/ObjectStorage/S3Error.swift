/// Why an object storage did not do what it was asked.
///
/// Nothing of it shows a secret: of what the server says, it holds no more than the error's code.
package struct S3Error: Error, Sendable, CustomStringConvertible {
    /// What kind of failure it is.
    package struct Code: Hashable, Sendable {
        private enum Kind {
            case invalid, connection, untrusted, timeout, tooLarge, malformed, coded, clock, refused, missingBucket,
                unavailable,
                cancelled
        }
        private let kind: Kind

        /// The request cannot be sent as it is: nothing was.
        package static let invalid = Code(kind: .invalid)
        /// No connection, or it broke.
        package static let connection = Code(kind: .connection)
        /// No encryption that can be trusted.
        package static let untrusted = Code(kind: .untrusted)
        /// It took longer than it may.
        package static let timeout = Code(kind: .timeout)
        /// The answer is larger than it may be.
        package static let tooLarge = Code(kind: .tooLarge)
        /// The answer is not what the protocol says.
        package static let malformed = Code(kind: .malformed)
        /// The answer's body is compressed, although nobody asked for that.
        package static let coded = Code(kind: .coded)
        /// The clocks of this machine and of the server differ by too much.
        package static let clock = Code(kind: .clock)
        /// The server does not allow it, or says that it is wrong.
        package static let refused = Code(kind: .refused)
        /// There is no such bucket.
        package static let missingBucket = Code(kind: .missingBucket)
        /// The server cannot do it now (5xx, or too many requests).
        package static let unavailable = Code(kind: .unavailable)
        /// The one who asked gave up.
        package static let cancelled = Code(kind: .cancelled)
    }

    /// What kind of failure it is.
    package var code: Code
    /// What happened and what to do, for people.
    package var message: String
    /// The status of the answer, if there was one.
    package var status: Int?
    /// S3's own name of the error, such as `AccessDenied`, if the answer has one.
    package var serverCode: String?

    package init(_ code: Code, _ message: String, status: Int? = nil, serverCode: String? = nil) {
        (self.code, self.message, self.status, self.serverCode) = (code, message, status, serverCode)
    }

    package var description: String { message }
}
