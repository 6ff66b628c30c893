package import HTTPCaching
package import HTTPTypes
import TileStore

/// What an answer says about responses that are stored already: a value.
package enum Invalidations {
    /// What is to be done to the store before the answer is handed on; `nil` for nothing.
    ///
    /// An unsafe method that succeeded removes what is stored for its URL and for those that `Location` and
    /// `Content-Location` name at the same origin (RFC 9111 §4.4): in the origin's terms, or in those of clients, to whom
    /// the cache is the origin. The answer to a HEAD updates what is stored, or
    /// marks it as stale (§4.3.5).
    package static func job(
        for response: HTTPResponse, to request: CacheRequest, _ candidate: Candidate?, _ scope: ResourceScope,
        _ use: CacheUse, length: Int64?, now: HTTPDate
    ) -> StoreJob? {
        if request.method == .head { return head(response, request, candidate, use, length, now) }
        guard !Invalidation.isSafe(request.method), let own = URIReference(scope.origin + request.target)
        else { return nil }
        var found: [TileKey] = []
        func add(_ target: URIReference, _ key: (String, String?) -> TileKey?) {
            for uri in Invalidation.targets(method: request.method, target: target, response: response) {
                if let key = key(uri.path, uri.query), !found.contains(key) { found.append(key) }
            }
        }
        add(own, scope.key)
        for alias in scope.aliases { add(alias.target, alias.key) }
        return found.isEmpty ? nil : .remove(found)
    }

    /// What is to be done to a stale response that the origin was asked about, if it gave another one that is not
    /// stored in its place; `nil` for nothing.
    ///
    /// The new one is the more recent of the two (RFC 9111 §4): were the old one kept, it would come back as soon as
    /// the origin cannot be reached. Answers that say nothing about the resource (errors, 401, 403, 429, passing
    /// redirections) leave it alone, and so do those to a client that shows credentials, or wants nothing stored.
    package static func superseded(
        by response: HTTPResponse, to request: CacheRequest, _ forwarding: Forwarding?, _ use: CacheUse, isStored: Bool
    ) -> StoreJob? {
        guard let forwarding, let candidate = forwarding.candidate, forwarding.cause == .stale, !isStored,
            request.method == .get, !request.asking.noStore,
            use.policy.kind == .private || !request.fields.contains(.authorization)
        else { return nil }
        switch response.status.code {
        case 200...299, 301, 308, 404, 410: return .remove([candidate.key])
        default: return nil
        }
    }

    /// What is to be done to a fresh response that the client did not want, and that the origin replaces by another one;
    /// `nil` for nothing.
    ///
    /// The client may see the end of the answer while that is still being written. Marked as stale before it sees anything,
    /// the old one is no hit any more: whoever asks next waits for the new one to be written, as for any response. If the new
    /// one does not come to its end, the old one is still there to be confirmed.
    static func replaced(
        by intent: OriginDecision.StoreIntent?, to request: CacheRequest, _ forwarding: Forwarding, now: HTTPDate
    ) -> StoreJob? {
        guard let intent, let candidate = forwarding.candidate, forwarding.cause == .request, request.method == .get,
            candidate.entry.metadata.expires.seconds > now.seconds,
            !intent.metadata.isOlder(than: candidate.entry.metadata)
        else { return nil }
        return .refresh(candidate, candidate.entry.metadata.expired(at: now))
    }

    private static func head(
        _ response: HTTPResponse, _ request: CacheRequest, _ candidate: Candidate?, _ use: CacheUse,
        _ length: Int64?, _ now: HTTPDate
    ) -> StoreJob? {
        guard let candidate else { return nil }
        var response = response
        response.headerFields[.contentLength] = length.map { String($0) }
        switch HeadOutcome(response, stored: candidate.response, length: Int64(candidate.length), now: now) {
        case .keep: return nil
        case .invalidate:
            return .refresh(candidate, candidate.entry.metadata.expired(at: now))
        case .update:
            let fresh = use.refreshed(
                candidate.response, by: response, to: request.httpRequest, requestedAt: now, receivedAt: now)
            switch OriginDecision.Update(fresh.record, of: candidate) {
            case .refresh: return .update(candidate, fresh.record.intent, for: request)
            case .leave: return nil
            case .remove: return .remove([candidate.key])
            }
        }
    }
}

extension TileMetadata {
    /// The same, stale from now on.
    fileprivate func expired(at now: HTTPDate) -> TileMetadata {
        var metadata = self
        metadata.expires = Timestamp(seconds: min(expires.seconds, now.seconds))
        return metadata
    }
}
