import Foundation
import Testing
import TileCacheTesting
import TileStoreTesting

/// A running `tileproxy` on Unix sockets: from its start to its end, however it ends.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct ProxySocketTests {
    private let scratch: Scratch
    private let folder: SocketFolder

    init() throws { (scratch, folder) = (try Scratch(), try SocketFolder()) }

    /// Starts a proxy, and waits until it listens; its last lines say where.
    private func start(_ arguments: [String]) throws -> Child {
        let child = try Child(
            ["serve", "--cache", scratch("cache"), "--source", "a=\(scratch("tiles"))/{z}/{x}/{y}.png"] + arguments,
            of: Child.tileproxy)
        while !child.hasEnded(within: 1) { if line(of: child, "listening") != nil { return child } }
        throw TestFailure("tileproxy ended: \(child.said)")
    }

    private func line(of child: Child, _ end: String) -> String? {
        child.said.split(separator: "\n").first { $0.hasSuffix(end) }.map(String.init)
    }

    private func health(_ wire: Wire) throws -> Int {
        wire.send("GET /_tileproxy/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return try #require(wire.answer()).status
    }

    @Test func aSocketIsThereFromTheStartToTheEnd() throws {
        let path = folder("http")
        let child = try start(["--listen", "unix:\(path)", "--listen", "127.0.0.1:0", "--socket-mode", "0660"])
        let said = try #require(line(of: child, "listening"))
        #expect(said.contains("address=unix:\(path), ") && said.contains("127.0.0.1:"))
        #expect(try health(Wire(path: path)) == 200)
        #expect(try folder.mode("http") == 0o660)
        child.send(SIGTERM)
        #expect(try child.wait().status == 0)
        #expect(try folder.names.isEmpty)
    }

    @Test func aSocketInUseEndsTheStartAndOneOfADeadProcessDoesNot() throws {
        let arguments = ["--listen", "unix:\(folder("http"))"]
        let first = try start(arguments)
        let second = try Child(
            ["serve", "--cache", scratch("other"), "--source", "a=\(scratch("tiles"))/{z}/{x}/{y}.png"] + arguments,
            of: Child.tileproxy)
        let outcome = try second.wait()
        #expect(outcome.status == 74)
        #if os(Linux)
        let other = "another process (\(first.pid))"
        #else
        let other = "another process"
        #endif
        #expect(
            outcome.messages.contains("cannot listen on unix:\(folder("http")): \(other) listens there\n"),
            "\(outcome.messages)")
        #expect(try health(Wire(path: folder("http"))) == 200)
        first.send(SIGKILL)
        #expect(try first.wait().signal == SIGKILL)
        #expect(try folder.names == ["http"])
        let third = try start(arguments)
        #expect(try health(Wire(path: folder("http"))) == 200)
        #expect(try folder.mode("http") == 0o600)
        third.send(SIGTERM)
        #expect(try third.wait().status == 0)
        #expect(try folder.names.isEmpty)
    }

    @Test func whatIsWrongIsSaidBeforeAnythingIsMade() throws {
        try writeFile(Data("mine".utf8), to: folder("file"))
        let long = folder(String(repeating: "x", count: 200))
        for (arguments, status, message) in [
            (["--listen", "unix:\(folder("file"))"], 74, "there is something else than a socket; it is left as it is"),
            (["--listen", "unix:\(folder("no/http"))"], 74, "the folder \(folder("no")) does not exist"),
            (["--listen", "unix:\(long)"], 64, "bytes at most, and this one has \(long.utf8.count)"),
            (["--listen", "unix:http"], 64, "expected http://host:port"),
            (["--listen", "unix:/a", "--listen", "unix:/a"], 64, "this socket stands there twice"),
            (["--listen", "unix:/a", "--port", "1"], 64, "say where to listen by --listen, or by --host"),
            (["--listen", "unix:/a", "--socket-mode", "rw"], 64, "expected rights in octal, such as 0660"),
        ] {
            let child = try Child(
                ["serve", "--cache", scratch("cache"), "--source", "a=\(scratch("tiles"))/{z}/{x}/{y}.png"] + arguments,
                of: Child.tileproxy)
            let outcome = try child.wait()
            #expect(outcome.status == Int32(status) && outcome.messages.contains(message), "\(outcome.messages)")
        }
        #expect(try String(contentsOfFile: folder("file"), encoding: .utf8) == "mine")
        #expect(try folder.names == ["file"])
    }

    /// The log names what waits for a new start, and everything goes on as it was.
    @Test func aReloadKeepsTheSocketsAsTheyAre() throws {
        func configure(_ lines: String) throws {
            try scratch.write(
                Data("sources: {a: {template: \"\(scratch("tiles"))/{z}/{x}/{y}.png\"}}\n\(lines)\n".utf8), to: "c.yaml"
            )
        }
        let path = folder("http")
        try configure("listen: [\"unix:\(path)\"]\naccessLog: {path: \(scratch("access.log"))}")
        let child = try Child(
            ["serve", "--cache", scratch("cache"), "--config", scratch("c.yaml")], of: Child.tileproxy)
        while line(of: child, "listening") == nil, !child.hasEnded(within: 1) {}
        let early = try Wire(path: path)
        #expect(try health(early) == 200)
        try configure(
            "listen: [\"unix:\(folder("other"))\"]\naccessLog: {path: \(scratch("access.log"))}\nsocketMode: \"0666\"\n"
                + "trustedProxies: unix\nproxyProtocol: true")
        child.send(SIGHUP)
        while line(of: child, "configuration read again") == nil, !child.hasEnded(within: 1) {}
        for key in ["listen", "socketMode", "trustedProxies", "proxyProtocol"] {
            #expect(child.said.contains("key=\(key) "), "\(child.said)")
        }
        #expect(try health(early) == 200)
        #expect(try health(Wire(path: path)) == 200)
        #expect(try folder.names == ["http"])
        #expect(try folder.mode("http") == 0o600)
        child.send(SIGTERM)
        #expect(try child.wait().status == 0)
        #expect(try folder.names.isEmpty)
        let log = try String(contentsOfFile: scratch("access.log"), encoding: .utf8)
        #expect(log.hasPrefix("unix - - ["), "\(log)")
    }

    @Test func theClientOfAPROXYHeaderIsInTheLogs() throws {
        let path = folder("http")
        try scratch.write(
            Data(
                """
                cache: \(scratch("cache"))
                listen: ["unix:\(path)", "127.0.0.1:0"]
                trustedProxies: [unix, 198.51.100.0/24]
                proxyProtocol: "unix:\(path)"
                accessLog: {path: \(scratch("access.log"))}
                sources: {a: {template: "\(scratch("tiles"))/{z}/{x}/{y}.png"}}
                """.utf8), to: "c.yaml")
        let child = try Child(["serve", "--config", scratch("c.yaml")], of: Child.tileproxy)
        while line(of: child, "listening") == nil, !child.hasEnded(within: 1) {}
        #expect(try #require(line(of: child, "listening")).contains("address=unix:\(path) (PROXY), "))
        func ask(_ header: String, _ field: String = "") throws -> Int? {
            let wire = try Wire(path: path)
            wire.send(
                "\(header)GET /tiles/a/0/0/0.png HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\(field)\r\n")
            return wire.answer()?.status
        }
        #expect(try ask("PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n") == 404)
        // The client that is named is the peer for whom X-Forwarded-For speaks: one is trusted, and one is not.
        #expect(try ask("PROXY TCP4 203.0.113.9 192.0.2.1 1 2\r\n", "X-Forwarded-For: 9.9.9.9\r\n") == 404)
        #expect(try ask("PROXY TCP4 198.51.100.2 192.0.2.1 1 2\r\n", "X-Forwarded-For: 9.9.9.9\r\n") == 404)
        #expect(try ask("PROXY UNKNOWN\r\n", "X-Forwarded-For: 8.8.8.8\r\n") == 404)
        #expect(try ask("PROXY UNKNOWN\r\n") == 404)
        #expect(try ask("") == nil)
        child.send(SIGTERM)
        #expect(try child.wait().status == 0)
        let log = try String(contentsOfFile: scratch("access.log"), encoding: .utf8)
        let clients = log.split(separator: "\n").map { $0.prefix { $0 != " " } }
        #expect(clients == ["203.0.113.9", "203.0.113.9", "9.9.9.9", "8.8.8.8", "unix", "unix"], "\(log)")
        #expect(log.hasSuffix("\"-\" 400 0 \"-\" \"-\" none 0\n"), "\(log)")
    }
}
