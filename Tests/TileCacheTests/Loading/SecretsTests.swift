import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// Tokens, device names and regional hosts reach the server and nothing else.
@Suite(.timeLimit(.minutes(60)))
struct SecretsTests {
    private let secret = "s3cr3t-t0ken"

    private func source(_ lab: CacheLab) throws -> TileSource {
        let secret = secret
        return try lab.source {
            $0.attempts = 1
            $0.headers[.authorization] = "Bearer \(secret)"
            $0.prepare = { request, _ in
                request.path = (request.path ?? "") + "?key=\(secret)"
                request.authority = "user:\(secret)@eu.tiles.example"
                if let name = HTTPField.Name("X-Device") { request.headerFields[name] = secret }
            }
        }
    }

    @Test func theHookChangesTheRequestAndNotTheKey() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        let tile = try #require(try await lab.load(from: source(lab)))
        #expect(try tile.key == lab.key())
        let head = lab.transport.requests[0].head
        #expect(head.path?.hasSuffix("?key=\(secret)") == true && head.headerFields[.authorization] != nil)
    }

    @Test func secretsAreInNoFileOfTheCache() async throws {
        let lab = try CacheLab()
        let source = try source(lab)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""]))
        for x in 1...5 { try await lab.load(x, from: source) }
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(304))
        for x in 1...5 { try await lab.load(x, from: source) }
        lab.transport.answer(.answer(404))
        try await lab.load(6, from: source)
        _ = try lab.store.compact()
        try lab.cache.close()
        let files = lab.bytesOnDisk()
        #expect(files.count > 3)
        for needle in [secret, "Bearer", "X-Device", "eu.tiles"] {
            for (path, bytes) in files {
                #expect(Data(bytes).range(of: Data(needle.utf8)) == nil, "\(needle) in \(path)")
                #expect(!path.contains(needle))
            }
        }
    }

    @Test func secretsAreInNoErrorAndNoEvent() async throws {
        let lab = try CacheLab()
        let source = try source(lab)
        let answers: [TransportResponse] = [
            .answer(500), .answer(403), .answer(304), .answer(200, [:], body: Data("<html>".utf8)),
            .answer(302, [.location: "/\(secret)"]), .answer(302, [.location: "http://x/\(secret)"]),
            .answer(302), .answer(200, [.contentLength: "9999"]),
        ]
        var texts: [String] = []
        for (x, answer) in answers.enumerated() {
            lab.transport.answer(answer)
            lab.cache.forgetFailures()
            let failure = try #require(await lab.failure(x, from: source))
            texts += ["\(failure)", failure.message, String(reflecting: failure), failure.localizedDescription]
            texts.append("\(try #require(await lab.failure(x, from: source)))")
        }
        texts += lab.events.map { "\($0)" } + ["\(source)", String(reflecting: source)]
        for text in texts { #expect(!text.contains(secret), "\(text)") }
    }

    @Test func redirectsElsewhereCarryNone() async throws {
        let lab = try CacheLab()
        let secret = secret
        let source = try lab.source {
            $0.headers[.authorization] = "Bearer \(secret)"
            $0.headers[.userAgent] = "my-app"
            $0.prepare = { request, _ in
                if let name = HTTPField.Name("X-Device") { request.headerFields[name] = secret }
            }
        }
        lab.transport.script { request in
            request.head.authority == "tiles.example"
                ? .answer(307, [.location: "https://evil.example/x"]) : .answer(200)
        }
        try await lab.load(from: source)
        let fields = lab.transport.requests[1].head.headerFields
        #expect(fields.allSatisfy { !$0.value.contains(secret) } && fields[.userAgent] == "my-app")
    }

    @Test func theHooksErrorIsTheTilesError() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.prepare = { _, _ in throw BoomError() } }
        let failure = await lab.failure(from: source)
        #expect(failure?.code == .hookFailed && failure?.cause is BoomError)
        // One that has been cancelled by itself is no cancellation of the caller.
        let odd = try lab.source { $0.prepare = { _, _ in throw CancellationError() } }
        #expect(await lab.failure(from: odd)?.code == .hookFailed)
        #expect(lab.transport.count == 0)
        // A stale tile is better than that.
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        #expect(try await lab.load(from: source)?.origin == .stale(.error))
    }

    @Test func everyRequestSaysWhoAsksAndWhatFor() async throws {
        let lab = try CacheLab { $0.userAgent = "lab/1 (mail@example.org)" }
        lab.transport.answer(.answer(200))
        let source = try lab.source {
            $0.headers[.ifNoneMatch] = "\"mine\""
            $0.headers[.range] = "bytes=0-1"
            $0.headers[.acceptLanguage] = "de"
        }
        try await lab.load(from: source)
        let fields = lab.transport.requests[0].head.headerFields
        #expect(fields[.userAgent] == "lab/1 (mail@example.org)" && fields[.acceptEncoding] == "identity")
        #expect(fields[.accept]?.contains("image/png") == true && fields[.acceptLanguage] == "de")
        #expect(fields[.ifNoneMatch] == nil && fields[.range] == nil)
        #expect(UserAgent.standard.contains("swift-tile-cache/"))
    }
}
