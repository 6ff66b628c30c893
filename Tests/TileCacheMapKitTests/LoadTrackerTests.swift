import Testing
import TileCache
import TileStore

@testable import TileCacheMapKit

/// A tracker that can be changed within an expectation.
private final class Tracked {
    private var tracker: LoadTracker
    init(backoff: Backoff) { tracker = LoadTracker(backoff: backoff) }
    var heldCount: Int { tracker.heldCount }
    func status(of tile: TileAddress, at now: UInt64) -> LoadStatus { tracker.status(of: tile, at: now) }
    func begin(_ tile: TileAddress, at now: UInt64) -> Bool { tracker.begin(tile, at: now) }
    func finished(_ tile: TileAddress, isSettled: Bool, at now: UInt64) {
        tracker.finished(tile, isSettled: isSettled, at: now)
    }
    func failed(_ tile: TileAddress, asked: Duration?, at now: UInt64, random: UInt64) -> UInt64? {
        tracker.failed(tile, asked: asked, at: now, random: random)
    }
    func abandoned(_ tile: TileAddress) { tracker.abandoned(tile) }
}

@Suite(.timeLimit(.minutes(60)))
struct LoadTrackerTests {
    private let second: UInt64 = 1_000_000_000
    private let backoff = Backoff(first: .seconds(4), longest: .seconds(60))

    @Test func aTileIsTakenOnceUntilItHasCome() throws {
        let one = try tile(3, 1, 1)
        let tracker = Tracked(backoff: backoff)
        #expect(tracker.begin(one, at: 0))
        #expect(!tracker.begin(one, at: 0))
        #expect(tracker.status(of: one, at: 0) == .loading)
        tracker.finished(one, isSettled: true, at: 0)
        #expect(tracker.begin(one, at: 0))
    }

    @Test func afterAFailureItIsHeldForItsBackOffAndLongerEachTime() throws {
        let one = try tile(3, 1, 1)
        let tracker = Tracked(backoff: backoff)
        var now: UInt64 = 0
        // Without chance a wait is half of first * 2^(n-1), at most half of the longest.
        for (failure, seconds) in [2, 4, 8, 16, 30, 30, 30].enumerated() {
            #expect(tracker.begin(one, at: now))
            let wait = tracker.failed(one, asked: nil, at: now, random: 0)
            #expect(wait == (failure < LoadTracker.timedRetries ? UInt64(seconds) * second : nil))
            #expect(!tracker.begin(one, at: now + UInt64(seconds) * second - 1))
            #expect(tracker.status(of: one, at: now) == .held)
            now += UInt64(seconds) * second
        }
        #expect(tracker.begin(one, at: now))
        tracker.finished(one, isSettled: true, at: now)
        #expect(tracker.begin(one, at: now))
        #expect(tracker.failed(one, asked: nil, at: now, random: 0) == 2 * second)
    }

    @Test func whatAServerAsksForIsObeyedWithinADay() throws {
        let one = try tile(3, 1, 1)
        let tracker = Tracked(backoff: backoff)
        #expect(tracker.failed(one, asked: .seconds(90), at: 0, random: 0) == 90 * second)
        #expect(tracker.failed(one, asked: .seconds(1e18), at: 0, random: 0) == 86_400 * second)
    }

    /// Else a tile that is never fresh, or never stored, would be asked for with every drawing that its coming causes.
    @Test func whatIsStillStaleAfterwardsIsNotAskedForAtOnce() throws {
        let one = try tile(3, 1, 1)
        let tracker = Tracked(backoff: backoff)
        #expect(tracker.begin(one, at: 0))
        tracker.finished(one, isSettled: false, at: 0)
        #expect(!tracker.begin(one, at: LoadTracker.pause - 1))
        #expect(tracker.begin(one, at: LoadTracker.pause))
    }

    @Test func whatIsGivenUpMayBeginAgain() throws {
        let one = try tile(3, 1, 1)
        let tracker = Tracked(backoff: backoff)
        #expect(tracker.begin(one, at: 0))
        tracker.abandoned(one)
        #expect(tracker.begin(one, at: 0))
    }

    @Test func itRemembersNoMoreThanItsBound() throws {
        let tracker = Tracked(backoff: backoff)
        for x in 0..<(LoadTracker.mostHeld + 10) {
            _ = tracker.failed(try tile(20, x, 1), asked: nil, at: 0, random: 0)
        }
        #expect(tracker.heldCount <= LoadTracker.mostHeld)
    }
}
