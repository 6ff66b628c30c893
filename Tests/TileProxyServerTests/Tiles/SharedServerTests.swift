import Foundation
import HTTPCaching
import HTTPTypes
import NIOCore
import NIOPosix
import ObjectStorage
import SharedTier
import Testing
import TileCache
import TileStore
import TileStoreTesting

@testable import TileProxyServer

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// Two proxies and a bucket of a real server, which `make check-s3` starts; it is named by the environment.
@Suite(.timeLimit(.minutes(60)), .serialized)
struct SharedServerTests {
    private struct Server {
        let url: String
        let environment = ProcessInfo.processInfo.environment

        init?() {
            guard let url = ProcessInfo.processInfo.environment["TILE_TEST_S3"] else {
                print("skipped: no S3 server; `make check-s3` starts one (TILE_TEST_S3)")
                return nil
            }
            self.url = url
        }

        func client() throws -> S3Client {
            var limits = S3Limits()
            // On a busy machine nothing fails for want of time.
            (limits.connect, limits.request) = (.hours(1), .hours(1))
            return S3Client(
                try S3Bucket(endpoint: url, name: environment["TILE_TEST_S3_BUCKET"] ?? "tiles", region: "us-east-1"),
                try S3Credentials(
                    accessKey: environment["TILE_TEST_S3_ACCESS_KEY"] ?? "",
                    secretKey: environment["TILE_TEST_S3_SECRET_KEY"] ?? ""), limits: limits,
                group: MultiThreadedEventLoopGroup.singleton, tls: nil, now: { Timestamp(Date()) })
        }

        /// Stops the server's process, or lets it go on.
        func signal(_ number: Int32) throws {
            let file = try #require(environment["TILE_TEST_S3_PID"])
            let id = try #require(pid_t(try String(contentsOfFile: file, encoding: .utf8)))
            #expect(kill(id, number) == 0)
        }
    }

    private static func tile(_ request: HTTPRequest) -> TileLab.Answer {
        let fields: HTTPFields = [.cacheControl: "max-age=600", .eTag: "\"v1\"", .contentType: "image/png"]
        return TileLab.Answer(fields: fields, body: TileLab.png("tile \(request.path ?? "")"))
    }

    /// Runs a test with two proxies below a prefix of their own, whose clocks are not the bucket's.
    private func withTwo(_ body: (Server, S3Client, TileLab, TileLab, SourceConfiguration) async throws -> Void)
        async throws
    {
        guard let server = Server() else { return }
        let client = try server.client()
        // Names of sources tell tests of one bucket apart.
        let name = "s" + UUID().uuidString.prefix(8).lowercased()
        let source = try SourceConfiguration(argument: "\(name)=https://tiles.example/{z}/{x}/{y}.png")
        let origin: @Sendable (HTTPRequest) async throws -> TileLab.Answer = { Self.tile($0) }
        let a = try await TileLab([source], bucket: client, timeout: .seconds(3600), origin: origin)
        let b = try await TileLab([source], bucket: client, timeout: .seconds(3600), origin: origin)
        let result: Result<Void, any Error>
        do {
            for lab in [a, b] { await lab.readSharedIndex() }
            result = .success(try await body(server, client, a, b, source))
        } catch { result = .failure(error) }
        try await a.end()
        try await b.end()
        await client.shutdown()
        try result.get()
    }

    private func isWritten(_ lab: TileLab) async {
        while lab.shared?.figures.waiting != 0 { await Task.yield() }
    }

    @Test func aPyramidIsServedByTheOtherWithTheOriginSwitchedOff() async throws {
        try await withTwo { _, _, a, b, source in
            var bodies: [String: Data] = [:]
            for z in 0...3 {
                for x in 0..<(1 << z) {
                    for y in 0..<(1 << z) {
                        let path = "/tiles/\(source.name)/\(z)/\(x)/\(y)"
                        bodies[path] = try await a.get(path).body
                    }
                }
            }
            await isWritten(a)
            #expect(a.shared?.figures.stores == 85 && a.shared?.figures.dropped == 0)
            b.origin.become { _ in throw CancellationError() }
            for (path, body) in bodies {
                let answer = try await b.get(path)
                #expect(answer.status == 200 && answer.body == body && answer[.eTag] == "\"v1\"")
            }
            #expect(b.origin.count == 0 && b.shared?.figures.hits == 85)
        }
    }

    /// `tilegc shared` reaches both proxies, counts and sweeps.
    @Test func anExpiryReachesBothAndASweepRemoves() async throws {
        try await withTwo { server, client, a, b, source in
            let name = source.name
            let path = "/tiles/\(name)/3/1/1"
            _ = try await a.get(path)
            await isWritten(a)
            _ = try await b.get(path)
            #expect(a.origin.count == 1 && b.origin.count == 0)
            let writer = MarkWriter(
                client, ObjectNames(prefix: ""), on: MultiThreadedEventLoopGroup.singleton.next(),
                now: { Timestamp(Date()) }, ticks: CacheClock.system.ticks,
                sleep: { try await Task.sleep(nanoseconds: $0) })
            try await writer.add { known, now in
                try Marks.expiring(name, zooms: 3...3, box: nil, after: known, at: now, random: 7)
            }
            // The mark is about what was asked for up to two seconds after it.
            for lab in [a, b] {
                lab.clock.advance(seconds: 5)
                await lab.readSharedIndex()
            }
            _ = try await a.get(path)
            #expect(a.origin.count == 2)
            await isWritten(a)
            let sweep = BucketSweep(client, ObjectNames(prefix: ""), source: name)
            let counted = try await sweep.run(deletingBefore: nil, unless: { false })
            #expect(counted.objects == 1 && counted.bytes > 8 && counted.deleted == 0)
            let none = try await sweep.run(deletingBefore: Timestamp(Date()).adding(seconds: -3600), unless: { false })
            #expect(none.deleted == 0)
            let stopped = try await sweep.run(
                deletingBefore: Timestamp(Date()).adding(seconds: 3600), most: 0, unless: { false })
            #expect(stopped.deleted == 0 && stopped.wasStopped)
            let swept = try await sweep.run(deletingBefore: Timestamp(Date()).adding(seconds: 3600), unless: { false })
            #expect(swept.deleted == 1 && swept.failed == 0 && !swept.wasStopped)
            #expect(try await sweep.run(deletingBefore: nil, unless: { false }).objects == 0)
        }
    }

    @Test func damagedAndForeignObjectsAreNotServed() async throws {
        try await withTwo { _, client, a, b, source in
            let shared = try #require(source.sharedSource)
            let names = ObjectNames(prefix: "")
            func name(_ x: Int) throws -> String {
                try #require(names.name(of: try TileKey("\(source.name)/3/\(x)/0"), shared, .first))
            }
            for x in 0..<4 { _ = try await a.get("/tiles/\(source.name)/3/\(x)/0") }
            await isWritten(a)
            guard case .object(let one) = try await client.send(.get(try name(0))) else {
                Issue.record("no object")
                return
            }
            var half = one.bytes
            half.moveWriterIndex(to: half.writerIndex / 2)
            _ = try await client.send(.put(try name(0), half, metadata: one.metadata))
            _ = try await client.send(.put(try name(1), one.bytes, metadata: one.metadata))
            _ = try await client.send(.put(try name(2), ByteBuffer(string: "<html>")))
            try await client.send(.delete(try name(3)))
            for x in 0..<4 {
                let answer = try await b.get("/tiles/\(source.name)/3/\(x)/0")
                #expect(answer.body == TileLab.png("tile /3/\(x)/0.png"))
            }
            #expect(b.origin.count == 4 && b.shared?.figures.errors == 3 && b.shared?.figures.misses == 1)
        }
    }

    /// The server accepts connections and says nothing.
    @Test func aFrozenServerLosesNoAnswer() async throws {
        try await withTwo { server, _, a, _, source in
            guard server.environment["TILE_TEST_S3_PID"] != nil else { return }
            let quick = try await TileLab(
                [source], bucket: server.client(), timeout: .milliseconds(20), origin: { Self.tile($0) })
            await quick.readSharedIndex()
            try server.signal(SIGSTOP)
            for x in 0..<8 {
                let answer = try await quick.get("/tiles/\(source.name)/3/\(x)/1")
                #expect(answer.status == 200)
            }
            #expect(quick.origin.count == 8)
            #expect(quick.shared?.figures.errors == Breaker.mostFailures && quick.shared?.figures.isOpen ?? false)
            try server.signal(SIGCONT)
            _ = try await a.get("/tiles/\(source.name)/3/0/2")
            try await quick.end()
        }
    }
}

extension TileLab {
    /// Reads the bucket's index.
    func readSharedIndex() async {
        guard let shared else { return }
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        await withCheckedContinuation { done in loop.execute { shared.poll(on: loop) { done.resume() } } }
    }
}
