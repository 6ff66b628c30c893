/// What is wrong with a URL template, and where.
///
/// Quotes names of placeholders and single characters only: templates and values may hold secrets.
public struct URLTemplateError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The character of the template that is wrong, from 1; `nil` if it is not about one.
    public let position: Int?
    /// What is wrong and what to do about it; one line, for people.
    public let message: String

    /// Makes an error.
    public init(position: Int? = nil, _ message: String) {
        self.position = position
        self.message = message
    }

    /// The message, with the position.
    public var description: String {
        position.map { "URL template, character \($0): \(message)" } ?? "URL template: \(message)"
    }
}
