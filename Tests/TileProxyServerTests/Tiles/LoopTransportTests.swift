import HTTPTypes
import NIOCore
import NIOPosix
import Testing
import TileCache
import TileCacheTesting
import TileStore

@testable import TileProxyServer

/// The transport over the proxy's own connections: what every transport promises, from the loops and from elsewhere.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct LoopTransportTests {
    /// Knows only that it was asked.
    private final class Other: TileTransport {
        let asked = Locked(0)

        func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
            asked.withLock { $0 += 1 }
            return TransportResponse(head: HTTPResponse(status: .init(code: 418)))
        }
    }

    private let other = Other()

    private func with(
        _ answer: @escaping LocalOrigin.Answer, _ body: (LoopTransport, LocalOrigin) async throws -> Void
    ) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let origin = try await LocalOrigin.start(answer: answer)
        let transport = LoopTransport(group: group, connectionsPerHost: 4, other: other, otherForRedirects: other)
        do { try await body(transport, origin) } catch {
            try await group.shutdownGracefully()
            throw error
        }
        await transport.shutdown()
        try await group.shutdownGracefully()
    }

    private func failure(_ transport: LoopTransport, _ request: TransportRequest) async -> TransportError.Code? {
        do throws(TransportError) {
            _ = try await transport.send(request)
            return nil
        } catch { return error.code }
    }

    @Test
    func theWholeAnswerArrives() async throws {
        try await with { request in
            LocalAnswer(.notFound, [.eTag: "\"a\"", .age: request.fields[.accept] ?? ""], text: request.path)
        } _: { transport, origin in
            for i in 0..<20 {
                let head = origin.request("/a/\(i)?b=c", [.accept: "7"])
                let answer = try await transport.send(TransportRequest(head: head))
                #expect(answer.status == 404 && answer.text == "/a/\(i)?b=c")
                #expect(answer[.eTag] == "\"a\"" && answer[.age] == "7")
            }
            #expect(other.asked.withLock { $0 } == 0)
            #expect(origin.connectionsMade <= 2, "kept, one for each loop")
        }
    }

    @Test
    func theLimitOfTheBodyIsExact() async throws {
        try await with { _ in
            LocalAnswer(.ok, text: String(repeating: "x", count: 100))
        } _: { transport, origin in
            let head = origin.request("/")
            let answer = try await transport.send(TransportRequest(head: head, bodyLimit: 100))
            #expect(answer.body.count == 100)
            #expect(await failure(transport, TransportRequest(head: head, bodyLimit: 99)) == .bodyTooLarge)
        }
    }

    @Test
    func whatBreaksOffIsTruncatedAndWhatSaysNothingIsAFailure() async throws {
        let origin = try ScriptedOrigin { request, wire in
            if request.target == "/short" { wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") }
            if request.target == "/chunk" {
                wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc")
            }
            if request.target == "/junk" { wire.send("nonsense\r\n\r\n") }
            return false
        }
        try await with { _ in
            LocalAnswer(.ok)
        } _: { transport, _ in
            for (path, code) in [
                ("/short", TransportError.Code.truncated), ("/chunk", .truncated), ("/junk", .malformed),
                ("/none", .connection),
            ] {
                let head = HTTPRequest(
                    method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: path)
                #expect(await failure(transport, TransportRequest(head: head)) == code, "\(path)")
            }
            origin.stop()
            let head = HTTPRequest(method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: "/")
            #expect(await failure(transport, TransportRequest(head: head)) == .connection)
        }
    }

    @Test
    func timeIsForTheWholeExchange() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
            gate.wait()
            return false
        }
        try await with { _ in
            LocalAnswer(.ok)
        } _: { transport, _ in
            let head = HTTPRequest(method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: "/")
            let request = TransportRequest(head: head, timeout: .milliseconds(50))
            #expect(await failure(transport, request) == .timeout)
            gate.open()
        }
    }

    @Test
    func whoIsCancelledLeavesAtOnce() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { _, wire in
            gate.wait()
            return false
        }
        try await with { _ in
            LocalAnswer(.ok)
        } _: { transport, _ in
            let head = HTTPRequest(method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: "/")
            let task = Task { await failure(transport, TransportRequest(head: head)) }
            while origin.count == 0 { await Task.yield() }
            task.cancel()
            #expect(await task.value == .cancelled)
            let late = Task {
                while !Task.isCancelled { await Task.yield() }
                return await failure(transport, TransportRequest(head: head))
            }
            late.cancel()
            #expect(await late.value == .cancelled)
            gate.open()
        }
    }

    @Test
    func whatItsOwnClientWouldNotSendAsItIsGoesToTheOther() async throws {
        try await with { _ in
            LocalAnswer(.ok)
        } _: { transport, origin in
            let authority = origin.authority
            for head in [
                HTTPRequest(method: .get, scheme: "https", authority: authority, path: "/"),
                HTTPRequest(method: .get, scheme: "http", authority: "me@" + authority, path: "/"),
                HTTPRequest(method: .get, scheme: "http", authority: authority, path: "/a b"),
                HTTPRequest(method: .get, scheme: "http", authority: authority, path: "/../a"),
                HTTPRequest(
                    method: .get, scheme: "http", authority: authority, path: "/", headerFields: [.connection: "close"]),
            ] {
                let answer = try await transport.send(TransportRequest(head: head))
                #expect(answer.status == 418, "\(head)")
            }
            #expect(origin.requests.isEmpty)
        }
    }
}
