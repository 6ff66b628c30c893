import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine

/// What is written about a tile, and what of it stays in memory.
@Suite(.timeLimit(.minutes(10)))
struct TileJobTests {
    private let clock = ManualClock()
    private let files: SimulatedFileSystem
    private let store: TileStore
    private let held: HeldTiles
    private let key: TileKey

    init() throws {
        files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        store = try TileStore(environment: clock.environment(files), configuration: StoreConfiguration())
        let ticks = clock
        held = HeldTiles(ticks: { ticks.ticks })
        key = try TileKey("osm/3/4/2")
    }

    private var metadata: TileMetadata {
        TileMetadata(
            response: ResponseFields(), etag: "\"1\"", storedAt: clock.now, expires: clock.now.adding(seconds: 60))
    }

    /// A tile of 16 MiB must not be in memory once for each client that reads it slowly, nor even once.
    @Test
    func aLargeTileIsReadFromItsFileOnceItIsStored() throws {
        let large = Data(repeating: 7, count: Candidate.wholeUpTo + 1)
        let outcome = TileJob.put(large, metadata).perform(key, store, held)
        guard case .some(.file(let file)) = outcome.file?.body else {
            Issue.record("no file")
            return
        }
        #expect(file.size == large.count && outcome.failure == nil && held.count == 0)
        #expect(try StoredBody.file(file).data() == large)
        let small = TileJob.put(Data(repeating: 7, count: Candidate.wholeUpTo), metadata).perform(key, store, held)
        #expect(small.file == nil && small.failure == nil)
    }

    /// On a full disk each look at a tile above 4 MiB was a request.
    @Test
    func tilesThatCannotBeStoredAreHeldWhateverTheirSizeAsFarAsTheyFitTogether() throws {
        files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        let keys = try (0..<4).map { try TileKey("osm/3/4/\($0)") }
        for key in keys { _ = TileJob.put(Data(repeating: 7, count: 5 << 20), metadata).perform(key, store, held) }
        #expect(keys.map { held.tile($0)?.data?.count } == [nil, 5 << 20, 5 << 20, 5 << 20])
        #expect(held.bytes <= 16 << 20)
        _ = TileJob.put(Data(repeating: 7, count: 17 << 20), metadata).perform(keys[3], store, held)
        #expect(held.tile(keys[3]) == nil && held.tile(keys[2]) != nil, "too large for all of it takes nobody's place")
    }

    @Test
    func whatCannotBeStoredIsHeldAndLetGoOnceItIsStored() throws {
        files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        #expect(TileJob.put(Data("sea".utf8), metadata).perform(key, store, held).failure != nil)
        #expect(held.tile(key)?.data == Data("sea".utf8))
        files.fail(nil)
        #expect(TileJob.put(Data("land".utf8), metadata).perform(key, store, held).failure == nil)
        #expect(held.count == 0)
        #expect(try store.read(key)?.data == Data("land".utf8))
    }
}
