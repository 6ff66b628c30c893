import Foundation
import HTTPTypes
import Testing
import TileCache
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// A transport that answers as a closure says, and remembers what it was asked.
final class FakeTransport: TileTransport {
    let asked = Locked<[HTTPRequest]>([])
    let timeouts = Locked<[Duration]>([])
    private let answer: @Sendable (HTTPRequest) throws(TransportError) -> Int

    init(_ answer: @escaping @Sendable (HTTPRequest) throws(TransportError) -> Int) { self.answer = answer }

    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        asked.withLock { $0.append(request.head) }
        timeouts.withLock { $0.append(request.timeout) }
        let status = try answer(request.head)
        return TransportResponse(head: HTTPResponse(status: .init(code: status)), body: Data("body".utf8))
    }

    var hosts: [String] { asked.withLock { $0.map { "\($0.scheme ?? "")://\($0.authority ?? "")" } } }
}

@Suite(.timeLimit(.minutes(60)))
struct UpstreamTransportTests {
    let clock = ManualClock()
    let statistics = Statistics(startedAt: Timestamp(seconds: 0))

    private func transport(_ base: FakeTransport, mirrors: [String]) throws -> UpstreamTransport {
        var source = try SourceConfiguration(argument: "osm=https://a.example/{z}/{x}/{y}.png")
        source.mirrors = mirrors
        var configuration = ProxyConfiguration()
        configuration.sources = [source]
        let clock = clock
        let transport = UpstreamTransport(
            base: base, statistics: statistics, storedSize: { _ in 77 }, ticks: { clock.ticks })
        transport.adopt(try SourceTable(configuration))
        return transport
    }

    private func request(marked: Bool = true) -> TransportRequest {
        var head = HTTPRequest(method: .get, scheme: "https", authority: "a.example", path: "/3/4/2.png")
        if marked { head.headerFields[.tileKey] = "osm/3/4/2" }
        return TransportRequest(head: head, timeout: .seconds(30))
    }

    private var counts: UpstreamCounts { statistics.snapshot.sources.first?.upstream ?? UpstreamCounts() }

    @Test
    func whatMarksTheTileIsNeverSent() async throws {
        let base = FakeTransport { _ in 200 }
        _ = try await transport(base, mirrors: ["http://b.example"]).send(request())
        _ = try await transport(base, mirrors: []).send(request())
        #expect(base.asked.withLock { $0.allSatisfy { $0.headerFields.isEmpty } })
        #expect(counts.requests == 2 && counts.bodies == 2 && counts.bytes == 8)
    }

    @Test
    func aHostThatFailsIsFollowedByTheNext() async throws {
        let base = FakeTransport { head throws(TransportError) in
            if head.authority == "a.example" { throw TransportError(.connection, "refused") }
            return head.authority == "b.example" ? 503 : 200
        }
        let transport = try transport(base, mirrors: ["http://b.example", "https://c.example:81"])
        let response = try await transport.send(request())
        #expect(response.head.status == .ok)
        #expect(base.hosts == ["https://a.example", "http://b.example", "https://c.example:81"])
        #expect(base.timeouts.withLock { $0 } == [.seconds(10), .seconds(15), .seconds(30)])
        #expect(counts.failures == 1 && counts.serverErrors == 1 && counts.bodies == 1 && counts.failovers == 2)
    }

    @Test
    func aHostThatFailedIsAskedLastForAWhile() async throws {
        let isDown = Locked(true)
        let base = FakeTransport { head throws(TransportError) in
            if head.authority == "a.example", isDown.withLock({ $0 }) { throw TransportError(.timeout, "slow") }
            return 200
        }
        let transport = try transport(base, mirrors: ["https://b.example"])
        _ = try await transport.send(request())
        _ = try await transport.send(request())
        #expect(base.hosts == ["https://a.example", "https://b.example", "https://b.example"])
        isDown.withLock { $0 = false }
        clock.advance(seconds: 3)
        _ = try await transport.send(request())
        #expect(base.hosts.last == "https://a.example", "two seconds after the first failure it has its turn again")
    }

    @Test
    func whereAllFailTheLastWordCounts() async throws {
        let base = FakeTransport { _ in 503 }
        let transport = try transport(base, mirrors: ["https://b.example"])
        #expect(try await transport.send(request()).head.status.code == 503)
        let broken = FakeTransport { _ throws(TransportError) in throw TransportError(.connection, "refused") }
        let other = try self.transport(broken, mirrors: ["https://b.example"])
        await #expect(throws: TransportError.self) { try await other.send(request()) }
        #expect(broken.hosts.count == 2)
    }

    /// An error page with its `Retry-After` says more than a connection that was refused after it.
    @Test
    func whereAllFailAnAnswerCountsMoreThanNone() async throws {
        let base = FakeTransport { head throws(TransportError) in
            if head.authority == "a.example" { return 429 }
            throw TransportError(.connection, "refused")
        }
        let transport = try transport(base, mirrors: ["https://b.example", "https://c.example"])
        #expect(try await transport.send(request()).head.status.code == 429)
        #expect(base.hosts.count == 3 && counts.failovers == 2)
        _ = try await transport.send(request())
        #expect(base.hosts.count == 6 && counts.failovers == 4, "though all rest, all are asked")
    }

    @Test
    func timeThatOneHostUsesUpIsNotTheOthers() async throws {
        let clock = clock
        let base = FakeTransport { head throws(TransportError) in
            if head.authority == "a.example" { clock.advance(seconds: 10) }
            if head.authority == "b.example" { clock.advance(seconds: 20) }
            throw TransportError(.timeout, "slow")
        }
        let transport = try transport(base, mirrors: ["https://b.example", "https://c.example"])
        await #expect(throws: TransportError.self) { try await transport.send(request()) }
        #expect(base.timeouts.withLock { $0 } == [.seconds(10), .seconds(10)], "nothing was left for the third")
        #expect(counts.failovers == 1 && counts.failures == 2)
    }

    @Test
    func whoLeavesBlamesNoHost() async throws {
        let isGone = Locked(true)
        let base = FakeTransport { _ throws(TransportError) in
            if isGone.withLock({ $0 }) { throw TransportError(.cancelled, "gone") }
            return 200
        }
        let transport = try transport(base, mirrors: ["https://b.example"])
        await #expect(throws: TransportError.self) { try await transport.send(request()) }
        isGone.withLock { $0 = false }
        _ = try await transport.send(request())
        #expect(base.hosts == ["https://a.example", "https://a.example"])
        #expect(counts.failures == 0 && counts.failovers == 0)
    }

    @Test
    func aMissingTileIsNoFailure() async throws {
        let base = FakeTransport { _ in 404 }
        #expect(try await transport(base, mirrors: ["https://b.example"]).send(request()).head.status == .notFound)
        #expect(base.hosts.count == 1)
    }

    @Test
    func whatA304SavedIsCounted() async throws {
        let base = FakeTransport { _ in 304 }
        _ = try await transport(base, mirrors: []).send(request())
        #expect(counts.bytesSaved == 77 && counts.notModified == 1)
    }

    @Test
    func aRequestToAnotherHostIsNobodysMirror() async throws {
        let base = FakeTransport { _ in 503 }
        _ = try await transport(base, mirrors: ["https://b.example"]).send(request(marked: false))
        #expect(base.hosts == ["https://a.example"])
    }
}
