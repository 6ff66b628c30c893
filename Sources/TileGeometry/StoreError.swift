/// What went wrong in the store, to which file or key, and what to do about it.
///
/// The store and what is below it throw this one type, so that a caller needs a single `catch`. Addresses and shapes use
/// ``Code/invalidKey`` and ``Code/invalidValue``.
///
/// Switch on ``code``; show ``message`` to people. A miss is never an error: it is `nil`.
public struct StoreError: Error, Sendable, CustomStringConvertible {
    /// The kinds of failure that a caller can tell apart.
    ///
    /// More may be added.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Kind: String {
            case invalidKey, invalidValue, noSuchCache, notACache, unknownFormat, readOnly, locked, diskFull, damaged,
                closed, busy, tooMany, io
        }
        private let kind: Kind

        /// The text of a key, a source name or a path is not valid.
        public static let invalidKey = Code(kind: .invalidKey)
        /// A value given to the store is outside its bounds (an entity tag of a megabyte, a blob of 5 GB).
        public static let invalidValue = Code(kind: .invalidValue)
        /// There is no folder at the path, and the caller did not ask for one to be made.
        public static let noSuchCache = Code(kind: .noSuchCache)
        /// The folder holds something other than a tile cache.
        ///
        /// Nothing in it was touched.
        public static let notACache = Code(kind: .notACache)
        /// The cache was written in a format that this version does not know.
        ///
        /// Nothing in it was touched.
        public static let unknownFormat = Code(kind: .unknownFormat)
        /// The cache can be read but not written by this user.
        public static let readOnly = Code(kind: .readOnly)
        /// Another process held the cache's lock for longer than the configured wait.
        public static let locked = Code(kind: .locked)
        /// The disk or the quota is full.
        public static let diskFull = Code(kind: .diskFull)
        /// A file of the cache holds what the store never wrote.
        public static let damaged = Code(kind: .damaged)
        /// The store was closed.
        public static let closed = Code(kind: .closed)
        /// The work is already being done by another process.
        public static let busy = Code(kind: .busy)
        /// A cache has as many sources, variants, entries or blobs as can be numbered; nothing was stored.
        ///
        /// Docs/on-disk-format.md names the bounds.
        public static let tooMany = Code(kind: .tooMany)
        /// The operating system refused a file operation.
        public static let io = Code(kind: .io)

        /// The name of the code.
        public var description: String { kind.rawValue }
    }

    /// Which kind of failure this is.
    public var code: Code
    /// What happened, to which file or key, and what to do; one line, for people.
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
