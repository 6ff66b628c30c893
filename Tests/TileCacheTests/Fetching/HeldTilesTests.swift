import CacheEngine
import Foundation
import Testing
import TileStore

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct HeldTilesTests {
    private let clock = TestClock()

    private func key(_ number: Int) throws -> TileKey { try TileKey(source: "lab", z: 20, x: number, y: 0) }
    private var metadata: TileMetadata { TileMetadata(storedAt: clock.now, expires: .distantFuture) }

    @Test func itStaysBoundedAndForgetsTheOldestFirst() throws {
        let held = HeldTiles(ticks: clock.cacheClock.ticks)
        for number in 0..<100 { held.hold(Data(count: 1 << 20), try key(number), metadata) }
        #expect(held.bytes <= 16 << 20 && held.count == 15)
        #expect(try held.tile(key(0)) == nil && held.tile(key(99))?.data?.count == 1 << 20)
        for number in 0..<10_000 { held.hold(nil, try key(number), metadata) }
        #expect(held.count == HeldTiles.mostTiles)
        // The same few over and over, as when a disk stays full for days.
        for number in 0..<100_000 { held.hold(nil, try key(number % 10), metadata) }
        #expect(held.count <= HeldTiles.mostTiles)
        // One that is too large takes nobody's place, and leaves nothing old behind.
        held.hold(Data(count: 17 << 20), try key(5), metadata)
        #expect(try held.tile(key(5)) == nil && held.tile(key(6)) != nil)
    }

    @Test func whatIsHeldLastsForFiveMinutes() throws {
        let held = HeldTiles(ticks: clock.cacheClock.ticks)
        held.hold(Data([1]), try key(1), metadata)
        clock.advance(seconds: 299)
        #expect(try held.tile(key(1)) != nil)
        clock.advance(seconds: 1)
        #expect(try held.tile(key(1)) == nil)
        #expect(held.count == 0 && held.bytes == 0)
    }

    /// What nobody asked for again stayed for good.
    @Test func whatNobodyAsksForGoesToo() throws {
        let held = HeldTiles(ticks: clock.cacheClock.ticks)
        for number in 0..<10 { held.hold(Data(count: 1 << 20), try key(number), metadata) }
        clock.advance(seconds: 200)
        held.hold(Data([1]), try key(20), metadata)
        clock.advance(seconds: 100)
        #expect(try held.tile(key(20)) != nil && held.count == 1 && held.bytes < 1 << 20)
        clock.advance(seconds: 200)
        #expect(try held.tile(key(30)) == nil && held.count == 0 && held.bytes == 0)
    }
}
