/// What is wrong with a published set, or with reaching one.
package struct SetError: Error, Sendable, CustomStringConvertible {
    /// The kinds of failure that a caller can tell apart.
    package enum Code: Sendable {
        /// There is no set, or what is there is none.
        case notASet
        /// What the set says is wrong, or a body is not what it is named.
        case damaged
        /// A file of it is missing.
        case incomplete
        /// Its root is another one than was asked for.
        case unexpectedRoot
        /// The cache, or the format, has no room for it.
        case tooLarge
        /// What was asked for makes no sense.
        case invalid
        /// The server does not answer, or the disk refuses.
        case unreachable
        /// The server refuses.
        case refused
        /// Another process has it locked.
        case busy
        /// The caller wanted to stop.
        case stopped
    }

    /// Which kind of failure this is.
    package let code: Code
    /// What happened, and what to do.
    package let message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    package var description: String { message }
}
