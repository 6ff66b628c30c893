import Foundation
import Testing
import TileStoreTesting
@testable import TileStore

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct CompactionTests {
    /// So many puts make the store compact by itself; who asks for it meanwhile waits for that, and is not sent away.
    @Test func askingWhileTheStoreCompactsByItselfIsNoError() throws {
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path)
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "image/png"), storedAt: Timestamp(seconds: 1_700_000_000),
            expires: Timestamp(seconds: 1_800_000_000))
        let data = Data(repeating: 7, count: 100)
        // A line has some 190 bytes, and compaction is due at 8 MiB.
        for batch in 0..<64 {
            try store.put(
                (0..<1024).map {
                    TilePut(key: try TileKey(source: "s", z: 16, x: batch, y: $0), data: data, metadata: metadata)
                })
        }
        #expect(try store.compact().entries == 65_536)
        #expect(try store.compact().entries == 65_536)
        try store.close()
    }

    /// Whoever followed another process's compaction took it for still to be done: each of them wrote a checkpoint.
    @Test func oneCompactionIsEnoughForAllProcesses() throws {
        let folder = TemporaryFolder()
        let stores = try (0..<3).map { _ in try TileStore(at: folder.path) }
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "image/png"), storedAt: Timestamp(seconds: 1_700_000_000),
            expires: Timestamp(seconds: 1_800_000_000))
        let data = Data(repeating: 7, count: 100)
        for batch in 0..<64 {
            try stores[0].put(
                (0..<1024).map {
                    TilePut(key: try TileKey(source: "s", z: 16, x: batch, y: $0), data: data, metadata: metadata)
                })
        }
        stores[0].maintenance?.waitForPending()
        let generation = stores[0].commit.withLock { $0.generation }
        #expect(generation > 0)
        for row in 0..<6 {
            let store = stores[row % 3]
            try store.put(data, for: try TileKey(source: "s", z: 3, x: 0, y: row), metadata: metadata)
            store.maintenance?.waitForPending()
        }
        for store in stores {
            try store.catchUp()
            #expect(store.commit.withLock { $0.generation } == generation)
            #expect(store.commit.withLock { !store.isCompactionDue($0) })
        }
        for store in stores { try store.close() }
    }
}
