import Testing
import TileStore
import TileStoreTesting

@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct PictureCacheTests {
    private func entry(_ version: Int) -> PictureCache<String>.Entry { .init(picture: "p\(version)", version: version) }

    @Test func theLeastUsedGoesFirst() throws {
        var cache = PictureCache<String>(capacity: 300)
        for x in 0..<3 { cache.insert(entry(x), for: try tile(4, x, 0), cost: 100) }
        let used = cache.use(try tile(4, 0, 0))
        #expect(used?.version == 0)
        cache.insert(entry(3), for: try tile(4, 3, 0), cost: 100)
        #expect(cache.peek(try tile(4, 1, 0)) == nil)
        #expect(cache.peek(try tile(4, 0, 0)) != nil)
        #expect(cache.cost == 300 && cache.count == 3)
    }

    @Test func whatIsLargerThanTheBoundIsNotKept() throws {
        var cache = PictureCache<String>(capacity: 300)
        cache.insert(entry(1), for: try tile(4, 0, 0), cost: 301)
        #expect(cache.count == 0 && cache.cost == 0)
    }

    /// Against a list in order of use, whatever is done in whatever order.
    @Test(arguments: Seeds.list(8)) func itAgreesWithAList(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        var cache = PictureCache<String>(capacity: 1000)
        var model: [(tile: TileAddress, version: Int, cost: Int)] = []
        for version in 0..<400 {
            let tile = try tile(4, Int.random(in: 0..<12, using: &random), 0)
            switch Int.random(in: 0..<4, using: &random) {
            case 0:
                cache.remove(tile)
                model.removeAll { $0.tile == tile }
            case 1:
                let found = model.firstIndex { $0.tile == tile }
                let used = cache.use(tile)
                #expect(used?.version == found.map { model[$0].version })
                if let found { model.append(model.remove(at: found)) }
            default:
                let cost = Int.random(in: 64..<400, using: &random)
                cache.insert(entry(version), for: tile, cost: cost)
                model.removeAll { $0.tile == tile }
                while model.reduce(cost, { $0 + $1.cost }) > 1000 { model.removeFirst() }
                model.append((tile, version, cost))
            }
            #expect(cache.cost == model.reduce(0) { $0 + $1.cost })
            #expect(cache.count == model.count)
            #expect(model.allSatisfy { cache.peek($0.tile)?.version == $0.version })
        }
    }
}
