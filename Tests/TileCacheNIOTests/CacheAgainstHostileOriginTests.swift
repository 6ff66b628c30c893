import Foundation
import HTTPTypes
import NIOCore
import Testing
import TileCache
import TileCacheNIO
import TileCacheTesting
import TileStore

/// The whole cache against a real server that misbehaves: each time a named error or the stale tile, never a wrong one.
@Suite(.timeLimit(.minutes(60)), .serialized)
struct CacheAgainstHostileOriginTests {
    /// What a server does wrong, and what the caller of the cache is told if nothing stale can help.
    struct Offence: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var code: TileCacheError.Code
        var answer: @Sendable (OriginRequest) -> LocalAnswer
        /// How long the request may take: short only where the server never comes to an end.
        var timeout: Duration

        init(
            _ name: String, _ code: TileCacheError.Code, timeout: Duration = .seconds(300),
            _ answer: @escaping @Sendable (OriginRequest) -> LocalAnswer
        ) {
            testDescription = name
            self.code = code
            self.answer = answer
            self.timeout = timeout
        }
    }

    static let offences: [Offence] = [
        Offence("hangs", .noAnswer, timeout: .seconds(1)) { _ in .raw(.hang) },
        Offence("drips", .noAnswer, timeout: .seconds(1)) { _ in
            .raw(
                .text("HTTP/1.1 200 OK\nContent-Type: image/png\nContent-Length: 99999\n\n"),
                .drip(7, every: .milliseconds(20)))
        },
        Offence("resets", .noAnswer) { _ in
            .raw(.text("HTTP/1.1 200 OK\nContent-Length: 900\n\n\u{1}PNG"), .reset)
        },
        Offence("ends early", .noAnswer) { _ in .raw(.text("HTTP/1.1 200 OK\nContent-Length: 900\n\nPNG"), .close) },
        Offence("sends 10 GB", .noAnswer) { _ in
            .raw(.text("HTTP/1.1 200 OK\n\n"), .endless([UInt8](repeating: 7, count: 65_536)))
        },
        Offence("redirects in a circle", .badRedirect) { request in
            LocalAnswer(.found, [.location: request.path])
        },
        Offence("redirects to nowhere", .badRedirect) { _ in LocalAnswer(.found) },
        Offence("redirects to a file", .badRedirect) { _ in LocalAnswer(.found, [.location: "file:///etc/passwd"]) },
        Offence("sends a megabyte of header fields", .noAnswer) { _ in
            .raw(
                .text(
                    "HTTP/1.1 200 OK\n"
                        + String(repeating: "X-Padding: \(String(repeating: "a", count: 990))\n", count: 1000) + "\n"))
        },
        Offence("sends HTML with 200", .badBody) { _ in
            LocalAnswer(.ok, [.contentType: "image/png"], text: "<!DOCTYPE html><p>please log in</p>")
        },
        Offence("sends nothing with 200", .badBody) { _ in LocalAnswer(.ok, [.contentType: "image/png"]) },
        Offence("sends text", .badBody) { _ in LocalAnswer(.ok, [.contentType: "text/plain"], text: "no tile") },
        Offence("says 304 to everything", .badStatus) { _ in LocalAnswer(.notModified, [.eTag: "\"other\""]) },
        Offence("speaks no HTTP", .noAnswer) { _ in .raw(.bytes(Array("SSH-2.0-OpenSSH_9\r\n".utf8)), .close) },
        Offence("refuses", .badStatus) { _ in LocalAnswer(.forbidden) },
        Offence("breaks", .badStatus) { _ in LocalAnswer(.internalServerError) },
    ]

    private static let png: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 1, 2, 3]

    /// A cache in a folder of its own, and a source at an origin that is told what to answer.
    private final class Rig: Sendable {
        let folder: String
        let cache: TileCache
        let transport = AsyncHTTPClientTransport()
        let origin: LocalOrigin
        private let answer: Locked<@Sendable (OriginRequest) -> LocalAnswer>

        init() async throws {
            let made = FileManager.default.temporaryDirectory.appendingPathComponent("rig-\(UUID().uuidString)").path
            folder = made
            var configuration = TileCacheConfiguration()
            configuration.backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(2))
            cache = try TileCache(at: made, transport: transport, configuration: configuration)
            let answer = Locked<@Sendable (OriginRequest) -> LocalAnswer>({ _ in LocalAnswer(.notFound) })
            self.answer = answer
            origin = try await LocalOrigin.start { request in answer.withLock { $0 }(request) }
        }

        func set(_ next: @escaping @Sendable (OriginRequest) -> LocalAnswer) { answer.withLock { $0 = next } }

        func source(_ base: String? = nil, timeout: Duration = .seconds(300)) throws -> TileSource {
            var source = try TileSource("t", template: "\(base ?? origin.url)/{z}/{x}/{y}.png")
            source.timeout = timeout
            source.bodyLimit = 1 << 20
            source.attempts = 1
            return source
        }

        func close() async throws {
            await transport.shutdown()
            try cache.close()
            try await origin.stop()
            try FileManager.default.removeItem(atPath: folder)
        }
    }

    @Test(arguments: offences)
    func withoutAnythingStoredItIsANamedError(offence: Offence) async throws {
        let rig = try await Rig()
        rig.set(offence.answer)
        let error = await #expect(throws: TileCacheError.self) {
            try await rig.cache.tile(rig.source(timeout: offence.timeout), z: 3, x: 1, y: 2)
        }
        #expect(error?.code == offence.code)
        #expect(error?.message.contains("t/3/1/2") == true)
        #expect(try rig.cache.store.statistics().entries == 0)
        #expect(try rig.cache.store.verify().ok)
        // The server has come to its senses, and the tile comes.
        rig.set { _ in LocalAnswer(.ok, [.contentType: "image/png"], body: Self.png) }
        rig.cache.forgetFailures()
        #expect(try await rig.cache.tile(rig.source(), z: 3, x: 1, y: 2)?.data == Data(Self.png))
        try await rig.close()
    }

    @Test(arguments: offences)
    func aStaleTileStays(offence: Offence) async throws {
        let rig = try await Rig()
        let fields: HTTPFields = [.contentType: "image/png", .cacheControl: "max-age=0", .eTag: "\"a\""]
        rig.set { _ in LocalAnswer(.ok, fields, body: Self.png) }
        #expect(try await rig.cache.tile(rig.source(), z: 3, x: 1, y: 2)?.origin == .network)
        rig.set(offence.answer)
        let tile = try await rig.cache.tile(rig.source(timeout: offence.timeout), z: 3, x: 1, y: 2)
        #expect(tile?.data == Data(Self.png))
        #expect(tile?.origin == .stale(.error))
        #expect(try rig.cache.store.read(TileKey("t/3/1/2"))?.data == Data(Self.png))
        try await rig.close()
    }

    /// A body that changes under the same tag is the server's fault: what it sends in full counts, and nothing is mixed.
    @Test func aBodyThatChangesUnderItsTagReplacesTheOldOne() async throws {
        let rig = try await Rig()
        let fields: HTTPFields = [.contentType: "image/png", .cacheControl: "max-age=0", .eTag: "\"same\""]
        rig.set { _ in LocalAnswer(.ok, fields, body: Self.png) }
        _ = try await rig.cache.tile(rig.source(), z: 3, x: 1, y: 2)
        let changed = Self.png + [9, 9, 9]
        rig.set { _ in LocalAnswer(.ok, fields, body: changed) }
        #expect(try await rig.cache.tile(rig.source(), z: 3, x: 1, y: 2)?.data == Data(changed))
        #expect(try rig.cache.store.read(TileKey("t/3/1/2"))?.data == Data(changed))
        #expect(try rig.cache.store.verify().ok)
        try await rig.close()
    }

    @Test func aNameThatNobodyHasIsAnError() async throws {
        let rig = try await Rig()
        let error = await #expect(throws: TileCacheError.self) {
            try await rig.cache.tile(rig.source("http://no-such-host.invalid"), z: 0, x: 0, y: 0)
        }
        #expect(error?.code == .noAnswer)
        #expect((error?.cause as? TransportError)?.code == .nameNotFound)
        try await rig.close()
    }

    @Test func aCertificateThatNobodyTrustsIsAnError() async throws {
        guard let certificate = try TestCertificate() else {
            print("skipped: there is no openssl command to make a certificate with")
            return
        }
        let rig = try await Rig()
        let origin = try await LocalOrigin.start(certificate: certificate) { _ in
            LocalAnswer(.ok, [.contentType: "image/png"], body: Self.png)
        }
        let error = await #expect(throws: TileCacheError.self) {
            try await rig.cache.tile(rig.source(origin.url), z: 0, x: 0, y: 0)
        }
        #expect((error?.cause as? TransportError)?.code == .tls)
        try await origin.stop()
        try await rig.close()
    }

    @Test func aPortWhereNobodyListensIsAnError() async throws {
        let rig = try await Rig()
        try await rig.origin.stop()
        let error = await #expect(throws: TileCacheError.self) {
            try await rig.cache.tile(rig.source(), z: 0, x: 0, y: 0)
        }
        #expect((error?.cause as? TransportError)?.code == .connection)
        try await rig.close()
    }

    @Test func theTileComesAlthoughTheFolderIsGone() async throws {
        let rig = try await Rig()
        rig.set { _ in LocalAnswer(.ok, [.contentType: "image/png"], body: Self.png) }
        _ = try await rig.cache.tile(rig.source(), z: 1, x: 0, y: 0)
        try FileManager.default.removeItem(atPath: rig.folder)
        let tile = try await rig.cache.tile(rig.source(), z: 1, x: 1, y: 0)
        #expect(tile?.data == Data(Self.png) && tile?.origin == .network)
        await rig.transport.shutdown()
        try? rig.cache.close()
        try await rig.origin.stop()
    }

    @Test func aThousandAskersAreOneRequest() async throws {
        let rig = try await Rig()
        let gate = Gate()
        rig.set { _ in LocalAnswer(.ok, [.contentType: "image/png"], body: Self.png, gate: gate) }
        let source = try rig.source()
        let cache = rig.cache
        let count = try await withThrowingTaskGroup(of: Data?.self) { group in
            for _ in 0..<1000 {
                group.addTask { try await cache.tile(source, z: 9, x: 5, y: 5)?.data }
            }
            await rig.origin.arrivals(1)
            gate.open()
            return try await group.reduce(into: 0) { if $1 == Data(Self.png) { $0 += 1 } }
        }
        #expect(count == 1000)
        #expect(rig.origin.requests.count == 1)
        try await rig.close()
    }

    /// Validators and identity survive a server that goes away and comes back.
    @Test func offlineAndBackAgain() async throws {
        let rig = try await Rig()
        rig.set { request in
            LocalAnswer(
                .ok, [.contentType: "image/png", .cacheControl: "max-age=0", .eTag: "\"a\""], body: Self.png
            ).conditional(to: request)
        }
        let source = try rig.source()
        _ = try await rig.cache.tile(source, z: 2, x: 1, y: 1)
        try await rig.origin.stop()
        for _ in 0..<10 {
            #expect(try await rig.cache.tile(source, z: 2, x: 1, y: 1)?.origin == .stale(.error))
        }
        try await rig.origin.restart()
        rig.cache.forgetFailures()
        #expect(try await rig.cache.tile(source, z: 2, x: 1, y: 1)?.origin == .revalidated)
        try await rig.close()
    }
}
