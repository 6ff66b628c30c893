import Foundation
import HTTPTypes
import NIOCore
import Testing
import TileStoreTesting

@testable import TileProxyServer
@testable import TileStore

/// Stored bodies that are too large to be copied for every client.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct LargeBodyTests {
    /// Eight megabytes in which every stretch can be told from every other.
    private static let text = (0..<1_000_000).map { String(10_000_000 + $0) }.joined()
    private static let bytes = Array(text.utf8)

    private func slowReader(_ proxy: ProxyUnderTest) throws -> Wire {
        let wire = try Wire.unconnected()
        wire.holdAtMost(1 << 16)
        try wire.connect(to: proxy.server.port)
        wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        guard wire.take(through: "\r\n\r\n") != nil else { throw WireError(what: "no head") }
        return wire
    }

    private func withStored(_ body: (ProxyUnderTest, ScriptedOrigin) async throws -> Void) async throws {
        let fields = ["Cache-Control: max-age=60", "ETag: \"x\"", "Content-Type: text/plain"]
        let origin = try ScriptedOrigin(always: reply("200 OK", fields, Self.text))
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask().body == Self.bytes)
            while try proxy.ask()["Age"] == nil { await Task.yield() }
            try await body(proxy, origin)
        }
    }

    @Test
    func clientsThatDoNotReadPinNoCopyEachAndGetItAllWhateverIsEvicted() async throws {
        try await withStored { proxy, origin in
            let before = residentBytes()
            let slow = try (0..<24).map { _ in try slowReader(proxy) }
            if let before, let after = residentBytes() {
                #expect(after - before < 96 << 20, "\((after - before) >> 20) MiB for 24 clients")
            }
            #expect(try proxy.store.evict(toBytes: 0).removedEntries > 0)
            for wire in slow { #expect(wire.take(Self.bytes.count) == Self.bytes) }
            #expect(origin.count == 1)
        }
    }

    @Test
    func rangesOfALargeBodyAreReadFromItsFile() async throws {
        try await withStored { proxy, origin in
            let one = try proxy.ask("GET", "/a", ["Range: bytes=5000000-5300000"])
            #expect(one.status == 206 && one.body == Array(Self.bytes[5_000_000...5_300_000]))
            let two = try proxy.ask("GET", "/a", ["Range: bytes=0-9,7999990-"])
            #expect(two.status == 206 && two.text.contains("\r\n\r\n1000000010\r\n"))
            #expect(two.text.contains(String(decoding: Self.bytes.suffix(10), as: UTF8.self)))
            let head = try proxy.ask("HEAD")
            #expect(head["Content-Length"] == String(Self.bytes.count))
            #expect(try proxy.ask("GET", "/a", ["If-None-Match: \"x\""]).status == 304)
            #expect(origin.count == 1)
        }
    }

    // MARK: The store

    private func withStore(_ configuration: StoreConfiguration = .init(), _ body: (String) throws -> Void) rethrows {
        let folder = NSTemporaryDirectory() + "large-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try body(folder)
    }

    private static let metadata = TileMetadata(
        response: ResponseFields(status: 200, mediaType: "text/plain"), storedAt: Timestamp(seconds: 0),
        expires: Timestamp(seconds: 60))

    @Test
    func aBlobThatIsDamagedIsNeverOpened() throws {
        try withStore { folder in
            let key = try TileKey("a:/b")
            let store = try TileStore(at: folder)
            try store.put(Data(Self.bytes), for: key, metadata: Self.metadata)
            let digest = try #require(try store.entry(for: key)?.blob)
            try store.close()
            let path = folder + "/" + digest.path
            try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: path)
            let file = try #require(FileHandle(forWritingAtPath: path))
            try file.seek(toOffset: 6_000_000)
            try file.write(contentsOf: Data([0]))
            try file.close()
            let again = try TileStore(at: folder)
            #expect(try again.open(key, wholeUpTo: 1000) == nil)
            #expect(try again.entry(for: key) == nil, "dropped, as by any other read")
            try again.close()
        }
    }

    /// A thousand readers of one blob had a thousand descriptors.
    @Test
    func whoReadsOneBlobSharesItsFileUntilAnotherLiesInItsPlace() throws {
        try withStore { folder in
            let key = try TileKey("a:/b")
            let store = try TileStore(at: folder)
            func open() throws -> BlobFile? {
                if case .file(let file) = try store.open(key, wholeUpTo: 1000)?.body { file } else { nil }
            }
            func piece(_ file: BlobFile?) throws -> [UInt8] {
                var piece = [UInt8](repeating: 0, count: 1000)
                try piece.withUnsafeMutableBytes { try file?.read(into: $0, at: 7_000_000) }
                return piece
            }
            let expected = Array(Self.bytes[7_000_000..<7_001_000])
            try store.put(Data(Self.bytes), for: key, metadata: Self.metadata)
            var first = try open()
            #expect(try first != nil && open() === first && store.blobs.reader.sharedCount == 1)
            guard case .tile(let now) = try store.openNow(key, wholeUpTo: 1000), case .file(let file) = now.body else {
                Issue.record("not a file")
                return
            }
            #expect(file === first)
            // Removed and stored again: the space of the former file is to come free.
            _ = try store.remove([key], includingPinned: true)
            try store.put(Data(Self.bytes), for: key, metadata: Self.metadata)
            let second = try open()
            #expect(try second !== first && piece(first) == expected && piece(second) == expected)
            first = nil
            #expect(try open() === second, "the end of a former one's readers changes nothing")
            // Whoever takes a file away by hand, or sets it aside in another process, takes a tile, also while somebody reads it.
            let path = try folder + "/" + #require(try store.entry(for: key)?.blob).path
            try FileManager.default.moveItem(atPath: path, toPath: path + ".aside")
            #expect(try open() == nil && piece(second) == expected)
            #expect(store.blobs.reader.sharedCount == 0)
            try store.close()
        }
    }

    @Test
    func whatIsSmallIsReadWholeAndWhatIsLargeInPieces() throws {
        try withStore { folder in
            let (small, large) = (try TileKey("a:/small"), try TileKey("a:/large"))
            let store = try TileStore(at: folder)
            try store.put(Data(Self.bytes.prefix(1000)), for: small, metadata: Self.metadata)
            try store.put(Data(Self.bytes), for: large, metadata: Self.metadata)
            guard case .memory(let data) = try store.open(small, wholeUpTo: 1000)?.body else {
                Issue.record("not whole")
                return
            }
            #expect(Array(data) == Array(Self.bytes.prefix(1000)))
            guard case .file(let file) = try store.open(large, wholeUpTo: 1000)?.body else {
                Issue.record("not a file")
                return
            }
            _ = try store.remove([large], includingPinned: true)
            #expect(try store.open(large, wholeUpTo: 1000) == nil)
            var piece = [UInt8](repeating: 0, count: 300_000)
            try piece.withUnsafeMutableBytes { try file.read(into: $0, at: 6_000_001) }
            #expect(piece == Array(Self.bytes[6_000_001..<6_300_001]))
            #expect(throws: StoreError.self) {
                try piece.withUnsafeMutableBytes { try file.read(into: $0, at: Self.bytes.count - 10) }
            }
            try store.close()
        }
    }
}
