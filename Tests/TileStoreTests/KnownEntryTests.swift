import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Entries that are remembered in the state that they had, and looked at again.
@Suite(.timeLimit(.minutes(60)))
struct KnownEntryTests {
    private static func metadata(_ change: (inout TileMetadata) -> Void = { _ in }) -> TileMetadata {
        var metadata = TileMetadata(
            response: ResponseFields(status: 200, mediaType: "image/png"), etag: "\"abc\"",
            lastModified: Timestamp(seconds: 1000), storedAt: Timestamp(seconds: 2000), initialAge: 3,
            expires: Timestamp(seconds: 3000))
        change(&metadata)
        return metadata
    }

    private func withStore(
        memory: Int = 0, _ body: (TileStore, SimulatedFileSystem, ManualClock) throws -> Void
    ) throws {
        let clock = ManualClock()
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        var configuration = StoreConfiguration()
        configuration.memoryTierBytes = memory
        let store = try TileStore(environment: clock.environment(files), configuration: configuration)
        try body(store, files, clock)
        try store.close()
    }

    private func known(_ store: TileStore, _ key: TileKey) throws -> KnownEntry {
        let entry = try #require(try store.entry(for: key))
        return try #require(store.known(entry))
    }

    /// The bytes that a look gives, as a server would get them.
    private func bytes(_ store: TileStore, _ known: KnownEntry) throws -> Data? {
        guard let body = try store.find(known) else { return nil }
        if let data = body.data { return data }
        var buffer = [UInt8](repeating: 0, count: known.size + 1)
        let isThere = buffer.withUnsafeMutableBytes { store.readNow(body, into: $0) }
        return isThere ? Data(buffer.dropLast()) : nil
    }

    @Test(arguments: ["s/1/0/1", "s/1/0/1@2x.png", "s:a/b", "s:a/b?00112233445566778899aabbccddeeff"], [0, 1 << 20])
    func itsBytesAreThereAtOnce(_ text: String, memory: Int) throws {
        try withStore(memory: memory) { store, _, _ in
            let key = try TileKey(text)
            try store.put(Data("hello".utf8), for: key, metadata: Self.metadata())
            let known = try known(store, key)
            #expect(known.size == 5 && known.hasBody && known.initialAge == 3)
            #expect(known.storedAt.seconds == 2000 && known.expires.seconds == 3000)
            for _ in 0..<2 { #expect(try bytes(store, known) == Data("hello".utf8)) }
            let inMemory = try #require(try store.find(known)).data != nil
            #expect(inMemory == (memory > 0))
        }
    }

    @Test
    func whateverChangesEndsIt() throws {
        let key = try TileKey("s/1/0/1")
        let changes: [(String, (TileStore) throws -> Void)] = [
            ("bytes", { try $0.put(Data("other".utf8), for: key, metadata: Self.metadata()) }),
            (
                "expiry",
                { try $0.put(Data("hello".utf8), for: key, metadata: Self.metadata { $0.expires.seconds += 1 }) }
            ),
            (
                "storing",
                { try $0.put(Data("hello".utf8), for: key, metadata: Self.metadata { $0.storedAt.seconds += 1 }) }
            ),
            ("age", { try $0.put(Data("hello".utf8), for: key, metadata: Self.metadata { $0.initialAge += 1 }) }),
            ("date", { try $0.put(Data("hello".utf8), for: key, metadata: Self.metadata { $0.lastModified = nil }) }),
            (
                "type",
                {
                    let other = ResponseFields(status: 200, mediaType: "image/webp")
                    try $0.put(Data("hello".utf8), for: key, metadata: Self.metadata { $0.response = other })
                }
            ),
            ("body", { try $0.put(nil, for: key, metadata: Self.metadata()) }),
            ("removal", { _ = try $0.remove([key], includingPinned: true) }),
        ]
        for (name, change) in changes {
            try withStore { store, _, _ in
                try store.put(Data("hello".utf8), for: key, metadata: Self.metadata())
                let known = try known(store, key)
                try store.put(Data("hello".utf8), for: key, metadata: Self.metadata())
                #expect(try store.find(known) != nil, "the same again")
                try change(store)
                #expect(try store.find(known) == nil, "\(name)")
            }
        }
    }

    @Test
    func bytesThatAreWrongOrGoneAreNeverHandedOut() throws {
        try withStore { store, files, _ in
            let key = try TileKey("s/1/0/1")
            try store.put(Data("hello".utf8), for: key, metadata: Self.metadata())
            let known = try known(store, key)
            let path = try #require(try store.entry(for: key)?.blob).path
            let body = try #require(try store.find(known))
            var small = [UInt8](repeating: 0, count: 5)
            #expect(!small.withUnsafeMutableBytes { store.readNow(body, into: $0) }, "no room for the byte more")
            _ = try files.unlink(path)
            #expect(try bytes(store, known) == nil)
            try files.createFile(path, bytes: Array("hullo".utf8), sync: false)
            #expect(try bytes(store, known) == nil)
        }
    }

    @Test
    func aBodilessEntryHasNone() throws {
        try withStore { store, _, _ in
            let key = try TileKey("s:gone")
            try store.put(nil, for: key, metadata: Self.metadata { $0.response = ResponseFields(status: 404) })
            let known = try known(store, key)
            let body = try #require(try store.find(known))
            #expect(!known.hasBody && body.data == nil)
            var one: [UInt8] = [0]
            #expect(!one.withUnsafeMutableBytes { store.readNow(body, into: $0) })
        }
    }

    @Test
    func aLookIsAUse() throws {
        try withStore { store, _, _ in
            let (old, new) = (try TileKey("s/1/0/0"), try TileKey("s/1/0/1"))
            try store.put(Data("old".utf8), for: old, metadata: Self.metadata())
            try store.put(Data("new".utf8), for: new, metadata: Self.metadata())
            let known = try known(store, old)
            _ = try store.find(known)
            try store.flush()
            let first = try #require(try store.entry(for: old))
            let second = try #require(try store.entry(for: new))
            #expect(first.recency > second.recency)
        }
    }
}
