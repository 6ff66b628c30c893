import Foundation
import HTTPTypes
import NIOCore
import Testing
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import CacheEngine
@testable import TileProxyServer

/// What was replaced by something that is not stored does not come back, and what is not stored is accounted for.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct FormerEditionTests {
    /// A page grew past what is stored; when its origin was away the former edition came back, at any age.
    @Test(arguments: [false, true])
    func whatGrewTooLargeCameBackInItsFormerEdition(isLengthKnown: Bool) async throws {
        let fails = Locked(false)
        let large = String(repeating: "n", count: 300_000)
        let fields = ["Cache-Control: max-age=1, stale-if-error=1000", "Connection: close"]
        let origin = try ScriptedOrigin { request, wire in
            guard !fails.withLock({ $0 }) else { return false }
            if request.number == 1 {
                wire.send(reply("200 OK", fields, "old"))
            } else if isLengthKnown {
                wire.send(reply("200 OK", fields, large))
            } else {
                wire.send((["HTTP/1.1 200 OK"] + fields).joined(separator: "\r\n") + "\r\n\r\n" + large)
            }
            return false
        }
        try await withProxy(origin, configure: { $0.storedBodyBytes = 200_000 }) { proxy async throws in
            #expect(try proxy.ask().text == "old")
            proxy.clock.advance(seconds: 10)
            #expect(try proxy.ask().text == large)
            fails.withLock { $0 = true }
            proxy.clock.advance(seconds: 10)
            let answer = try proxy.ask()
            #expect(answer.text != "old", "\(answer["Cache-Status"] ?? "")")
        }
    }

    /// Large tiles that could not be stored were in no budget while clients read them: slow ones took all of the memory.
    @Test
    func aHeldTileThatASlowClientReadsIsAccountedFor() async throws {
        let files = SimulatedFileSystem(SimulatedDisk(clock: ManualClock()))
        let size = 6 << 20
        try await TileLab.with(
            files: files,
            origin: { _ in
                TileLab.Answer(
                    fields: [.cacheControl: "max-age=60", .contentType: "image/png"],
                    body: TileLab.png(String(repeating: "x", count: size)))
            }
        ) { lab async throws in
            files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
            #expect(try await lab.get("/tiles/osm/8/1/2.png").status == 200)
            while !lab.service.budget.isUnused { await Task.yield() }
            let wire = try Wire(port: lab.server.port)
            wire.send("GET /tiles/osm/8/1/2.png HTTP/1.1\r\nHost: a\r\n\r\n")
            _ = wire.take(through: "\r\n\r\n")
            #expect(lab.service.budget.inUse >= size && lab.origin.count == 1)
            wire.resetsAtItsEnd()
        }
    }
}
