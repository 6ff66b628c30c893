import Testing
import TileStoreTesting

@testable import TileProxyServer

/// Under which hosts the page and the figures are served.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct HostTests {
    private func status(_ lab: TileLab, _ path: String, _ host: String) throws -> Int? {
        let wire = try Wire(port: lab.server.port)
        wire.send("GET \(path) HTTP/1.1\r\nHost: \(host)\r\n\r\n")
        return wire.answer()?.status
    }

    private let paths = ["/", "/_tileproxy/", "/_tileproxy/stats.json", "/_tileproxy/metrics"]

    /// DNS rebinding: a name that somebody else lets point to this machine.
    @Test
    func thePageAndTheFiguresAreNotServedUnderAForeignHost() async throws {
        try await TileLab.with { lab in
            for path in paths + ["/_tileproxy/states.json?source=osm&z=0&x=0&y=0"] {
                for host in ["evil.example.com", "evil.example.com:8080", "127.0.0.1.evil.com", "localhost.evil.com"] {
                    #expect(try status(lab, path, host) == 421, "\(path) \(host)")
                }
            }
            let wire = try Wire(port: lab.server.port)
            wire.send("GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n")
            #expect(wire.answer()?.text.contains("publicURL") == true, "it says what to do")
        }
    }

    @Test
    func thePageAndTheFiguresAreServedUnderTheServersOwnHosts() async throws {
        try await TileLab.with { lab in
            for path in paths {
                for host in [
                    "127.0.0.1", "192.0.2.7:8080", "[::1]:8080", "localhost", "LOCALHOST:8080", "maps:8080",
                    "maps.local", "a.localhost", "maps.internal",
                ] { #expect(try status(lab, path, host) == 200, "\(path) \(host)") }
            }
            let wire = try Wire(port: lab.server.port)
            wire.send("GET /_tileproxy/stats.json HTTP/1.0\r\n\r\n")
            #expect(wire.answer()?.status == 200)
            #expect(try status(lab, "/_tileproxy/health", "evil.example.com") == 200)
            #expect(try status(lab, "/tiles/osm/0/0/0.png", "evil.example.com") == 200)
        }
    }

    @Test
    func theConfigurationNamesHosts() throws {
        let hosts = OwnHosts(
            listenHosts: ["tiles.example.net"], names: ["Other.example.org."], machine: "box.example.com")
        let url = "https://Tiles.example.org:8443/maps"
        for host in ["tiles.example.net", "other.example.org:80", "box.example.com", "tiles.example.org", nil] {
            #expect(hosts.contains(host, publicURL: url), "\(host ?? "none")")
        }
        for host in ["example.org", "a.tiles.example.org", "tiles.example.org.evil.com"] {
            #expect(!hosts.contains(host, publicURL: url), "\(host)")
        }
        #expect(!hosts.contains("tiles.example.org", publicURL: nil))
    }

    /// RFC 9112 §3.2.2.
    @Test
    func tileJSONTakesItsHostFromTheTargetWhereThatIsAWholeURL() async throws {
        try await TileLab.with { lab in
            let own = "127.0.0.1:\(lab.server.port)"
            let wire = try Wire(port: lab.server.port)
            wire.send("GET http://\(own)/tiles/osm.json HTTP/1.1\r\nHost: evil.example.com\r\n\r\n")
            let text = try #require(wire.answer()).text
            #expect(text.contains("http://\(own)/tiles/osm/") && !text.contains("evil"))
        }
    }
}
