import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Uses are written down without anybody asking for it.
@Suite(.timeLimit(.minutes(60)))
struct UseFlushTests {
    /// Uses were never written down by themselves where the first one came with a look for news, as it mostly does.
    @Test
    func theFirstUseIsWrittenDownBeforeLongThoughItCameWithALookForNews() throws {
        let clock = ManualClock()
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        var environment = clock.environment(files)
        environment.background = true
        let store = try TileStore(environment: environment, configuration: StoreConfiguration())
        let key = try TileKey("s/1/0/1")
        let metadata = TileMetadata(storedAt: Timestamp(seconds: 0), expires: Timestamp(seconds: 60))
        try store.put(Data("hello".utf8), for: key, metadata: metadata)
        try store.flush()
        #expect(store.maintenance?.isFlushScheduled == false)
        clock.advance(nanoseconds: 20_000_000)
        _ = try store.read(key)
        #expect(store.maintenance?.isFlushScheduled == true)
        try store.close()
    }
}
