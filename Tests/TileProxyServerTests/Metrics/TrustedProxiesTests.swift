import Foundation
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import HTTPListener
@testable import TileProxyServer

/// Whose address the access log has, behind servers that the operator trusts.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct TrustedProxiesTests {
    private static let trusted = TrustedProxies(
        ["127.0.0.1", "10.0.0.0/8", "2001:db8:1::/48"].compactMap { IPNetwork($0) })

    private func client(_ peer: String, _ lines: [String]) throws -> String {
        var parser = RequestParser(limits: ServerLimits())
        var input = ByteBuffer(string: (["GET / HTTP/1.1", "Host: a"] + lines).joined(separator: "\r\n") + "\r\n\r\n")
        let head = try #require(try parser.next(&input) { _ in true })
        return Self.trusted.client(of: head.fields, peer: try SocketAddress(ipAddress: peer, port: 9))
    }

    /// The peer, what it says, and who the client is.
    @Test(
        arguments: [
            // Who is not trusted is not believed.
            ("192.0.2.7", ["X-Forwarded-For: 198.51.100.1"], "192.0.2.7"),
            ("2001:db8:2::1", ["X-Forwarded-For: 198.51.100.1"], "2001:db8:2::1"),
            // Who says nothing is the client.
            ("127.0.0.1", [], "127.0.0.1"),
            // The right-most address that is not a trusted proxy's.
            ("127.0.0.1", ["X-Forwarded-For: 198.51.100.1"], "198.51.100.1"),
            ("127.0.0.1", ["x-forwarded-for: 6.6.6.6, 198.51.100.1"], "198.51.100.1"),
            ("127.0.0.1", ["X-Forwarded-For: 6.6.6.6,198.51.100.1 ,10.1.2.3"], "198.51.100.1"),
            ("127.0.0.1", ["X-Forwarded-For: 6.6.6.6, 198.51.100.1", "X-Forwarded-For: 10.1.2.3"], "198.51.100.1"),
            ("::ffff:127.0.0.1", ["X-Forwarded-For: 198.51.100.1, ::ffff:10.0.0.1"], "198.51.100.1"),
            ("2001:db8:1:2::9", ["X-Forwarded-For: 2001:DB8:0::7"], "2001:db8::7"),
            // With a port, as some fronts write it.
            ("127.0.0.1", ["X-Forwarded-For: 198.51.100.1:4711, 10.0.0.2:80"], "198.51.100.1"),
            ("127.0.0.1", ["X-Forwarded-For: [2001:db8::7]:4711"], "2001:db8::7"),
            ("127.0.0.1", ["X-Forwarded-For: [2001:db8::7]"], "2001:db8::7"),
            // Nobody but trusted proxies.
            ("127.0.0.1", ["X-Forwarded-For: 10.0.0.1, 10.0.0.2"], "10.0.0.1"),
            // What a client wrote before its own address does not matter.
            ("127.0.0.1", ["X-Forwarded-For: <script>, 198.51.100.1"], "198.51.100.1"),
            // What is no address, where one has to be.
            ("127.0.0.1", ["X-Forwarded-For: 198.51.100.1, unknown"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: 198.51.100.1, , 10.0.0.1"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For:"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: 198.51.100.1:x"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: 198.51.100.1:99999"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: [198.51.100.1]"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: [2001:db8::7"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: 198.51.100.1/24"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: 0300.51.100.1"], "127.0.0.1"),
            ("127.0.0.1", ["X-Forwarded-For: \(String(repeating: "1", count: 5000))"], "127.0.0.1"),
            // More than anybody needs.
            ("127.0.0.1", ["X-Forwarded-For: 9.9.9.9" + String(repeating: ", 10.0.0.1", count: 31)], "9.9.9.9"),
            ("127.0.0.1", ["X-Forwarded-For: 9.9.9.9" + String(repeating: ", 10.0.0.1", count: 32)], "127.0.0.1"),
        ] as [(String, [String], String)])
    func theClientIsTheLastOneThatNoTrustedProxyIs(peer: String, lines: [String], expected: String) throws {
        #expect(try client(peer, lines) == expected)
    }

    @Test
    func withoutTrustedProxiesNobodyIsBelieved() throws {
        var parser = RequestParser(limits: ServerLimits())
        var input = ByteBuffer(string: "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n")
        let head = try #require(try parser.next(&input) { _ in true })
        #expect(
            TrustedProxies().client(of: head.fields, peer: try SocketAddress(ipAddress: "127.0.0.1", port: 9))
                == "127.0.0.1")
        #expect(Self.trusted.client(of: head.fields, peer: nil) == "-")
    }

    @Test(arguments: [
        ("10.0.0.0/8", "10.255.255.255", true), ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "9.255.255.255", false),
        ("192.0.2.7", "192.0.2.7", true), ("192.0.2.7", "192.0.2.8", false), ("192.0.2.7/32", "192.0.2.7", true),
        ("0.0.0.0/0", "8.8.8.8", true), ("0.0.0.0/0", "2001:db8::1", false), ("::/0", "8.8.8.8", true),
        ("2001:db8::/32", "2001:db8:ffff::1", true), ("2001:db8::/32", "2001:db9::", false),
        ("2001:db8::/65", "2001:db8::7fff:0:0:1", true), ("2001:db8::/65", "2001:db8::8000:0:0:1", false),
        ("::1", "::1", true), ("::1", "::2", false), ("10.0.0.0/8", "::ffff:10.1.1.1", true),
    ])
    func aNetworkHasItsAddresses(network: String, address: String, expected: Bool) throws {
        #expect(try #require(IPNetwork(network)).contains(try #require(IPAddress(address))) == expected)
    }

    @Test(arguments: [
        "", "a", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.1/8", "10.0.0/8", "2001:db8::1/32",
        "::/129", "::1%lo", "10.0.0.0/8/8", "http://10.0.0.1", "10.0.0.1:80",
    ])
    func whatIsNoNetworkIsAnErrorThatNamesItsLine(text: String) {
        #expect(IPNetwork(text) == nil)
        var configuration = ProxyConfiguration()
        let error = #expect(throws: ConfigError.self) {
            try configuration.read(yaml: "cache: /c\ntrustedProxies: [\"\(text)\"]", file: "c.yaml")
        }
        #expect(error?.description.contains("c.yaml:2: trustedProxies[0]: expected an address or a network") == true)
    }

    /// Whoever connects by a Unix socket is believed where the configuration says so, and nowhere else.
    @Test(arguments: [
        ("unix", "198.51.100.1"), ("[127.0.0.1, unix]", "198.51.100.1"), ("0.0.0.0/0", "unix"), ("[]", "unix"),
    ])
    func aUnixSocketIsTrustedWhereTheConfigurationSaysSo(value: String, expected: String) throws {
        var configuration = ProxyConfiguration()
        try configuration.read(yaml: "trustedProxies: \(value)", file: "c.yaml")
        var parser = RequestParser(limits: ServerLimits())
        var input = ByteBuffer(string: "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n")
        let head = try #require(try parser.next(&input) { _ in true })
        let peer = try SocketAddress(unixDomainSocketPath: "")
        #expect(configuration.trustedProxies.client(of: head.fields, peer: peer) == expected)
        #expect(configuration.trustedProxies.contains(peer) == (expected != "unix"))
        // A socket says nothing of ports.
        let port = try SocketAddress(ipAddress: "127.0.0.1", port: 9)
        #expect(configuration.trustedProxies.contains(port) == (value != "unix" && value != "[]"))
        #expect(!configuration.trustedProxies.contains(nil))
    }

    @Test
    func theConfigurationNamesThem() throws {
        var configuration = ProxyConfiguration()
        try configuration.read(yaml: "trustedProxies: [127.0.0.1, 10.0.0.0/8, \"2001:db8:1::/48\"]", file: "c.yaml")
        #expect(configuration.trustedProxies == Self.trusted)
        #expect(configuration.needingRestart(from: ProxyConfiguration()) == ["trustedProxies"])
    }

    @Test
    func theAccessLogHasTheClientThatATrustedProxyNames() throws {
        let path = NSTemporaryDirectory() + "trusted-\(UUID().uuidString).log"
        defer { try? FileManager.default.removeItem(atPath: path) }
        let log = try AccessLog(ProxyConfiguration.AccessLog(path: path))
        let observer = RequestObserver(
            statistics: Statistics(startedAt: Timestamp(seconds: 0)), log: log, trusted: Self.trusted
        ) { _ in false }
        var parser = RequestParser(limits: ServerLimits())
        var input = ByteBuffer(string: "GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n")
        let head = try #require(try parser.next(&input) { _ in true })
        for peer in ["127.0.0.1", "192.0.2.7"] {
            observer.finished(
                head, from: try SocketAddress(ipAddress: peer, port: 9), Answered(status: 200, bodyBytes: 5),
                took: .microseconds(1))
        }
        observer.refused(status: 400, from: try SocketAddress(ipAddress: "127.0.0.1", port: 9))
        log.close()
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
        #expect(lines.map { $0.prefix { $0 != " " } } == ["198.51.100.1", "192.0.2.7", "127.0.0.1"])
    }
}
