import Testing

@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct PaintDecisionTests {
    private static let fresh = CachedTileState(.picture)
    private static let stale = CachedTileState(.picture, isStale: true)
    private static let absent = CachedTileState(.absent)
    private static let staleAbsent = CachedTileState(.absent, isStale: true)
    private static let missing = CachedTileState.missing
    private static let some = StandIns(ancestor: 3, children: 0b0101)

    struct Row: Sendable, CustomTestStringConvertible {
        var zoom: ZoomState
        var state: CachedTileState
        var status: LoadStatus
        var standIns: StandIns
        var picture: PaintDecision.Picture
        var request: PaintDecision.Request

        init(
            _ zoom: ZoomState, _ state: CachedTileState, _ status: LoadStatus, _ standIns: StandIns,
            draws picture: PaintDecision.Picture, asks request: PaintDecision.Request
        ) {
            (self.zoom, self.state, self.status, self.standIns) = (zoom, state, status, standIns)
            (self.picture, self.request) = (picture, request)
        }

        var testDescription: String { "\(zoom), \(state.content), stale \(state.isStale), \(status), \(standIns)" }
    }

    /// Cache state x zoom state: what is drawn, and what is asked for.
    static let table: [Row] = [
        // Below the first zoom there is no map, whatever the cache has.
        Row(.belowMinimum, fresh, .idle, some, draws: .nothing, asks: .none),
        Row(.belowMinimum, stale, .idle, some, draws: .nothing, asks: .none),
        Row(.belowMinimum, absent, .idle, some, draws: .nothing, asks: .none),
        Row(.belowMinimum, missing, .idle, some, draws: .nothing, asks: .none),
        // What is there is drawn; only what is stale is asked for.
        Row(.inRange, fresh, .idle, some, draws: .own, asks: .none),
        Row(.inRange, fresh, .held, some, draws: .own, asks: .none),
        Row(.inRange, stale, .idle, some, draws: .own, asks: .refresh),
        Row(.inRange, stale, .loading, some, draws: .own, asks: .none),
        Row(.inRange, stale, .held, some, draws: .own, asks: .none),
        // What is missing is stood in for, and asked for unless it is on its way or has just failed.
        Row(.inRange, missing, .idle, some, draws: .standIns(some), asks: .load),
        Row(.inRange, missing, .loading, some, draws: .standIns(some), asks: .none),
        Row(.inRange, missing, .held, some, draws: .standIns(some), asks: .none),
        Row(.inRange, missing, .idle, .none, draws: .nothing, asks: .load),
        Row(.inRange, missing, .held, .none, draws: .nothing, asks: .none),
        // What the server does not have is stood in for, and asked for again when that knowledge is stale.
        Row(.inRange, absent, .idle, some, draws: .standIns(some), asks: .none),
        Row(.inRange, absent, .idle, .none, draws: .nothing, asks: .none),
        Row(.inRange, staleAbsent, .idle, some, draws: .standIns(some), asks: .refresh),
        Row(.inRange, staleAbsent, .held, some, draws: .standIns(some), asks: .none),
        // An ancestor alone, some children alone, and four children that hide any ancestor.
        Row(
            .inRange, missing, .idle, StandIns(ancestor: 9), draws: .standIns(StandIns(ancestor: 9)), asks: .load),
        Row(
            .inRange, missing, .idle, StandIns(ancestor: nil, children: 0b1000),
            draws: .standIns(StandIns(ancestor: nil, children: 0b1000)), asks: .load),
        Row(
            .inRange, missing, .idle, StandIns(ancestor: 1, children: 0b1111),
            draws: .standIns(StandIns(ancestor: nil, children: 0b1111)), asks: .load),
        // Beyond the last zoom it is the last zoom's tile that counts.
        Row(.beyondMaximum, fresh, .idle, some, draws: .own, asks: .none),
        Row(.beyondMaximum, stale, .idle, some, draws: .own, asks: .refresh),
        Row(.beyondMaximum, missing, .idle, some, draws: .standIns(some), asks: .load),
        Row(.beyondMaximum, missing, .held, some, draws: .standIns(some), asks: .none),
        Row(.beyondMaximum, absent, .idle, .none, draws: .nothing, asks: .none),
    ]

    @Test(arguments: table) func theTable(row: Row) {
        let decision = PaintDecision.decide(
            zoom: row.zoom, overzooms: true, state: row.state, status: row.status, standIns: row.standIns)
        #expect(decision == PaintDecision(picture: row.picture, request: row.request))
    }

    /// Whatever else holds: nothing is asked for that is on its way or held, nothing fresh, nothing outside of the zooms.
    @Test func rulesThatHoldForAll() {
        for zoom in ZoomState.allCases {
            for content in CachedTileState.Content.allCases {
                for isStale in [false, true] {
                    for status in LoadStatus.allCases {
                        for overzooms in [false, true] {
                            let decision = PaintDecision.decide(
                                zoom: zoom, overzooms: overzooms, state: CachedTileState(content, isStale: isStale),
                                status: status, standIns: Self.some)
                            let isShown = zoom == .inRange || zoom == .beyondMaximum && overzooms
                            #expect((decision.picture == .own) == (isShown && content == .picture))
                            if !isShown { #expect(decision == PaintDecision(picture: .nothing, request: .none)) }
                            if status != .idle { #expect(decision.request == .none) }
                            if content != .missing, !isStale { #expect(decision.request == .none) }
                            if decision.request == .load { #expect(content == .missing) }
                        }
                    }
                }
            }
        }
    }

    @Test func standInsAreLookedForOnlyWhereTheyAreNeeded() {
        var looks = 0
        func look() -> StandIns {
            looks += 1
            return .none
        }
        for state in [Self.fresh, Self.stale] {
            _ = PaintDecision.decide(zoom: .inRange, overzooms: true, state: state, status: .idle, standIns: look())
        }
        _ = PaintDecision.decide(
            zoom: .belowMinimum, overzooms: true, state: .missing, status: .idle, standIns: look())
        #expect(looks == 0)
        _ = PaintDecision.decide(zoom: .inRange, overzooms: true, state: .missing, status: .idle, standIns: look())
        #expect(looks == 1)
    }
}
