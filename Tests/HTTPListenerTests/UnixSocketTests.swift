import Foundation
import HTTPTypes
import NIOCore
import NIOPosix
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// Unix sockets: the file, whose it is, and what comes through it.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct UnixSocketTests {
    private let folder: SocketFolder

    init() throws { folder = try SocketFolder() }

    /// Listens at a path, and says why it cannot.
    private func problem(at path: String) -> String? {
        do throws(ListeningSocketProblem) {
            let (socket, descriptor) = try ListeningSocket.listen(at: path, mode: 0o600, backlog: 1)
            try socket.remove()
            close(descriptor)
            return nil
        } catch { return error.description }
    }

    // MARK: Requests

    @Test
    func requestsAreAnswered() async throws {
        let path = folder("s")
        let clients = Notes<String>()
        try await withServer(
            respond: { exchange in
                clients.add(exchange.client.clientName)
                TestResponder.echo(exchange)
            },
            change: { $0.addresses = [ListenAddress(socket: path), ListenAddress(port: 0)] }
        ) { server async throws in
            let wires = try (0..<20).map { _ in try Wire(path: path) }
            for wire in wires {
                wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(try #require(wire.answer()).text == "/a ")
                wire.send("POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
                #expect(try #require(wire.answer()).text == "/b hi")
            }
            #expect(try server.ask().text == "/a ")
        }
        #expect(Set(clients.all) == ["unix", "127.0.0.1"])
        #expect(try folder.names.isEmpty)
    }

    @Test
    func requestsOverTLSAreAnswered() async throws {
        guard let certificate = try TestCertificate() else { return }
        let path = folder("s")
        try await withServer(
            tls: try certificate.tls(), change: { $0.addresses = [ListenAddress(socket: path, isSecure: true)] }
        ) { server async throws in
            let client = try await TLSClient(path: path, trusting: certificate, protocols: ["h2", "http/1.1"])
            #expect(client.applicationProtocol == "h2")
            let old = try await TLSClient(path: path, trusting: certificate, protocols: ["http/1.1"])
            old.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(await old.text(through: "/a ").hasSuffix("/a "))
        }
    }

    /// A server in front on the same machine has taken the encryption off: it is not sent back to where it is spoken.
    @Test
    func whatComesByASocketHasNoResponderOfItsOwnForPlainConnections() async throws {
        var configuration = HTTPServer.Configuration()
        configuration.addresses = [ListenAddress(socket: folder("s")), ListenAddress(port: 0)]
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let server = try await HTTPServer.start(
            configuration, on: group,
            makePlainResponder: { _ in TestResponder(answer: { _, _, _ in nil }, respond: { $0.reply(404, "plain") }) },
            makeResponder: { _, _ in TestResponder(answer: { _, _, _ in nil }, respond: { $0.reply(200, "all") }) })
        for (wire, text) in [(try Wire(path: folder("s")), "all\n"), (try Wire(port: server.port), "plain\n")] {
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try #require(wire.answer()).text == text)
        }
        try await server.shutdown()
        try await group.shutdownGracefully()
    }

    // MARK: The file

    @Test(arguments: [0o600, 0o660, 0o666, 0o640])
    func theFileHasTheRightsThatWereAskedForWhateverTheUmask(mode: Int) async throws {
        try await withServer(
            change: {
                $0.addresses = [ListenAddress(socket: folder("s"))]
                $0.socketMode = mode
            }
        ) { _ async throws in #expect(try folder.mode("s") == mode) }
    }

    @Test
    func theFileIsItsOwnersAloneIfNothingElseIsSaid() async throws {
        try await withServer(change: { $0.addresses = [ListenAddress(socket: folder("s"))] }) { _ async throws in
            #expect(try folder.mode("s") == 0o600)
        }
    }

    @Test
    func aSocketThatWasLeftBehindIsReplaced() async throws {
        try folder.leave("s")
        try await withServer(change: { $0.addresses = [ListenAddress(socket: folder("s"))] }) { _ async throws in
            let wire = try Wire(path: folder("s"))
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try #require(wire.answer()).text == "/a ")
        }
        #expect(try folder.names.isEmpty)
    }

    @Test
    func aSocketThatIsInUseIsLeftAloneAndItsProcessNamed() throws {
        let other = try folder.taken("s")
        #if os(Linux)
        #expect(problem(at: folder("s")) == "another process (\(getpid())) listens there")
        #else
        #expect(problem(at: folder("s")) == "another process listens there")
        #endif
        // As many wait there as may, and some more: each look is one of those that wait.
        for _ in 0..<4 { #expect(try #require(problem(at: folder("s"))).hasPrefix("another process")) }
        #expect(try folder.names == ["s"])
        _ = other
    }

    @Test
    func whatIsNoSocketIsLeftAlone() throws {
        try Data("mine".utf8).write(to: URL(fileURLWithPath: folder("file")))
        try FileManager.default.createDirectory(atPath: folder("folder"), withIntermediateDirectories: false)
        try FileManager.default.createSymbolicLink(atPath: folder("link"), withDestinationPath: folder("nothing"))
        try folder.leave("left")
        try FileManager.default.createSymbolicLink(atPath: folder("to-socket"), withDestinationPath: folder("left"))
        #expect(mkfifo(folder("pipe"), 0o600) == 0)
        for name in ["file", "folder", "link", "to-socket", "pipe"] {
            #expect(
                problem(at: folder(name)) == "there is something else than a socket; it is left as it is", "\(name)")
        }
        #expect(try folder.names == ["file", "folder", "left", "link", "pipe", "to-socket"])
        #expect(try String(contentsOfFile: folder("file"), encoding: .utf8) == "mine")
    }

    @Test
    func aSocketOfAnotherKindIsLeftAlone() throws {
        #if canImport(Glibc)
        let kind = Int32(SOCK_DGRAM.rawValue)
        #else
        let kind = SOCK_DGRAM
        #endif
        let descriptor = socket(AF_UNIX, kind, 0)
        defer { close(descriptor) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let status = try SocketAddress(unixDomainSocketPath: folder("s")).withSockAddr { address, _ in
            bind(descriptor, address, size)
        }
        #expect(status == 0)
        #expect(problem(at: folder("s")) == "a socket of another kind is there; it is left as it is")
        #expect(try folder.names == ["s"])
    }

    @Test
    func whatCannotBeIsNamed() {
        #expect(problem(at: folder("gone/s")) == "the folder \(folder.path)/gone does not exist")
        #expect(problem(at: "s") == "a socket's path begins with /")
        #expect(problem(at: "/a\0b") == "a socket's path begins with /")
        let longest = ListeningSocket.longestPath
        let long = folder(String(repeating: "x", count: longest - folder.path.utf8.count))
        #expect(
            problem(at: long)
                == "a socket's path has \(longest) bytes at most, and this one has \(longest + 1)")
        // One byte less fits, and the system takes it.
        #expect(problem(at: String(long.dropLast())) == nil)
    }

    @Test
    func theFileOfAnotherProcessStaysWhenTheServerStops() async throws {
        var replacement: Wire?
        try await withServer(change: { $0.addresses = [ListenAddress(socket: folder("s"))] }) { _ async throws in
            #expect(unlink(folder("s")) == 0)
            replacement = try folder.taken("s")
        }
        #expect(try folder.names == ["s"])
        _ = replacement
    }

    @Test
    func aServerThatCannotListenEverywhereLeavesNoFile() async throws {
        let other = try folder.taken("taken")
        var configuration = HTTPServer.Configuration()
        configuration.addresses = [ListenAddress(socket: folder("s")), ListenAddress(socket: folder("taken"))]
        let error = await #expect(throws: HTTPServer.ListenFailure.self) {
            _ = try await HTTPServer.start(configuration, on: MultiThreadedEventLoopGroup.singleton) { _, _ in
                TestResponder(answer: { _, _, _ in nil }, respond: TestResponder.echo)
            }
        }
        #expect(error?.address == ListenAddress(socket: folder("taken")))
        #expect(try folder.names == ["taken"])
        _ = other
    }

    /// Of many that begin at once, in the place of a socket that was left behind, one has it and the others say so.
    @Test
    func oneOfManyThatBeginAtOnceHasTheSocket() throws {
        for _ in 0..<20 {
            try folder.leave("s")
            let path = folder("s")
            let results = Notes<Result<Int32, ListeningSocketProblem>>()
            let threads = (0..<8).map { _ in
                Thread {
                    results.add(
                        Result { () throws(ListeningSocketProblem) in
                            try ListeningSocket.listen(at: path, mode: 0o600, backlog: 16).descriptor
                        })
                }
            }
            for thread in threads { thread.start() }
            while results.all.count < threads.count { usleep(100) }
            let descriptors = results.all.compactMap { try? $0.get() }
            #expect(descriptors.count == 1)
            let wire = try Wire(path: path)
            #expect(!wire.isReadable)
            for descriptor in descriptors { close(descriptor) }
            #expect(wire.isAtEnd())
            #expect(unlink(path) == 0)
        }
    }

    // MARK: The end

    @Test
    func requestsThatAreUnderWayEndAfterTheFileIsGone() async throws {
        let path = folder("s")
        let begun = Notes<Exchange.Later>()
        try await withServer(
            respond: { exchange in begun.add(Exchange.Later(exchange)) },
            change: { $0.addresses = [ListenAddress(socket: path)] }
        ) { tested async throws in
            let wire = try Wire(path: path)
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            while begun.all.isEmpty { await Task.yield() }
            let server = tested.server
            async let stopped: Void = server.shutdown(grace: .seconds(3600))
            while try !folder.names.isEmpty { await Task.yield() }
            begun.all[0].answer()
            #expect(try #require(wire.answer()).text == "late\n")
            try await stopped
        }
    }

    /// A system's own way to say that an answer is not whole is not there on a socket; its framing says so.
    @Test
    func aBrokenOffAnswerIsSeenByItsFraming() async throws {
        try await withServer(
            respond: { exchange in
                exchange.send(HTTPResponse(status: .ok), length: nil)
                exchange.send(ByteBuffer(string: "half"))
                exchange.eventLoop.execute { exchange.abort() }
            }, change: { $0.addresses = [ListenAddress(socket: folder("s"))] }
        ) { _ async throws in
            let wire = try Wire(path: folder("s"))
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            let all = String(decoding: wire.takeAll(), as: UTF8.self)
            #expect(all.hasSuffix("\r\n\r\n4\r\nhalf\r\n"))
        }
    }
}

extension Exchange {
    /// An exchange that is answered from another thread.
    struct Later: Sendable {
        private let exchange: NIOLoopBound<Exchange>

        init(_ exchange: Exchange) { self.exchange = NIOLoopBound(exchange, eventLoop: exchange.eventLoop) }

        func answer() {
            exchange.eventLoop.execute { exchange.value.reply(200, "late") }
        }
    }
}
