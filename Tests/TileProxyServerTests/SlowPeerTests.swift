import Foundation
import HTTPListener
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine
@testable import TileProxyServer

/// Clients that send or read slowly, and what they must not take from others.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct SlowPeerTests {
    private func impatient(_ change: (inout ServerLimits) -> Void) -> ServerLimits {
        var limits = ServerLimits()
        limits.sweep = .milliseconds(10)
        change(&limits)
        return limits
    }

    @Test
    func aBodyThatTricklesIsCutOffThoughItNeverPausesForLong() async throws {
        let origin = try ScriptedOrigin(always: reply("200 OK", [], "hello"))
        let limits = impatient { ($0.bodyStall, $0.bodyRate) = (.milliseconds(100), 1_000_000) }
        try await withProxy(origin, limits: limits) { proxy async throws in
            let wire = try proxy.connect()
            let other = try proxy.connect()
            wire.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n")
            var sent = 0
            while sent < 5000, !wire.isReadable {
                wire.send("x")
                sent += 1
                other.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(other.answer()?.status == 204)
            }
            #expect(wire.answer()?.status == 408)
            #expect(sent < 5000)
        }
    }

    @Test
    func aReaderThatTricklesIsCutOffThoughItNeverStopsForLong() async throws {
        let body = String(repeating: "x", count: 32 << 20)
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: no-store"], body))
        let limits = impatient { ($0.writeStall, $0.readRate) = (.milliseconds(30), .max) }
        try await withProxy(origin, limits: limits) { proxy async throws in
            let wire = try Wire.unconnected()
            wire.holdAtMost(1 << 16)
            try wire.connect(to: proxy.server.port)
            let other = try proxy.connect()
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            // So few bytes in each round that the origin is faster on any machine: else the reader is not waited for.
            var read = 0
            while true {
                let piece = wire.take(256).count
                read += piece
                if piece < 256 { break }
                other.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(other.answer()?.status == 204)
            }
            #expect(read < body.utf8.count)
        }
    }

    /// The connection is closed soon after an answer to a request whose body nobody read: not before the answer is out.
    @Test
    func anAnswerToAnUploadThatNobodyReadsReachesASlowReaderWhole() async throws {
        let origin = try ScriptedOrigin(readsBodies: false) { _, wire in
            wire.send(reply("200 OK", ["Cache-Control: no-store"], Self.large))
            _ = wire.takeAll()
            return false
        }
        let limits = impatient { ($0.linger, $0.bodyStall, $0.writeStall) = (.zero, .seconds(600), .seconds(600)) }
        try await withProxy(origin, limits: limits) { proxy async throws in
            let wire = try Wire.unconnected()
            wire.holdAtMost(1 << 16)
            try wire.connect(to: proxy.server.port)
            let other = try proxy.connect()
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx")
            #expect(wire.take(through: "\r\n\r\n") != nil)
            var read = 0
            while true {
                let piece = wire.take(64 << 10).count
                read += piece
                if piece < 64 << 10 { break }
                other.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(other.answer()?.status == 204)
            }
            #expect(read == Self.large.utf8.count)
        }
    }

    // MARK: Connections to the origin

    /// An origin whose `/large` may not be stored and is more than any socket holds.
    private func origin(_ control: String = "no-store") throws -> ScriptedOrigin {
        let large = reply("200 OK", ["Cache-Control: " + control], Self.large)
        return try ScriptedOrigin { request, wire in
            wire.send(request.target == "/small" ? reply("200 OK", ["Cache-Control: no-store"], "small") : large)
            return true
        }
    }

    /// Text of which every stretch can be told from every other.
    private static let large = (0..<1_000_000).map { String(10_000_000 + $0) }.joined()

    /// A client that asks for something, reads the answer's head, and no more.
    private func slowReader(_ proxy: ProxyUnderTest, _ target: String = "/large") throws -> Wire {
        let wire = try Wire.unconnected()
        wire.holdAtMost(1 << 16)
        try wire.connect(to: proxy.server.port)
        wire.send("GET \(target) HTTP/1.1\r\nHost: a\r\n\r\n")
        guard wire.take(through: "\r\n\r\n") != nil else { throw WireError(what: "no head") }
        return wire
    }

    @Test
    func readersThatDoNotReadHoldNoConnectionThatAMissNeeds() async throws {
        let origin = try origin()
        try await withProxy(origin, configure: { $0.upstream.connections = 2 }) { proxy async throws in
            let slow = try (0..<5).map { _ in try slowReader(proxy) }
            #expect(try proxy.ask("GET", "/small").text == "small")
            // They lose nothing by it.
            for wire in slow { #expect(wire.take(Self.large.utf8.count) == Array(Self.large.utf8)) }
        }
    }

    /// An origin that answers `/small` and nothing else.
    private func silentOrigin() throws -> ScriptedOrigin {
        try ScriptedOrigin { request, wire in
            guard request.target == "/small" else {
                // Until the other side closes: longer than any client here waits.
                for _ in 0..<5 { _ = wire.takeAll() }
                return false
            }
            wire.send(reply("200 OK", ["Cache-Control: no-store"], "small"))
            return true
        }
    }

    /// A client that closes is seen to have ended its side, as one is that only has nothing more to say.
    @Test
    func clientsThatHaveClosedHoldNoConnectionThatAMissNeeds() async throws {
        try await withProxy(try silentOrigin(), configure: { $0.upstream.connections = 2 }) { proxy async throws in
            for number in 0..<7 {
                let wire = try proxy.connect()
                wire.send("GET /silent\(number) HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(try proxy.ask("OPTIONS", "*").status == 204)
            }
            #expect(try proxy.ask("GET", "/small").text == "small")
        }
    }

    @Test
    func aClientThatHasOnlyEndedItsSideIsToldThatOthersNeededItsPlace() async throws {
        let origin = try silentOrigin()
        try await withProxy(origin, configure: { $0.upstream.connections = 1 }) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n")
            while origin.count == 0 { #expect(try proxy.ask("OPTIONS", "*").status == 204) }
            wire.endOutput()
            #expect(try proxy.ask("GET", "/small").text == "small")
            #expect(wire.answer()?.status == 503)
        }
    }

    @Test
    func aClientThatHasEndedItsSideIsAnsweredWhereNobodyNeedsItsPlace() async throws {
        let origin = try origin()
        try await withProxy(origin, configure: { $0.upstream.connections = 1 }) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            wire.endOutput()
            #expect(wire.answer()?.text == Self.large)
        }
    }

    @Test
    func anUploadThatHasCompletelyComeIsAnsweredThoughTheClientHasEndedItsSide() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            if request.target == "/first" { gate.wait() }
            wire.send(reply("200 OK", ["Cache-Control: no-store"], request.body))
            return true
        }
        try await withProxy(origin, configure: { $0.upstream.connections = 1 }) { proxy async throws in
            let (first, wire, other) = (try proxy.connect(), try proxy.connect(), try proxy.connect())
            first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
            while origin.count == 0 { #expect(try proxy.ask("OPTIONS", "*").status == 204) }
            wire.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
            wire.endOutput()
            for _ in 0..<20 {
                other.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(other.answer()?.status == 204)
            }
            gate.open()
            #expect(wire.answer()?.text == "body")
        }
    }

    @Test
    func anAnswerThatHasBegunIsNotTakenFromAClientThatHasEndedItsSide() async throws {
        let origin = try origin()
        try await withProxy(origin, configure: { $0.upstream.connections = 1 }) { proxy async throws in
            let slow = try slowReader(proxy)
            slow.endOutput()
            #expect(try proxy.ask("GET", "/small").text == "small")
            #expect(slow.take(Self.large.utf8.count) == Array(Self.large.utf8))
        }
    }

    @Test
    func uploadsThatComeSlowlyHoldNoConnectionThatAMissNeeds() async throws {
        let origin = try origin()
        try await withProxy(origin, configure: { $0.upstream.connections = 2 }) { proxy async throws in
            let slow = try (0..<5).map { _ in try proxy.connect() }
            for wire in slow { wire.send("POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na") }
            #expect(try proxy.ask("OPTIONS", "*").status == 204)
            #expect(try proxy.ask("GET", "/small").text == "small")
            for wire in slow { wire.send("bc") }
            for wire in slow { #expect(wire.answer()?.text == "small") }
            #expect(origin.requests.filter { $0.body == "abc" }.count == 5)
        }
    }

    @Test
    func whereEverythingIsHeldTheSlowestIsGivenUp() async throws {
        let origin = try origin()
        try await withProxy(
            origin,
            configure: {
                ($0.upstream.connections, $0.upstream.held, $0.upstream.heldGrace) = (1, 2, .zero)
            }
        ) { proxy async throws in
            let slow = try (0..<3).map { _ in try slowReader(proxy) }
            #expect(try proxy.ask("GET", "/small").text == "small")
            let whole = slow.filter { $0.take(Self.large.utf8.count).count == Self.large.utf8.count }
            #expect(whole.count == 2)
        }
    }

    // MARK: Leaders and followers

    @Test
    func aLeaderThatDoesNotReadHoldsNobodyUp() async throws {
        let origin = try origin("max-age=60")
        try await withProxy(origin, configure: { $0.collapseWait = .hours(1) }) { proxy async throws in
            let slow = try slowReader(proxy)
            let other = try proxy.ask("GET", "/large")
            #expect(other.text == Self.large && origin.count == 1)
            #expect(slow.take(Self.large.utf8.count) == Array(Self.large.utf8))
            // All of the budget comes back.
            while !proxy.cache.budget.isUnused { await Task.yield() }
        }
    }

    /// Bodies that fit into a connection's buffers wait there for a slow reader, and not in the memory that misses need.
    @Test
    func aReaderThatDoesNotReadKeepsNoMemoryThatAMissNeeds() async throws {
        let body = String(repeating: "x", count: 100 << 10)
        let origin = try ScriptedOrigin { _, wire in
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], body))
            return true
        }
        let limits = impatient { $0.writeStall = .hours(1) }
        // Room for one body.
        try await withProxy(origin, limits: limits, configure: { $0.stagingBytes = 150 << 10 }) { proxy async throws in
            let slow = try Wire.unconnected()
            slow.holdAtMost(1 << 12)
            try slow.connect(to: proxy.server.port)
            // More than fits into all buffers, so one of the answers is held up.
            slow.send((0..<100).map { "GET /\($0) HTTP/1.1\r\nHost: a\r\n\r\n" }.joined())
            var (asked, looks) = (0, 0)
            while looks < 20 {
                let isStalled = try await proxy.server.buffered().contains(where: \.isStalled)
                looks = isStalled && origin.count == asked ? looks + 1 : 0
                asked = origin.count
                #expect(try proxy.ask("OPTIONS", "*").status == 204)
            }
            var isStored = false
            for number in 0..<100 where !isStored {
                _ = try proxy.ask("GET", "/other\(number)")
                isStored = try proxy.ask("GET", "/other\(number)")["Cache-Status"]?.contains("hit") ?? false
            }
            #expect(isStored)
            #expect(slow.take(through: "\r\n\r\n") != nil)
        }
    }

    @Test
    func whereThereIsNoMemoryToCollectABodyItIsPassedOn() async throws {
        let origin = try origin("max-age=60")
        try await withProxy(origin, configure: { $0.stagingBytes = 1 << 20 }) { proxy async throws in
            for _ in 0..<2 { #expect(try proxy.ask("GET", "/large").text == Self.large) }
            #expect(origin.count == 2)
            while !proxy.cache.budget.isUnused { await Task.yield() }
        }
    }

    /// The origin sends nothing more, and would never be given up if nothing but its own limits counted.
    @Test(arguments: [false, true])
    func aBodyThatNobodyWaitsForAnyMoreIsGivenUpAfterItsTime(others: Bool) async throws {
        let closed = Gate()
        let origin = try ScriptedOrigin { request, wire in
            guard request.number == 1 else {
                wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "whole"))
                return true
            }
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhalf")
            while !wire.isAtEnd() {}
            closed.open()
            return false
        }
        try await withProxy(
            origin,
            configure: {
                ($0.unwantedBody, $0.collapseWait) = (.milliseconds(50), .hours(1))
                ($0.upstream.bodyStall, $0.upstream.head) = (.hours(1), .hours(1))
            }
        ) { proxy async throws in
            do {
                let wire = try proxy.connect()
                wire.resetsAtItsEnd()
                wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(wire.take(through: "\r\n\r\nhalf") != nil)
                let follower = try others ? proxy.connect() : nil
                follower?.resetsAtItsEnd()
                follower?.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                // What comes on the same loop after it is answered only once it waits.
                #expect(try proxy.ask("OPTIONS", "*").status == 204)
            }
            await closed.wait()
            while !proxy.cache.budget.isUnused { await Task.yield() }
            #expect(try proxy.ask("GET", "/a").text == "whole" && origin.count == 2)
        }
    }

    @Test
    func aSlowReadersBodyThatTurnsOutTooLargeToStoreArrivesWhole() async throws {
        let size = Self.large.utf8.count
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n")
            wire.send(String(size, radix: 16) + "\r\n" + Self.large + "\r\n0\r\n\r\n")
            return true
        }
        try await withProxy(origin, configure: { $0.storedBodyBytes = 6_000_000 }) { proxy async throws in
            let wire = try Wire.unconnected()
            wire.holdAtMost(1 << 16)
            try wire.connect(to: proxy.server.port)
            wire.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            // Another one asks only once this one's answer has been found too large.
            #expect(try proxy.ask("GET", "/large").text == Self.large)
            #expect(wire.answer()?.text == Self.large)
            #expect(proxy.cache.budget.isUnused && origin.count == 2)
        }
    }

    @Test
    func aLeadersFailureIsNotItsFollowers() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            if request.number == 1 {
                gate.wait()
                return false
            }
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "hello"))
            return true
        }
        try await withProxy(origin, configure: { $0.collapseWait = .hours(1) }) { proxy async throws in
            let first = try proxy.connect()
            first.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            while origin.count < 1 { await Task.yield() }
            let others = try (0..<10).map { _ in try proxy.connect() }
            for wire in others { wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n") }
            // What comes on the same loop after them is answered only once they wait.
            #expect(try proxy.ask("OPTIONS", "*").status == 204)
            gate.open()
            #expect(first.answer()?.status == 502)
            for wire in others { #expect(wire.answer()?.text == "hello") }
            #expect(origin.count <= 11)
        }
    }

    @Test
    func onAFullDiskThoseWhoWaitShareTheAnswer() async throws {
        let gate = Gate()
        let files = SimulatedFileSystem(SimulatedDisk(clock: ManualClock()))
        let origin = try ScriptedOrigin { request, wire in
            gate.wait()
            let text = "\(request.number) for \(request.fields["foo"] ?? "-")"
            wire.send(reply("200 OK", ["Cache-Control: max-age=60", "Vary: Foo"], text))
            return true
        }
        try await withProxy(origin, files: files, configure: { $0.collapseWait = .hours(1) }) { proxy async throws in
            files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
            let wires = try (0..<20).map { _ in try proxy.connect() }
            for wire in wires { wire.send("GET /a HTTP/1.1\r\nHost: a\r\nFoo: 1\r\n\r\n") }
            while origin.count < 1 { await Task.yield() }
            let other = try proxy.connect()
            other.send("GET /a HTTP/1.1\r\nHost: a\r\nFoo: 2\r\n\r\n")
            #expect(try proxy.ask("OPTIONS", "*").status == 204)
            gate.open()
            let answers = wires.map { $0.answer() }
            #expect(answers.allSatisfy { $0?.text == "1 for 1" })
            #expect(answers.count { $0?["Cache-Status"]?.contains("collapsed") == true } == 19)
            // What was for others is not for this one.
            #expect(other.answer()?.text == "2 for 2")
            #expect(origin.count == 2)
            files.fail(nil)
        }
    }
}
