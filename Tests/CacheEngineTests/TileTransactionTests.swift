import HTTPCaching
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine

/// What a transaction of the fixed use does: the cache's own request for a tile, whose fill is everybody's.
@Suite(.timeLimit(.minutes(60)))
struct TileTransactionTests {
    private typealias Event = CacheTransaction.Event

    private static var use: CacheUse {
        CacheUse(tiles: .shared, absent: 3600, staleOnError: 500, storedBodyBytes: 1000, name: "test")
    }

    /// What is done after each event; of answers and refusals what `Cache-Status` says.
    private func run(_ events: [Event], onlyIfCached: Bool = false) throws -> [String] {
        var request = try MachineLab.request()
        request.asking.onlyIfCached = onlyIfCached
        var transaction = CacheTransaction(request, Self.use)
        return events.map { event in
            transaction.on(event, at: MachineLab.now).map { action in
                switch action {
                case .answer(_, _, _, let status, _), .give(_, let status, _), .refuse(_, let status):
                    "\(action.word): \(status)"
                default: action.word
                }
            }.joined(separator: ", ")
        }
    }

    private static let miss: [Event] = [.begin, .looked(.miss)]

    private func tile(_ source: TileNews.Source, isStored: Bool = true) throws -> Event {
        .heard(.tile(TileNews(try MachineLab.stored("max-age=1000", ago: 0), source, isStored: isStored)))
    }

    private func no(_ failure: TileFill.Failure) -> Event { .heard(.noTile(failure, retryAfter: .seconds(7))) }

    private static let silence = TileFill.Failure.noAnswer(
        TileFill.NoAnswer(OriginSetback(.silent, .unreachable), mayPass: true, isTimeout: true))

    @Test
    func whoBeganTheFillAndWhoFollowsAreAnsweredByIt() throws {
        #expect(
            try run(Self.miss + [.leads, tile(.origin)])
                == ["look", "fetch shared uri-miss", "", "answer miss: test; fwd=uri-miss; ttl=1000; stored, done"])
        #expect(
            try run(Self.miss + [.follows, tile(.origin)]).last
                == "answer miss: test; fwd=uri-miss; ttl=1000; collapsed, done")
        #expect(
            try run(Self.miss + [.leads, tile(.origin, isStored: false)]).last
                == "answer miss: test; fwd=uri-miss; ttl=1000, done")
        #expect(try run(Self.miss + [.leads, tile(.found)]).last == "answer hit: test; hit; ttl=1000, done")
        #expect(
            try run(Self.miss + [.follows, tile(.found)]).last
                == "answer miss: test; fwd=uri-miss; ttl=1000; collapsed, done")
    }

    @Test
    func whatIsStaleIsConfirmedOrReplaced() throws {
        let stale: [Event] = [.begin, .looked(.found(try MachineLab.stored("max-age=1")))]
        #expect(
            try run(stale + [.leads, tile(.confirmed)]).last
                == "answer revalidated: test; fwd=stale; fwd-status=304; ttl=1000; stored, done")
        #expect(
            try run(stale + [.leads, tile(.origin)]).last
                == "answer miss: test; fwd=stale; fwd-status=200; ttl=1000; stored, done")
    }

    @Test
    func aFailureIsEverybodysAndStaleStandsIn() throws {
        for joined in [Event.leads, .follows] {
            let collapsed = if case .follows = joined { "; collapsed" } else { "" }
            #expect(
                try run(Self.miss + [joined, no(Self.silence)]).last
                    == "refuse 504: test; fwd=uri-miss\(collapsed), done")
            #expect(
                try run(Self.miss + [joined, no(.status(500, host: "a", retryAfter: nil))]).last
                    == "refuse 502: test; fwd=uri-miss\(collapsed), done")
        }
        let stale: [Event] = [.begin, .looked(.found(try MachineLab.stored("max-age=1"))), .leads]
        let age = try run(stale + [tile(.confirmed)]).count
        #expect(age == 4)
        let said = { (failure: TileFill.Failure) in try self.run(stale + [self.no(failure)]).last ?? "" }
        #expect(try said(Self.silence).contains("answer stale (origin-unreachable): test; fwd=stale; ttl=-"))
        #expect(
            try said(.status(403, host: "a", retryAfter: nil)).contains("test; fwd=stale; fwd-status=403; ttl=-"))
        #expect(
            try said(.waiting(until: 9, .status(503))).contains("answer stale (stale-if-error): test; hit; ttl=-"))
    }

    @Test
    func onlyWhatIsThereIsAnsweredWhereTheServerIsNotToBeAsked() throws {
        #expect(try run(Self.miss, onlyIfCached: true).last == "refuse 504: test; detail=only-if-cached, done")
    }

    @Test
    func whoLeavesGivesUpItsPlace() throws {
        #expect(try run(Self.miss + [.leads, .clientGone, tile(.origin)]).suffix(2) == ["leave fill, done", ""])
    }

    /// Whatever happens in whatever order, one answer comes, or none to one who has left.
    @Test
    func inAnyOrderThereIsOneAnswer() throws {
        let stored = [try MachineLab.stored("max-age=1"), try MachineLab.stored("max-age=1000")]
        for seed in Seeds.share(0, of: 1, count: 20_000) {
            var random = SplitMix64(seed: seed)
            var transaction = CacheTransaction(try MachineLab.request(), Self.use)
            var (answers, dones, isGone, isInFlight) = (0, 0, false, false)
            var next: Event? = .begin
            for _ in 0..<100 {
                guard var event = next else { break }
                if random.oneIn(20) { (event, isGone) = (.clientGone, true) }
                next = nil
                for action in transaction.on(event, at: MachineLab.now) {
                    switch action {
                    case .look:
                        next = .looked(random.pick([.miss, .mustWait, .found(stored[0]), .found(stored[1])]))
                    case .fetch:
                        isInFlight = true
                        next = random.oneIn(2) ? .leads : .follows
                    case .leaveFill: isInFlight = false
                    case .answer, .give, .refuse: answers += 1
                    case .done: dones += 1
                    case .makeReady, .refreshBehind: break
                    default: Issue.record("seed \(seed): \(action.word)")
                    }
                }
                guard next == nil, isInFlight, !transaction.isOver else { continue }
                let news: [FillEnd] = [
                    .again, .tile(TileNews(stored[1], .origin, isStored: random.oneIn(2))),
                    .tile(TileNews(stored[0], .confirmed, isStored: true)),
                    .noTile(Self.silence, retryAfter: nil), .noTile(.waiting(until: 1, .unreachable), retryAfter: nil),
                ]
                isInFlight = false
                next = .heard(random.pick(news))
            }
            if dones != 1 || (isGone ? answers > 1 : answers != 1) {
                Issue.record("seed \(seed): \(answers) answers, \(dones) ends")
                return
            }
        }
    }
}
