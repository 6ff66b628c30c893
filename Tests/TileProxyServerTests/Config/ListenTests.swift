import Foundation
import NIOCore
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener
@testable import TileProxyServer

/// Where the proxy listens, and with which certificate.
@Suite(.timeLimit(.minutes(60)))
struct ListenTests {
    private static let sources = "\ncache: /c\nsources:\n  a: {template: \"http://h/{z}/{x}/{y}\"}"
    private static let certificate = "\ntls: {certificate: /c.pem, key: /k.pem}"

    private static func read(_ yaml: String) throws(ConfigError) -> ProxyConfiguration {
        try ConfigTests.read(yaml + sources)
    }

    @Test
    func addressesAreAListWithSchemes() throws {
        let configuration = try Self.read(
            "listen: [\"http://0.0.0.0:80\", \"https://[::]:443\", \"https://tiles.example\", 8081, \"::1:82\"]"
                + Self.certificate)
        #expect(
            configuration.listen == [
                ListenAddress(host: "0.0.0.0", port: 80), ListenAddress(host: "::", port: 443, isSecure: true),
                ListenAddress(host: "tiles.example", port: 8443, isSecure: true), ListenAddress(port: 8081),
                ListenAddress(host: "::1", port: 82),
            ])
        #expect(configuration.tls == TLSFiles(certificate: "/c.pem", key: "/k.pem"))
        try configuration.validate("t.yaml")
        #expect(try Self.read("listen: 81").listen == [ListenAddress(port: 81)])
    }

    @Test
    func unixSocketsAreAmongThem() throws {
        let configuration = try Self.read(
            "listen: [unix:/run/a, \"http://unix:/run/b\", \"HTTPS://Unix:/run/C\", 81]\nsocketMode: 0660"
                + Self.certificate)
        #expect(
            configuration.listen == [
                ListenAddress(socket: "/run/a"), ListenAddress(socket: "/run/b"),
                ListenAddress(socket: "/run/C", isSecure: true), ListenAddress(port: 81),
            ])
        #expect(configuration.listen.map(\.description)[2] == "https://unix:/run/C")
        #expect(configuration.socketMode == 0o660)
        try configuration.validate("t.yaml")
        #expect(try Self.read("listen: unix:/s").socketMode == 0o600)
        #expect(
            configuration.needingRestart(from: try Self.read("listen: unix:/s" + Self.certificate)) == [
                "listen", "socketMode",
            ])
    }

    @Test(arguments: [
        ("true", ["unix:/s", "http://127.0.0.1:81"]), ("no", []), ("unix:/s", ["unix:/s"]),
        ("[81]", ["http://127.0.0.1:81"]), ("[81, unix:/s]", ["unix:/s", "http://127.0.0.1:81"]), ("[]", []),
    ])
    func proxyHeadersAreForAllAddressesOrForSome(value: String, addresses: [String]) throws {
        for (before, after) in [("listen: [unix:/s, 81]\n", ""), ("", "\nlisten: [unix:/s, 81]")] {
            let configuration = try Self.read("\(before)trustedProxies: unix\nproxyProtocol: \(value)\(after)")
            try configuration.validate("t.yaml")
            #expect(Set(configuration.addressesWithProxyHeader.map(\.description)) == Set(addresses))
        }
    }

    @Test(arguments: [
        ("listen: unix:s", "listen: expected"), ("listen: \"unix:\"", "listen: expected"),
        ("listen: \"http://unix:81x\"", "listen: expected"),
        ("listen: \"unix:/a\\0b\"", "listen: a socket's path begins with /"),
        ("listen: [unix:/a, \"https://unix:/a\"]", "listen[1]: this socket stands there twice"),
        ("listen: unix:/" + String(repeating: "x", count: 200), "bytes at most, and this one has 201"),
        ("socketMode: 0888", "socketMode: expected rights in octal"), ("socketMode: rw-rw----", "socketMode: expected"),
        ("socketMode: 1777", "socketMode: expected"), ("socketMode: 0o660", "socketMode: expected"),
        ("proxyProtocol: v2", "proxyProtocol: expected true, false, or addresses"),
        ("trustedProxies: unix:/run/a", "trustedProxies: expected an address or a network"),
        ("listen: \"https://h:443/path\"", "listen: expected"), ("listen: \"https://me@h\"", "listen: expected"),
        ("listen: \"https://:443\"", "listen: expected"), ("listen: \"https://h:\"", "listen: expected"),
        ("listen: \"https://h:99999\"", "listen: expected"), ("listen: []", "listen: expected at least one address"),
        ("listen: [81, 81]", "listen[1]: this address stands there twice"),
        ("tls: {certificate: /c.pem}", "tls: it needs both certificate and key"),
        ("tls: {certificate: /c.pem, kye: /k.pem}", "did you mean key?"),
    ])
    func whatIsWrongIsNamed(yaml: String, complaint: String) throws {
        let error = try #require(throws: ConfigError.self) { try Self.read(yaml) }
        #expect(error.description.contains(complaint), "\(error)")
    }

    @Test(arguments: [
        ("listen: \"https://h:443\"", "tls: https needs a certificate"),
        ("listen: 81" + certificate, "listen: there is a certificate, and no https://"),
        ("redirectToHTTPS: true", "redirectToHTTPS: it needs both"),
        (
            "redirectToHTTPS: true\nlisten: [unix:/s, \"https://h:443\"]" + certificate,
            "what comes by a Unix socket is not redirected"
        ),
        ("redirectToHTTPS: true\nlisten: [80, \"https://unix:/s\"]" + certificate, "the port is not known"),
        ("proxyProtocol: true", "proxyProtocol: nobody may send the header"),
        ("trustedProxies: unix\nproxyProtocol: unix:/s", "proxyProtocol: unix:/s is not among the addresses in listen"),
        ("redirectToHTTPS: true\nlisten: [81, \"https://h:0\"]" + certificate, "the port is not known"),
    ])
    func whatDoesNotFitTogetherIsNamed(yaml: String, complaint: String) throws {
        let configuration = try Self.read(yaml)
        let error = try #require(throws: ConfigError.self) { try configuration.validate("t.yaml") }
        #expect(error.description.contains(complaint), "\(error)")
    }

    @Test
    func flagsWinOverTheFile() throws {
        var configuration = ProxyConfiguration()
        configuration.listen(host: nil, port: nil, securePort: nil)
        #expect(configuration.listen == [ListenAddress(port: 8080)])
        configuration.tls = TLSFiles(certificate: "/c", key: "/k")
        configuration.listen(host: "::", port: 81, securePort: nil)
        #expect(
            configuration.listen == [
                ListenAddress(host: "::", port: 81), ListenAddress(host: "::", port: 8443, isSecure: true),
            ])
        configuration.listen = [ListenAddress(socket: "/s"), ListenAddress(host: "b", port: 1)]
        configuration.tls = nil
        configuration.listen(host: "a", port: 2, securePort: nil)
        #expect(configuration.listen == [ListenAddress(socket: "/s"), ListenAddress(host: "a", port: 2)])
        configuration.listen = [ListenAddress(socket: "/s", isSecure: true)]
        configuration.listen(host: nil, port: 3, securePort: nil)
        #expect(configuration.listen == [ListenAddress(socket: "/s", isSecure: true), ListenAddress(port: 3)])
        configuration.listen = [ListenAddress(host: "a", port: 1, isSecure: true)]
        configuration.listen(host: nil, port: nil, securePort: 444)
        #expect(configuration.listen == [ListenAddress(host: "a", port: 444, isSecure: true)])
    }

    @Test
    func aCertificateCanBeReplacedAndWhatIsListenedOnCannot() throws {
        let old = try Self.read("listen: \"https://h:443\"" + Self.certificate)
        let renewed = try Self.read("listen: \"https://h:443\"\ntls: {certificate: /new.pem, key: /new.key}")
        #expect(renewed.needingRestart(from: old) == [])
        let moved = try Self.read("redirectToHTTPS: true\nlisten: [81, \"https://h:443\"]" + Self.certificate)
        #expect(moved.needingRestart(from: old) == ["listen", "redirectToHTTPS"])
        // Where there was none, nothing can show it.
        #expect(try Self.read("listen: 81" + Self.certificate).needingRestart(from: Self.read("listen: 81")) == ["tls"])
    }

    @Test
    func aCertificateThatCannotBeReadIsNamed() throws {
        let error = try #require(throws: ConfigError.self) { try Self.read(Self.certificate).readTLS() }
        #expect(error.description == "configuration: tls: /c.pem cannot be read: No such file or directory")
        #expect(try Self.read("").readTLS() == nil)
    }

    // MARK: Redirects

    private func head(_ text: String) throws -> RequestHead {
        var parser = RequestParser(limits: ServerLimits())
        var input = ByteBuffer(string: text)
        return try #require(try parser.next(&input) { _ in true })
    }

    @Test(arguments: [
        ("GET /a/b?c=d HTTP/1.1\r\nHost: tiles.example:8080", 443, "https://tiles.example/a/b?c=d"),
        ("GET / HTTP/1.1\r\nHost: tiles.example", 8443, "https://tiles.example:8443/"),
        ("GET / HTTP/1.1\r\nHost: [::1]:80", 443, "https://[::1]/"),
        ("GET http://other.example/x HTTP/1.1\r\nHost: a", 443, "https://other.example/x"),
        ("GET / HTTP/1.0", 443, nil), ("OPTIONS * HTTP/1.1\r\nHost: a", 443, nil),
    ])
    func aRedirectKeepsHostAndTarget(request: String, port: Int, location: String?) throws {
        #expect(SecureRedirect.location(of: try head(request + "\r\n\r\n"), port) == location)
    }

    @Test
    func aRedirectGoesWhereThePublicURLSays() throws {
        func port(_ yaml: String) throws -> Int? { try Self.read(yaml).redirectPort }
        let listen = "listen: [80, \"https://h:8443\"]"
        #expect(try port(listen) == 8443)
        #expect(try port(listen + "\npublicURL: https://tiles.example/maps") == 443)
        #expect(try port(listen + "\npublicURL: \"https://tiles.example:444\"") == 444)
        #expect(try port(listen + "\npublicURL: \"https://[::1]\"") == 443)
        #expect(try port(listen + "\npublicURL: http://tiles.example") == 8443)
    }
}
