import ArgumentParser
import Logging
import TileProxyServer

/// `tileproxy serve`.
struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Runs the proxy until SIGTERM or SIGINT, then ends what is under way and stops.",
        discussion: """
            Exit status: 0 stopped in order; 64 usage; 66 no such cache; 74 input/output error, a port in use included.
            """)

    @Option(help: "The cache's folder; it is made if it is missing.")
    var cache: String

    @Option(help: "The address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 for any that is free.")
    var port = 8080

    @Option(
        name: .customLong("max-bytes"), help: "Sets the cache's capacity, such as 200MB or 1.5GiB.",
        transform: ArgumentValues.size)
    var maxBytes: Int?

    @Option(help: "Bytes of hot responses to keep in memory.", transform: ArgumentValues.size)
    var memory = 64 << 20

    @Option(
        name: .customLong("upstream"),
        help: ArgumentHelp(
            "Caches what is below a prefix from an origin: styles, glyphs, sprites, anything. May be repeated.",
            valueName: "[name:]prefix=base-url"),
        transform: ArgumentValues.route)
    var upstreams: [ProxyRoute] = []

    @Option(help: "Event loops; each is a thread.")
    var threads = 1

    func validate() throws {
        guard (0...65535).contains(port) else { throw ValidationError("--port must be 0 to 65535") }
        guard (1...64).contains(threads) else { throw ValidationError("--threads must be 1 to 64") }
        let names = upstreams.map(\.name)
        guard Set(names).count == names.count else { throw ValidationError("two upstreams have the same name") }
        guard Set(upstreams.map(\.prefix)).count == names.count else {
            throw ValidationError("two upstreams have the same prefix")
        }
    }

    func run() async throws {
        LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
        let service = ProxyService(
            cache: cache, capacity: maxBytes, memory: memory, host: host, port: port, threads: threads,
            routes: upstreams)
        do {
            try await service.run()
        } catch let failure as ProxyService.Failure {
            Self.complain(failure.message)
            throw ExitCode(failure.status)
        }
    }
}
