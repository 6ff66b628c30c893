import HTTPCaching
import HTTPTypes
import HTTPWire

/// An answer made from a stored response, as the client's conditions and range want it: a value.
struct StoredReply: Sendable {
    /// The head.
    var response: HTTPResponse
    /// The length of the body, or of what a GET would have given; `nil` where none is told.
    var length: Int64?
    /// Texts and stretches of the stored bytes that make up the body, in order.
    var parts: [BodyPart]
    /// What comes after the last part.
    var suffix = ""

    /// Makes the answer.
    ///
    /// - Parameters:
    ///   - length: How many bytes are stored.
    ///   - boundary: A random text for several ranges.
    init(
        _ stored: StoredResponse, to method: HTTPRequest.Method, _ conditions: ClientPreconditions, length: Int64,
        age: Int, boundary: @autoclosure () -> String, now: HTTPDate
    ) {
        response = stored.response(age: age)
        self.length = isBodiless(stored.status.code) ? nil : length
        parts = length > 0 ? [BodyPart(prefix: "", bytes: 0..<length)] : []
        guard !conditions.isEmpty else { return }
        let outcome = conditions.outcome(
            for: stored.validators, status: stored.status.code, method: method, now: now)
        if outcome == .notModified {
            response = stored.notModified(age: age)
            (self.length, parts) = (nil, [])
            return
        }
        guard conditions.range != nil else { return }
        switch conditions.rangeOutcome(
            of: stored, length: length, method: method, age: age, boundary: boundary(), now: now)
        {
        case .whole: break
        case .partial(let plan):
            response = plan.response
            parts = plan.parts.map { BodyPart(prefix: $0.prefix, bytes: $0.bytes) }
            suffix = plan.suffix
            self.length = parts.reduce(Int64(suffix.utf8.count)) { $0 + Int64($1.prefix.utf8.count + $1.bytes.count) }
        case .unsatisfiable(let head):
            response = head
            (self.length, parts) = (0, [])
        }
    }
}
