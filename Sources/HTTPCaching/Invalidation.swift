package import HTTPTypes

/// Which stored responses a request has made outdated (RFC 9111 §4.4).
package enum Invalidation {
    /// The URIs whose stored responses must not be used again without asking the origin.
    ///
    /// None, unless the method is unsafe, or unknown, and the response is no error (2xx or 3xx). Then the target and,
    /// where they are of the same origin, what `Location` and `Content-Location` name, each as it is written and as
    /// ``URIReference/normalised``. At most 6.
    ///
    /// - Parameters:
    ///   - method: The request's method.
    ///   - target: The request's URI at the origin, with scheme and authority.
    ///   - response: The origin's answer.
    package static func targets(
        method: HTTPRequest.Method, target: URIReference, response: HTTPResponse
    ) -> [URIReference] {
        guard !isSafe(method), (200...399).contains(response.status.code) else { return [] }
        var targets: [URIReference] = []
        func add(_ uri: URIReference) {
            for spelling in [uri, uri.normalised] where !targets.contains(spelling) { targets.append(spelling) }
        }
        add(target)
        for name in [HTTPField.Name.location, .contentLocation] {
            guard let text = response.headerFields.first(name), let reference = URIReference(text) else { continue }
            let resolved = target.resolving(reference)
            if resolved.hasSameOrigin(as: target) { add(resolved) }
        }
        return targets
    }

    /// Whether a method is known to change nothing (RFC 9110 §9.2.1, and those so registered).
    package static func isSafe(_ method: HTTPRequest.Method) -> Bool {
        switch method.rawValue {
        case "GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PROPFIND", "REPORT", "SEARCH", "PRI": true
        default: false
        }
    }
}
