import HTTPListener

/// What happened at the routes of one source, as clients saw it.
package struct RequestCounts: Hashable, Sendable {
    /// Answered from the cache, fresh.
    package var hits = 0
    /// Answered from the cache, stale.
    package var stale = 0
    /// Answered from the cache after the origin confirmed it.
    package var revalidated = 0
    /// Answered by the origin.
    package var misses = 0
    /// Answered past the cache, from files of this machine.
    package var bypassed = 0
    /// Refused: outside of zooms or box, no such tile.
    package var refused = 0
    /// Nothing could be had: 5xx.
    package var errors = 0
    /// Answers among these that say that the tile does not exist.
    package var absent = 0
    /// Answers among these that were a 304 to the client.
    package var notModified = 0
    /// Bytes of bodies sent to clients.
    package var bytesSent = 0

    package init() {}

    /// All requests.
    package var requests: Int { hits + stale + revalidated + misses + bypassed + refused + errors }
    /// The share of answers that needed no body from the origin; `nil` before there was one.
    package var hitRatio: Double? {
        let answered = hits + stale + revalidated + misses
        return answered == 0 ? nil : Double(hits + stale + revalidated) / Double(answered)
    }

    package static func += (a: inout RequestCounts, b: RequestCounts) {
        a.hits += b.hits
        a.stale += b.stale
        a.revalidated += b.revalidated
        a.misses += b.misses
        a.bypassed += b.bypassed
        a.refused += b.refused
        a.errors += b.errors
        a.absent += b.absent
        a.notModified += b.notModified
        a.bytesSent += b.bytesSent
    }

    /// Counts an answer.
    mutating func add(_ result: Answered.CacheResult, status: Int, bytes: Int) {
        bytesSent += bytes
        if status == 304 { notModified += 1 }
        if status >= 500 {
            errors += 1
            return
        }
        switch result {
        case .hit: hits += 1
        case .stale: stale += 1
        case .revalidated: revalidated += 1
        case .miss: misses += 1
        case .bypass: bypassed += 1
        case .none: refused += 1
        }
        if result != .none, status == 404 || status == 410 || status == 204 { absent += 1 }
    }
}

/// What happened between this proxy and the origins of one source.
package struct UpstreamCounts: Hashable, Sendable {
    /// Requests sent, each try counted.
    package var requests = 0
    /// Answers with a body for the tile.
    package var bodies = 0
    /// 304 answers.
    package var notModified = 0
    /// Other answers below 500.
    package var others = 0
    /// Answers of 500 and above.
    package var serverErrors = 0
    /// Requests without an answer.
    package var failures = 0
    /// Requests that went to another host after one had failed.
    package var failovers = 0
    /// Bytes of bodies received.
    package var bytes = 0
    /// Bytes of stored tiles that a 304 confirmed, so that they were not sent.
    package var bytesSaved = 0
    /// How long answers took.
    package var latency = Histogram()

    package init() {}

    /// Counts an answer.
    mutating func add(status: Int, bytes: Int, seconds: Double) {
        self.bytes += bytes
        latency.add(seconds: seconds)
        switch status {
        case 304: notModified += 1
        case 200...299: bodies += 1
        case 500...: serverErrors += 1
        default: others += 1
        }
    }
}
