import HTTPCaching
package import HTTPTypes

extension HTTPFields {
    /// The trailers that may be handed on.
    ///
    /// Left out, besides a connection's fields, is what has no business behind a body (RFC 9110 §6.5.1): fields that
    /// frame or route a message, modify a request, authenticate, or say what the content is and who may keep it. A
    /// recipient that merges trailers into the head would be deceived about all that was checked there.
    package var forwardableTrailers: HTTPFields {
        var kept = HTTPFields()
        for field in withoutConnectionFields where !isForHeadsOnly(field.name) { kept.append(field) }
        return kept
    }
}

private func isForHeadsOnly(_ name: HTTPField.Name) -> Bool {
    switch name.canonicalName {
    case "content-length", "host", "trailer", "via", "max-forwards", "expect", "range", "forwarded", "authorization",
        "cookie", "set-cookie", "www-authenticate", "authentication-info", "cache-control", "pragma", "age", "date",
        "expires", "vary", "warning", "cache-status", "location", "retry-after", "content-encoding", "content-type",
        "content-range", "content-location", "content-disposition", "upgrade-insecure-requests":
        true
    default:
        name.canonicalName.hasPrefix("if-")
            || name.canonicalName.hasSuffix("cdn-cache-control") || name.isForTrustedFronts
    }
}
