package import HTTPCaching
package import HTTPTypes

/// An answer made from a stored response, as the client's conditions and range want it: a value.
package struct StoredReply: Sendable {
    /// The head.
    package var response: HTTPResponse
    /// The length of the body, or of what a GET would have given; `nil` where none is told.
    package var length: Int64?
    /// Texts and stretches of the stored bytes that make up the body, in order.
    package var parts: [BodyPart]
    /// What comes after the last part.
    package var suffix = ""

    /// Makes the answer.
    ///
    /// - Parameters:
    ///   - length: How many bytes are stored.
    ///   - boundary: A random text for several ranges.
    package init(
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

/// A stretch of stored bytes and what is sent before it.
package struct BodyPart: Hashable, Sendable {
    package var prefix: String
    package var bytes: Range<Int64>

    package init(prefix: String, bytes: Range<Int64>) {
        self.prefix = prefix
        self.bytes = bytes
    }
}
