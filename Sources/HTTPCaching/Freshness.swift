package import HTTPTypes

/// What is kept of a response's freshness: plain numbers, from which every reuse is decided.
///
/// Trivially copyable. A cache keeps these beside the bytes, so that a hit reads no header text.
package struct StoredFreshness: Hashable, Sendable {
    /// When the response was received, or last confirmed by a 304.
    package var storedAt: HTTPDate
    /// How old it was then, in seconds (`corrected_initial_age`).
    package var initialAge: Int
    /// When it turns stale; it is stale at this time already.
    package var expires: HTTPDate
    /// Seconds past ``expires`` in which it may be served while it is refreshed; 0: none (RFC 5861 §3).
    package var staleWhileRevalidate: Int
    /// Seconds past ``expires`` in which it may be served if the origin fails; 0: none (RFC 5861 §4).
    package var staleIfError: Int
    /// Whether it must never be served stale (RFC 9111 §5.2.2.2, §5.2.2.8, §5.2.2.10).
    package var mustRevalidate: Bool
    /// Whether it must be revalidated before each use (RFC 9111 §5.2.2.4).
    package var noCache: Bool
    /// Whether, while fresh, not even a reload needs to ask for it (RFC 8246).
    package var immutable: Bool

    /// Makes one from its numbers.
    package init(
        storedAt: HTTPDate, initialAge: Int = 0, expires: HTTPDate, staleWhileRevalidate: Int = 0,
        staleIfError: Int = 0, mustRevalidate: Bool = false, noCache: Bool = false, immutable: Bool = false
    ) {
        self.storedAt = storedAt
        self.initialAge = initialAge
        self.expires = expires
        self.staleWhileRevalidate = staleWhileRevalidate
        self.staleIfError = staleIfError
        self.mustRevalidate = mustRevalidate
        self.noCache = noCache
        self.immutable = immutable
    }

    /// Whether it is fresh at a time.
    ///
    /// What seems to have been stored more than 60 s from now is not: the clock was set back, and nothing is known of
    /// its age.
    package func isFresh(at now: HTTPDate) -> Bool { now < expires && storedAt <= now.adding(seconds: 60) }

    /// How many seconds past its expiry it is, negative while it is fresh; `Int.max` if it was stored in the future.
    package func staleness(at now: HTTPDate) -> Int {
        storedAt > now.adding(seconds: 60) ? .max : now.seconds(since: expires)
    }
}

/// How long a response is fresh, and why (RFC 9111 §4.2).
package struct Freshness: Hashable, Sendable {
    /// Where a lifetime came from.
    package enum Source: Hashable, Sendable {
        /// `s-maxage`, in a shared cache.
        case sharedMaxAge
        /// `max-age`.
        case maxAge
        /// `Expires`, less `Date`.
        case expires
        /// A tenth of the time since `Last-Modified` (§4.2.2).
        case heuristic
        /// ``CachePolicy/defaultLifetime``.
        case defaultLifetime
        /// ``CachePolicy/minimumLifetime``, because what the response says is less.
        case minimumLifetime
        /// Nothing: it is stale at once.
        case none
    }

    /// The lifetime in seconds, counted from when the origin made the response.
    ///
    /// At most a year; one that the policy's owner sets counts from receipt, so the age at receipt is added to it.
    package var lifetime: Int
    /// Where the lifetime came from.
    package var source: Source
    /// The targeted field that was obeyed, if one was.
    package var targetedField: HTTPField.Name?
    /// The response's `Date`, if it has a valid one; never later than its receipt.
    ///
    /// A date in the future comes from a wrong clock. Used to order responses, it would keep newer ones out for as long
    /// as it lies ahead.
    package var date: HTTPDate?
    /// How many seconds the response's `Date` lies after its receipt; 0 if it does not.
    package var dateAhead: Int
    /// The numbers to keep.
    package var stored: StoredFreshness

    /// Whether the origin itself says that the response may be reused for some time without asking it.
    ///
    /// Neither a guess nor what the cache's owner adds counts, nor a lifetime of 0, nor `no-cache`.
    package var isExplicit: Bool {
        switch source {
        case .sharedMaxAge, .maxAge, .expires: lifetime > 0 && !stored.noCache
        case .heuristic, .defaultLifetime, .minimumLifetime, .none: false
        }
    }
}

extension CachePolicy {
    /// Calculates how long a response is fresh.
    ///
    /// `s-maxage` (shared caches only) wins over `max-age`, then `Expires` less `Date`, then the policy's default
    /// lifetime, then the heuristic. A missing or invalid `Date` is the time of receipt; so is one in the future, except
    /// in `Expires` less `Date`, where both come from the same clock. An invalid `Expires`, `0` and
    /// any form but those of RFC 9110 §5.6.7 included, lies in the past (§5.3); of several the first counts (§4.2.1). A
    /// valid targeted field hides `Cache-Control` and `Expires` (RFC 9213 §2.2).
    ///
    /// It says nothing on whether the response may be stored: that is ``storability(of:to:)``.
    ///
    /// - Parameters:
    ///   - response: The response with all its fields as received.
    ///   - requestedAt: When the request was sent.
    ///   - receivedAt: When the response was received.
    package func freshness(of response: HTTPResponse, requestedAt: HTTPDate, receivedAt: HTTPDate) -> Freshness {
        freshness(
            of: response, directives(of: response.headerFields), requestedAt: requestedAt, receivedAt: receivedAt)
    }

    /// The same, where the directives have been read already.
    package func freshness(
        of response: HTTPResponse, _ directives: Directives, requestedAt: HTTPDate, receivedAt: HTTPDate
    ) -> Freshness {
        let fields = response.headerFields
        let status = response.status.code
        let control = directives.cacheControl
        let stated = fields.first(.date).flatMap { HTTPDate(parsing: $0, now: receivedAt) }
        let date = stated.map { min($0, receivedAt) }
        let initialAge = Age.initial(
            age: Age.value(in: fields), date: date, requestedAt: requestedAt, receivedAt: receivedAt)
        let overrides = overrides(status: status)

        var (lifetime, source) = explicitLifetime(
            directives, fields: fields, date: stated ?? receivedAt, now: receivedAt)
        if source == .none, status == 200, !directives.isPresent, !targetedFields.contains(where: fields.contains),
            !fields.contains(.cacheControl), !fields.contains(.expires), !fields.contains(.pragma),
            let defaultLifetime
        {
            lifetime = self.lifetime(fromReceipt: defaultLifetime, initialAge: initialAge)
            source = .defaultLifetime
        }
        if source == .none, usesHeuristic, isHeuristicallyCacheable(status, control) {
            let guess = heuristicLifetime(fields, date: date ?? receivedAt, now: receivedAt)
            if guess > 0 { (lifetime, source) = (min(guess, DeltaSeconds.year), .heuristic) }
        }

        var noCache = stripsWhatNoCacheNames(control) ? false : control.noCache != .none
        var mustRevalidate = control.mustRevalidate
        if kind == .shared {
            // s-maxage says what proxy-revalidate says (§5.2.2.10).
            mustRevalidate = mustRevalidate || control.proxyRevalidate || control.sharedMaxAge != nil
        }
        let forbidden =
            noCache || mustRevalidate || control.noStore || (kind == .shared && control.private != .none)
        if let minimumLifetime, status == 200, overrides || !forbidden {
            let least = self.lifetime(fromReceipt: minimumLifetime, initialAge: initialAge)
            if least > lifetime { (lifetime, source) = (least, .minimumLifetime) }
            if overrides { (noCache, mustRevalidate) = (false, false) }
        }
        let stored = StoredFreshness(
            storedAt: receivedAt, initialAge: initialAge, expires: receivedAt.adding(seconds: lifetime - initialAge),
            staleWhileRevalidate: min(control.staleWhileRevalidate ?? 0, DeltaSeconds.year),
            staleIfError: min(control.staleIfError ?? 0, DeltaSeconds.year), mustRevalidate: mustRevalidate,
            noCache: noCache, immutable: control.immutable)
        return Freshness(
            lifetime: lifetime, source: source, targetedField: directives.targetedField, date: date,
            dateAhead: stated.map { max(0, DeltaSeconds.clamp($0.seconds(since: receivedAt))) } ?? 0, stored: stored)
    }

    /// The owner counts from receipt, whatever the origin's clock says; a response counts from its making.
    private func lifetime(fromReceipt seconds: Int, initialAge: Int) -> Int {
        min(DeltaSeconds.clamp(seconds), DeltaSeconds.year) + initialAge
    }

    private func explicitLifetime(
        _ directives: Directives, fields: HTTPFields, date: HTTPDate, now: HTTPDate
    ) -> (Int, Freshness.Source) {
        let control = directives.cacheControl
        func capped(_ seconds: Int) -> Int { min(max(seconds, 0), DeltaSeconds.year) }
        if kind == .shared, let seconds = control.sharedMaxAge { return (capped(seconds), .sharedMaxAge) }
        if let seconds = control.maxAge { return (capped(seconds), .maxAge) }
        if directives.targetedField == nil, let text = fields.first(.expires) {
            guard let expires = HTTPDate(exactly: text, now: now) else { return (0, .expires) }
            return (capped(expires.seconds(since: date)), .expires)
        }
        return (0, .none)
    }

    private func heuristicLifetime(_ fields: HTTPFields, date: HTTPDate, now: HTTPDate) -> Int {
        guard let text = fields.first(.lastModified), let modified = HTTPDate(parsing: text, now: now) else { return 0 }
        return min(DeltaSeconds.clamp(date.seconds(since: modified) / 10), DeltaSeconds.clamp(heuristicLimit))
    }

    /// Whether a lifetime may be guessed: by status (RFC 9110 §15.1), or because it is `public` (RFC 9111 §4.2.2).
    func isHeuristicallyCacheable(_ status: Int, _ control: CacheControl) -> Bool {
        heuristicallyCacheable.contains(status) || control.public
    }
}

/// The statuses that may be reused without an explicit lifetime (RFC 9110 §15.1), except 206.
let heuristicallyCacheable: Set<Int> = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501]
