import Foundation
import HTTPCaching
import NIOConcurrencyHelpers
import NIOCore
import Testing
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import ObjectStorage

/// What the client sends, and what it makes of every kind of answer: against a server that answers as a script says.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct S3ClientTests {
    private static let empty = ByteBuffer()

    private func withServer(
        _ script: @escaping ScriptedOrigin.Script, now: @escaping @Sendable () -> Timestamp = { Timestamp(Date()) },
        limits change: (inout S3Limits) -> Void = { _ in }, _ body: (S3Client, ScriptedOrigin) async throws -> Void
    ) async throws {
        let server = try ScriptedOrigin(script)
        try await withClient("http://127.0.0.1:\(server.port)", now: now, limits: change) { client, _ async throws in
            try await body(client, server)
        }
        server.stop()
    }

    /// Answers everything with one text; the connection stays open.
    private func always(_ text: String) -> ScriptedOrigin.Script {
        { _, wire in
            wire.send(text)
            return true
        }
    }

    private static func error(_ status: String, _ code: String, _ fields: [String] = []) -> String {
        reply(
            status, fields + ["Content-Type: application/xml"],
            "<?xml version=\"1.0\"?><Error><Code>\(code)</Code><Message>\(secrets.key)</Message><CanonicalRequest>\(secrets.token)"
                + "</CanonicalRequest></Error>")
    }

    // MARK: What is sent

    @Test func sendsWhatIsSignedAndAsksForNoCoding() async throws {
        let always = always(reply("200 OK", ["ETag: \"e\"", "Date: Fri, 24 May 2013 00:00:01 GMT"]))
        try await withServer(always, now: { Timestamp(seconds: 1_369_353_600) }) { client, server async throws in
            let digest = Array("tile".utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
            let written = try await client.send(
                .put(
                    "a b/ü", ByteBuffer(string: "tile"), contentType: "image/png",
                    metadata: S3Metadata(["url": Array("a b".utf8)]),
                    digest: digest))
            #expect(written == S3Written(entityTag: "\"e\"", date: Timestamp(seconds: 1_369_353_601)))
            let request = try #require(server.requests.first)
            #expect(request.line == "PUT /tiles/a%20b/%C3%BC HTTP/1.1" && request.body == "tile")
            let fields = request.fields
            #expect(fields["host"] == "127.0.0.1:\(server.port)" && fields["content-length"] == "4")
            #expect(fields["x-amz-content-sha256"] == digest.description && fields["x-amz-date"] == "20130524T000000Z")
            #expect(fields["x-amz-meta-url"] == "a%20b" && fields["content-type"] == "image/png")
            #expect(fields["x-amz-security-token"] == secrets.token && fields["accept-encoding"] == "identity")
            let authorization = try #require(fields["authorization"])
            #expect(
                authorization.hasPrefix(
                    "AWS4-HMAC-SHA256 Credential=AKTEST/20130524/us-east-1/s3/aws4_request,SignedHeaders="
                        + "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-meta-url;x-amz-security-token,Signature="
                ))
            client.adopt(try S3Credentials(accessKey: "OTHER", secretKey: "other"))
            _ = try await client.send(.put("k", Self.empty))
            let second = try #require(server.requests.last)
            #expect(second.fields["x-amz-security-token"] == nil && second.fields["content-length"] == "0")
            #expect(second.fields["authorization"]?.contains("Credential=OTHER/") == true)
        }
    }

    @Test func asksForListingsWithASortedQuery() async throws {
        let page = reply("200 OK", [], "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        try await withServer(always(page)) { client, server async throws in
            let listing = try await client.send(
                .list(prefix: "a b+", delimiter: "/", after: "ü", continuing: "t==", most: 7))
            #expect(listing.items.isEmpty && listing.commonPrefixes.isEmpty && listing.next == nil)
            #expect(
                server.requests.first?.target
                    == "/tiles/?continuation-token=t%3D%3D&delimiter=%2F&encoding-type=url&list-type=2&max-keys=7&prefix=a%20b%2B"
                    + "&start-after=%C3%BC")
            for most in [0, 1001] { #expect(throws: S3Error.self) { try S3Operation.list(prefix: "", most: most) } }
        }
    }

    @Test func deletesManyWithTheDigestThatServersWant() async throws {
        let answer = reply(
            "200 OK", [],
            "<DeleteResult><Error><Key>a&amp;\t\n\u{FFFD}</Key><Code>AccessDenied</Code><Message>x</Message></Error></DeleteResult>"
        )
        try await withServer(always(answer)) { client, server async throws in
            let failures = try await client.send(.deleteObjects(["a&\t\n\u{FFFD}", "<b>\r"]))
            #expect(failures == [S3DeleteFailure(key: "a&\t\n\u{FFFD}", code: "AccessDenied")])
            let request = try #require(server.requests.first)
            #expect(request.method == "POST" && request.target == "/tiles/?delete=")
            #expect(
                request.body.contains(
                    "<Object><Key>a&amp;&#9;&#10;\u{FFFD}</Key></Object><Object><Key>&lt;b&gt;&#13;</Key></Object>"))
            let sum = try #require(md5(Array(request.body.utf8)))
            #expect(request.fields["content-md5"] == Data(sum).base64EncodedString())
            // An error about something else is none about what was asked.
            let failed = try await failure { _ = try await client.send(.deleteObjects(["other"])) }
            #expect(failed?.code == .malformed)
        }
        for keys in [[], [""], ["a\u{1}"], ["\u{FFFF}"], Array(repeating: "a", count: 1001)] {
            #expect(throws: S3Error.self) { try S3Operation.deleteObjects(keys) }
        }
    }

    @Test func sendsNothingThatIsTooLarge() async throws {
        try await withServer(always(reply()), limits: { $0.objectBytes = 10 }) { client, server async throws in
            _ = try await client.send(.put("k", ByteBuffer(repeating: 1, count: 10)))
            let failed = try await failure { _ = try await client.send(.put("k", ByteBuffer(repeating: 1, count: 11))) }
            #expect(failed?.code == .invalid && server.count == 1)
        }
        #expect(throws: S3Error.self) { try S3Operation.get("") }
        #expect(throws: S3Error.self) { try S3Operation.delete(String(repeating: "k", count: 1025)) }
        #expect(throws: S3Error.self) { try S3Operation.put("k", Self.empty, contentType: "a\r\nb: c") }
        #expect(throws: S3Error.self) { try S3Operation.get("k", unlessMatching: "\"a\"\nx") }
    }

    // MARK: What is answered

    @Test func readsObjects() async throws {
        let answers = [
            reply("200 OK", ["ETag: \"e\"", "x-amz-meta-a: %00x", "Date: Thu, 01 Jan 1970 00:00:09 GMT"], "tile"),
            "HTTP/1.1 304 Not Modified\r\nDate: Thu, 01 Jan 1970 00:00:09 GMT\r\n\r\n",
            Self.error("404 Not Found", "NoSuchKey"), reply("404 Not Found"),
            "HTTP/1.1 304 Not Modified\r\nDate: Thu, 01 Jan 1970 00:00:09 GMT\r\n\r\n",
            Self.error("404 Not Found", "NoSuchBucket"),
            reply("206 Partial Content", [], "ti"), reply("200 OK", ["x-amz-meta-a: %"]),
        ]
        try await withServer({ request, wire in
            wire.send(answers[request.number - 1])
            return true
        }) { client, server async throws in
            let object = try #require(try await client.send(.get("k", unlessMatching: "\"d\"")).object)
            #expect(String(buffer: object.bytes) == "tile" && object.size == 4 && object.entityTag == "\"e\"")
            #expect(object.metadata.values == ["a": [0, 0x78]] && object.date == Timestamp(seconds: 9))
            #expect(server.requests.first?.fields["if-none-match"] == "\"d\"")
            #expect(try await client.send(.get("k", unlessMatching: "\"e\"")).isNotModified)
            #expect(try await client.send(.get("k")).isMissing)
            // Another server's page, or a 304 that nobody asked for, is not the bucket's word.
            for _ in 0..<2 {
                #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .refused)
            }
            for code in [S3Error.Code.missingBucket, .malformed, .malformed] {
                #expect(try await failure { _ = try await client.send(.get("k")) }?.code == code)
            }
        }
    }

    @Test func readsHeads() async throws {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 123\r\nETag: \"e\"\r\n\r\n"
        try await withServer({ request, wire in
            wire.send(request.number == 1 ? head : "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n")
            return true
        }) { client, _ async throws in
            let object = try #require(try await client.send(.head("k")).object)
            #expect(object.size == 123 && object.bytes.readableBytes == 0)
            #expect(try await client.send(.head("k")).isMissing)
        }
    }

    @Test func refusesCodedAnswers() async throws {
        let answers = [
            reply("200 OK", ["Content-Encoding: gzip"], "x"), reply("200 OK", ["Content-Encoding: identity"], "x"),
            reply("403 Forbidden", ["Content-Encoding: gzip"], "x"),
        ]
        try await withServer({ request, wire in
            wire.send(answers[request.number - 1])
            return true
        }) { client, _ async throws in
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .coded)
            #expect(try await client.send(.get("k")).object?.bytes == ByteBuffer(string: "x"))
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .refused)
        }
    }

    @Test func boundsWhatIsAnswered() async throws {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n"
        let answers = [
            reply("200 OK", [], "0123456789"), reply("200 OK", [], "0123456789x"), chunked,
            reply("403 Forbidden", [], String(repeating: "x", count: 1000)),
            reply("200 OK", [], "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"),
            "HTTP/1.1 200 OK\r\nA: \(String(repeating: "a", count: 70000))\r\n\r\n",
        ]
        try await withServer(
            { request, wire in
                wire.send(answers[request.number - 1])
                return true
            },
            limits: {
                $0.objectBytes = 10
                $0.documentBytes = 20
                $0.errorBytes = 100
            }
        ) { client, _ async throws in
            #expect(try await client.send(.get("k")).object?.size == 10)
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .tooLarge)
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .tooLarge)
            let refused = try await failure { _ = try await client.send(.get("k")) }
            #expect(refused?.code == .refused && refused?.status == 403)
            #expect(try await failure { _ = try await client.send(.list()) }?.code == .tooLarge)
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .tooLarge)
        }
    }

    @Test(arguments: [
        ("403 Forbidden", "SignatureDoesNotMatch", S3Error.Code.refused, "secret key"),
        ("403 Forbidden", "InvalidAccessKeyId", .refused, "access key"),
        ("403 Forbidden", "AccessDenied", .refused, "may not"),
        ("400 Bad Request", "ExpiredToken", .refused, "session token"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", .refused, "region"),
        ("301 Moved Permanently", "PermanentRedirect", .refused, "endpoint"),
        ("404 Not Found", "NoSuchBucket", .missingBucket, "bucket"),
        ("429 Too Many Requests", "SlowDown", .unavailable, "429"),
        ("503 Service Unavailable", "SlowDown", .unavailable, "SlowDown"),
        ("400 Bad Request", "&lt;evil&gt; \(secrets.key)", .refused, "400"),
    ])
    func tellsErrorsInWordsAndNoSecrets(status: String, code: String, expected: S3Error.Code, word: String) async throws
    {
        try await withServer(always(Self.error(status, code))) { client, _ async throws in
            let error = try #require(try await failure { _ = try await client.send(.put("a\nkey", Self.empty)) })
            #expect(error.code == expected && error.status == Int(status.prefix(3)))
            #expect(
                error.message.contains(word) && error.message.contains("tiles") && error.message.contains("a\\nkey"))
            var text = "\(error) \(String(reflecting: error))"
            dump(error, to: &text)
            #expect(!text.contains("hidden"), "\(text)")
        }
    }

    @Test func namesBothClocks() async throws {
        let date = ["Date: Fri, 24 May 2013 01:00:00 GMT"]
        let answers = [
            Self.error("403 Forbidden", "RequestTimeTooSkewed", date),
            "HTTP/1.1 403 Forbidden\r\n\(date[0])\r\nContent-Length: 0\r\n\r\n",
            Self.error("403 Forbidden", "RequestTimeTooSkewed"),
        ]
        let script: ScriptedOrigin.Script = { request, wire in
            wire.send(answers[request.number - 1])
            return true
        }
        try await withServer(script, now: { Timestamp(seconds: 1_369_353_600) }) { client, _ async throws in
            for operation in try [S3Operation.get("k"), .head("k")] {
                let error = try #require(try await failure { _ = try await client.send(operation) })
                #expect(error.code == .clock)
                #expect(
                    error.message.contains("Fri, 24 May 2013 00:00:00 GMT")
                        && error.message.contains("Fri, 24 May 2013 01:00:00 GMT"))
            }
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .clock)
        }
    }

    // MARK: Second attempts

    @Test(arguments: ["500 Internal Server Error", "503 Service Unavailable", "cut", "half"])
    func asksOnceMore(first: String) async throws {
        for succeeds in [true, false] {
            try await withServer({ request, wire in
                if succeeds, request.number == 2 {
                    wire.send(reply("200 OK", [], "tile"))
                    return true
                }
                switch first {
                case "cut": return false
                case "half":
                    wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
                    return false
                default:
                    wire.send(reply(first))
                    return true
                }
            }) { client, server async throws in
                let code = first.hasPrefix("50") ? S3Error.Code.unavailable : .connection
                if succeeds {
                    #expect(try await client.send(.get("k")).object?.bytes == ByteBuffer(string: "tile"))
                } else {
                    #expect(try await failure { _ = try await client.send(.get("k")) }?.code == code)
                }
                #expect(server.count == 2)
            }
        }
    }

    @Test func sendsTheBodyOnceMore() async throws {
        try await withServer({ request, wire in
            wire.send(request.number == 1 ? reply("503 Slow Down") : reply())
            return true
        }) { client, server async throws in
            _ = try await client.send(.put("k", ByteBuffer(string: "tile")))
            #expect(server.requests.map(\.body) == ["tile", "tile"])
        }
    }

    @Test(arguments: ["400 Bad Request", "404 Not Found", "502 Bad Gateway"])
    func doesNotAskAgainWhatIsAnswered(status: String) async throws {
        try await withServer(always(reply(status))) { client, server async throws in
            _ = try await failure { _ = try await client.send(.put("k", Self.empty)) }
            #expect(server.count == 1)
        }
    }

    // MARK: Time

    @Test func givesUpAServerThatIsSilent() async throws {
        let gate = Gate()
        try await withServer(
            { _, wire in
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
                gate.wait()
                return false
            }, limits: { $0.request = .milliseconds(50) }
        ) { client, server async throws in
            let error = try await failure { _ = try await client.send(.get("k")) }
            #expect(error?.code == .timeout && error?.message.contains("50 ms") == true)
            gate.open()
        }
    }

    @Test func oneTimeCoversBothAttempts() async throws {
        try await withServer(
            always(reply("503 Slow Down")),
            limits: {
                $0.request = .milliseconds(50)
                $0.retryPause = .hours(1)
            }
        ) { client, server async throws in
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .timeout)
            #expect(server.count <= 1)
        }
    }

    @Test func cancelsWithItsTask() async throws {
        let (gate, asked) = (Gate(), NIOLockedValueBox(false))
        try await withServer({ _, _ in
            asked.withLockedValue { $0 = true }
            gate.wait()
            return false
        }) { client, _ async throws in
            let task = Task { try await failure { _ = try await client.send(.get("k")) } }
            while !asked.withLockedValue({ $0 }) { await Task.yield() }
            task.cancel()
            #expect(try await task.value?.code == .cancelled)
            let early = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                return try await failure { _ = try await client.send(.get("k")) }
            }
            #expect(try await early.value?.code == .cancelled)
            gate.open()
        }
    }

    @Test func saysThatThereIsNoServer() async throws {
        let server = try ScriptedOrigin(always: reply())
        server.stop()
        try await withClient("http://127.0.0.1:\(server.port)") { client, _ async throws in
            #expect(try await failure { _ = try await client.send(.get("k")) }?.code == .connection)
        }
    }

    @Test func answersOnTheLoopThatAsks() async throws {
        let server = try ScriptedOrigin(always: reply("200 OK", [], "tile"))
        try await withClient("http://127.0.0.1:\(server.port)") { client, loop async throws in
            let operation = try S3Operation.get("k")
            let promise = loop.makePromise(of: String.self)
            loop.execute {
                _ = client.send(operation, on: loop) { result in
                    #expect(loop.inEventLoop)
                    promise.succeed((try? result.get().object).map { String(buffer: $0.bytes) } ?? "nothing")
                }
            }
            #expect(try await promise.futureResult.get() == "tile")
        }
    }
}
