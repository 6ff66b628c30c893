import Foundation
import HTTPListener
import NIOCore
import NIOPosix
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine
@testable import TileProxyServer

/// Bodies on their way into the store that are too large for the memory: they lie in `staging/`, and clients are sent them
/// from there.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct StagedBodyTests {
    /// Eight megabytes in which every stretch can be told from every other.
    private static let text = (0..<1_000_000).map { String(10_000_000 + $0) }.joined()
    private static let bytes = Array(text.utf8)
    private static let head =
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: \(bytes.count)\r\n\r\n"

    private static let patient = {
        var limits = ServerLimits()
        (limits.writeStall, limits.bodyStall, limits.head, limits.idle) = (.hours(1), .hours(1), .hours(1), .hours(1))
        return limits
    }()

    private static func simulated() -> SimulatedFileSystem { SimulatedFileSystem(SimulatedDisk(clock: ManualClock())) }

    /// Waits for a gate longer than any test takes.
    private static func wait(for gate: Gate) {
        let opened = DispatchSemaphore(value: 0)
        gate.whenOpen { opened.signal() }
        _ = opened.wait(timeout: .now() + 1800)
    }

    /// A client that asks for something, reads the answer's head, and no more.
    private func slowReader(_ proxy: ProxyUnderTest, _ target: String = "/a", _ fields: String = "") throws -> Wire {
        let wire = try Wire.unconnected()
        wire.holdAtMost(1 << 16)
        try wire.connect(to: proxy.server.port)
        wire.send("GET \(target) HTTP/1.1\r\nHost: a\r\n\(fields)\r\n")
        guard wire.take(through: "\r\n\r\n") != nil else { throw WireError(what: "no head") }
        return wire
    }

    /// An origin that sends the body, and before its last part waits for a gate.
    private func origin(waitingFor gate: Gate, at part: Int = 5_000_000) throws -> ScriptedOrigin {
        try ScriptedOrigin { _, wire in
            wire.send(Self.head)
            wire.send(Array(Self.bytes[..<part]))
            Self.wait(for: gate)
            wire.send(Array(Self.bytes[part...]))
            return true
        }
    }

    // MARK: Memory

    /// What is not in the file yet is all that is in memory, whether the clients read or not.
    @Test
    func tenLargeBodiesAtOnceTookTheMemoryOfTheirSizes() async throws {
        let (size, count, gate) = (8 << 20, 10, Gate())
        let piece = [UInt8](repeating: 120, count: 64 << 10)
        let origin = try ScriptedOrigin { request, wire in
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: \(size)\r\n\r\n")
            var first = piece
            first[0] = UInt8(request.number)
            for number in 1..<(size / piece.count) { wire.send(number == 1 ? first : piece) }
            Self.wait(for: gate)
            wire.send(piece)
            return true
        }
        try await withProxy(origin, limits: Self.patient) { proxy async throws in
            let wires = try (0..<count).map { try slowReader(proxy, "/\($0)") }
            func read(_ wire: Wire, _ bytes: Int) {
                var left = bytes
                while left > 0, case let got = wire.take(min(left, piece.count)).count, got > 0 { left -= got }
                #expect(left == 0)
            }
            let most = size - piece.count
            // Half of them read nothing.
            for wire in wires[..<(count / 2)] { read(wire, most) }
            // What has come is in files but for the last of it, whether the clients read or not.
            while try proxy.stagedBytes < count * (most - 600 << 10) { await Task.yield() }
            #expect(proxy.cache.budget.inUse == count * size)
            for one in try await proxy.server.buffered() { #expect(one.total <= 256 << 10) }
            gate.open()
            for wire in wires[..<(count / 2)] { read(wire, piece.count) }
            try await proxy.untilNothingIsStaged()
            for number in 0..<count {
                #expect(try proxy.ask("HEAD", "/\(number)")["Cache-Status"]?.contains("hit") == true)
            }
            for wire in wires[(count / 2)...] { read(wire, size) }
            #expect(origin.count == count)
        }
    }

    /// What waits for the disk is bounded in its number of parts, too.
    @Test
    func aMillionSingleBytesThatWaitedForTheDiskWereAMillionBuffers() async throws {
        let (files, gate) = (Self.simulated(), Gate())
        files.beforeEachWrite { if $0.hasSuffix(".body") { Self.wait(for: gate) } }
        try await withProxy(nil, files: files) { proxy async throws in
            let loop = MultiThreadedEventLoopGroup.singleton.any()
            let body = try #require(try IncomingBody(proxy.cache, limit: 1 << 20, length: nil, loop: loop))
            let bytes = Self.bytes.prefix(400_000)
            try await loop.submit { () throws -> Void in
                #expect(try body.append(ByteBuffer(bytes: bytes.prefix(200_000))))
                for byte in bytes.dropFirst(200_000) { #expect(try body.append(ByteBuffer(integer: byte))) }
                #expect(body.waitingParts < 50 && body.count == bytes.count)
                #expect(try !body.append(ByteBuffer(repeating: 0, count: 1 << 20)), "too long")
            }.get()
            gate.open()
            let written = loop.makePromise(of: Void.self)
            loop.execute { body.finish { written.succeed() } }
            try await written.futureResult.get()
            try await loop.submit { () throws -> Void in
                var read: [UInt8] = []
                while read.count < body.count, let piece = body.readNow(at: read.count) {
                    read += Array(piece.readableBytesView)
                }
                #expect(read == Array(bytes))
                #expect(body.waitingParts == 0)
                body.giveUp(isRead: false)
            }.get()
        }
    }

    // MARK: The disk

    /// The disk takes some of it, and no more; the client gets it all the same.
    @Test(arguments: [false, true], [false, true])
    func aDiskThatFillsInTheMiddleCostsNoClientItsAnswer(isSlow: Bool, isChunked: Bool) async throws {
        let files = Self.simulated()
        let failures = Locked(0)
        let chunked =
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n"
            + String(Self.bytes.count, radix: 16) + "\r\n" + Self.text + "\r\n0\r\n\r\n"
        let origin = try ScriptedOrigin(always: isChunked ? chunked : Self.head + Self.text)
        try await withProxy(
            origin, limits: Self.patient, files: files,
            configure: { $0.onNotStored = { failures.withLock { $0 += 1 } } }
        ) { proxy async throws in
            // More than the sockets hold: a client that does not read is behind by then.
            files.disk.capacity = files.disk.used + 6_500_000
            if isSlow {
                let wire = try Wire.unconnected()
                wire.holdAtMost(1 << 16)
                try wire.connect(to: proxy.server.port)
                wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                while failures.withLock({ $0 }) == 0 { await Task.yield() }
                #expect(wire.answer()?.body == Self.bytes)
            } else {
                #expect(try proxy.ask().body == Self.bytes)
            }
            try await proxy.untilNothingIsStaged()
            #expect(failures.withLock { $0 } == 1)
            files.disk.capacity = nil
            for _ in 0..<2 { #expect(try proxy.ask().body == Self.bytes) }
            #expect(origin.count == 2)
        }
    }

    /// A file that cannot be read is no end of a body.
    @Test
    func aSlowReadersAnswerIsBrokenOffWhereItsStagedBodyCannotBeRead() async throws {
        let (files, gate) = (Self.simulated(), Gate())
        let origin = try origin(waitingFor: gate, at: Self.bytes.count - 1)
        try await withProxy(origin, limits: Self.patient, files: files) { proxy async throws in
            let wire = try slowReader(proxy)
            while files.disk.used < 7_500_000 { await Task.yield() }
            files.fail(.init(at: 0, number: EIO, persistent: true))
            gate.open()
            #expect(wire.take(Self.bytes.count).count < Self.bytes.count)
            while !proxy.isBudgetUnused { await Task.yield() }
            files.fail(nil)
            #expect(try proxy.ask().body == Self.bytes)
        }
    }

    /// Writing waits for the disk, the origin for the writing, and nobody else for either.
    @Test
    func aSlowDiskHoldsTheOriginBackAndNobodyElse() async throws {
        let (files, gate, sent) = (Self.simulated(), Gate(), Locked(0))
        let piece = [UInt8](repeating: 120, count: 64 << 10)
        let size = 48 << 20
        let origin = try ScriptedOrigin { request, wire in
            guard request.target == "/a" else {
                wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "small"))
                return true
            }
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: \(size)\r\n\r\n")
            for _ in 0..<(size / piece.count) {
                wire.send(piece)
                sent.withLock { $0 += piece.count }
            }
            return true
        }
        files.beforeEachWrite { path in
            if path.hasSuffix(".body") { Self.wait(for: gate) }
        }
        try await withProxy(
            origin, limits: Self.patient, files: files, configure: { $0.upstream.connections = 3 }
        ) { proxy async throws in
            let wire = try slowReader(proxy)
            var last = -1
            var number = 0
            while case let now = sent.withLock({ $0 }), now != last {
                last = now
                // As many misses as make sure that an origin that is not held back would have come on.
                for _ in 0..<50 {
                    number += 1
                    #expect(try proxy.ask("GET", "/\(number)").text == "small")
                    #expect(try proxy.ask("GET", "/\(number)")["Cache-Status"]?.contains("hit") == true)
                }
            }
            #expect(last < size)
            gate.open()
            var left = size
            while left > 0, case let got = wire.take(min(left, piece.count)).count, got > 0 { left -= got }
            #expect(left == 0)
            try await proxy.untilNothingIsStaged()
            #expect(try proxy.ask("HEAD")["Cache-Status"]?.contains("hit") == true)
        }
    }

    // MARK: Ends before the end

    @Test
    func anOriginThatDiesInTheMiddleLeavesNeitherAFileNorAWholeAnswer() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            wire.send(Self.head)
            guard request.number == 1 else {
                wire.send(Self.bytes)
                return true
            }
            wire.send(Array(Self.bytes[..<5_000_000]))
            Self.wait(for: gate)
            return false
        }
        try await withProxy(origin, limits: Self.patient) { proxy async throws in
            let slow = try slowReader(proxy)
            while try proxy.staged.isEmpty { await Task.yield() }
            gate.open()
            #expect(slow.take(Self.bytes.count).count < Self.bytes.count)
            try await proxy.untilNothingIsStaged()
            #expect(try proxy.ask().body == Self.bytes && origin.count == 2)
            try await proxy.untilNothingIsStaged()
        }
    }

    @Test(arguments: [false, true])
    func aBodyWhoseClientHasLeftIsStoredForOthers(others: Bool) async throws {
        let gate = Gate()
        let origin = try origin(waitingFor: gate)
        try await withProxy(
            origin, limits: Self.patient, configure: { ($0.collapseWait, $0.unwantedBody) = (.hours(1), .hours(1)) }
        ) { proxy async throws in
            var follower: Wire?
            do {
                let wire = try slowReader(proxy)
                wire.resetsAtItsEnd()
                while try proxy.staged.isEmpty { await Task.yield() }
                if others {
                    follower = try proxy.connect()
                    follower?.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                }
                #expect(try proxy.ask("OPTIONS", "*").status == 204)
            }
            // Until the proxy has seen that it is gone.
            while try await proxy.server.connectionCount() > (others ? 1 : 0) { await Task.yield() }
            gate.open()
            if let follower { #expect(follower.answer()?.body == Self.bytes) }
            try await proxy.untilNothingIsStaged()
            #expect(try proxy.ask().body == Self.bytes)
            #expect(origin.count == 1)
        }
    }

    @Test
    func aProcessThatWasKilledLeavesAFileThatTheNextOpeningRemoves() async throws {
        let (files, gate) = (Self.simulated(), Gate())
        let origin = try origin(waitingFor: gate)
        try await withProxy(origin, limits: Self.patient, files: files) { proxy async throws in
            let wire = try slowReader(proxy)
            while try proxy.staged.isEmpty { await Task.yield() }
            let disk = files.disk.clone()
            #expect(disk.names("staging").count == 1)
            let store = try TileStore(
                environment: proxy.clock.environment(SimulatedFileSystem(disk)), configuration: StoreConfiguration())
            #expect(disk.names("staging") == [])
            #expect(try store.snapshot().entries.isEmpty)
            try store.close()
            gate.open()
            #expect(wire.take(Self.bytes.count) == Self.bytes)
        }
    }

    /// What is too large for the memory is there for nobody but those who have been sent it.
    @Test
    func whereALargeBodyCannotBeStoredThoseWhoWaitedAskByThemselves() async throws {
        let (files, gate) = (Self.simulated(), Gate())
        let origin = try origin(waitingFor: gate, at: Self.bytes.count - 1)
        try await withProxy(
            origin, limits: Self.patient, files: files, configure: { $0.collapseWait = .hours(1) }
        ) { proxy async throws in
            let wires = try (0..<4).map { _ in try proxy.connect() }
            for wire in wires {
                wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                while origin.count < 1 { await Task.yield() }
            }
            #expect(try proxy.ask("OPTIONS", "*").status == 204)
            while try proxy.staged.isEmpty { await Task.yield() }
            files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
            gate.open()
            for wire in wires { #expect(wire.answer()?.body == Self.bytes) }
            #expect(origin.count == 4)
            files.fail(nil)
            try await proxy.untilNothingIsStaged()
        }
    }

    // MARK: The budget

    /// A file without a name takes the disk's space as long as somebody reads it.
    @Test(arguments: [false, true])
    func aSlowReaderOfABodyThatWasThereAlreadyReadsOnFromTheBlob(leaves: Bool) async throws {
        let files = Self.simulated()
        let origin = try ScriptedOrigin(always: Self.head + Self.text)
        try await withProxy(origin, limits: Self.patient, files: files) { proxy async throws in
            #expect(try proxy.ask().body == Self.bytes)
            try await proxy.untilNothingIsStaged()
            let used = files.disk.used
            // The same bytes once more: the store keeps the file that it has.
            proxy.clock.advance(seconds: 10)
            var slow: Wire? = try slowReader(proxy, "/a", "Cache-Control: no-cache\r\n")
            // Meanwhile the former answer is stale: who asks must not ask the origin.
            while try proxy.ask("HEAD", "/a", ["Cache-Control: only-if-cached"])["Age"] != "0" { await Task.yield() }
            try await proxy.untilNothingIsStaged()
            while files.disk.used > used + (1 << 20) { await Task.yield() }
            #expect(origin.count == 2)
            if leaves {
                slow?.resetsAtItsEnd()
            } else {
                #expect(try proxy.store.evict(toBytes: 0).removedEntries > 0)
                #expect(slow?.take(Self.bytes.count) == Self.bytes)
            }
            slow = nil
        }
    }

    @Test
    func aBodyThatTheBudgetHasNoRoomForIsNotStagedInPart() async throws {
        let files = Self.simulated()
        files.beforeEachWrite { #expect(!$0.hasSuffix(".body")) }
        let origin = try ScriptedOrigin(always: Self.head + Self.text)
        try await withProxy(origin, files: files, configure: { $0.stagingBytes = 4 << 20 }) { proxy async throws in
            for _ in 0..<2 { #expect(try proxy.ask().body == Self.bytes) }
            #expect(origin.count == 2)
        }
    }

    @Test
    func aBodyThatIsLargerThanTheCacheIsNotStaged() async throws {
        let files = Self.simulated()
        files.beforeEachWrite { #expect(!$0.hasSuffix(".body")) }
        let origin = try ScriptedOrigin(always: Self.head + Self.text)
        try await withProxy(origin, files: files) { proxy async throws in
            try proxy.store.setLimits(StoreLimits(capacity: 4 << 20))
            for _ in 0..<2 { #expect(try proxy.ask().body == Self.bytes) }
            #expect(origin.count == 2)
        }
    }
}
