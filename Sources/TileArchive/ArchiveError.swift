/// What went wrong with an archive: which file, where in it, and what to do.
///
/// Switch on ``code``; show ``message`` to people. A tile that an archive does not have is never an error: it is `nil`.
public struct ArchiveError: Error, Sendable, CustomStringConvertible {
    /// The kinds of failure that a caller can tell apart.
    ///
    /// More may be added.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Kind: String {
            case notFound, notAnArchive, unsupported, damaged, invalidValue, tooMany, busy, diskFull, io
        }
        private let kind: Kind

        /// There is nothing at the path.
        public static let notFound = Code(kind: .notFound)
        /// The file is something else than its name or the caller says.
        public static let notAnArchive = Code(kind: .notAnArchive)
        /// The file is what it says, in a version or with a compression that is not read here.
        public static let unsupported = Code(kind: .unsupported)
        /// The file breaks its own rules: it is cut short, or points outside of itself.
        public static let damaged = Code(kind: .damaged)
        /// The caller asks for something impossible.
        public static let invalidValue = Code(kind: .invalidValue)
        /// The archive has more tiles than the caller allows.
        public static let tooMany = Code(kind: .tooMany)
        /// Another process is writing the file.
        public static let busy = Code(kind: .busy)
        /// The disk or the quota is full.
        public static let diskFull = Code(kind: .diskFull)
        /// The operating system refused a file operation.
        public static let io = Code(kind: .io)

        /// The name of the code.
        public var description: String { kind.rawValue }
    }

    /// Which kind of failure this is.
    public var code: Code
    /// What happened, in which file and where, and what to do; one line, for people.
    public var message: String
    /// The error underneath, where there is one.
    public var cause: (any Error)?

    /// Makes an error.
    public init(_ code: Code, _ message: String, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    /// The message, with its code.
    public var description: String { "\(message) [\(code)]" }
}
