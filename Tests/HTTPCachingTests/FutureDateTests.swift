import HTTPCaching
import HTTPTypes
import Testing

/// Responses whose `Date` lies after their receipt: some clock is wrong.
@Suite struct FutureDateTests {
    private let received = HTTPDate(seconds: 1_700_000_000)

    private func response(_ date: HTTPDate, _ fields: HTTPFields = [:]) -> HTTPResponse {
        var fields = fields
        fields[.date] = date.description
        return HTTPResponse(status: .ok, headerFields: fields)
    }

    private func freshness(_ response: HTTPResponse, _ policy: CachePolicy = .private) -> Freshness {
        policy.freshness(of: response, requestedAt: received, receivedAt: received)
    }

    @Test func aDateIsNeverLaterThanItsReceipt() {
        let early = freshness(response(received.adding(seconds: -5)))
        #expect(early.date == received.adding(seconds: -5))
        let late = freshness(response(received.adding(seconds: 86_400)))
        #expect(late.date == received)
    }

    /// Both come from the same clock.
    @Test func expiresStillCountsFromTheDateThatCameWithIt() {
        let ahead = received.adding(seconds: 3600)
        let found = freshness(response(ahead, [.expires: ahead.adding(seconds: 60).description]))
        #expect(found.lifetime == 60 && found.stored.expires == received.adding(seconds: 60))
    }

    @Test func theHeuristicDoesNotGrowWithAWrongClock() {
        let fields: HTTPFields = [.lastModified: received.adding(seconds: -1000).description]
        let policy = CachePolicy(kind: .private, usesHeuristic: true)
        #expect(freshness(response(received.adding(seconds: 80_000), fields), policy).lifetime == 100)
    }

    /// Else it would be chosen, and asked about, as long as its date lies ahead, whatever is stored beside it.
    @Test func aFutureDateDoesNotWinOverWhatWasReceivedLater() {
        let fields: HTTPFields = [.vary: "Accept"]
        let first = StoredResponse(
            status: .ok, fields: response(received.adding(seconds: 86_400), fields).headerFields,
            freshness: StoredFreshness(storedAt: received, expires: received))
        let later = received.adding(seconds: 100)
        let second = StoredResponse(
            status: .ok, fields: response(later).headerFields,
            freshness: StoredFreshness(storedAt: later, expires: later))
        #expect(CachePolicy.shared.selection(from: [first, second], for: HTTPFields()) == 1)
        #expect(CachePolicy.shared.selection(from: [second, first], for: HTTPFields()) == 0)
    }

    @Test func aFutureDateMakesNoWeakLastModifiedStrong() {
        let fields = response(
            received.adding(seconds: 86_400), [.lastModified: received.description]
        ).headerFields
        let stored = StoredResponse(
            status: .ok, fields: fields, freshness: StoredFreshness(storedAt: received, expires: received))
        #expect(stored.validators.strongLastModified == nil)
    }
}
