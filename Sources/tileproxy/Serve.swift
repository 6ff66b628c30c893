import ArgumentParser
import HTTPListener
import Logging
import TileProxyServer
import TileStore

/// `tileproxy serve`.
struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Runs the proxy until SIGTERM or SIGINT, then ends what is under way and stops.",
        discussion: """
            Flags win over the file of --config. SIGHUP reads the file and the certificate again and opens the access log anew.

            Exit status: 0 stopped in order; 64 usage, a mistake in the configuration included; 66 no such cache; 74 \
            input/output error, a port in use included.
            """)

    @Option(help: ArgumentHelp("The cache's folder; it is made if it is missing.", valueName: "dir"))
    var cache: String?

    @Option(help: ArgumentHelp("A configuration file; see Examples/tileproxy.yaml.", valueName: "file"))
    var config: String?

    @Option(
        name: .customLong("listen"),
        help: ArgumentHelp(
            "Where to listen: \(ConfigValue.listenForms). May be repeated, and replaces listen of the file.",
            valueName: "address"),
        transform: ArgumentValues.listenAddress)
    var listen: [ListenAddress] = []

    @Option(
        name: .customLong("socket-mode"),
        help: ArgumentHelp("The rights of Unix sockets, such as 0660 (default: 0600).", valueName: "mode"),
        transform: ArgumentValues.fileMode)
    var socketMode: Int?

    @Option(help: "The address to listen on, for all ports (default: 127.0.0.1).")
    var host: String?

    @Option(
        help: "The port to listen on; 0 for any that is free (default: 8080).",
        transform: ArgumentValues.number(0...65535))
    var port: Int?

    @Option(
        name: .customLong("tls-certificate"),
        help: ArgumentHelp(
            "A PEM file with the server's certificate and those that lead to its authority; it listens for https too.",
            valueName: "file"))
    var tlsCertificate: String?

    @Option(
        name: .customLong("tls-key"),
        help: ArgumentHelp("A PEM file with the certificate's private key.", valueName: "file"))
    var tlsKey: String?

    @Option(
        name: .customLong("https-port"),
        help: "The port to listen on for https; 0 for any that is free (default: 8443).",
        transform: ArgumentValues.number(0...65535))
    var httpsPort: Int?

    @Option(
        name: .customLong("max-bytes"),
        help: ArgumentHelp(
            "Sets the cache's lasting capacity, such as 200MB or 1.5GiB, over what tilegc limit has set.",
            valueName: "size"),
        transform: ArgumentValues.size)
    var maxBytes: Int?

    @Option(
        help: ArgumentHelp("Bytes of hot tiles to keep in memory (default: 64MiB).", valueName: "size"),
        transform: ArgumentValues.size)
    var memory: Int?

    @Option(
        name: .customLong("source"),
        help: ArgumentHelp(
            """
            A source: a tile's URL or file with {z} {x} {y}, an .mbtiles file, a .pmtiles file or URL, or a published set's \
            set.json. May be repeated.
            """,
            valueName: "name=template"))
    var sources: [String] = []

    @Option(
        name: .customLong("upstream"),
        help: ArgumentHelp(
            "Caches what is below a prefix from an origin: styles, glyphs, sprites, anything. May be repeated.",
            valueName: "[name:]prefix=base-url"))
    var upstreams: [String] = []

    @Option(
        name: .customLong("certificate-authorities"),
        help: ArgumentHelp(
            "A PEM file of certificate authorities that https servers may have besides the system's.",
            valueName: "file"))
    var certificateAuthorities: String?

    @Option(
        help: ArgumentHelp(
            "A bucket to share with other proxies; its keys are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            valueName: "http(s)://host/bucket[/prefix]"))
    var shared: String?

    @Option(help: "Event loops; each is a thread (default: 1).", transform: ArgumentValues.number(1...64))
    var threads: Int?

    @Option(
        name: .customLong("access-log"),
        help: ArgumentHelp("A line for each request into this file, - for standard output.", valueName: "file"))
    var accessLog: String?

    func validate() throws {
        if cache == nil, config == nil {
            throw ValidationError("say where the cache is (--cache DIR), or name a configuration file (--config FILE)")
        }
        if !listen.isEmpty, host != nil || port != nil || httpsPort != nil {
            throw ValidationError("say where to listen by --listen, or by --host, --port and --https-port")
        }
        for (index, address) in listen.enumerated() {
            if let problem = ProxyConfiguration.problem(with: address, after: Array(listen[..<index])) {
                throw ValidationError("--listen \(address): \(problem)")
            }
        }
        // Not by `transform:`, whose errors repeat the value as it is, passwords included.
        do throws(ConfigError) {
            _ = try ArgumentValues.sources(sources)
            _ = try ArgumentValues.routes(upstreams)
        } catch { throw ValidationError(error.description) }
    }

    /// The file's word, and over it the flags'.
    func read() throws(ConfigError) -> ProxyConfiguration {
        var configuration = ProxyConfiguration()
        if let config { try configuration.read(file: config) }
        configuration.cache = cache ?? configuration.cache
        if tlsCertificate != nil || tlsKey != nil {
            configuration.tls = TLSFiles(
                certificate: tlsCertificate ?? configuration.tls?.certificate ?? "",
                key: tlsKey ?? configuration.tls?.key ?? "")
        }
        if !listen.isEmpty { configuration.listen = listen }
        configuration.listen(host: host, port: port, securePort: httpsPort)
        configuration.socketMode = socketMode ?? configuration.socketMode
        configuration.capacity = maxBytes ?? configuration.capacity
        configuration.memoryBytes = memory ?? configuration.memoryBytes
        configuration.threads = threads ?? configuration.threads
        configuration.certificateAuthorities = certificateAuthorities ?? configuration.certificateAuthorities
        if let shared {
            configuration.shared = SharedConfiguration(url: shared)
            _ = try configuration.shared?.parts { ConfigError(place: "--shared", $0) }
        }
        if let accessLog { configuration.accessLog = ProxyConfiguration.AccessLog(path: accessLog) }
        for source in try ArgumentValues.sources(sources) {
            configuration.sources.removeAll { $0.name == source.name }
            configuration.sources.append(source)
        }
        configuration.routes += try ArgumentValues.routes(upstreams)
        try configuration.validate(config ?? "command line")
        return configuration
    }

    func run() async throws {
        let configuration: ProxyConfiguration
        do throws(ConfigError) { configuration = try read() } catch {
            Self.complain(error.description)
            throw ExitCode(64)
        }
        let level = Logger.Level(rawValue: configuration.logLevel) ?? .info
        let isJSON = configuration.logFormat == .json
        LoggingSystem.bootstrap { label in
            if isJSON { return JSONLogHandler(label: label, level: level) }
            var handler = StreamLogHandler.standardError(label: label)
            handler.logLevel = level
            return handler
        }
        let service = ProxyService(
            configuration, logger: Logger(label: "tileproxy"), rereading: { () throws(ConfigError) in try read() })
        do {
            try await service.run()
        } catch let failure as ProxyService.Failure {
            Self.complain(failure.message)
            throw ExitCode(failure.status)
        }
    }
}
