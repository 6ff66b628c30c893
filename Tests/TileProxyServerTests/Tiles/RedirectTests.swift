import Foundation
import HTTPTypes
import NIOCore
import OriginClient
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// A tile server's redirects must not lead into the network that the proxy is in.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct RedirectTests {
    @Test(arguments: ["127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"])
    func whateverThisMachineIsCalledARedirectDoesNotReachIt(_ host: String) async throws {
        let origin = try ScriptedOrigin(always: reply("200 OK", [], "secret"))
        try await withTransport { transport async throws in
            for scheme in ["http", "https"] {
                var request = TransportRequest(
                    head: HTTPRequest(method: .get, scheme: scheme, authority: "\(host):\(origin.port)", path: "/x"))
                request.isRedirected = true
                #expect(await failure(transport, request)?.code == .unsupported)
            }
            #expect(origin.count == 0)
            // A connection that was made without a redirect is not used for one.
            var plain = TransportRequest(
                head: HTTPRequest(
                    method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: "/configured"))
            #expect(try await transport.send(plain).text == "secret")
            plain.isRedirected = true
            #expect(await failure(transport, plain)?.code == .unsupported)
            #expect(origin.count == 1)
        }
    }

    private static let tile = "a tile of some kind"

    private static func tileAnswer() -> LocalAnswer {
        LocalAnswer(.ok, [.contentType: "application/x-tile", .cacheControl: "max-age=60"], text: tile)
    }

    @Test
    func aTileServersRedirectToANeighbourIsRefusedAndOneToItselfIsNot() async throws {
        let neighbour = try await LocalOrigin.start { _ in Self.tileAnswer() }
        let server = try await LocalOrigin.start { request in
            let host = request.path.hasPrefix("/1/0/") ? "127.0.0.1" : "localhost"
            return LocalAnswer(.found, [.location: "http://\(host):\(neighbour.port)/admin"])
        }
        try await withTransport { transport in
            let source = "a=http://localhost:\(server.port)/{z}/{x}/{y}"
            try await TileLab.with(source, { $0.kind = .any }, transport: transport) { lab async throws in
                let refused = try await lab.get("/tiles/a/1/0/0")
                #expect(refused.status == 502 && neighbour.connectionsMade == 0)
                let own = try await lab.get("/tiles/a/1/1/0")
                #expect(own.status == 200 && own.text == Self.tile && neighbour.requests.count == 1)
            }
            try await TileLab.with(
                source,
                {
                    $0.kind = .any
                    $0.mirrors = ["http://127.0.0.1:9"]
                }, transport: transport
            ) { lab async throws in
                #expect(try await lab.get("/tiles/a/1/0/0").status == 200, "a mirror is meant to be asked")
            }
            // From a mirror back to the source's own host.
            let mirror = try await LocalOrigin.start { _ in
                LocalAnswer(.found, [.location: "http://localhost:\(neighbour.port)/home"])
            }
            try await TileLab.with(
                "a=http://localhost:9/{z}/{x}/{y}",
                {
                    $0.kind = .any
                    $0.mirrors = ["http://127.0.0.1:\(mirror.port)"]
                }, transport: transport
            ) { lab async throws in
                #expect(try await lab.get("/tiles/a/1/0/0").status == 200)
            }
        }
    }

    // MARK: To other hosts

    /// Where a server's redirect leads, and what becomes of it.
    struct Row: Sendable, CustomTestStringConvertible {
        let name: String
        /// Whether the tile server has TLS, and the one that it leads to.
        let isSecure: (Bool, Bool)
        /// Under which name it leads there.
        var host = "localhost"
        /// For whom the other's certificate is.
        var names = "DNS:localhost"
        /// Whether the other's address is one of the internet: the loopback has none, so the test says so.
        var isPublic = true
        let status: Int

        var testDescription: String { name }
    }

    private static let rows = [
        Row(name: "http to http", isSecure: (false, false), status: 200),
        Row(name: "http to https", isSecure: (false, true), status: 200),
        Row(name: "https to https", isSecure: (true, true), status: 200),
        Row(name: "https to http", isSecure: (true, false), status: 502),
        Row(name: "a certificate for another name", isSecure: (false, true), names: "DNS:other.test", status: 502),
        Row(name: "http to this machine", isSecure: (false, false), isPublic: false, status: 502),
        Row(name: "http to this machine with TLS", isSecure: (false, true), isPublic: false, status: 502),
        Row(name: "https to this machine with TLS", isSecure: (true, true), isPublic: false, status: 502),
        Row(
            name: "https to this machine by number", isSecure: (true, true), host: "2130706433", isPublic: false,
            status: 502),
    ]

    @Test(arguments: rows)
    func aRedirectToAnotherHostIsFollowedToPublicAddressesOnly(row: Row) async throws {
        guard let certificate = try TestCertificate(names: row.names + ",IP:127.0.0.1") else {
            return print("no openssl command: not tested")
        }
        // Whether a name is verified shows where the address alone is not enough.
        guard let named = try TestCertificate(names: row.names) else { return }
        let trusted = FileManager.default.temporaryDirectory.appendingPathComponent("trusted-\(UUID()).pem").path
        let pem = try [certificate, named].map { try String(contentsOfFile: $0.path, encoding: .utf8) }.joined()
        try pem.write(toFile: trusted, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(atPath: trusted) }

        let other = try await LocalOrigin.start(certificate: row.isSecure.1 ? named : nil) { _ in Self.tileAnswer() }
        let target = "\(row.isSecure.1 ? "https" : "http")://\(row.host):\(other.port)/there"
        let server = try await LocalOrigin.start(certificate: row.isSecure.0 ? certificate : nil) { _ in
            LocalAnswer(.found, [.location: target])
        }
        let (isPublic, port) = (row.isPublic, other.port)
        try await withTransport(trusting: trusted, permitsPeer: { isPublic && $0.port == port }) { transport in
            let source = "a=\(server.url)/{z}/{x}/{y}"
            try await TileLab.with(source, { $0.kind = .any }, transport: transport) { lab async throws in
                let answer = try await lab.get("/tiles/a/1/0/0")
                #expect(answer.status == row.status)
                guard row.status == 200 else {
                    #expect(other.requests.isEmpty)
                    if !row.isPublic { #expect(other.connectionsMade == 0, "no handshake either") }
                    return
                }
                #expect(answer.text == Self.tile)
                let asked = try #require(other.requests.first)
                #expect(asked.path == "/there" && asked.request.authority == "localhost:\(port)")
            }
        }
    }

    /// What only servers of redirects' choosing would fill is bounded, and emptied for the next.
    @Test
    func aServerThatLeadsToEverNewHostsDoesNotFillTheTableOfHosts() async throws {
        let other = try await LocalOrigin.start { _ in Self.tileAnswer() }
        try await withTransport(permitsPeer: { _ in true }) { transport in
            for i in 0..<80 {
                var request = TransportRequest(
                    head: HTTPRequest(
                        method: .get, scheme: "http", authority: "127.0.0.\(1 + i):\(other.port)", path: "/"),
                    timeout: .seconds(600))
                request.isRedirected = true
                // Only the first is listened at.
                #expect(await failure(transport, request)?.code == (i == 0 ? nil : .connection))
            }
        }
    }
}
