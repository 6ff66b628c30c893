/// Why no picture could be made.
///
/// Switch on ``code``; show ``message`` to people.
public struct ImagingError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The kinds of failure that a caller can tell apart.
    ///
    /// More may be added.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Kind: String { case unsupported, damaged, tooLarge, invalidCrop, failed }
        private let kind: Kind

        /// The bytes are no picture, or one of a kind that is not dealt with: an animation, a JPEG for print.
        public static let unsupported = Code(kind: .unsupported)
        /// The bytes are damaged or cut off.
        public static let damaged = Code(kind: .damaged)
        /// The picture, or what is to be made of it, is larger than the limits allow.
        public static let tooLarge = Code(kind: .tooLarge)
        /// The part asked for is not within the picture, or is less than one pixel.
        public static let invalidCrop = Code(kind: .invalidCrop)
        /// The encoder failed, or there is no memory.
        public static let failed = Code(kind: .failed)

        /// The name of the code.
        public var description: String { kind.rawValue }
    }

    /// Which kind of failure this is.
    public var code: Code
    /// What is wrong; one line, for people.
    public var message: String

    /// Makes an error.
    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// The message, with its code.
    public var description: String { "\(message) [\(code)]" }
}
