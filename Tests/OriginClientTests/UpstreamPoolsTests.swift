import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOPosix
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import OriginClient

/// Which hosts have connections.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct UpstreamPoolsTests {
    private static func pools(_ loop: EmbeddedEventLoop, guests: Int) throws -> UpstreamPools {
        let pools = UpstreamPools(loop: loop, limits: UpstreamLimits(), tls: nil, mostGuests: guests)
        pools.adopt([try #require(Origin("http://own.test"))])
        return pools
    }

    private final class Nobody: UpstreamReceiver {
        func upstreamIsReady(_ call: UpstreamCall) {}
        func upstreamSent(interim: HTTPResponse) {}
        func upstreamSent(head: HTTPResponse, length: Int64?) {}
        func upstreamSent(bytes: ByteBuffer) {}
        func upstreamEnded(trailers: HTTPFields?) {}
        func upstreamFailed(_ failure: UpstreamFailure) {}
    }

    @Test
    func theHostThatWasUnusedForTheLongestMakesRoomAndOneOfTheConfigurationDoesNot() throws {
        let pools = try Self.pools(EmbeddedEventLoop(), guests: 3)
        func pool(_ authority: String, isChecked: Bool = false) throws -> ObjectIdentifier {
            ObjectIdentifier(try pools.pool(isSecure: false, authority: authority, isChecked: isChecked))
        }
        let own = try pool("own.test")
        let first = try ["a", "b", "c"].map { try pool($0) }
        #expect(try pool("a") == first[0])
        _ = try pool("d")
        #expect(pools.count == 4)
        #expect(try pool("a") == first[0] && pool("c") == first[2], "b was unused for longer")
        for i in 0..<100 { _ = try pool("host\(i)") }
        #expect(pools.count == 4)
        #expect(try pool("own.test") == own)
        #expect(try pool("own.test", isChecked: true) != own, "a checked connection is no other's")
    }

    /// Else a redirect to the source's own host, written otherwise each time, would open connections without bounds.
    @Test
    func aHostHasOnePoolHoweverItIsWritten() throws {
        let pools = try Self.pools(EmbeddedEventLoop(), guests: 3)
        func pool(_ authority: String) throws -> ObjectIdentifier {
            ObjectIdentifier(try pools.pool(isSecure: false, authority: authority, isChecked: false))
        }
        let own = try pool("own.test")
        for spelling in ["OWN.test", "own.test:80", "own.test:0080", "own.test:", "oWn.test:000000080"] {
            #expect(try pool(spelling) == own)
        }
        #expect(pools.count == 1)
    }

    @Test
    func aHostThatIsBeingAskedDoesNotMakeRoom() throws {
        let pools = try Self.pools(EmbeddedEventLoop(), guests: 2)
        let nobody = Nobody()
        var calls: [UpstreamCall] = []
        for authority in ["a", "b"] {
            let pool = try pools.pool(isSecure: false, authority: authority, isChecked: false)
            calls.append(pool.call(UpstreamRequest(method: "GET", target: "/", fields: [:]), receiver: nobody))
        }
        #expect(throws: UpstreamPools.Refusal.tooManyHosts) {
            try pools.pool(isSecure: false, authority: "c", isChecked: false)
        }
        _ = try pools.pool(isSecure: false, authority: "own.test", isChecked: false)
        #expect(pools.count == 3)
    }

    @Test(arguments: ["", "a b", "me@a", "a/b", "[:::]", "a:0", "a:65536", "a:x", "ä"])
    func whatIsNoHostHasNoConnections(authority: String) throws {
        let pools = try Self.pools(EmbeddedEventLoop(), guests: 2)
        #expect(throws: UpstreamPools.Refusal.noHost) {
            try pools.pool(isSecure: true, authority: authority, isChecked: false)
        }
    }

    @Test
    func aHostThatMakesRoomHasItsConnectionsClosed() async throws {
        try await withOrigin(isSecure: false, answer: { _ in LocalAnswer(.ok, text: "ok") }) {
            origin, client async throws in
            let loop = client.loop
            let authority = origin.authority
            let pools = NIOLoopBoundBox<UpstreamPools?>.makeEmptyBox(valueType: UpstreamPools.self, eventLoop: loop)
            let answer = loop.makePromise(of: Void.self)
            try await loop.submit {
                let made = UpstreamPools(loop: loop, limits: UpstreamLimits(), tls: nil, mostGuests: 1)
                pools.value = made
                let pool = try made.pool(isSecure: false, authority: authority, isChecked: false)
                let waiting = Waiting { answer.succeed() }
                waiting.call = pool.call(
                    UpstreamRequest(method: "GET", target: "/", fields: [:]), receiver: waiting)
            }.get()
            try await answer.futureResult.get()
            #expect(origin.connections == 1)
            try await loop.submit {
                _ = try pools.value?.pool(isSecure: false, authority: "other.test", isChecked: false)
            }.get()
            await origin.connectionsClosed()
        }
    }

    /// Says when an answer is complete, and keeps itself until then.
    private final class Waiting: UpstreamReceiver {
        var call: UpstreamCall?
        private var me: Waiting?
        private let over: () -> Void

        init(_ over: @escaping () -> Void) {
            self.over = over
            me = self
        }

        func upstreamIsReady(_ call: UpstreamCall) {}
        func upstreamSent(interim: HTTPResponse) {}
        func upstreamSent(head: HTTPResponse, length: Int64?) {}
        func upstreamSent(bytes: ByteBuffer) {}
        func upstreamEnded(trailers: HTTPFields?) {
            over()
            (me, call) = (nil, nil)
        }
        func upstreamFailed(_ failure: UpstreamFailure) { upstreamEnded(trailers: nil) }
    }

    @Test
    func onlyWhatARequestLineCannotHaveIsNoTarget() {
        for target in ["/", "//a", "/%2e%2e/a", "/../a", "/a?[b]|{c}&d=100%", "/\"<>^`\\"] {
            #expect(UpstreamRequest.objection(toTarget: target) == nil)
        }
        for target in ["", "a", "*", "?a", "/a b", "/a\tb", "/a\r\nb", "/a\u{7F}", "/ä", "/a#b", "http://a/"] {
            #expect(UpstreamRequest.objection(toTarget: target) != nil)
        }
    }

    @Test
    func aPortMayBeEmpty() throws {
        #expect(Origin("https://a:")?.name == "https://a")
        #expect(Origin("http://[::1]:")?.authority == "[::1]")
        #expect(Origin("http://:") == nil && Origin("http://[::1") == nil)
    }
}
