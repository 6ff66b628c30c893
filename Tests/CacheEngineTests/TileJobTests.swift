import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine

/// What is written about a tile, and what of it stays in memory.
@Suite(.timeLimit(.minutes(60)))
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
        let outcome = TileJob.put(.memory(large), metadata).perform(key, store, held)
        guard case .some(.file(let file)) = outcome.file?.body else {
            Issue.record("no file")
            return
        }
        #expect(file.size == large.count && outcome.failure == nil && held.count == 0)
        #expect(try StoredBody.file(file).data() == large)
        let small = TileJob.put(.memory(Data(repeating: 7, count: Candidate.wholeUpTo)), metadata).perform(
            key, store, held)
        #expect(small.file == nil && small.failure == nil)
    }

    /// On a full disk each look at a tile above 4 MiB was a request.
    @Test
    func tilesThatCannotBeStoredAreHeldWhateverTheirSizeAsFarAsTheyFitTogether() throws {
        files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        let keys = try (0..<4).map { try TileKey("osm/3/4/\($0)") }
        for key in keys {
            _ = TileJob.put(.memory(Data(repeating: 7, count: 5 << 20)), metadata).perform(key, store, held)
        }
        #expect(keys.map { held.tile($0)?.data?.count } == [nil, 5 << 20, 5 << 20, 5 << 20])
        #expect(held.bytes <= 16 << 20)
        _ = TileJob.put(.memory(Data(repeating: 7, count: 17 << 20)), metadata).perform(keys[3], store, held)
        #expect(held.tile(keys[3]) == nil && held.tile(keys[2]) != nil, "too large for all of it takes nobody's place")
    }

    @Test
    func whatCannotBeStoredIsHeldAndLetGoOnceItIsStored() throws {
        files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        #expect(TileJob.put(.memory(Data("sea".utf8)), metadata).perform(key, store, held).failure != nil)
        #expect(held.tile(key)?.data == Data("sea".utf8))
        files.fail(nil)
        #expect(TileJob.put(.memory(Data("land".utf8)), metadata).perform(key, store, held).failure == nil)
        #expect(held.count == 0)
        #expect(try store.read(key)?.data == Data("land".utf8))
    }

    private func stored(_ text: String) throws -> Candidate {
        let outcome = TileJob.put(.memory(Data(text.utf8)), metadata).perform(key, store, held)
        #expect(outcome.failure == nil)
        return Candidate(try #require(try store.read(key)))
    }

    private var notToBeKept: AnswerRecord {
        CacheUse(tiles: .shared, absent: 3600, staleOnError: 0, storedBodyBytes: 1000, name: "test").record(
            HTTPResponse(status: .ok, headerFields: [.cacheControl: "no-store"]),
            to: HTTPRequest(method: .get, scheme: "https", authority: "a", path: "/"),
            requestedAt: HTTPDate(seconds: clock.now.seconds), receivedAt: HTTPDate(seconds: clock.now.seconds))
    }

    /// A fill that was given up may be late with what it wanted removed.
    @Test
    func whatIsRemovedIsWhatWasAskedAboutAndNothingNewer() throws {
        let old = try stored("sea")
        clock.advance(seconds: 5)
        _ = try stored("land")
        for job in [TileJob.drop(old, isHeld: false), .update(old, notToBeKept, isHeld: false)] {
            let outcome = job.perform(key, store, held)
            #expect(!outcome.isGone && outcome.failure == nil && outcome.failedRemoval == nil)
            #expect(try store.read(key)?.data == Data("land".utf8))
        }
        held.hold(Data("newest".utf8), key, metadata)
        let now = Candidate(try #require(try store.read(key)))
        #expect(TileJob.drop(now, isHeld: false).perform(key, store, held).isGone)
        #expect(try store.entry(for: key) == nil)
        #expect(held.tile(key)?.data == Data("newest".utf8), "it is newer")
        // Of one that is only held, what is stored and older must not come back either.
        _ = try stored("sea")
        clock.advance(seconds: 5)
        held.hold(Data("held".utf8), key, metadata)
        let only = Candidate(try #require(held.tile(key)))
        #expect(TileJob.drop(only, isHeld: true).perform(key, store, held).isGone)
        #expect(try store.entry(for: key) == nil)
    }

    /// "Could not be stored" sends an operator to look for a tile that is there.
    @Test
    func aRemovalThatFailsIsNotToldAsATileThatCouldNotBeStored() throws {
        let there = try stored("sea")
        files.fail(.init(at: 0, number: EIO, scope: .all, persistent: true))
        for job in [TileJob.drop(there, isHeld: false), .update(there, notToBeKept, isHeld: false)] {
            let outcome = job.perform(key, store, held)
            #expect(outcome.failedRemoval != nil && outcome.failure == nil && !outcome.isGone)
        }
        files.fail(nil)
        #expect(held.count == 0)
    }

    @Test
    func aBodyThatWasHashedBeforeIsStoredUnderThatName() throws {
        let body = HashedBody(Data(repeating: 9, count: 5000))
        let outcome = TileJob.put(.hashed(body), metadata).perform(key, store, held)
        #expect(outcome.blob == body.digest && outcome.failure == nil)
        #expect(try store.read(key)?.data == body.data)
        #expect(try store.verify().ok)
    }
}
