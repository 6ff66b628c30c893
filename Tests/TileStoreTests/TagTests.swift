import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Entity tags come back as they were put, whoever reads them: the process that put them, and one that reads the journal.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct TagTests {
    @Test(arguments: [
        "\"\"", "\"b\"", "\"ab\"", "\"abc\"", "W/\"\"", "W/\"b\"", "W/\"ab\"", "W/\"", "\"", "W/", "b", "\"B\"",
        "\"g\"", "W/\"\"\"",
        "\"a\\b\"", "\"0123456789abcdef0123456789abcdef\"", "W/\"0123456789abcdef0123456789abcdef0\"",
        "\"" + String(repeating: "a", count: 510) + "\"", "\"" + String(repeating: "a", count: 65) + "\"",
    ])
    func aTagComesBack(tag: String) throws {
        let disk = SimulatedDisk(clock: ManualClock())
        let clock = ManualClock()
        let environment = clock.environment(SimulatedFileSystem(disk))
        let first = try TileStore(environment: environment, configuration: StoreConfiguration())
        let second = try TileStore(environment: environment, configuration: StoreConfiguration())
        let key = try TileKey("t/1/0/0")
        let metadata = TileMetadata(etag: tag, storedAt: clock.now, expires: clock.now.adding(seconds: 60))
        try first.put(Data([1]), for: key, metadata: metadata)
        try second.catchUp()
        #expect(try first.entry(for: key)?.metadata.etag == tag)
        #expect(try second.entry(for: key)?.metadata.etag == tag)
        // A refresh that names the tag must find it, in both.
        let version = EntryVersion(blob: try first.entry(for: key)?.blob, etag: tag, lastModified: nil)
        #expect(try second.refresh(key, from: version, metadata: metadata))
        #expect(try first.refresh(key, from: version, metadata: metadata))
        #expect(try first.compact().entries == 1)
        #expect(try second.entry(for: key)?.metadata.etag == tag)
    }
}
