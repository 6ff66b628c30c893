import CacheEngine
import HTTPTypes
import NIOCore
import NIOPosix
import OriginClient
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// The certificate of origins behind TLS; `nil` without the `openssl` command.
let originCertificate = try? TestCertificate()

/// Runs a body with a transport as the proxy has it, and stops it afterwards.
///
/// - Parameters:
///   - authorities: A PEM file of those to trust besides the system's.
///   - permitsPeer: Which addresses a redirect may lead to.
func withTransport(
    trusting authorities: String? = originCertificate?.path, loops: Int = 1,
    permitsPeer: @escaping @Sendable (SocketAddress) -> Bool = \.isPublic,
    _ body: (OriginTransport) async throws -> Void
) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: loops)
    let tls = OriginTLS(certificateAuthorities: authorities)
    try tls.prepare()
    let transport = OriginTransport(
        group: group, connectionsPerHost: 4, idle: .hours(1), tls: tls, permitsPeer: permitsPeer)
    let result: Result<Void, any Error>
    do { result = .success(try await body(transport)) } catch { result = .failure(error) }
    await transport.shutdown()
    try await group.shutdownGracefully()
    try result.get()
}

extension OriginTransport {
    /// Sends a request from one of the loops and waits for the answer, as a task does.
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        let loop = group.next()
        let request = try TileQuestion(request)
        let race = Race<TransportResponse>()
        do {
            return try await race.outcome {
                loop.execute {
                    let call = self.send(request, on: loop) { race.end($0.mapError { $0 as any Error }) }
                    let bound = NIOLoopBound(call, eventLoop: loop)
                    race.whenOver { loop.execute { bound.value?.cancel() } }
                }
            }
        } catch { throw error as? TransportError ?? TransportError(.cancelled, "\(error)") }
    }
}

/// How a request fails; `nil` if it is answered.
func failure(_ transport: OriginTransport, _ request: TransportRequest) async -> TransportError? {
    do throws(TransportError) {
        _ = try await transport.send(request)
        return nil
    } catch { return error }
}

/// The transport over the proxy's own connections: what every transport promises, from the loops and from elsewhere.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct OriginTransportTests {
    private func with(
        isSecure: Bool = false, _ answer: @escaping LocalOrigin.Answer,
        _ body: (OriginTransport, LocalOrigin) async throws -> Void
    ) async throws {
        if isSecure, originCertificate == nil { return print("no openssl command: not tested over https") }
        let origin = try await LocalOrigin.start(certificate: isSecure ? originCertificate : nil, answer: answer)
        try await withTransport(loops: 2) { try await body($0, origin) }
    }

    private func code(_ transport: OriginTransport, _ request: TransportRequest) async -> TransportError.Code? {
        await failure(transport, request)?.code
    }

    @Test(arguments: [false, true])
    func theWholeAnswerArrives(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { request in
            LocalAnswer(.notFound, [.eTag: "\"a\"", .age: request.fields[.accept] ?? ""], text: request.path)
        } _: { transport, origin in
            for i in 0..<20 {
                let head = origin.request("/a/\(i)?b=c", [.accept: "7"])
                let answer = try await transport.send(TransportRequest(head: head))
                #expect(answer.status == 404 && answer.text == "/a/\(i)?b=c")
                #expect(answer[.eTag] == "\"a\"" && answer[.age] == "7")
            }
            #expect(origin.connectionsMade <= 2, "kept, one for each loop")
        }
    }

    @Test(arguments: [false, true])
    func theLimitOfTheBodyIsExact(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { _ in
            LocalAnswer(.ok, text: String(repeating: "x", count: 100))
        } _: { transport, origin in
            let head = origin.request("/")
            let answer = try await transport.send(TransportRequest(head: head, bodyLimit: 100))
            #expect(answer.body.count == 100)
            #expect(await code(transport, TransportRequest(head: head, bodyLimit: 99)) == .bodyTooLarge)
        }
    }

    @Test(arguments: [false, true])
    func whatBreaksOffIsTruncatedAndWhatSaysNothingIsAFailure(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { request in
            switch request.path {
            case "/short": .raw(.text("HTTP/1.1 200 OK\nContent-Length: 10\n\nabc"), .close)
            case "/chunk": .raw(.text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc"), .close)
            case "/junk": .raw(.text("nonsense\n\n"), .close)
            case "/head": .raw(.text("HTTP/1.1 200 OK\nX: "), .endless([UInt8](repeating: 97, count: 8192)))
            default: .raw(.close)
            }
        } _: { transport, origin in
            for (path, expected) in [
                ("/short", TransportError.Code.truncated), ("/chunk", .truncated), ("/junk", .malformed),
                ("/head", .headTooLarge), ("/none", .connection),
            ] {
                let request = TransportRequest(head: origin.request(path), timeout: .seconds(600))
                #expect(await code(transport, request) == expected, "\(path)")
            }
            try await origin.stop()
            #expect(await code(transport, TransportRequest(head: origin.request("/"))) == .connection)
        }
    }

    @Test(arguments: [false, true])
    func timeIsForTheWholeExchange(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { _ in
            .raw(.text("HTTP/1.1 200 OK\nContent-Length: 10\n\nabc"), .hang)
        } _: { transport, origin in
            let request = TransportRequest(head: origin.request("/"), timeout: .milliseconds(50))
            #expect(await code(transport, request) == .timeout)
            await origin.connectionsClosed()
        }
    }

    @Test
    func aTLSHandshakeThatHangsEndsWithTheRequestsTime() async throws {
        let silent = try ScriptedOrigin { _, _ in true }
        try await withTransport { transport in
            let head = HTTPRequest(method: .get, scheme: "https", authority: "localhost:\(silent.port)", path: "/")
            #expect(await code(transport, TransportRequest(head: head, timeout: .milliseconds(50))) == .timeout)
        }
    }

    @Test(arguments: [false, true])
    func whoIsCancelledLeavesAtOnce(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { _ in
            .raw(.hang)
        } _: { transport, origin in
            let request = TransportRequest(head: origin.request("/"), timeout: .seconds(3600))
            let task = Task { await code(transport, request) }
            await origin.arrivals(1)
            task.cancel()
            #expect(await task.value == .cancelled)
            await origin.connectionsClosed()
            let late = Task {
                while !Task.isCancelled { await Task.yield() }
                return await code(transport, request)
            }
            late.cancel()
            #expect(await late.value == .cancelled)
        }
    }

    @Test
    func whyThereIsNoConnectionIsToldApart() async throws {
        let plain = try await LocalOrigin.start { _ in LocalAnswer(.ok) }
        try await withTransport { transport in
            // Longer than a label of a name may be, so that nobody is asked.
            let unknown = String(repeating: "a", count: 64) + ".test"
            for (authority, expected) in [(unknown, TransportError.Code.nameNotFound), (plain.authority, .tls)] {
                let head = HTTPRequest(method: .get, scheme: "https", authority: authority, path: "/")
                let error = await failure(transport, TransportRequest(head: head))
                #expect(error?.code == expected)
                #expect(error?.message.hasPrefix(authority) == true)
            }
        }
    }

    // MARK: What is sent

    @Test(arguments: [false, true])
    func whateverAURLMayHaveIsSentAsItIs(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { request in
            LocalAnswer(.ok, text: request.path)
        } _: { transport, origin in
            for target in [
                "/", "//a", "/a//b", "/a?", "/?a", "/a?b=[0]&c=a|b&d={e}", "/a[1]|{b}", "/%7Bz%7D?q=%5B%5D", "/a%2Fb",
                "/%2e%2e/a", "/a/../b", "/100%25", "/a%zz?100%", "/~a!$&'()*+,;=:@b", "/a?b?c/d", "/a\\b", "/\"<>^`",
            ] {
                let answer = try await transport.send(TransportRequest(head: origin.request(target)))
                #expect(answer.text == target)
            }
        }
    }

    @Test
    func whatCannotBeSentIsRefusedAndSaysWhy() async throws {
        try await with { _ in
            LocalAnswer(.ok)
        } _: { transport, origin in
            let at = origin.authority
            func head(
                _ authority: String? = nil, _ path: String = "/", scheme: String = "http", _ fields: HTTPFields = [:]
            ) -> HTTPRequest {
                HTTPRequest(
                    method: .get, scheme: scheme, authority: authority ?? at, path: path, headerFields: fields)
            }
            for (head, words) in [
                (head(scheme: "ftp"), "only http and https"), (head("me@" + at), "a user name"),
                (head("a b"), "no host and port"), (head("[:::]"), "no host and port"),
                (head(nil, "/a b"), "write %20"), (head(nil, "/a#b"), "a fragment"),
                (head(nil, "/ä"), "beyond ASCII"),
                (head(nil, "a"), "begin with a slash"),
                (head(nil, "/", [.connection: "close"]), "Connection is for the connection"),
                (head(nil, "/", [.contentLength: "1"]), "Content-Length is for the connection"),
                (head(nil, "/", [try #require(HTTPField.Name("Host")): "a b"]), "Host is no host"),
            ] {
                let error = try #require(await failure(transport, TransportRequest(head: head)))
                #expect(error.code == .unsupported && error.message.contains(words), "\(error)")
                #expect(!error.message.contains("me@"))
            }
            #expect(origin.connectionsMade == 0)
        }
    }

    @Test(arguments: [false, true])
    func aServerMayBeAskedUnderAnotherName(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { request in
            LocalAnswer(.ok, text: request.fields[values: HTTPField.Name("Host") ?? .via].joined(separator: ","))
        } _: { transport, origin in
            let name = try #require(HTTPField.Name("Host"))
            let own = try await transport.send(TransportRequest(head: origin.request("/")))
            #expect(own.text == origin.authority)
            let other = try await transport.send(TransportRequest(head: origin.request("/", [name: "tiles.example"])))
            #expect(other.text == "tiles.example")
        }
    }
}

/// An answer whose body is of no use is not read to its end.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct UnwantedBodyTests {
    @Test(arguments: ["Content-Length: 1000000000000", "Transfer-Encoding: chunked"])
    func theHeadIsTheAnswer(length: String) async throws {
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\n\(length)\r\n\r\n")
            // Endless, for all who read it.
            let piece = "8000\r\n" + String(repeating: "x", count: 0x8000) + "\r\n"
            for _ in 0..<8 where length.hasPrefix("Transfer") { wire.send(piece) }
            return true
        }
        try await withTransport { transport in
            let loop = transport.group.next()
            let request = HTTPRequest(method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: "/")
            let question = try TileQuestion(
                request, bodyLimit: 10, timeout: .seconds(3600), isRedirected: false, wantsBody: { _ in false })
            let answer: TransportResponse = try await withCheckedThrowingContinuation { continuation in
                loop.execute { _ = transport.send(question, on: loop) { continuation.resume(with: $0) } }
            }
            #expect(answer.head.status == .ok && answer.body.isEmpty)
        }
        origin.stop()
    }
}
