import HTTPCaching
import HTTPTypes
import TileStore

/// What an answer says about responses that are stored already: a value.
enum Invalidations {
    /// What is to be done to the store before the answer is handed on; `nil` for nothing.
    ///
    /// An unsafe method that succeeded removes what is stored for its URL and for those that `Location` and
    /// `Content-Location` name at the same origin (RFC 9111 §4.4). The answer to a HEAD updates what is stored, or marks it
    /// as stale (§4.3.5).
    static func job(
        for response: HTTPResponse, to request: ProxyRequest, _ candidate: Candidate?, _ route: ProxyRoute,
        _ keys: ResourceKeys, length: Int64?, now: HTTPDate
    ) -> StoreJob? {
        if request.method == .head { return head(response, request, candidate, length, now) }
        let origin = route.origin
        guard !Invalidation.isSafe(request.method),
            let own = URIReference("\(origin.scheme)://\(origin.authority)\(request.target)")
        else { return nil }
        let found = Invalidation.targets(method: request.method, target: own, response: response).compactMap { uri in
            route.rest(ofTargetPath: uri.path).flatMap { keys.primary(rest: $0, query: uri.query) }
        }
        return found.isEmpty ? nil : .remove(found)
    }

    private static func head(
        _ response: HTTPResponse, _ request: ProxyRequest, _ candidate: Candidate?, _ length: Int64?, _ now: HTTPDate
    ) -> StoreJob? {
        guard let candidate else { return nil }
        var response = response
        response.headerFields[.contentLength] = length.map { String($0) }
        switch HeadOutcome(response, stored: candidate.response, length: Int64(candidate.length), now: now) {
        case .keep: return nil
        case .invalidate:
            var metadata = candidate.tile.entry.metadata
            metadata.expires = Timestamp(seconds: min(metadata.expires.seconds, now.seconds))
            return .refresh(candidate, metadata)
        case .update:
            let fresh = CachePolicy.shared.freshen(
                candidate.response, with: response, to: request.httpRequest, requestedAt: now, receivedAt: now)
            guard fresh.storability.isStorable else { return .remove([candidate.key]) }
            return .refresh(
                candidate,
                entry(status: fresh.response.status, fields: fresh.response.fields, freshness: fresh.response.freshness)
            )
        }
    }
}
