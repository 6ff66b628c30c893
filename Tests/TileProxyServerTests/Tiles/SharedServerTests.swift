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
@Suite(.timeLimit(.minutes(60)), .serialized, .onBucketServer)
struct SharedServerTests {
    /// A client that has all the time in the world: on a busy machine nothing fails for want of it.
    private func client(_ server: BucketServer, bucket: String? = nil) throws -> S3Client {
        var limits = S3Limits()
        (limits.connect, limits.request) = (.hours(1), .hours(1))
        return S3Client(
            try S3Bucket(endpoint: server.url, name: bucket ?? server.bucket, region: "us-east-1"),
            try S3Credentials(accessKey: server.accessKey, secretKey: server.secretKey), limits: limits,
            group: MultiThreadedEventLoopGroup.singleton, tls: nil, now: { Timestamp(Date()) })
    }

    private static func tile(_ request: HTTPRequest) -> TileLab.Answer {
        let fields: HTTPFields = [.cacheControl: "max-age=600", .eTag: "\"v1\"", .contentType: "image/png"]
        return TileLab.Answer(fields: fields, body: TileLab.png("tile \(request.path ?? "")"))
    }

    /// Runs a test with two proxies below a prefix of their own, whose clocks are not the bucket's.
    private func withTwo(
        bucket: (BucketServer) -> String? = { $0.bucket }, timeout: Duration = .seconds(3600),
        _ body: (BucketServer, S3Client, TileLab, TileLab, SourceConfiguration) async throws -> Void
    ) async throws {
        guard let server = BucketServer.named(), let bucket = bucket(server) else { return }
        let client = try client(server, bucket: bucket)
        // Names of sources tell tests of one bucket apart.
        let name = "s" + UUID().uuidString.prefix(8).lowercased()
        let source = try SourceConfiguration(argument: "\(name)=https://tiles.example/{z}/{x}/{y}.png")
        let origin: @Sendable (HTTPRequest) async throws -> TileLab.Answer = { Self.tile($0) }
        let a = try await TileLab([source], bucket: client, timeout: timeout, origin: origin)
        let b = try await TileLab([source], bucket: client, timeout: timeout, origin: origin)
        for lab in [a, b] { isOnTime(lab) }
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

    /// A bucket that says another time than the proxy is left alone: here it says the right one.
    private func isOnTime(_ lab: TileLab) {
        lab.clock.advance(seconds: Int64(Date().timeIntervalSince1970) - lab.clock.now.seconds)
    }

    private func isWritten(_ lab: TileLab) async {
        while lab.shared?.figures.waiting != 0 { await Task.yield() }
    }

    /// The same after failures, when writes rest for as long as the lab's clock says.
    private func isWrittenOrDropped(_ lab: TileLab) async {
        for _ in 0..<60 where lab.shared?.figures.waiting != 0 {
            lab.clock.advance(seconds: 1)
            await lab.readSharedIndex()
        }
        await isWritten(lab)
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
            guard server.process != nil else { return }
            let patient = try client(server)
            let quick = try await TileLab(
                [source], bucket: patient, timeout: .milliseconds(20), origin: { Self.tile($0) })
            isOnTime(quick)
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
            await patient.shutdown()
        }
    }

    // MARK: Under load

    /// Asks a proxy for all tiles of zooms 4 and 5, eight at a time, and does something while they are under way.
    ///
    /// - Parameter midway: Called once some of them have been answered.
    private func load(
        _ lab: TileLab, _ name: SourceName, columns: Range<Int> = 0..<32,
        midway: @escaping @Sendable () async throws -> Void
    ) async throws {
        let answered = Locked(0)
        try await withThrowingTaskGroup(of: Void.self) { group in
            var begun = 0
            for x in columns {
                for y in 0..<8 {
                    if begun >= 8 { try await group.next() }
                    begun += 1
                    group.addTask {
                        let answer = try await lab.get("/tiles/\(name)/5/\(x)/\(y)")
                        #expect(answer.status == 200 && answer.body == TileLab.png("tile /5/\(x)/\(y).png"))
                        answered.withLock { $0 += 1 }
                    }
                    if begun == 64 { group.addTask { try await midway() } }
                }
            }
            try await group.waitForAll()
        }
        #expect(answered.withLock { $0 } == columns.count * 8)
    }

    /// A bucket that takes no more is read on, and its refusals cost nobody an answer.
    @Test func aFullBucketIsReadOn() async throws {
        try await withTwo(bucket: { $0.full?.bucket }) { server, client, a, b, source in
            let full = try #require(server.full)
            // What an earlier run has left.
            let left = try await client.send(.list()).items.map(\.key)
            if !left.isEmpty { #expect(try await client.send(.deleteObjects(left)) == []) }
            for x in 0..<full.count {
                _ = try await a.get("/tiles/\(source.name)/4/\(x)/0")
                await isWritten(a)
            }
            #expect(a.shared?.figures.stores == full.count && a.shared?.figures.dropped == 0)
            // Fewer than the failures in a row after which it is left alone.
            for x in 0..<Breaker.mostFailures {
                let answer = try await a.get("/tiles/\(source.name)/4/\(x)/1")
                #expect(answer.status == 200)
                if x < Breaker.mostFailures - 1 { await isWritten(a) }
            }
            while a.shared?.figures.dropped ?? 0 < Breaker.mostFailures { await Task.yield() }
            #expect(a.shared?.figures.stores == full.count)
            #expect(a.shared?.figures.isOpen == false, "only writes rest")
            b.origin.become { _ in throw CancellationError() }
            for x in 0..<full.count {
                let answer = try await b.get("/tiles/\(source.name)/4/\(x)/0")
                #expect(answer.status == 200 && answer.body == TileLab.png("tile /4/\(x)/0.png"))
            }
            #expect(b.origin.count == 0 && b.shared?.figures.hits == full.count)
            let all = try await client.send(.list()).items.map(\.key)
            #expect(all.count == full.count)
            #expect(try await client.send(.deleteObjects(all)) == [])
        }
    }

    @Test func aServerThatIsKilledUnderLoadLosesNoAnswer() async throws {
        try await withTwo { server, _, a, b, source in
            guard server.process != nil else { return }
            try await load(a, source.name) { try await server.killAndWait() }
            await isWrittenOrDropped(a)
            let figures = try #require(a.shared?.figures)
            #expect(figures.stores + figures.dropped == 256)
            #expect(a.origin.count == 256, "no tile is asked for twice")
            // The other one has from the bucket what was stored, and from the origin the rest.
            try await load(b, source.name) { try await server.killAndWait() }
            let found = try #require(b.shared?.figures)
            #expect(found.hits <= figures.stores && b.origin.count == 256 - found.hits)
        }
    }

    /// The server accepts connections and says nothing: a few looks wait for it, then none.
    @Test func aServerThatFreezesUnderLoadCostsAFewLooks() async throws {
        try await withTwo { server, _, a, _, source in
            guard server.process != nil else { return }
            let patient = try client(server)
            let quick = try await TileLab(
                [source], bucket: patient, timeout: .seconds(5), origin: { Self.tile($0) })
            isOnTime(quick)
            await quick.readSharedIndex()
            var result = Result<Void, any Error>.success(())
            do { try await load(quick, source.name) { try server.signal(SIGSTOP) } } catch { result = .failure(error) }
            let figures = quick.shared?.figures
            try server.signal(SIGCONT)
            try result.get()
            #expect(quick.origin.count == 256 - (figures?.hits ?? 0))
            // Eight are under way at a time, some of them when the fifth fails. The clock stands still, so that
            // nothing is tried again.
            #expect(figures?.isOpen == true && figures?.errors ?? .max <= Breaker.mostFailures + 8 + 32)
            _ = try await a.get("/tiles/\(source.name)/3/0/2")
            try await quick.end()
            await patient.shutdown()
        }
    }

    /// Objects become garbage, half of themselves, or each other's while they are read.
    @Test func objectsThatAreDamagedUnderLoadAreNotServed() async throws {
        try await withTwo { _, client, a, b, source in
            let name = source.name
            try await load(a, name) {}
            await isWritten(a)
            #expect(a.shared?.figures.stores == 256)
            let shared = try #require(source.sharedSource)
            try await load(b, name) {
                for x in 16..<32 {
                    for y in 0..<8 {
                        let names = ObjectNames(prefix: "")
                        let key = try TileKey("\(name)/5/\(x)/\(y)")
                        let object = try #require(names.name(of: key, shared, .first))
                        guard case .object(let whole) = try await client.send(.get(object)) else { continue }
                        var bytes = whole.bytes
                        switch (x + y) % 3 {
                        case 0: bytes.moveWriterIndex(to: bytes.writerIndex / 2)
                        case 1: bytes.setInteger(UInt8(0xFF), at: bytes.writerIndex - 1)
                        default: bytes = ByteBuffer(string: "<html>")
                        }
                        _ = try await client.send(.put(object, bytes, metadata: whole.metadata))
                    }
                }
            }
            let figures = try #require(b.shared?.figures)
            #expect(figures.hits + figures.errors == 256 && b.origin.count == figures.errors)
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
