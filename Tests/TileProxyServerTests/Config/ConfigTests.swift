import Foundation
import HTTPListener
import HTTPTypes
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// One configuration that is wrong, and what is said about it.
struct WrongConfig: Sendable, CustomTestStringConvertible {
    var yaml: String
    var complaint: String
    var testDescription: String { complaint }

    init(_ yaml: String, _ complaint: String) {
        self.yaml = yaml
        self.complaint = complaint
    }
}

@Suite(.timeLimit(.minutes(60)))
struct ConfigTests {
    static let secrets = SecretPlaces(
        environment: { ["TOKEN": "s3cret", "BLANK": "a b", "BAD": "a\u{7F}b"][$0] },
        file: { path in
            guard path == "/run/key" else { throw CocoaError(.fileReadNoSuchFile) }
            return "from-file\nsecond line\n"
        })

    static func read(_ yaml: String) throws(ConfigError) -> ProxyConfiguration {
        var configuration = ProxyConfiguration()
        try configuration.read(yaml: yaml, file: "t.yaml", secrets: secrets)
        return configuration
    }

    @Test
    func theSampleFileIsRight() throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let file = root.appendingPathComponent("Examples/tileproxy.yaml").path
        var configuration = ProxyConfiguration()
        let keys = SecretPlaces(environment: { _ in "value" }, file: { _ in "value" })
        try configuration.read(file: file, secrets: keys)
        try configuration.validate(file)
        #expect(configuration.sources.count >= 3)
        #expect(configuration.sources.contains { $0.archivePath != nil })
        // Its file is not here, and would be opened.
        configuration.sources.removeAll { $0.archivePath != nil }
        _ = try SourceTable(configuration)
        #expect(!configuration.routes.isEmpty)
        #expect(configuration.accessLog != nil)
    }

    @Test
    func aTokenForPurgingIsReadAndNotShown() throws {
        let configuration = try Self.read("cache: /c\npurge: {token: ENV:TOKEN}")
        #expect(configuration.purgeToken?.admits("Bearer s3cret") == true)
        #expect(!"\(configuration)".contains("s3cret"))
        #expect(configuration.needingRestart(from: try Self.read("cache: /c")) == ["purge"])
        #expect(try Self.read("purge: {token: FILE:/run/key}").purgeToken?.admits("Bearer from-file") == true)
        #expect(try Self.read("cache: /c").purgeToken == nil)
    }

    @Test
    func everyKeyOfASourceIsRead() throws {
        let configuration = try Self.read(
            """
            cache: /tmp/c
            listen: "[::1]:9090"
            capacity: 1.5GiB
            sources:
              topo:
                template: https://{s}.example/{style}/{z}/{x}/{y}{r}.png?key={token}
                mirrors: [https://b.example, "http://c.example:81"]
                subdomains: [a, b]
                values: {style: outdoors, token: "ENV:TOKEN"}
                zooms: 3-14
                bbox: 5,44,17,48
                tileSize: 512
                kind: image
                title: Topo
                attribution: them
                cors: https://maps.example
                headers: {X-Key: "FILE:/run/key"}
                ttl: {unstated: 2d, minimum: 1h, override: true, absent: 5m, staleOnError: 30d}
                offline: always
                bodyLimit: 1MB
                timeout: 12s
                attempts: 3
                capacity: 2MiB
            """)
        #expect(configuration.listen == [ListenAddress(host: "::1", port: 9090)])
        #expect(configuration.capacity == 1_610_612_736)
        let source = try #require(configuration.sources.first)
        #expect(source.mirrors == ["https://b.example", "http://c.example:81"])
        #expect(source.values == ["style": "outdoors", "token": "s3cret"])
        #expect(source.zooms == 3...14 && source.box?.east == 17 && source.tileSize == 512)
        #expect(source.headers[HTTPField.Name("X-Key")!] == "from-file")
        #expect(source.sharing == .origin("https://maps.example"))
        #expect(source.lifetimes.unstated == .seconds(172_800) && source.lifetimes.overridesServer)
        #expect(source.isAlwaysOffline && source.attempts == 3 && source.timeout == .seconds(12))
        #expect(source.bodyLimit == 1_000_000)
        #expect(source.capacity == 2_097_152 && configuration.sourceCapacities == [source.name: 2_097_152])
    }

    static let wrong = [
        WrongConfig("cahce: /tmp", "t.yaml:1: cahce: there is no such key; did you mean cache?"),
        WrongConfig("a: [1, 2", "is no YAML"),
        WrongConfig("cache: a\ncache: b", "stand there twice"),
        WrongConfig("sources:\n  osm:\n    template: https://h/{z}/{x}/{y}\n    zoms: 3", "t.yaml:4: sources.osm.zoms"),
        WrongConfig("sources:\n  osm:\n    zooms: 3", "sources.osm: it needs a template"),
        WrongConfig("sources:\n  osm:\n    template: https://h/{z}/{x}", "sources.osm: source osm:"),
        WrongConfig("sources:\n  \"o sm\":\n    template: x", "a source's name is"),
        WrongConfig("sources:\n  o:\n    template: https://h/w.mbtiles", "must be a file of this machine"),
        WrongConfig("sources:\n  o:\n    template: ftp://h/w.pmtiles", "the scheme must be http, https or file"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/w.pmtiles", "{z} has no place in the URL of an archive"),
        WrongConfig("sources:\n  o:\n    template: https://h/w.pmtiles\n    watch: true", "'watch' is for"),
        WrongConfig("sources:\n  o:\n    template: https://h/w.pmtiles\n    overzoom: 2", "needs its zooms"),
        WrongConfig("sources:\n  o:\n    template: https://h/w.pmtiles\n    shared: true", "'shared' is not for"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/w.pmtiles\n    mirrors: [https://i]",
            "neither mirrors nor subdomains"),
        WrongConfig("sources:\n  o:\n    template: https://h/set.json@1a2b3c4d", "by its set.json alone"),
        WrongConfig("sources:\n  o:\n    template: https://h/SET.JSON", "by its set.json alone"),
        WrongConfig("sources:\n  o:\n    template: ftp://h/set.json", "the scheme must be http, https or file"),
        WrongConfig("sources:\n  o:\n    template: https://h/set.json\n    watch: true", "'watch' is for"),
        WrongConfig("sources:\n  o:\n    template: https://h/set.json\n    overzoom: 2", "needs its zooms"),
        WrongConfig("sources:\n  o:\n    template: https://h/set.json\n    shared: true", "'shared' is not for"),
        WrongConfig("sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    watch: true", "'watch' is for"),
        WrongConfig("sources:\n  o:\n    template: w/{z}/{x}/{y}.png\n    watch: true", "'watch' is for"),
        WrongConfig("sources:\n  o:\n    template: w.mbtiles\n    capacity: 1GB", "take no room in the cache"),
        WrongConfig(
            "sources:\n  o:\n    template: https://o/{z}/{x}/{y}\n    capacity: all", "expected a size such as"),
        WrongConfig("sources:\n  o:\n    template: w.mbtiles\n    mirrors: [https://h]", "files have no mirrors"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    zooms: 3-99",
            "t.yaml:4: sources.o.zooms: expected zooms"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    bbox: 1,2,3", "t.yaml:4: sources.o.bbox: expected"
        ),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    headers: {X-Key: plain}",
            "sources.o.headers.X-Key: a value that may be secret comes from ENV:"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    headers: {X-Key: \"ENV:NOPE\"}",
            "the environment variable NOPE is not set"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    headers: {X-Key: \"ENV:BAD\"}",
            "cannot be in a header field"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    headers: {\"X Key\": \"ENV:TOKEN\"}",
            "no header field's name"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    mirrors: https://b/path", "scheme and host alone"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    mirrors: https://b:0", "no host that can be asked"
        ),
        WrongConfig(
            "sources:\n  o:\n    template: \"https://[:::]/{z}/{x}/{y}\"", "names no host and port that can be asked"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    headers: {Connection: \"ENV:TOKEN\"}",
            "the header field Connection is for the connection to set"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    headers: {Host: \"ENV:BLANK\"}",
            "the header field Host has a value that is no host"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    ttl: {override: true}", "there is no minimum"),
        WrongConfig(
            "sources:\n  o:\n    template: https://h/{z}/{x}/{y}\n    cors: \"https://a\\r\\nSet-Cookie: x\"",
            "expected"),
        WrongConfig("listen: nowhere", "t.yaml:1: listen: expected http://host:port"),
        WrongConfig("capacity: lots", "expected a size"),
        WrongConfig("threads: 0", "expected a number from 1 to 64"),
        WrongConfig("publicURL: tiles.example", "expected a URL"),
        WrongConfig("limits: {idle: 2d}", "at most a day"),
        WrongConfig("accessLog: {formt: json}", "did you mean format?"),
        WrongConfig("purge: {tokn: ENV:TOKEN}", "did you mean token?"),
        WrongConfig("purge: {token: plain}", "comes from ENV:VARIABLE"),
        WrongConfig("purge: {token: ENV:NONE}", "NONE is not set"),
        WrongConfig("purge: {token: ENV:BLANK}", "a token has letters"),
        WrongConfig("purge: {}", "it needs a token"),
        WrongConfig("purge: ENV:TOKEN", "expected keys with values"),
        WrongConfig("log: {level: loud}", "expected one of"),
        WrongConfig("upstreams: [nothing]", "upstreams"),
        WrongConfig("sources: 3", "expected keys with values"),
        WrongConfig("certificateAuthority: a.pem", "did you mean certificateAuthorities?"),
    ]

    @Test(arguments: wrong)
    func aMistakeIsNamedWithItsLineAndKey(_ row: WrongConfig) throws {
        let error = try #require(throws: ConfigError.self) { try Self.read(row.yaml) }
        #expect(error.description.contains(row.complaint), "\(error)")
        #expect(!error.description.contains("s3cret"))
    }

    @Test
    func aFileWithAMistakeChangesNothing() {
        var configuration = ProxyConfiguration()
        let before = configuration
        #expect(throws: ConfigError.self) {
            try configuration.read(yaml: "cache: /x\nthreads: 4\nnope: 1", file: "t", secrets: Self.secrets)
        }
        #expect(configuration == before)
    }

    @Test
    func namesAndPrefixesAreUnique() throws {
        var configuration = try Self.read("cache: /c\nupstreams: [\"a:/x=http://h\", \"b:/x=http://h\"]")
        #expect(throws: ConfigError.self) { try configuration.validate("t") }
        configuration = try Self.read(
            "cache: /c\nsources:\n  a: {template: \"http://h/{z}/{x}/{y}\"}\nupstreams: [\"a:/x=http://h\"]")
        #expect(throws: ConfigError.self) { try configuration.validate("t") }
        configuration = try Self.read("cache: /c")
        #expect(throws: ConfigError.self) { try configuration.validate("t") }
    }

    @Test(arguments: ["/_tileproxy", "/_tileproxy/", "/_tileproxy/x", "name:/_tileproxy/metrics"])
    func anUpstreamBelowTheProxysOwnRoutesIsRefused(prefix: String) throws {
        let error = try #require(throws: ConfigError.self) { try Self.read("upstreams: [\"\(prefix)=http://h\"]") }
        #expect(error.description.contains("/_tileproxy is the proxy's own"))
        #expect(throws: Never.self) { try Self.read("upstreams: [\"/_tileproxies=http://h\"]") }
    }

    @Test
    func anUpstreamThatTheTileRoutesHideIsRefused() throws {
        let upstream = "cache: /c\nupstreams: [\"t:/tiles/x=http://h\"]"
        #expect(throws: Never.self) { try Self.read(upstream).validate("t") }
        let both = upstream + "\nsources:\n  a: {template: \"http://h/{z}/{x}/{y}\"}"
        let error = try #require(throws: ConfigError.self) { try Self.read(both).validate("t") }
        #expect(error.description.contains("/tiles/x would never be asked"))
    }

    /// Whatever is wrong with a URL, its password and its query are not what the message is about.
    @Test(arguments: [
        "upstreams: [\"/a=http://me:s3cret@h\"]", "upstreams: [\"http://me:s3cret@h\"]",
        "upstreams: [\"/a=me:s3cret@h\"]", "upstreams: [\"/a=http://h/?key=s3cret\"]",
        "upstreams: [\"/a=http://me:s3cret?x@h/?a=b\"]", "publicURL: https://me:s3cret@h",
        "publicURL: \"https://h/?key=s3cret\"",
        "sources:\n  o: {template: \"https://h/{z}/{x}/{y}\", mirrors: [\"https://me:s3cret@h\"]}",
        "sources:\n  o: {template: \"https://me:s3cret@h/{z}/{x}/{y}\"}",
        "sources:\n  o: {template: \"https://h/{z}/{x}/{y}\", cors: \"https://me:s3cret@h\"}",
        "listen: me:s3cret@h", "hosts: [\"me:s3cret@h\"]",
    ])
    func aPasswordInAURLIsNotPrinted(yaml: String) throws {
        let error = try #require(throws: ConfigError.self) { try Self.read(yaml) }
        #expect(!error.description.contains("s3cret"), "\(error)")
    }

    @Test(arguments: [
        "https://me:s3cret@h/{z}=x", "https://me:s3cret@h/{z}/{x}/{y}", "o=https://me:s3cret@h/{z}/{x}/{y}",
    ])
    func aPasswordInASourceOnTheCommandLineIsNotPrinted(argument: String) throws {
        let error = try #require(throws: ConfigError.self) { try SourceConfiguration(argument: argument) }
        #expect(!error.description.contains("s3cret"), "\(error)")
    }

    @Test
    func hostsAreNamesWithoutPorts() throws {
        #expect(try Self.read("hosts: [tiles.example.org, 192.0.2.1]").hosts == ["tiles.example.org", "192.0.2.1"])
        #expect(try Self.read("hosts: tiles.example.org").hosts == ["tiles.example.org"])
        #expect(throws: ConfigError.self) { try Self.read("hosts: [\"tiles.example.org:80\"]") }
    }

    @Test
    func certificateAuthoritiesAreAFileThatHasSome() throws {
        let configuration = try Self.read("cache: /c\ncertificateAuthorities: /nowhere/ca.pem")
        #expect(configuration.certificateAuthorities == "/nowhere/ca.pem")
        let error = try #require(throws: ConfigError.self) { try configuration.checkCertificateAuthorities() }
        #expect(error.description.contains("certificateAuthorities: /nowhere/ca.pem cannot be read"))
        #expect(configuration.needingRestart(from: try Self.read("cache: /c")) == ["certificateAuthorities"])
        try ProxyConfiguration().checkCertificateAuthorities()
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        try Self.read("certificateAuthorities: \(certificate.path)").checkCertificateAuthorities()
    }

    @Test
    func aLeafletFolderWithoutLeafletIsAnErrorAndNotTheNetwork() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("leaflet-\(UUID())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        for path in ["/nowhere/leaflet", folder.path, "\"\""] {
            let configuration = try Self.read("leaflet: \(path)")
            let error = try #require(throws: ConfigError.self) { try configuration.checkLeaflet() }
            #expect(error.description.hasPrefix("configuration: leaflet: "))
            #expect(error.description.contains("has no leaflet.js"))
            #expect(throws: Never.self) { try Self.read("page: false\nleaflet: \(path)").checkLeaflet() }
        }
        for name in ["leaflet.js", "leaflet.css"] {
            try Data("x".utf8).write(to: folder.appendingPathComponent(name))
        }
        let configuration = try Self.read("leaflet: \(folder.path)")
        try configuration.checkLeaflet()
        #expect(LeafletFiles(configuration)?.files.count == 2)
        try ProxyConfiguration().checkLeaflet()
        try Self.read("leaflet: network").checkLeaflet()
        #expect(try LeafletFiles(Self.read("leaflet: network")) == nil)
    }

    @Test
    func aFolderOfTilesThatIsNotThereIsAWarning() throws {
        let here = FileManager.default.temporaryDirectory.path
        for (template, isThere) in [
            ("\(here)/{z}/{x}/{y}.png", true), ("/nowhere at all/{z}/{x}/{y}.png", false),
            ("file:///nowhere%20at%20all/t-{z}/{x}/{y}.png", false), ("https://h/{z}/{x}/{y}.png", true),
        ] {
            let source = try ServedSource(SourceConfiguration(argument: "w=" + template), index: 0)
            #expect(source.warnings.isEmpty == isThere, "\(template)")
            if !isThere { #expect(source.warnings.first?.contains("there is no folder /nowhere at all/") == true) }
        }
    }

    @Test
    func aFolderOfTilesMayHaveASpaceInItsName() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("my tiles-\(UUID())")
        defer { try? FileManager.default.removeItem(at: folder) }
        try FileManager.default.createDirectory(
            at: folder.appendingPathComponent("0/0"), withIntermediateDirectories: true)
        try TileLab.png("sea").write(to: folder.appendingPathComponent("0/0/0.png"))
        try await TileLab.with("world=\(folder.path)/{z}/{x}/{y}.png") { lab in
            let answer = try await lab.get("/tiles/world/0/0/0.png")
            #expect(answer.status == 200 && answer.body == TileLab.png("sea"))
        }
    }

    @Test
    func aSourceWithoutACapacityOfItsOwnMaySaySo() throws {
        let configuration = try Self.read(
            "cache: /c\nsources:\n  o:\n    template: https://o.example/{z}/{x}/{y}.png\n    capacity: none")
        #expect(configuration.sources.map(\.capacity) == [nil] && configuration.sourceCapacities.isEmpty)
    }

    @Test
    func theConfigurationsLimitsAreSaidWhereTheyReplaceThoseOfTilegcLimit() throws {
        let clock = ManualClock()
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        let store = try TileStore(environment: clock.environment(files), configuration: StoreConfiguration())
        defer { store.simulateKill() }
        let messages = Messages()
        let configuration = try Self.read("cache: /c\ncapacity: 20MiB")
        try configuration.setLimits(of: store, messages.logger)
        #expect(try store.limits().capacity == 20 << 20)
        #expect(messages.notices.isEmpty, "a new cache has none to replace")
        try store.setLimits(StoreLimits(capacity: 10 << 20))
        try ProxyConfiguration().setLimits(of: store, messages.logger)
        #expect(try store.limits().capacity == 10 << 20 && messages.notices.isEmpty, "none are configured")
        try configuration.setLimits(of: store, messages.logger)
        try configuration.setLimits(of: store, messages.logger)
        #expect(try store.limits().capacity == 20 << 20)
        #expect(messages.notices.count == 1 && messages.notices[0].contains("replaces the cache's limits"))
        #expect(messages.notices.first?.contains("10485760 bytes") == true)
        #expect(messages.notices.first?.contains("20971520 bytes") == true)
    }

    @Test
    func aLimitOnEntriesAloneIsSetToo() throws {
        let known = StoreLimits(capacity: 1 << 30, entryLimit: 7)
        func limits(_ yaml: String) throws -> StoreLimits { try Self.read(yaml).limits(over: known) }
        #expect(try limits("entries: 5") == StoreLimits(capacity: 1 << 30, entryLimit: 5))
        #expect(try limits("capacity: 1MiB\nentries: 5") == StoreLimits(capacity: 1 << 20, entryLimit: 5))
        #expect(try limits("capacity: 1MiB") == StoreLimits(capacity: 1 << 20))
        #expect(try limits("threads: 1") == known)
    }

    @Test
    func whatNeedsANewStartIsSaid() throws {
        let old = try Self.read("cache: /c\nthreads: 1\nsources:\n  a: {template: \"http://h/{z}/{x}/{y}\"}")
        let new = try Self.read(
            "cache: /d\nthreads: 2\nlisten: 81\nsources:\n  b: {template: \"http://h/{z}/{x}/{y}\"}")
        #expect(new.needingRestart(from: old) == ["cache", "listen", "threads"])
        #expect(old.needingRestart(from: old) == [])
        let louder = try Self.read(
            "cache: /c\nthreads: 1\nlog: {level: debug}\nsources:\n  a: {template: \"http://h/{z}/{x}/{y}\"}")
        #expect(louder.needingRestart(from: old) == ["log.level"])
    }

    @Test(
        arguments: [
            ("200MB", 200_000_000), ("1.5GiB", 1_610_612_736), ("4096", 4096), ("2 KiB", 2048), ("-1", nil),
            ("1e9", nil),
            ("MB", nil), ("", nil), ("99999999999TB", nil),
        ] as [(String, Int?)])
    func sizesAreReadAsPeopleWriteThem(_ text: String, _ size: Int?) {
        #expect(ConfigValue.size(text) == size)
    }

    @Test
    func durationsAreReadAsPeopleWriteThem() {
        #expect(ConfigValue.duration("30d") == .seconds(2_592_000))
        #expect(ConfigValue.duration("250ms") == .milliseconds(250))
        #expect(ConfigValue.duration("90") == .seconds(90))
        #expect(ConfigValue.duration("soon") == nil)
    }

    @Test
    func theCommandLineNamesASource() throws {
        let source = try SourceConfiguration(argument: "osm=https://h/{z}/{x}/{y}.png?a=b")
        #expect(source.name.description == "osm" && source.template == "https://h/{z}/{x}/{y}.png?a=b")
        let folder = try SourceConfiguration(argument: "world=folder/{z}/{x}/{y}.png")
        #expect(folder.isLocal && folder.templateURL.hasPrefix("file:///") && folder.archivePath == nil)
        for (template, path) in [
            ("w.pmtiles", "w.pmtiles"), ("/srv/W.MBTiles", "/srv/W.MBTiles"), ("file:///a%20b.mbtiles", "/a b.mbtiles"),
            ("s/set.json", "s/set.json"), ("set.json", "set.json"), ("set.json/{z}/{x}/{y}.png", nil),
        ] { #expect(try SourceConfiguration(argument: "w=" + template).archivePath == path) }
        #expect(try SourceConfiguration(argument: "v=folder/{z}/{x}/{y}.pbf").servedKind == .vector)
        for wrong in ["osm", "=x", "a b=https://h/{z}/{x}/{y}", "osm=https://h/{z}"] {
            #expect(throws: ConfigError.self) { try SourceConfiguration(argument: wrong) }
        }
    }
}
