import Testing
import TileStore

@testable import TileCache

/// What is in the cache, as the tables name it.
enum Situation: CaseIterable {
    case absent, fresh, withinWindow, stale, freshNoCache, staleMustRevalidate, stalePinned, fromTheFuture

    var state: CacheState? {
        switch self {
        case .absent: return nil
        case .fresh: return CacheState(staleFor: -10)
        case .withinWindow: return with(5) { $0.staleWhileRevalidate = 10 }
        case .stale: return with(1000) { $0.staleWhileRevalidate = 10 }
        case .freshNoCache: return with(-10) { $0.noCache = true }
        case .staleMustRevalidate:
            return with(5) {
                $0.staleWhileRevalidate = 10
                $0.mustRevalidate = true
            }
        case .stalePinned:
            return with(5) {
                $0.noCache = true
                $0.isPinned = true
            }
        case .fromTheFuture: return with(-10) { $0.isFromTheFuture = true }
        }
    }

    private func with(_ staleFor: Int64, _ change: (inout CacheState) -> Void) -> CacheState {
        var state = CacheState(staleFor: staleFor)
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
            #expect(LoadDecision.first(mode, situation.state) == expected, "\(mode), \(situation)")
        }
    }

    /// Situations in columns, without `absent`: RFC 9111 §4.2.4, RFC 5861 §4.
    private static let afterSetback: [FetchSetback: [LoadDecision]] = [
        .unreachable: [
            .serve(nil), .serve(.error), .serve(.error), .nothing, .nothing, .serve(.offline), .serve(.error),
        ],
        .refused: [
            .serve(nil), .serve(.error), .serve(.error), .nothing, .nothing, .serve(.offline), .nothing,
        ],
    ]

    @Test(arguments: [FetchSetback.unreachable, .refused])
    func theServersDirectivesDecideWhatIsServedAfterASetback(setback: FetchSetback) throws {
        let row = try #require(Self.afterSetback[setback])
        for (situation, expected) in zip(Situation.allCases.dropFirst(), row) {
            let state = try #require(situation.state)
            let decision = LoadDecision.afterSetback(setback, .standard, state, LifetimeRules(), .whenAllowed)
            #expect(decision == expected, "\(situation) after \(setback)")
        }
    }

    @Test(arguments: Situation.allCases.dropFirst(), [FetchSetback.unreachable, .refused])
    func otherModesServeWhatTheyHaveOfWhateverAge(situation: Situation, setback: FetchSetback) throws {
        let state = try #require(situation.state)
        func decision(_ mode: LoadMode, _ use: OfflineUse = .whenAllowed) -> LoadDecision {
            LoadDecision.afterSetback(setback, mode, state, LifetimeRules(), use)
        }
        let fresh = state.isFresh
        #expect(decision(.serverThenCache) == .serve(fresh ? nil : .error))
        #expect(decision(.cacheThenServer) == .serve(fresh ? nil : .error))
        #expect(decision(.serverOnly) == .nothing)
        #expect(decision(.serverOnly, .always) == .nothing)
        #expect(decision(.standard, .always) == .serve(fresh ? nil : .offline))
    }

    @Test func theServersStaleIfErrorBeatsTheSourcesOwnRule() {
        var state = CacheState(staleFor: 100)
        var rules = LifetimeRules(staleOnError: .seconds(1000))
        func decision() -> LoadDecision {
            LoadDecision.afterSetback(.refused, .standard, state, rules, .whenAllowed)
        }
        #expect(decision() == .serve(.error))
        state.staleIfError = 50
        #expect(decision() == .nothing)
        state.staleIfError = 101
        rules.staleOnError = .zero
        #expect(decision() == .serve(.error))
        state.staleIfError = 0
        #expect(decision() == .nothing)
    }

    @Test func whatWasStoredMoreThanAMinuteAheadIsFromTheFuture() throws {
        let now = Timestamp(seconds: 1_700_000_000)
        func state(storedAhead seconds: Int64) throws -> CacheState {
            let metadata = TileMetadata(
                storedAt: now.adding(seconds: seconds), expires: now.adding(seconds: 3600))
            let entry = TileEntry(
                key: try TileKey(source: "lab", z: 0, x: 0, y: 0), blob: nil, size: 0, metadata: metadata,
                lastUsed: now, recency: 1, isPinned: false)
            return CacheState(entry, now: now)
        }
        #expect(try state(storedAhead: 60).isFresh)
        #expect(try !state(storedAhead: 61).isFresh)
        #expect(try LoadDecision.first(.standard, state(storedAhead: 61)) == .ask)
    }
}
