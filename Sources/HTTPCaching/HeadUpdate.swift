package import HTTPTypes

/// What the answer to a HEAD says about a stored GET response (RFC 9111 §4.3.5).
package enum HeadOutcome: Hashable, Sendable {
    /// It is the same version: update the stored response.
    case update
    /// It is another version: the stored response counts as stale.
    case invalidate
    /// It says nothing about it: HEAD was not answered 200, or a 200 is not what is stored.
    case keep
}

extension HeadOutcome {
    /// Compares the answer to a HEAD with a stored response.
    ///
    /// Each validator that the answer has must equal the stored one, and its `Content-Length`, if it has one, must be
    /// the stored length.
    ///
    /// - Parameters:
    ///   - response: The answer to HEAD.
    ///   - stored: The stored response that this request would have chosen.
    ///   - length: How many bytes are stored.
    ///   - now: For two-digit years.
    package init(_ response: HTTPResponse, stored: StoredResponse, length: Int64, now: HTTPDate) {
        guard response.status.code == 200, stored.status.code == 200 else {
            self = .keep
            return
        }
        let given = Validators(response.headerFields, now: now)
        let known = stored.validators
        var same = true
        if let tag = given.entityTag { same = same && known.entityTag == tag }
        if let time = given.lastModified { same = same && known.lastModified == time }
        if let text = response.headerFields.first(.contentLength) {
            same = same && Int64(text).map { $0 == length } ?? false
        }
        self = same ? .update : .invalidate
    }
}
