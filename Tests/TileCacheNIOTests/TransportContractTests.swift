import Foundation
import HTTPTypes
import NIOCore
import Testing
import TileCache
import TileCacheNIO
import TileCacheTesting

/// What ``TileTransport`` promises, asked of every transport.
///
/// Known gaps of URLSession on Linux are named where they are.
@Suite(.timeLimit(.minutes(60)))
struct TransportContractTests {
    // MARK: Answers

    @Test(arguments: Carrier.allCases)
    func anAnswerArrivesWhole(carrier: Carrier) async throws {
        let body = [UInt8](repeating: 0, count: 100_000).indices.map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let origin = try await LocalOrigin.start { _ in
            LocalAnswer(.ok, [.contentType: "image/png", .eTag: "\"a\""], body: body)
        }
        let answer = try await carrier.make().get(origin, "/1/2/3.png").get()
        #expect(answer.head.status == .ok)
        #expect(answer.head.headerFields[.eTag] == "\"a\"")
        #expect(answer.head.headerFields[.contentType] == "image/png")
        #expect(answer.head.headerFields[.contentLength] == "100000")
        #expect(answer.body == Data(body))
    }

    @Test(arguments: Carrier.allCases)
    func theRequestArrivesAsGiven(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer() }
        _ = try await carrier.make().get(
            origin, "/", [.userAgent: "tiles/1", .authorization: "Bearer a", .ifNoneMatch: "\"a\", W/\"b\""]
        ).get()
        let request = try #require(origin.requests.first)
        #expect(request.method == "GET")
        #expect(request.request.authority == origin.authority)
        #expect(request.fields[.userAgent] == "tiles/1")
        #expect(request.fields[.authorization] == "Bearer a")
        #expect(request.fields[.ifNoneMatch] == "\"a\", W/\"b\"")
        #expect(request.fields[.cacheControl] == nil)
        #expect(request.fields[HTTPField.Name("Pragma") ?? .cacheControl] == nil)
        #expect(request.fields[.cookie] == nil)
        #expect(request.fields[.acceptEncoding] == (carrier == .urlSession ? "identity" : nil))
    }

    @Test(
        arguments: Carrier.allCases,
        ["/", "/a//b", "/%2Fa%20b/%C3%A9.png", "/a?", "/a?b=c+d&e=%26&f", "/a;v=1/b,c/@2x:(1)!$'*", "/a?b=/c?d:@"])
    func pathAndQueryArriveAsGiven(carrier: Carrier, path: String) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer() }
        _ = try await carrier.make().get(origin, path).get()
        #expect(origin.requests.map(\.path) == [path])
    }

    @Test(arguments: Carrier.allCases, [200, 203, 204, 206, 300, 304, 400, 404, 410, 416, 429, 500, 503, 599])
    func everyStatusIsAnAnswer(carrier: Carrier, code: Int) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(.init(code: code), [.retryAfter: "9"]) }
        let answer = try await carrier.make().get(origin).get()
        #expect(answer.head.status.code == code)
        #expect(answer.head.headerFields[.retryAfter] == "9")
        #expect(answer.body.isEmpty)
        #expect(origin.requests.count == 1)
    }

    @Test(arguments: Carrier.allCases, [301, 302, 303, 307, 308])
    func aRedirectIsAnAnswer(carrier: Carrier, code: Int) async throws {
        let origin = try await LocalOrigin.start { _ in
            LocalAnswer(.init(code: code), [.location: "/secret?token=secret"], text: "moved")
        }
        let answer = try await carrier.make().get(origin).get()
        #expect(answer.head.status.code == code)
        #expect(answer.head.headerFields[.location] == "/secret?token=secret")
        #expect(origin.requests.count == 1)
    }

    @Test(arguments: Carrier.allCases)
    func aHeadRequestHasNoBody(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(.ok, [.eTag: "\"a\""], text: "a body") }
        var head = origin.request("/")
        head.method = .head
        let answer = try await carrier.make().outcome(head, bodyLimit: 1).get()
        #expect(answer.head.headerFields[.contentLength] == "6")
        #expect(answer.body.isEmpty)
        #expect(origin.requests.map(\.method) == ["HEAD"])
    }

    @Test(arguments: Carrier.allCases)
    func aLengthInA304IsNotABodysLength(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in
            .raw(.text("HTTP/1.1 304 Not Modified\nETag: \"a\"\nContent-Length: 9999999\n\n"))
        }
        let answer = try await carrier.make().get(origin, bodyLimit: 10).get()
        #expect(answer.head.status == .notModified)
        #expect(answer.head.headerFields[.eTag] == "\"a\"")
        #expect(answer.body.isEmpty)
    }

    @Test(arguments: Carrier.allCases)
    func anAnswerWithoutALengthEndsWithTheConnection(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in .raw(.text("HTTP/1.0 200 OK\n\na body"), .close) }
        #expect(await carrier.make().get(origin).text == "a body")
    }

    @Test(arguments: Carrier.allCases)
    func chunksArePutTogether(carrier: Carrier) async throws {
        // Foundation on Linux ends the process when trailer fields come.
        let trailer = carrier.isLinuxURLSession ? "" : "Trailer: 1\n"
        let origin = try await LocalOrigin.start { _ in
            .raw(
                .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2;x=y\na \n"),
                .text("4\nbody\n0\n\(trailer)\n"))
        }
        #expect(await carrier.make().get(origin).text == "a body")
    }

    @Test(arguments: Carrier.allCases)
    func interimAnswersArePassedOver(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in
            .raw(
                .text("HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early Hints\nLink: </a>\nETag: \"early\"\n\n"),
                .text("HTTP/1.1 200 OK\nContent-Length: 6\nServer: b\n\na body"))
        }
        let result = await carrier.make().get(origin)
        #expect(result.text == "a body")
        let fields = try result.get().head.headerFields
        #expect(fields[.server] == "b")
        #expect(fields[.eTag] == nil)
    }

    // MARK: Header fields

    @Test(arguments: Carrier.allCases)
    func repeatedFieldsAllArriveInOrder(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in
            .raw(
                .text(
                    "HTTP/1.1 200 OK\nCache-Control: max-age=1\nVary: a\nCache-Control: no-cache\nVary: b\n"
                        + "Content-Length: 0\n\n"))
        }
        let fields = try await carrier.make().get(origin).get().head.headerFields
        #expect(fields[.cacheControl]?.filter { $0 != " " } == "max-age=1,no-cache")
        #expect(fields[.vary]?.filter { $0 != " " } == "a,b")
        if carrier == .asyncHTTPClient {
            #expect(fields[values: .cacheControl] == ["max-age=1", "no-cache"])
        }
    }

    @Test(arguments: Carrier.allCases)
    func fieldsWhoseNamesDifferInCaseAreOne(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in
            .raw(
                .text(
                    "HTTP/1.1 200 OK\ncache-control: max-age=1\nCache-Control: no-cache\nCACHE-CONTROL: private\n"
                        + "Content-Length: 0\n\n"))
        }
        let fields = try await carrier.make().get(origin).get().head.headerFields
        withKnownIssue("URLSession on Linux keeps one of them") {
            #expect(fields[.cacheControl]?.filter { $0 != " " } == "max-age=1,no-cache,private")
        } when: {
            carrier.isLinuxURLSession
        }
    }

    @Test(arguments: Carrier.allCases)
    func aFieldThatIsNotUTF8DoesNotFailTheAnswer(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in
            .raw(
                .text("HTTP/1.1 200 OK\nServer: caf"), .bytes([0xE9]), .text("\nETag: \"a\"\nContent-Length: 6\n\n"),
                .text("a body"))
        }
        let result = await carrier.make().get(origin)
        try withKnownIssue("URLSession on Linux fails such an answer") {
            #expect(result.text == "a body")
            let fields = try result.get().head.headerFields
            #expect(fields[.eTag] == "\"a\"")
            #expect(fields[.server]?.hasPrefix("caf") == true)
        } when: {
            carrier.isLinuxURLSession
        }
    }

    // MARK: Bytes as they were sent

    /// "tiles, tiles, tiles, tiles", by gzip.
    private static let zipped: [UInt8] = [
        31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 43, 201, 204, 73, 45, 214, 81, 40, 193, 164, 0, 26, 36, 32, 63, 26, 0, 0, 0,
    ]

    @Test(arguments: Carrier.allCases, ["gzip", nil])
    func aCodedBodyIsCodedOrSaysThatItIsNot(carrier: Carrier, accepted: String?) async throws {
        let origin = try await LocalOrigin.start { _ in
            LocalAnswer(.ok, [.contentEncoding: "gzip", .eTag: "\"a\""], body: Self.zipped)
        }
        var fields = HTTPFields()
        fields[.acceptEncoding] = accepted
        let answer = try await carrier.make().get(origin, "/", fields).get()
        #expect(answer.head.headerFields[.eTag] == "\"a\"")
        if carrier == .urlSession {
            #expect(String(decoding: answer.body, as: UTF8.self) == "tiles, tiles, tiles, tiles")
            #expect(answer.head.headerFields[.contentEncoding] == nil)
            #expect(answer.head.headerFields[.contentLength] == nil)
        } else {
            #expect(answer.body == Data(Self.zipped))
            #expect(answer.head.headerFields[.contentEncoding] == "gzip")
        }
        #expect(
            origin.requests.first?.fields[.acceptEncoding] == accepted ?? (carrier == .urlSession ? "identity" : nil))
    }

    @Test(arguments: Carrier.allCases)
    func nothingIsRememberedBetweenRequests(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in
            LocalAnswer(
                .ok, [.setCookie: "a=b; Path=/", .cacheControl: "max-age=3600", .eTag: "\"a\""], text: "a body")
        }
        let transport = carrier.make()
        for _ in 0..<3 { #expect(await transport.get(origin).text == "a body") }
        #expect(origin.requests.count == 3)
        #expect(origin.requests.allSatisfy { $0.fields[.cookie] == nil && $0.fields[.ifNoneMatch] == nil })
    }

    // MARK: Limits

    @Test(arguments: Carrier.allCases, ["Content-Length: 1000", "Transfer-Encoding: chunked", "Connection: close"])
    func theBodyLimitIsExact(carrier: Carrier, framing: String) async throws {
        let origin = try await LocalOrigin.start { _ in
            let body = String(repeating: "a", count: 1000)
            let framed = framing.hasSuffix("chunked") ? "3e8\n\(body)\n0\n\n" : body
            return .raw(.text("HTTP/1.1 200 OK\n\(framing)\n\n\(framed)"), .close)
        }
        let transport = carrier.make()
        #expect(await transport.get(origin, bodyLimit: 1000).text?.count == 1000)
        #expect(await transport.get(origin, bodyLimit: 999).code == .bodyTooLarge)
        #expect(await transport.get(origin, bodyLimit: 0).code == .bodyTooLarge)
    }

    @Test(arguments: Carrier.allCases)
    func anEndlessBodyIsNotReadOn(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in
            .raw(.text("HTTP/1.1 200 OK\n\n"), .endless([UInt8](repeating: 7, count: 0x10000)))
        }
        #expect(await carrier.make().get(origin, bodyLimit: 1 << 20).code == .bodyTooLarge)
        await origin.connectionsClosed()
        withKnownIssue("URLSession on Linux reads on for a while", isIntermittent: true) {
            // The limit, and what the system's buffers on both sides take: up to 36 MiB on some.
            #expect(origin.bytesSent < 64 << 20)
        } when: {
            carrier.isLinuxURLSession
        }
    }

    @Test(arguments: Carrier.allCases)
    func aHostGetsNoMoreConnectionsThanAllowed(carrier: Carrier) async throws {
        let gate = Gate()
        let origin = try await LocalOrigin.start { _ in LocalAnswer(text: "a body", gate: gate) }
        let transport: any TileTransport
        switch carrier {
        case .asyncHTTPClient:
            var configuration = AsyncHTTPClientTransport.Configuration()
            configuration.connectionsPerHost = 4
            transport = AsyncHTTPClientTransport(configuration: configuration)
        case .urlSession: transport = URLSessionTransport(connectionsPerHost: 4)
        }
        let texts = await withTaskGroup { group in
            for tile in 0..<12 { group.addTask { await transport.get(origin, "/\(tile)").text } }
            await origin.arrivals(4)
            gate.open()
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(texts == [String?](repeating: "a body", count: 12))
        #expect(origin.maxConcurrent == 4)
    }

    @Test(arguments: Carrier.allCases)
    func aConnectionIsUsedAgain(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(text: "a body") }
        let transport = carrier.make()
        for _ in 0..<10 { #expect(await transport.get(origin).text == "a body") }
        // A request may come before the connection of the last one is known to be free.
        #expect(origin.connectionsMade < 6)
    }

    // MARK: Failures

    @Test(arguments: Carrier.allCases, HostileServer.all)
    func aServerThatBreaksTheRulesIsANamedError(carrier: Carrier, server: HostileServer) async throws {
        let gap = carrier.isLinuxURLSession ? server.onLinuxURLSession : nil
        if case .trap = gap { return }
        let origin = try await LocalOrigin.start { request in
            request.path == "/after" ? LocalAnswer(text: "well") : server.answer
        }
        let transport = carrier.make()
        let clock = ContinuousClock()
        let start = clock.now
        var timeout = server.timeout
        // Where the deadline is what ends it, there is no need to wait for long.
        switch gap {
        case .error(.timeout), .anyError: timeout = min(timeout, .seconds(5))
        default: break
        }
        let result = await transport.get(origin, timeout: timeout)
        let took = start.duration(to: clock.now)

        let expected: TransportError.Code? =
            switch gap {
            case nil: server.expected
            case .error(let code): code
            case .anyError: result.code ?? server.expected
            case .answer, .trap: nil
            }
        #expect(result.code == expected, "\(result)")
        if case .failure(let error) = result {
            #expect(error.message.contains("127.0.0.1"))
            #expect(!error.description.contains("secret"))
        }
        // The deadline is for the whole exchange; the rest is for a machine that is busy.
        #expect(took < timeout + .seconds(120))
        #expect(await transport.get(origin, "/after").text == "well", "the transport goes on")
        withExtendedLifetime(transport) {}
    }

    @Test(arguments: Carrier.allCases)
    func bytesAfterTheBodyBelongToNobody(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { request in
            request.path == "/after"
                ? LocalAnswer(text: "the right tile")
                : .raw(.text("HTTP/1.1 200 OK\nContent-Length: 4\n\nbodyHTTP/1.1 200 OK\nContent-Length: 5\n\nwrong"))
        }
        let transport = carrier.make()
        #expect(await transport.get(origin).text == "body")
        let after = await transport.get(origin, "/after")
        #expect(after.text == "the right tile", "\(after)")
    }

    @Test(arguments: Carrier.allCases, [Duration.zero, .milliseconds(-5), .milliseconds(200)])
    func aShortDeadlineIsKept(carrier: Carrier, timeout: Duration) async throws {
        let origin = try await LocalOrigin.start { _ in .raw(.hang) }
        #expect(await carrier.make().get(origin, timeout: timeout).code == .timeout)
        await origin.connectionsClosed()
    }

    @Test(arguments: Carrier.allCases)
    func aLongDeadlineIsNotOver(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(text: "a body") }
        #expect(await carrier.make().get(origin, timeout: .seconds(Int64.max)).text == "a body")
    }

    @Test(arguments: Carrier.allCases)
    func cancellingClosesTheExchange(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in .raw(.text("HTTP/1.1 200 OK\nContent-Length: 9\n\nb"), .hang) }
        let transport = carrier.make()
        let task = Task { await transport.get(origin) }
        await origin.arrivals(1)
        task.cancel()
        #expect(await task.value.code == .cancelled)
        await origin.connectionsClosed()
    }

    @Test(arguments: Carrier.allCases)
    func aTaskThatIsCancelledAlreadySendsNothing(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(text: "a body") }
        let transport = carrier.make()
        let gate = Gate()
        let task = Task {
            await gate.wait()
            return await transport.get(origin)
        }
        task.cancel()
        gate.open()
        #expect(await task.value.code == .cancelled)
    }

    @Test(arguments: Carrier.allCases)
    func anOriginThatIsAwayIsAFailedConnectionUntilItIsBack(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(text: "a body") }
        let transport = carrier.make()
        #expect(await transport.get(origin).text == "a body")
        try await origin.stop()
        let clock = ContinuousClock()
        let start = clock.now
        #expect(await transport.get(origin).code == .connection)
        #expect(start.duration(to: clock.now) < .seconds(60), "a refused connection is known at once")
        try await origin.restart()
        #expect(await transport.get(origin).text == "a body")
    }

    @Test(arguments: Carrier.allCases)
    func aNameThatCannotBeIsNotFound(carrier: Carrier) async throws {
        // A label has 63 octets at most (RFC 1035), so that no name server is asked.
        let head = HTTPRequest(
            method: .get, scheme: "http", authority: String(repeating: "a", count: 64) + ".invalid", path: "/")
        #expect(await carrier.make().outcome(head).code == .nameNotFound)
    }

    @Test(arguments: Carrier.allCases, [("ftp", "127.0.0.1"), ("", "127.0.0.1"), ("http", ""), ("file", "a")])
    func whatIsNotHTTPIsUnsupported(carrier: Carrier, target: (scheme: String, authority: String)) async throws {
        let head = HTTPRequest(method: .get, scheme: target.scheme, authority: target.authority, path: "/")
        #expect(await carrier.make().outcome(head).code == .unsupported)
    }

    @Test(
        arguments: Carrier.allCases,
        [
            "127.0.0.1:65536", "127.0.0.1:99999999999999999999", "127.0.0.1:-1", "127.0.0.1:x", "[::1]:70000",
            "127.0.0.1:0",
        ])
    func aPortThatIsNoneIsAnError(carrier: Carrier, authority: String) async throws {
        let head = HTTPRequest(method: .get, scheme: "http", authority: authority, path: "/")
        guard case .failure = await carrier.make().outcome(head) else { return #expect(Bool(false), "it answered") }
    }

    @Test(arguments: Carrier.allCases)
    func aUserInTheAuthorityIsNotInTheMessage(carrier: Carrier) async throws {
        let head = HTTPRequest(method: .get, scheme: "http", authority: "user:secret@127.0.0.1:1", path: "/")
        let result = await carrier.make().outcome(head)
        guard case .failure(let error) = result else { return #expect(Bool(false), "port 1 answered") }
        #expect(error.code == .connection)
        #expect(!error.description.contains("secret"))
        #expect(error.message.contains("127.0.0.1:1"))
    }

    // MARK: TLS

    @Test(arguments: Carrier.allCases)
    func aCertificateThatNobodyTrustsIsRefused(carrier: Carrier) async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let origin = try await LocalOrigin.start(certificate: certificate) { _ in LocalAnswer(text: "a body") }
        let result = await carrier.make().get(origin)
        #expect(result.code == .tls, "\(result)")
        #expect(origin.requests.isEmpty)
    }

    @Test func aCertificateThatTheUserTrustsIsTaken() async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let origin = try await LocalOrigin.start(certificate: certificate) { _ in LocalAnswer(text: "a body") }
        var configuration = AsyncHTTPClientTransport.Configuration()
        configuration.certificateAuthorities = certificate.path
        #expect(await AsyncHTTPClientTransport(configuration: configuration).get(origin).text == "a body")
        configuration.certificateAuthorities = certificate.path + ".missing"
        #expect(await AsyncHTTPClientTransport(configuration: configuration).get(origin).code == .tls)
        configuration.certificateAuthorities = nil
        configuration.verifiesCertificates = false
        #expect(await AsyncHTTPClientTransport(configuration: configuration).get(origin).text == "a body")
    }

    @Test(arguments: Carrier.allCases)
    func aPlainServerIsNoTLSServer(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(text: "a body") }
        var head = origin.request("/")
        head.scheme = "https"
        let result = await carrier.make().outcome(head)
        #expect(result.code == .tls, "\(result)")
    }

    // MARK: The end of a transport

    @Test func shuttingDownEndsWhatIsUnderWay() async throws {
        let origin = try await LocalOrigin.start { _ in .raw(.hang) }
        let transport = AsyncHTTPClientTransport()
        let task = Task { await transport.get(origin) }
        await origin.arrivals(1)
        await transport.shutdown()
        #expect(await task.value.code == .cancelled)
        #expect(await transport.get(origin).code == .cancelled)
        await transport.shutdown()
        await origin.connectionsClosed()
    }

    @Test(arguments: Carrier.allCases)
    func aTransportThatGoesAwayClosesItsConnections(carrier: Carrier) async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer(text: "a body") }
        do {
            let transport = carrier.make()
            #expect(await transport.get(origin).text == "a body")
        }
        await origin.connectionsClosed()
    }
}
