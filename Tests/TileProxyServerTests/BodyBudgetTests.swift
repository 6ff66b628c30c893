import Foundation
import HTTPListener
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine
@testable import TileProxyServer

/// What clients that read slowly may take from others, and what an answer says of being stored.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct BodyBudgetTests {
    /// Eight megabytes in which every stretch can be told from every other.
    private static let text = (0..<1_000_000).map { String(10_000_000 + $0) }.joined()
    private static let bytes = Array(text.utf8)
    private static let keep = ["Cache-Control: max-age=60"]

    private static let patient = {
        var limits = ServerLimits()
        (limits.writeStall, limits.bodyStall, limits.head, limits.idle) = (.hours(1), .hours(1), .hours(1), .hours(1))
        return limits
    }()

    private static func simulated() -> SimulatedFileSystem { SimulatedFileSystem(SimulatedDisk(clock: ManualClock())) }

    /// A client that asks for something, reads the answer's head, and no more.
    private func slowReader(_ proxy: ProxyUnderTest, _ target: String) throws -> (wire: Wire, head: String) {
        let wire = try Wire.unconnected()
        wire.holdAtMost(1 << 16)
        try wire.connect(to: proxy.server.port)
        wire.send("GET \(target) HTTP/1.1\r\nHost: a\r\n\r\n")
        guard let head = wire.take(through: "\r\n\r\n") else { throw WireError(what: "no head") }
        return (wire, head)
    }

    private func chunked(_ text: String) -> String {
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n"
            + String(text.utf8.count, radix: 16) + "\r\n" + text + "\r\n0\r\n\r\n"
    }

    /// What the origin sends for a target: `/c…` in chunks, `/s…` little, anything else eight megabytes.
    private func origin() throws -> ScriptedOrigin {
        let (large, inChunks) = (reply("200 OK", Self.keep, Self.text), chunked(Self.text))
        return try ScriptedOrigin { request, wire in
            switch request.target.dropFirst().first {
            case "c": wire.send(inChunks)
            case "s": wire.send(reply("200 OK", Self.keep, "small"))
            case "m": wire.send(reply("200 OK", Self.keep, String(Self.text.prefix(1_000_000))))
            default: wire.send(large)
            }
            return true
        }
    }

    private func isStored(_ proxy: ProxyUnderTest, _ target: String) throws -> Bool {
        let first = try proxy.ask("GET", target)["Cache-Status"]
        return try first?.contains("fwd=uri-miss") == true
            && proxy.ask("GET", target)["Cache-Status"]?.contains("hit") == true
    }

    // MARK: Budgets

    /// Large bodies had the room of small ones.
    @Test
    func whereLargeBodiesHaveAllTheRoomSmallOnesAreStored() async throws {
        try await withProxy(try origin(), limits: Self.patient) { proxy async throws in
            #expect(proxy.cache.budget.take(proxy.cache.settings.stagingBytes))
            #expect(try isStored(proxy, "/s"))
            #expect(try !isStored(proxy, "/m"))
            proxy.cache.budget.give(proxy.cache.settings.stagingBytes)
            #expect(try isStored(proxy, "/m2"))
            try await proxy.untilNothingIsStaged()
        }
    }

    /// A body that grows has a share of one budget at a time.
    @Test
    func aBodyThatGrowsTooLargeForTheMemoryGivesTheRoomOfSmallOnesBack() async throws {
        try await withProxy(nil) { proxy async throws in
            let loop = proxy.loop
            let cache = proxy.cache
            try await loop.submit { () throws -> Void in
                let body = try #require(try IncomingBody(cache, limit: 1 << 20, length: nil, loop: loop))
                #expect(try body.append(ByteBuffer(repeating: 1, count: 100_000)))
                #expect(cache.smallBudget.inUse == 100_000 && cache.budget.isUnused)
                #expect(try body.append(ByteBuffer(repeating: 1, count: 100_000)))
                #expect(cache.smallBudget.isUnused && cache.budget.inUse == 200_000)
                body.giveUp(isRead: false)
                #expect(cache.budget.isUnused && cache.unstored.bytes == 0)
                #expect(try IncomingBody(cache, limit: 1 << 20, length: 1 << 21, loop: loop) == nil)
                #expect(cache.budget.isUnused)
            }.get()
        }
    }

    /// Eight clients that read slowly kept all large bodies out of the store.
    @Test
    func slowReadersOfBodiesThatAreTooLargeKeepNoRoomFromOthers() async throws {
        try await withProxy(
            try origin(), limits: Self.patient,
            configure: { ($0.storedBodyBytes, $0.stagingBytes) = (4 << 20, 8 << 20) }
        ) { proxy async throws in
            let slow = try (0..<3).map { try slowReader(proxy, "/c\($0)").wire }
            // As soon as it is known that they are too large, or have no room themselves.
            var number = 0
            while try !isStored(proxy, "/m\(number)") {
                number += 1
                await Task.yield()
            }
            #expect(try isStored(proxy, "/s"))
            for wire in slow { #expect(wire.chunks().map { $0 == Self.bytes } == true) }
            try await proxy.untilNothingIsStaged()
        }
    }

    /// Without a bound they would have the whole disk.
    @Test
    func whereSlowReadersOfUnstoredBodiesAreTooManyTheFirstIsBrokenOff() async throws {
        try await withProxy(
            try origin(), limits: Self.patient,
            // The system keeps up to four megabytes of what a client does not read: more than that is left of each.
            configure: { ($0.storedBodyBytes, $0.unstoredBytes) = (7 << 20, 16 << 20) }
        ) { proxy async throws in
            var slow: [Wire] = []
            for number in 0..<3 {
                slow.append(try slowReader(proxy, "/c\(number)").wire)
                while proxy.cache.unstored.added <= number || !proxy.cache.budget.isUnused { await Task.yield() }
            }
            #expect(slow[0].chunks() == nil)
            for wire in slow[1...] { #expect(wire.chunks().map { $0 == Self.bytes } == true) }
            try await proxy.untilNothingIsStaged()
        }
    }

    // MARK: Descriptors

    /// Each of them had the file open for itself.
    @Test
    func slowReadersOfOneBodyShareItsOpenFile() async throws {
        let files = Self.simulated()
        try await withProxy(try origin(), limits: Self.patient, files: files) { proxy async throws in
            // The first is behind while the body is stored, the others find it there.
            var slow = try [slowReader(proxy, "/a").wire] + (0..<6).map { _ in try slowReader(proxy, "/a").wire }
            try await proxy.untilNothingIsStaged()
            let blob = try #require(try proxy.store.snapshot().entries.first?.blob)
            while files.disk.openHandles(blob.path) != 1 { await Task.yield() }
            for wire in slow[...1] { #expect(wire.take(Self.bytes.count).elementsEqual(Self.bytes) == true) }
            for wire in slow[2...] {
                wire.resetsAtItsEnd()
                wire.endOutput()
            }
            slow = []
            while files.disk.openHandles(blob.path) != 0 { await Task.yield() }
        }
    }

    // MARK: What answers say

    /// It was said before it was known.
    @Test
    func onlyAnAnswerThatFitsSaysThatItIsStored() async throws {
        try await withProxy(try origin()) { proxy async throws in
            func status(_ target: String) throws -> String? { try proxy.ask("GET", target)["Cache-Status"] }
            #expect(try status("/a") == "tileproxy; fwd=uri-miss; ttl=60; stored")
            // Its length is not known when the head goes out.
            #expect(try status("/c") == "tileproxy; fwd=uri-miss; ttl=60")
            try await proxy.untilNothingIsStaged()
            #expect(try status("/c") == "tileproxy; hit; ttl=60", "it is stored all the same")
            // The room is taken before the head goes out, and others have it.
            let all = proxy.cache.settings.stagingBytes - 7_000_000
            #expect(proxy.cache.budget.take(all))
            for _ in 0..<2 { #expect(try status("/b") == "tileproxy; fwd=uri-miss") }
            #expect(try status("/m") == "tileproxy; fwd=uri-miss; ttl=60; stored")
            proxy.cache.budget.give(all)
            try proxy.store.setLimits(StoreLimits(capacity: 4 << 20))
            for _ in 0..<2 { #expect(try status("/d") == "tileproxy; fwd=uri-miss") }
            for _ in 0..<2 {
                #expect(try status("/c2") == "tileproxy; fwd=uri-miss; ttl=60")
                #expect(try status("/s") != nil)
            }
            #expect(try status("/s") == "tileproxy; hit; ttl=60")
            try await proxy.untilNothingIsStaged()
        }
    }
}

extension Wire {
    /// The body in chunks that follows a head; `nil` if it broke off.
    fileprivate func chunks() -> [UInt8]? {
        var bytes: [UInt8] = []
        while let line = take(through: "\r\n"), let size = Int(line.dropLast(), radix: 16) {
            let chunk = take(size)
            guard chunk.count == size, take(through: "\r\n") == "\r\n" else { return nil }
            if size == 0 { return bytes }
            bytes += chunk
        }
        return nil
    }
}
