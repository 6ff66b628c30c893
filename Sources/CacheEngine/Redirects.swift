import HTTPCaching
package import HTTPTypes

/// Where a redirection leads, and what may go there (RFC 9110 §15.4).
package enum Redirect: Equatable {
    /// Followed with this request.
    case follow(HTTPRequest)
    /// Not followed, and why.
    case refuse(String)

    /// So many are followed for one tile.
    package static let most = 5

    /// Whether a status sends the request elsewhere.
    package static func isOne(_ status: Int) -> Bool { [301, 302, 303, 307, 308].contains(status) }

    /// Decides on an answer that sends a request elsewhere.
    ///
    /// Never from `https` to `http`. To another origin go only the fields that hold no secret: those of the source and
    /// of its hook stay behind.
    /// - Parameter harmless: Names of fields that any server may see.
    package static func next(
        _ response: HTTPResponse, to request: HTTPRequest, harmless: Set<HTTPField.Name>
    ) -> Redirect {
        guard let location = response.headerFields[.location], location.utf8.count <= 8192 else {
            return .refuse("a redirection that says not where to")
        }
        // Taken apart by hand: read as a reference, a path that begins with "//" would name a host.
        let parts = (request.path ?? "/").split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let base = URIReference(
            scheme: request.scheme, authority: request.authority, path: parts.first.map(String.init) ?? "/",
            query: parts.count > 1 ? String(parts[1]) : nil)
        guard let scheme = request.scheme?.lowercased(), let reference = URIReference(location) else {
            return .refuse("a redirection to what is no URL")
        }
        let target = base.resolving(reference)
        guard let targetScheme = target.scheme?.lowercased(), let authority = target.authority, !authority.isEmpty
        else { return .refuse("a redirection to what is no URL") }
        guard targetScheme == "https" || targetScheme == "http" else {
            return .refuse("a redirection to the scheme \(targetScheme.prefix(16))")
        }
        if scheme == "https", targetScheme == "http" { return .refuse("a redirection from https to http") }
        guard !authority.contains("@") else { return .refuse("a redirection with a password") }
        var next = request
        next.scheme = targetScheme
        next.authority = authority
        next.path = target.requestTarget
        if !target.hasSameOrigin(as: base) {
            var fields = HTTPFields()
            for field in request.headerFields where harmless.contains(field.name) { fields.append(field) }
            next.headerFields = fields
        }
        return .follow(next)
    }
}

extension Set<HTTPField.Name> {
    /// The fields that go to another host too when a request is redirected there: those that say what is asked for and by
    /// which program, and nothing by which servers know their users.
    package static let harmless: Self = [
        .userAgent, .accept, .acceptEncoding, .acceptLanguage, .cacheControl, .range, .ifRange, .ifNoneMatch,
        .ifModifiedSince, .ifMatch, .ifUnmodifiedSince,
    ]
}
