import HTTPTypes
import HTTPWire
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import OriginClient

/// Connections: when they are made, who has to wait for them, what they keep in memory, and when they end.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct PoolTests {
    private static let ok: LocalOrigin.Answer = { _ in LocalAnswer(.ok, text: "ok") }

    // MARK: TLS

    /// Nothing bounds what is written before TLS is agreed upon.
    @Test
    func anUploadDoesNotBeginBeforeTheHandshakeIsDoneAndThatHasItsTime() async throws {
        let silent = try ScriptedOrigin { _, _ in true }
        var limits = UpstreamLimits()
        (limits.connect, limits.head) = (.milliseconds(200), .seconds(5))
        let isReady = NIOLockedValueBox(false)
        try await withClient(limits: limits) { client async throws in
            let script = Script(whenReady: { _ in isReady.withLockedValue { $0 = true } })
            let answer = try await client.ask(
                "https://localhost:\(silent.port)", method: "POST", body: .chunked, script)
            #expect(answer == "connectTimeout")
            #expect(!isReady.withLockedValue { $0 })
        }
    }

    /// A close_notify of the origin's is of no use any more, and waiting for it would take seconds for each connection.
    @Test(arguments: [false, true])
    func aConnectionThatIsOfNoMoreUseIsClosedAtOnce(isSecure: Bool) async throws {
        try await withOrigin(
            isSecure: isSecure,
            answer: { _ in
                LocalAnswer(.ok, [.connection: "close"], text: "last")
            }
        ) { origin, client async throws in
            for _ in 0..<3 { #expect(try await client.ask(origin.url) == "200 4 last end") }
            let left = try await client.loop.submit { try client.pool(origin.url).bufferedBytes.count }.get()
            #expect(left == 0)
        }
    }

    @Test
    func aConnectionThatWasMadeInVainIsNotKeptForEver() async throws {
        try await withOrigin(isSecure: false, limits: { $0.idle = .milliseconds(50) }, answer: Self.ok) {
            origin, client async throws in
            try await client.loop.submit {
                let nobody = Nobody()
                let pool = try client.pool(origin.url)
                let call = NIOLoopBound(
                    pool.call(UpstreamRequest(method: "GET", target: "/", fields: [:]), receiver: nobody),
                    eventLoop: client.loop)
                // The connection is begun by then, and cannot be made yet.
                client.loop.execute { call.value.cancel() }
            }.get()
            try await client.until { _ in origin.connectionsMade == 1 }
            await origin.connectionsClosed()
            #expect(origin.requests.isEmpty)
        }
    }

    // MARK: Who waits for whom

    /// A request that waits for its client has two reasons to; that one is gone does not mean that both are.
    @Test(arguments: [true, false])
    func anUploadThatWaitsHoldsNoConnectionThoughTheReaderOfItsAnswerWasWaitedForToo(uploadIsLeft: Bool) async throws {
        try await withOrigin(
            isSecure: false, answersHeads: true, limits: { $0.connections = 1 },
            answer: { request in
                request.path == "/next"
                    ? LocalAnswer(.ok, text: "next")
                    : .raw(.text("HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf"), .hang)
            }
        ) { origin, client async throws in
            let isHeld = client.loop.makePromise(of: Void.self)
            let script = Script(
                whenReady: { $0.waitsForUpload = true },
                whenBytes: { call in
                    call.waitsForReader = true
                    if uploadIsLeft { call.waitsForReader = false } else { call.waitsForUpload = false }
                    isHeld.succeed()
                })
            async let first = client.ask(origin.url, method: "POST", body: .chunked, script)
            try await isHeld.futureResult.get()
            #expect(try await client.ask(origin.url, "/next") == "200 4 next end")
            try await origin.stop()
            #expect(try await first == "200 10 half closed")
        }
    }

    // MARK: Memory

    private static let origin = Origin("http://origin.test")

    /// A call on a connection without a socket, and what holds its output back.
    private func embedded(
        _ request: UpstreamRequest, _ receiver: any UpstreamReceiver
    ) throws -> (UpstreamConnection, UpstreamCall, EmbeddedChannel, Dam) {
        let (origin, limits, loop) = (try #require(Self.origin), UpstreamLimits(), EmbeddedEventLoop())
        let pool = UpstreamPool(origin: origin, limits: limits, loop: loop, tls: nil)
        let connection = UpstreamConnection(origin: origin, limits: limits, pool: pool)
        let dam = Dam()
        let channel = EmbeddedChannel(handlers: [dam, connection], loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        let call = UpstreamCall(request, receiver: receiver)
        connection.start(call)
        return (connection, call, channel, dam)
    }

    /// Chunks whose last bytes always come with the beginning of the next.
    @Test
    func whatHasBeenHandedOnOfAnAnswerIsNotKept() throws {
        let nobody = Nobody()
        let (connection, call, channel, _) = try embedded(
            UpstreamRequest(method: "GET", target: "/", fields: [:]), nobody)
        try channel.writeInbound(ByteBuffer(string: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2"))
        for _ in 0..<400 {
            try channel.writeInbound(ByteBuffer(string: "710\r\n\(String(repeating: "a", count: 10_000))\r\n2"))
        }
        #expect(!call.isOver && nobody.received == 4_000_000)
        #expect(connection.bufferedBytes <= 64 << 10)
    }

    /// A channel counts bytes; a buffer of one byte takes hundreds.
    @Test
    func partsOfOneByteForAnOriginThatDoesNotReadAreBoundedInNumber() throws {
        let nobody = Nobody()
        let (_, call, _, dam) = try embedded(
            UpstreamRequest(method: "POST", target: "/", fields: [:], body: .chunked), nobody)
        Self.drip(call)
        for _ in 0..<3 {
            #expect((1...(2 * SmallWrites.most)).contains(dam.waiting))
            dam.open()
        }
        call.cancel()
    }

    /// Sends a byte again and again, as fast as the origin takes them.
    private static func drip(_ call: UpstreamCall) {
        var isWritable = true
        while isWritable, !call.isOver {
            call.send(ByteBuffer(string: "x"))
            isWritable = false
            var isNow = true
            call.whenWritable { if isNow { isWritable = true } else { drip(call) } }
            isNow = false
        }
    }
}

/// Counts what it is sent.
private final class Nobody: UpstreamReceiver {
    var received = 0

    func upstreamIsReady(_ call: UpstreamCall) {}
    func upstreamSent(interim: HTTPResponse) {}
    func upstreamSent(head: HTTPResponse, length: Int64?) {}
    func upstreamSent(bytes: ByteBuffer) { received += bytes.readableBytes }
    func upstreamEnded(trailers: HTTPFields?) {}
    func upstreamFailed(_ failure: UpstreamFailure) {}
}
