import HTTPCaching
import HTTPTypes
import Testing

@testable import CacheEngine

/// What is in the cache, as the tables name it.
enum Situation: CaseIterable {
    case absent, fresh, withinWindow, stale, freshNoCache, staleMustRevalidate, stalePinned, fromTheFuture

    static let now = HTTPDate(seconds: 1_700_000_000)

    var state: StoredFreshness? {
        switch self {
        case .absent: return nil
        case .fresh: return Self.stored(-10)
        case .withinWindow: return with(5) { $0.staleWhileRevalidate = 10 }
        case .stale: return with(1000) { $0.staleWhileRevalidate = 10 }
        case .freshNoCache: return with(-10) { $0.noCache = true }
        case .staleMustRevalidate:
            return with(5) {
                $0.staleWhileRevalidate = 10
                $0.mustRevalidate = true
            }
        case .stalePinned: return with(5) { $0.noCache = true }
        case .fromTheFuture: return with(-10) { $0.storedAt = Self.now.adding(seconds: 61) }
        }
    }

    static func stored(_ staleFor: Int) -> StoredFreshness {
        StoredFreshness(storedAt: now.adding(seconds: -2000), expires: now.adding(seconds: -staleFor))
    }

    private func with(_ staleFor: Int, _ change: (inout StoredFreshness) -> Void) -> StoredFreshness {
        var state = Self.stored(staleFor)
        change(&state)
        return state
    }
}

@Suite(.timeLimit(.minutes(60)))
struct LoadDecisionTests {
    /// Modes in rows, situations in columns, in the order of `Situation`.
    private static let first: [LoadMode: [LoadDecision]] = [
        // RFC 9111 §4.2, §5.2.2.4; RFC 5861 §3.
        .standard: [.ask, .serve(nil), .serveAndRefresh, .ask, .ask, .ask, .ask, .ask],
        .cacheThenServer: [
            .ask, .serve(nil), .serve(.offline), .serve(.offline), .serve(.offline), .serve(.offline),
            .serve(.offline), .serve(.offline),
        ],
        .serverThenCache: [.ask, .ask, .ask, .ask, .ask, .ask, .ask, .ask],
        .cacheOnly: [
            .nothing, .serve(nil), .serve(.offline), .serve(.offline), .serve(.offline), .serve(.offline),
            .serve(.offline), .serve(.offline),
        ],
        .serverOnly: [.ask, .ask, .ask, .ask, .ask, .ask, .ask, .ask],
    ]

    @Test(arguments: LoadMode.allCases)
    func eachModeDecidesFromWhatIsCached(mode: LoadMode) throws {
        let row = try #require(Self.first[mode])
        #expect(row.count == Situation.allCases.count)
        for (situation, expected) in zip(Situation.allCases, row) {
            #expect(LoadDecision.first(mode, situation.state, at: Situation.now) == expected, "\(mode), \(situation)")
        }
    }

    /// What is done with what is stored after a failure, by a cache of tiles.
    private func after(
        _ failure: OriginFailure, _ mode: LoadMode, _ state: StoredFreshness, isPinned: Bool = false,
        fields: HTTPFields = [:], staleOnError: Int = 7 * 86_400, always: Bool = false
    ) -> LoadDecision {
        var use = CacheUse(
            tiles: .private, absent: 3600, staleOnError: staleOnError, storedBodyBytes: 1000, name: "test")
        use.servesStaleAlways = always
        let stored = StoredResponse(status: .ok, fields: fields, freshness: state)
        return .after(failure, mode, stored, isPinned: isPinned, use, at: Situation.now)
    }

    /// Situations in columns, without `absent`: RFC 9111 §4.2.4, RFC 5861 §4.
    private static let afterFailure: [OriginFailure: [LoadDecision]] = [
        .unreachable: [
            .serve(nil), .serve(.error), .serve(.error), .nothing, .nothing, .serve(.offline), .serve(.error),
        ],
        .status(503): [
            .serve(nil), .serve(.error), .serve(.error), .nothing, .nothing, .serve(.offline), .nothing,
        ],
    ]

    /// Where nothing is handed on, a refusal is as good as an error.
    @Test(arguments: [OriginFailure.unreachable, .status(503), .status(401), .status(403), .status(429), .status(200)])
    func theServersDirectivesDecideWhatIsServedAfterAFailure(failure: OriginFailure) throws {
        let row = try #require(Self.afterFailure[failure == .unreachable ? failure : .status(503)])
        for (situation, expected) in zip(Situation.allCases.dropFirst(), row) {
            let state = try #require(situation.state)
            let decision = after(failure, .standard, state, isPinned: situation == .stalePinned)
            #expect(decision == expected, "\(situation) after \(failure)")
        }
    }

    @Test(arguments: Situation.allCases.dropFirst(), [OriginFailure.unreachable, .status(503)])
    func otherModesServeWhatTheyHaveOfWhateverAge(situation: Situation, failure: OriginFailure) throws {
        let state = try #require(situation.state)
        let fresh = state.isFresh(at: Situation.now) && !state.noCache
        #expect(after(failure, .serverThenCache, state) == .serve(fresh ? nil : .error))
        #expect(after(failure, .cacheThenServer, state) == .serve(fresh ? nil : .error))
        #expect(after(failure, .serverOnly, state) == .nothing)
        #expect(after(failure, .serverOnly, state, always: true) == .nothing)
        #expect(after(failure, .standard, state, always: true) == .serve(fresh ? nil : .offline))
    }

    @Test func theServersStaleIfErrorBeatsTheSourcesOwnRule() {
        var state = Situation.stored(100)
        func decision(_ control: String? = nil, staleOnError: Int = 1000) -> LoadDecision {
            var fields = HTTPFields()
            fields[.cacheControl] = control
            return after(.status(500), .standard, state, fields: fields, staleOnError: staleOnError)
        }
        #expect(decision() == .serve(.error))
        #expect(decision(staleOnError: 0) == .nothing)
        #expect(decision("stale-if-error=0") == .nothing)
        state.staleIfError = 50
        #expect(decision("stale-if-error=50") == .nothing)
        state.staleIfError = 101
        #expect(decision("stale-if-error=101", staleOnError: 0) == .serve(.error))
    }

    /// The proxy hands refusals on to its clients (RFC 5861 §4 speaks of errors).
    @Test func whereAnswersAreHandedOnARefusalIsNoError() {
        var state = Situation.stored(100)
        state.staleIfError = 1000
        let stored = StoredResponse(status: .ok, fields: [:], freshness: state)
        let use = MachineLab.use
        for status in [500, 502, 503, 504] { #expect(use.mayServe(stored, after: .status(status), at: Situation.now)) }
        for status in [200, 401, 403, 404, 429, 501] {
            #expect(!use.mayServe(stored, after: .status(status), at: Situation.now), "\(status)")
        }
        #expect(use.mayServe(stored, after: .unreachable, at: Situation.now))
    }

    @Test func whatWasStoredMoreThanAMinuteAheadIsFromTheFuture() {
        var state = Situation.stored(-3600)
        state.storedAt = Situation.now.adding(seconds: 60)
        #expect(LoadDecision.first(.standard, state, at: Situation.now) == .serve(nil))
        state.storedAt = Situation.now.adding(seconds: 61)
        #expect(LoadDecision.first(.standard, state, at: Situation.now) == .ask)
    }
}
