import Foundation
import HTTPCaching
import NIOCore
import Testing
import TileCache
import TileStore
import TileStoreTesting

@testable import HTTPListener
@testable import TileProxyServer

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What the machine runs out of: connections, descriptors, disk.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct AbuseTests {
    private static let cached = reply("200 OK", ["Cache-Control: max-age=60"], "hello")

    #if os(Linux) || os(macOS)
    /// Ten thousand of them, or what this machine's limit on descriptors allows: each takes two here.
    ///
    /// In a process of its own, as the tests beside it need descriptors too.
    @Test
    func tenThousandIdleConnectionsCostLittleAndDelayNobody() async {
        await #expect(processExitsWith: .success) {
            let count = min(10_000, (Descriptors.raise(to: 24_000) - 2_000) / 2)
            guard count >= 1_000 else { throw WireError(what: "only \(count) connections possible: raise ulimit -n") }
            let origin = try ScriptedOrigin(always: Self.cached)
            // On a busy machine it takes minutes to make them all, and the first must not be given up by then.
            var limits = ServerLimits()
            (limits.head, limits.idle) = (.hours(1), .hours(1))
            try await withProxy(origin, limits: limits) { proxy async throws in
                try #require(try proxy.ask().status == 200)
                let before = residentBytes()
                var idle: [Wire] = []
                for _ in 0..<count { idle.append(try proxy.connect()) }
                while try await proxy.server.connectionCount() < count { await Task.yield() }
                if let before, let after = residentBytes() {
                    // The client's side is in it too.
                    try #require(after - before < count * 64 << 10, "\((after - before) / count) B a connection")
                }
                for _ in 0..<10 { try #require(try proxy.ask().text == "hello") }
                for i in stride(from: 0, to: count, by: count / 20) {
                    idle[i].send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                    try #require(idle[i].answer()?.text == "hello")
                }
                idle = []
                while try await proxy.server.connectionCount() > 0 { await Task.yield() }
                try #require(origin.count == 1)
            }
        }
    }

    /// In a process of its own, as it has no descriptor left for a while.
    @Test
    func withoutDescriptorsItWaitsAndThenGoesOn() async {
        await #expect(processExitsWith: .success) {
            let origin = try ScriptedOrigin(always: Self.cached)
            try await withProxy(origin) { proxy async throws in
                try #require(try proxy.ask().text == "hello")
                let known = try proxy.connect()
                known.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                try #require(known.answer()?.text == "hello")
                var waiting = try (0..<3).map { _ in try Wire.unconnected() }
                Descriptors.limit(to: 256)
                let taken = Descriptors.takeAll()
                let start = NIODeadline.now()
                for wire in waiting { try wire.connect(to: proxy.server.port) }
                while proxy.server.acceptFailures < 4 { await Task.yield() }
                // Did it not wait, it would have failed a thousand times by now.
                try #require(.now() - start >= AcceptErrors.pause * 2)
                // Those who are there already are served.
                known.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                try #require(known.answer()?.text == "hello")
                for descriptor in taken { close(descriptor) }
                for wire in waiting {
                    wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                    try #require(wire.answer()?.text == "hello")
                }
                waiting = []
            }
            exit(0)
        }
    }

    @Test
    func whatWasStoredIsThereAfterSIGKILL() async throws {
        let folder = NSTemporaryDirectory() + "killed-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        await #expect(processExitsWith: .signal(SIGKILL)) { [folder = folder as String] in
            let origin = try ScriptedOrigin { request, wire in
                wire.send(reply("200 OK", ["Cache-Control: max-age=60", "ETag: \"1\""], "tile \(request.target)"))
                return true
            }
            let proxy = try await ProxyUnderTest(origin, folder: folder)
            for i in 0..<200 { try #require(try proxy.ask("GET", "/\(i)?v=1").text == "tile /\(i)?v=1") }
            // An answer goes out before it is stored; that it counts as a hit says that it is.
            for i in 0..<200 {
                while try proxy.ask("GET", "/\(i)?v=1")["Age"] == nil { await Task.yield() }
            }
            kill(getpid(), SIGKILL)
        }
        let proxy = try await ProxyUnderTest(nil, folder: folder)
        for i in 0..<200 {
            let answer = try proxy.ask("GET", "/\(i)?v=1")
            #expect(answer.text == "tile /\(i)?v=1" && answer["Cache-Status"]?.contains("hit") == true)
        }
        #expect(try proxy.store.verify().ok)
        try await proxy.stop()
    }
    #endif

    @Test
    func aFullDiskCostsTheCacheAndNotTheAnswer() async throws {
        let messages = Messages()
        let files = SimulatedFileSystem(SimulatedDisk(clock: ManualClock()))
        let origin = try ScriptedOrigin { request, wire in
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "tile \(request.target)"))
            return true
        }
        let notStored = Locked(0)
        try await withProxy(
            origin, files: files,
            configure: {
                $0.logger = messages.logger
                $0.onNotStored = { notStored.withLock { $0 += 1 } }
            }
        ) { proxy async throws in
            #expect(try proxy.ask("GET", "/kept").text == "tile /kept")
            while try proxy.ask("GET", "/kept")["Age"] == nil { await Task.yield() }
            files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
            for i in 0..<5 {
                for _ in 0..<2 { #expect(try proxy.ask("GET", "/\(i)").text == "tile /\(i)") }
            }
            #expect(try proxy.ask("GET", "/kept")["Cache-Status"]?.contains("hit") == true)
            while notStored.withLock({ $0 }) < 10 { await Task.yield() }
            // The first of them; the others are counted.
            #expect(messages.errors.count == 1)
            files.fail(nil)
            while try proxy.ask("GET", "/later")["Age"] == nil { await Task.yield() }
        }
    }

    @Test
    func aTileThatCannotBeStoredIsServedCountedAndLogged() async throws {
        let messages = Messages()
        let files = SimulatedFileSystem(SimulatedDisk(clock: ManualClock()))
        try await TileLab.with(files: files, logger: messages.logger) { lab in
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 200)
            files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
            for x in 0..<4 {
                let answer = try await lab.get("/tiles/osm/3/\(x)/1.png")
                #expect(answer.status == 200 && answer.body == TileLab.png("sea"))
            }
            #expect(lab.statistics.snapshot.notStored == 4)
            #expect(messages.errors.count == 1)
            #expect(try await lab.get("/tiles/osm/3/4/2.png")[.cacheStatus]?.contains("hit") == true)
            files.fail(nil)
            // What could not be stored is held in memory for a while; the next tile is stored again.
            #expect(try await lab.get("/tiles/osm/3/0/1.png")[.cacheStatus]?.contains("hit") == true)
            #expect(try await lab.get("/tiles/osm/3/5/1.png")[.cacheStatus]?.contains("stored") == true)
            #expect(try await lab.get("/tiles/osm/3/5/1.png")[.cacheStatus]?.contains("hit") == true)
        }
    }
}
