import Foundation
import NIOConcurrencyHelpers
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import ObjectStorage

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// The client against a real server, which `make check-s3` starts; it is named by the environment.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads, .onBucketServer)
struct S3ServerTests {
    /// A prefix of this test's own, so that one server can serve it twice.
    private let prefix = "test-\(UUID().uuidString)/"

    private func withServer(
        _ server: BucketServer? = BucketServer.named(), bucket: String? = nil, secret: String? = nil,
        now: @escaping @Sendable () -> Timestamp = { Timestamp(Date()) }, limits: (inout S3Limits) -> Void = { _ in },
        _ body: (S3Client, any EventLoop) async throws -> Void
    ) async throws {
        guard let server else { return }
        try await withClient(
            server.url, bucket: bucket ?? server.bucket, access: server.accessKey, secret: secret ?? server.secretKey,
            token: nil,
            now: now, limits: limits, body)
    }

    /// Does something to each of many values, eight at a time.
    private func forAll<T: Sendable>(_ values: [T], _ body: @escaping @Sendable (T) async throws -> Void) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (index, value) in values.enumerated() {
                if index >= 8 { try await group.next() }
                group.addTask { try await body(value) }
            }
            try await group.waitForAll()
        }
    }

    @Test func keepsAnObjectUntilItIsDeleted() async throws {
        try await withServer { client, _ in
            let key = prefix + "tile.png"
            #expect(try await client.send(.get(key)).isMissing)
            #expect(try await client.send(.head(key)).isMissing)
            for bytes in [ByteBuffer(string: "first"), ByteBuffer(), ByteBuffer(repeating: 0xFE, count: 3_000_000)] {
                let metadata = try S3Metadata(["url": Array("a b%+ü".utf8), "coding": Array("gzip".utf8)])
                let written = try await client.send(.put(key, bytes, contentType: "image/png", metadata: metadata))
                let read = try #require(try await client.send(.get(key)).object)
                #expect(read.bytes == bytes && read.metadata == metadata)
                #expect(read.entityTag == written.entityTag && read.date != nil && written.date != nil)
                let head = try #require(try await client.send(.head(key)).object)
                #expect(head.metadata == metadata && head.size == Int64(bytes.readableBytes))
                #expect(try await client.send(.get(key, unlessMatching: read.entityTag)).isNotModified)
            }
            try await client.send(.delete(key))
            #expect(try await client.send(.get(key)).isMissing)
            // What is gone can be deleted again.
            try await client.send(.delete(key))
        }
    }

    @Test func takesEveryKey() async throws {
        let full = prefix + String(repeating: "é", count: (S3Bucket.keyLimit - prefix.utf8.count) / 2)
        let keys =
            [
                "a b", " a ", "a+b", "a%b", "a%20b", "%", "a?b", "a#b", "a//b", "/a", "a/", "//", "ü", "u\u{308}",
                "文字/🗺", "a&b=c",
                "<a>\"'", "a\\b", "a:b;c,d", "~*()!@$^`{|}[]", "a..b", "a/.b", "-_.", "\u{7F}", "\u{80}", "\u{FFFD}",
                "a\tb", "a\nb",
            ].map { prefix + $0 } + [full + String(repeating: "x", count: S3Bucket.keyLimit - full.utf8.count)]
        try await withServer { client, _ in
            for key in keys {
                let bytes = ByteBuffer(string: "at \(key)")
                do {
                    _ = try await client.send(.put(key, bytes))
                    #expect(try await client.send(.get(key)).object?.bytes == bytes, "\(key.debugDescription)")
                    #expect(try await client.send(.head(key)).object != nil, "\(key.debugDescription)")
                } catch { Issue.record("\(key.debugDescription): \(error)") }
            }
            let listed = try await client.send(.list(prefix: prefix)).items.map(\.key)
            #expect(
                Set(listed.map { Array($0.utf8) }) == Set(keys.map { Array($0.utf8) }) && listed.count == keys.count)
            #expect(try await client.send(.deleteObjects(keys)) == [])
            #expect(try await client.send(.list(prefix: prefix)).items == [])
        }
    }

    // XML has no way to write them; they can be written, read and deleted singly.
    @Test func takesKeysWithControlCharacters() async throws {
        try await withServer { client, _ in
            let key = prefix + "a\u{1}b"
            _ = try await client.send(.put(key, ByteBuffer(string: "tile")))
            #expect(try await client.send(.get(key)).object?.bytes == ByteBuffer(string: "tile"))
            #expect(try await client.send(.list(prefix: prefix)).items.map(\.key) == [key])
            try await client.send(.delete(key))
            #expect(try await client.send(.list(prefix: prefix)).items == [])
        }
    }

    @Test func keepsMetadataAtItsBounds() async throws {
        try await withServer { client, _ in
            let every = (0...255).map { UInt8($0) }
            let parts = stride(from: 0, to: 256, by: 64).map { Array(every[$0..<($0 + 64)]) }
            let sets: [[String: [UInt8]]] = [
                Dictionary(uniqueKeysWithValues: (0..<8).map { ("a\($0)", [UInt8](repeating: 0x78, count: 254)) }),
                Dictionary(uniqueKeysWithValues: parts.enumerated().map { ("part-\($0.offset)", $0.element) }),
                ["one": [UInt8](repeating: 0, count: 85)], ["b": [0x20]], ["b": Array(" x  y ".utf8)],
            ]
            for values in sets {
                let metadata = try S3Metadata(values)
                _ = try await client.send(.put(prefix + "m", ByteBuffer(string: "x"), metadata: metadata))
                #expect(try await client.send(.get(prefix + "m")).object?.metadata == metadata)
                #expect(try await client.send(.head(prefix + "m")).object?.metadata == metadata)
            }
            try await client.send(.delete(prefix + "m"))
        }
    }

    @Test func listsAcrossPagesAndDeletesAThousand() async throws {
        try await withServer(limits: { $0.connections = 8 }) { client, _ async throws in
            let keys = (0..<1000).map { prefix + "\($0 % 10)/\($0) &" }
            try await forAll(keys) { _ = try await client.send(.put($0, ByteBuffer(string: $0))) }
            var (listed, token, pages): ([String], String?, Int) = ([], nil, 0)
            repeat {
                let page = try await client.send(.list(prefix: prefix, continuing: token, most: 300))
                listed += page.items.map(\.key)
                #expect(page.items.count <= 300)
                (token, pages) = (page.next, pages + 1)
            } while token != nil && pages < 10
            #expect(pages == 4 && listed == keys.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) })
            let folders = try await client.send(.list(prefix: prefix, delimiter: "/"))
            #expect(folders.items.isEmpty && folders.commonPrefixes == (0..<10).map { prefix + "\($0)/" })
            let rest = try await client.send(.list(prefix: prefix, after: listed[989]))
            #expect(rest.items.map(\.key) == Array(listed[990...]) && rest.next == nil)
            #expect(try await client.send(.deleteObjects(keys)) == [])
            #expect(try await client.send(.list(prefix: prefix)).items == [])
        }
    }

    @Test func refusesBytesThatAreNotTheirDigest() async throws {
        try await withServer { client, _ in
            let other = Array("other".utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
            let error = try await failure {
                _ = try await client.send(.put(prefix + "k", ByteBuffer(string: "tile"), digest: other))
            }
            // Servers name it differently.
            #expect(error?.code == .refused, "\(String(describing: error))")
            #expect(try await client.send(.get(prefix + "k")).isMissing)
        }
    }

    @Test func tellsAWrongSecret() async throws {
        try await withServer(secret: "wrong-secret") { client, _ async throws in
            let error = try #require(try await failure { _ = try await client.send(.get(prefix + "k")) })
            #expect(
                error.code == .refused && error.serverCode == "SignatureDoesNotMatch"
                    && !error.message.contains("wrong-secret"))
            let put = try #require(
                try await failure { _ = try await client.send(.put(prefix + "k", ByteBuffer(string: "x"))) })
            #expect(put.code == .refused)
            #expect(try await failure { _ = try await client.send(.head(prefix + "k")) }?.code == .refused)
        }
    }

    @Test func tellsAMissingBucket() async throws {
        try await withServer(bucket: "there-is-no-such-bucket") { client, _ async throws in
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .missingBucket)
            #expect(try await failure { _ = try await client.send(.list()) }?.code == .missingBucket)
        }
    }

    @Test(arguments: [-3600.0, 3600])
    func tellsAWrongClock(by seconds: Double) async throws {
        try await withServer(now: { Timestamp(Date() + seconds) }) { client, _ async throws in
            for operation in try [S3Operation.get("k"), .head("k")] {
                let error = try #require(try await failure { _ = try await client.send(operation) })
                #expect(error.code == .clock && error.message.contains(" GMT, the server's says "), "\(error)")
            }
        }
    }

    // MARK: A server that is killed or stopped

    @Test func survivesAServerThatIsKilledInMidAnswer() async throws {
        guard let server = BucketServer.named(), let process = server.process else { return }
        let key = prefix + "large"
        try await withServer(server, limits: { $0.objectBytes = 64 << 20 }) { client, loop async throws in
            let bytes = ByteBuffer(repeating: 7, count: 48 << 20)
            _ = try await client.send(.put(key, bytes))
            // Its answer is held back once some of it has come, so that the rest is still to be sent.
            let call = NIOLoopBoundBox<S3Call?>.makeEmptyBox(valueType: S3Call.self, eventLoop: loop)
            let ended = NIOLockedValueBox<Result<S3Call.Answered, S3Error>?>(nil)
            let request = try S3Operation.get(key).request
            try await loop.submit {
                call.value = client.start(request, "GET", on: loop) { result in ended.withLockedValue { $0 = result } }
            }.get()
            while try await loop.submit({
                guard let call = call.value, call.received > 0 else { return true }
                call.pause()
                return false
            }).get() {}
            #expect(kill(process, SIGKILL) == 0)
            while server.process == process { try await loop.scheduleTask(in: .milliseconds(10)) {}.futureResult.get() }
            try await loop.submit { call.value?.resume() }.get()
            // It broke off, and was asked for once more, from the server that is there again.
            while ended.withLockedValue({ $0 }) == nil { try await loop.submit {}.get() }
            #expect(try ended.withLockedValue { $0 }?.get().answer.body == bytes)
            try await client.send(.delete(key))
        }
    }

    @Test func timesOutWhileTheServerIsStopped() async throws {
        guard let server = BucketServer.named(), let process = server.process else { return }
        let key = prefix + "k"
        try await withServer(server) { client, _ in _ = try await client.send(.put(key, ByteBuffer(string: "tile"))) }
        #expect(kill(process, SIGSTOP) == 0)
        do {
            // The system still takes connections for it.
            try await withServer(server, limits: { $0.request = .seconds(1) }) { client, _ async throws in
                let start = NIODeadline.now()
                #expect(try await failure { _ = try await client.send(.get(key)) }?.code == .timeout)
                #expect(NIODeadline.now() - start >= .seconds(1))
                #expect(
                    try await failure { _ = try await client.send(.put(key, ByteBuffer(string: "x"))) }?.code
                        == .timeout)
            }
        } catch { Issue.record(error) }
        #expect(kill(process, SIGCONT) == 0)
        try await withServer(server) { client, _ async throws in
            #expect(try await client.send(.get(key)).object != nil)
            try await client.send(.delete(key))
        }
    }
}
