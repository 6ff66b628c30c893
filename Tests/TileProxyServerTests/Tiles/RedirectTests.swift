import Foundation
import HTTPTypes
import NIOCore
import NIOPosix
import Testing
import TileCache
import TileCacheNIO
import TileStore

@testable import TileProxyServer

/// A tile server's redirects must not lead into the network that the proxy is in.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct RedirectTests {
    /// A transport as the proxy has it.
    private func withTransport(_ body: (LoopTransport) async throws -> Void) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var client = AsyncHTTPClientTransport.Configuration()
        let other = AsyncHTTPClientTransport(configuration: client, eventLoopGroup: group)
        client.permitsPeer = \.isPublic
        let guarded = AsyncHTTPClientTransport(configuration: client, eventLoopGroup: group)
        let transport = LoopTransport(
            group: group, connectionsPerHost: 4, other: other, otherForRedirects: guarded)
        let result: Result<Void, any Error>
        do { result = .success(try await body(transport)) } catch { result = .failure(error) }
        await transport.shutdown()
        await other.shutdown()
        await guarded.shutdown()
        try await group.shutdownGracefully()
        try result.get()
    }

    private func code(_ transport: any TileTransport, _ request: TransportRequest) async -> TransportError.Code? {
        do throws(TransportError) {
            _ = try await transport.send(request)
            return nil
        } catch { return error.code }
    }

    @Test(arguments: ["127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"])
    func whateverThisMachineIsCalledARedirectDoesNotReachIt(_ host: String) async throws {
        let origin = try ScriptedOrigin(always: reply("200 OK", [], "secret"))
        try await withTransport { transport in
            for scheme in ["http", "https"] {
                var request = TransportRequest(
                    head: HTTPRequest(method: .get, scheme: scheme, authority: "\(host):\(origin.port)", path: "/x"))
                request.redirect = RedirectOrigin(authority: "tiles.example", source: try SourceName("osm"))
                #expect(await code(transport, request) == .unsupported)
            }
            #expect(origin.count == 0)
            // A connection that was made without a redirect is not used for one.
            var plain = TransportRequest(
                head: HTTPRequest(
                    method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: "/configured"))
            #expect(try await transport.send(plain).text == "secret")
            plain.redirect = RedirectOrigin(authority: "tiles.example", source: try SourceName("osm"))
            #expect(await code(transport, plain) == .unsupported)
            #expect(origin.count == 1)
        }
    }

    @Test
    func theOtherClientLooksAtTheAddressThatItIsConnectedTo() async throws {
        let origin = try ScriptedOrigin(always: reply("200 OK", [], "secret"))
        var client = AsyncHTTPClientTransport.Configuration()
        client.permitsPeer = \.isPublic
        let transport = AsyncHTTPClientTransport(configuration: client)
        let head = HTTPRequest(method: .get, scheme: "http", authority: "127.0.0.1:\(origin.port)", path: "/")
        #expect(await code(transport, TransportRequest(head: head)) == .unsupported)
        #expect(origin.count == 0)
        await transport.shutdown()
    }

    @Test
    func aTileServersRedirectToANeighbourIsRefusedAndOneToItselfIsNot() async throws {
        let tile = "a tile of some kind"
        let neighbour = try ScriptedOrigin(always: reply("200 OK", ["Content-Type: application/x-tile"], tile))
        let server = try ScriptedOrigin { request, wire in
            let host = request.target.hasPrefix("/1/0/") ? "127.0.0.1" : "localhost"
            wire.send(reply("302 Found", ["Location: http://\(host):\(neighbour.port)/admin"]))
            return true
        }
        try await withTransport { transport in
            let source = "a=http://localhost:\(server.port)/{z}/{x}/{y}"
            try await TileLab.with(source, { $0.kind = .any }, transport: transport) { lab in
                let refused = try await lab.get("/tiles/a/1/0/0")
                #expect(refused.status == 502 && neighbour.count == 0)
                let own = try await lab.get("/tiles/a/1/1/0")
                #expect(own.status == 200 && own.text == tile && neighbour.count == 1)
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
        }
    }
}
