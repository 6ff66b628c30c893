import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Keys that are found without text, and what is said of their entries.
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

    private static let now = Timestamp(seconds: 2500)

    /// What is found under a key, with its tag.
    private func find(
        _ store: TileStore, _ key: KnownKey, at now: Timestamp = now
    ) throws -> (entry: KnownEntry, tag: String)? {
        var room = [UInt8](repeating: 0, count: KnownEntry.tagRoom)
        let entry = try room.withUnsafeMutableBytes { try store.find(key, at: now, tag: $0) }
        return entry.map { ($0, String(decoding: room[..<$0.tagLength], as: UTF8.self)) }
    }

    /// The bytes that a look gives, as a server would get them.
    private func bytes(_ store: TileStore, _ key: KnownKey) throws -> Data? {
        guard let entry = try find(store, key)?.entry else { return nil }
        let body = store.body(of: entry)
        if let data = body.data { return data }
        var buffer = [UInt8](repeating: 0, count: entry.size + 1)
        let isThere = buffer.withUnsafeMutableBytes { store.readNow(body, into: $0) }
        return isThere ? Data(buffer.dropLast()) : nil
    }

    @Test(arguments: ["s/1/0/1", "s/1/0/1@2x.png", "s:a/b", "s:a/b?00112233445566778899aabbccddeeff"], [0, 1 << 20])
    func itsBytesAreThereAtOnce(_ text: String, memory: Int) throws {
        try withStore(memory: memory) { store, _, _ in
            let key = try TileKey(text)
            try store.put(Data("hello".utf8), for: key, metadata: Self.metadata())
            let known = try #require(store.known(key))
            let (entry, tag) = try #require(try find(store, known))
            #expect(entry.size == 5 && entry.hasBody && entry.initialAge == 3 && tag == "\"abc\"")
            #expect(entry.storedAt.seconds == 2000 && entry.expires.seconds == 3000)
            #expect(entry.lastModified?.seconds == 1000)
            #expect(entry.fields == store.fields(under: known)?.identity)
            for _ in 0..<2 { #expect(try bytes(store, known) == Data("hello".utf8)) }
            #expect((store.body(of: entry).data != nil) == (memory > 0))
            var digits = [UInt8](repeating: 0, count: 64)
            #expect(digits.withUnsafeMutableBytes { entry.spellDigest(to: $0) })
            let digest = try #require(try store.entry(for: key)?.blob)
            #expect(String(decoding: digits, as: UTF8.self) == digest.description)
        }
    }

    @Test
    func aTilesKeyLeadsToThoseOfItsSourceAndScale() throws {
        try withStore { store, _, _ in
            for text in ["s/1/0/1@2x.png", "s/7/100/3@2x.png", "s/7/100/3", "t/7/100/3@2x.png"] {
                try store.put(Data(text.utf8), for: TileKey(text), metadata: Self.metadata())
            }
            let known = try #require(store.known(TileKey("s/1/0/1@2x.png")))
            let other = known.tile(z: 7, x: 100, y: 3)
            #expect(other == store.known(try TileKey("s/7/100/3@2x.png")))
            #expect(try bytes(store, other) == Data("s/7/100/3@2x.png".utf8))
            #expect(try find(store, known.tile(z: 7, x: 3, y: 100)) == nil)
            #expect(store.known(try TileKey("u/1/0/1")) == nil, "no such source")
        }
    }

    @Test
    func whateverChangesShowsAtOnce() throws {
        let key = try TileKey("s/1/0/1")
        let hello = Data("hello".utf8)
        let changes: [(String, (TileStore) throws -> Void)] = [
            ("bytes", { try $0.put(Data("others".utf8), for: key, metadata: Self.metadata()) }),
            ("expiry", { try $0.put(hello, for: key, metadata: Self.metadata { $0.expires.seconds += 1 }) }),
            ("storing", { try $0.put(hello, for: key, metadata: Self.metadata { $0.storedAt.seconds += 1 }) }),
            ("age", { try $0.put(hello, for: key, metadata: Self.metadata { $0.initialAge += 1 }) }),
            ("date", { try $0.put(hello, for: key, metadata: Self.metadata { $0.lastModified = nil }) }),
            ("tag", { try $0.put(hello, for: key, metadata: Self.metadata { $0.etag = "W/\"not hexadecimal\"" }) }),
            (
                "type",
                {
                    let other = ResponseFields(status: 200, mediaType: "image/webp")
                    try $0.put(hello, for: key, metadata: Self.metadata { $0.response = other })
                }
            ),
            ("body", { try $0.put(nil, for: key, metadata: Self.metadata()) }),
        ]
        for (name, change) in changes {
            try withStore { store, _, _ in
                try store.put(hello, for: key, metadata: Self.metadata())
                let known = try #require(store.known(key))
                try change(store)
                let (entry, tag) = try #require(try find(store, known), "\(name)")
                let now = try #require(try store.entry(for: key))
                #expect(entry.size == now.size && entry.hasBody == (now.blob != nil), "\(name)")
                #expect(entry.storedAt == now.metadata.storedAt && entry.expires == now.metadata.expires, "\(name)")
                #expect(entry.lastModified == now.metadata.lastModified, "\(name)")
                #expect(entry.initialAge == now.metadata.initialAge && tag == now.metadata.etag, "\(name)")
                #expect(entry.fields == now.metadata.response.identity, "\(name)")
                _ = try store.remove([key], includingPinned: true)
                #expect(try find(store, known) == nil, "\(name)")
            }
        }
    }

    @Test
    func whatIsStaleIsNotFound() throws {
        try withStore { store, _, _ in
            let key = try TileKey("s/1/0/1")
            try store.put(Data("hello".utf8), for: key, metadata: Self.metadata())
            let known = try #require(store.known(key))
            let metadata = Self.metadata()
            for seconds in [0, 1939, 1940, 1941, 2000, 2999, 3000, 3001] as [Int64] {
                let now = Timestamp(seconds: seconds)
                #expect(try (find(store, known, at: now) == nil) == metadata.isStale(at: now), "\(seconds)")
            }
        }
    }

    @Test(arguments: [
        nil, "\"\"", "\"a\"", "W/\"0123456789abcdef\"", "\"0123456789abcdef0123456789abcde\"", "plain", "\"65f1-1a2b\"",
        "\"" + String(repeating: "f", count: 510) + "\"", "W/\"" + String(repeating: "f", count: 508) + "\"",
        String(repeating: "x", count: 512),
    ])
    func anyTagIsSpelledAsItCame(_ tag: String?) throws {
        try withStore { store, _, _ in
            let key = try TileKey("s/1/0/1")
            try store.put(Data("hello".utf8), for: key, metadata: Self.metadata { $0.etag = tag })
            let known = try #require(store.known(key))
            #expect(try find(store, known)?.tag == tag ?? "")
            var small = [UInt8](repeating: 0, count: KnownEntry.tagRoom - 1)
            #expect(try small.withUnsafeMutableBytes { try store.find(known, at: Self.now, tag: $0) } == nil)
            #expect(small.allSatisfy { $0 == 0 })
        }
    }

    @Test
    func sharedFieldsAreComparedByWhatTheySay() throws {
        try withStore { store, _, _ in
            let key = try TileKey("s:a")
            try store.put(nil, for: key, metadata: Self.metadata())
            let known = try #require(store.known(key))
            #expect(try store.has(ResponseFields(status: 200, mediaType: "image/png"), under: known))
            #expect(try !store.has(ResponseFields(status: 404, mediaType: "image/png"), under: known))
            _ = try store.remove([key], includingPinned: true)
            #expect(try !store.has(ResponseFields(status: 200, mediaType: "image/png"), under: known))
        }
    }

    @Test
    func bytesThatAreWrongOrGoneAreNeverHandedOut() throws {
        try withStore { store, files, _ in
            let key = try TileKey("s/1/0/1")
            try store.put(Data("hello".utf8), for: key, metadata: Self.metadata())
            let known = try #require(store.known(key))
            let path = try #require(try store.entry(for: key)?.blob).path
            let body = store.body(of: try #require(try find(store, known)).entry)
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
            let known = try #require(store.known(key))
            let entry = try #require(try find(store, known)).entry
            let body = store.body(of: entry)
            #expect(!entry.hasBody && body.data == nil && entry.size == 0)
            var one: [UInt8] = [0]
            #expect(!one.withUnsafeMutableBytes { store.readNow(body, into: $0) })
            #expect(!one.withUnsafeMutableBytes { entry.spellDigest(to: $0) })
        }
    }

    @Test
    func aLookIsAUse() throws {
        try withStore { store, _, _ in
            let keys = try ["s/1/0/0", "s:marker", "s/1/0/1"].map { try TileKey($0) }
            for key in keys { try store.put(Data("\(key)".utf8), for: key, metadata: Self.metadata()) }
            let known = try keys.map { try #require(store.known($0)) }
            _ = try find(store, known[0])
            #expect(try store.has(Self.metadata().response, under: known[1]))
            try store.flush()
            let recencies = try keys.map { try #require(try store.entry(for: $0)).recency }
            #expect(recencies[0] > recencies[2] && recencies[1] > recencies[2])
        }
    }
}
