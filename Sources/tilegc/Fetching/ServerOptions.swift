import ArgumentParser
import HTTPTypes
import TileCache
import TileCacheNIO
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Which server a command asks, and how.
struct ServerOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("The source in the cache that the tiles belong to.", valueName: "name"),
        transform: ArgumentValues.source)
    var source: SourceName

    @Option(
        help: ArgumentHelp(
            "The URL of a tile: {z} {x} {y} {-y} {q} {s} {scale} {r} {bbox-epsg-3857}.", valueName: "template"))
    var url: String

    @Option(help: ArgumentHelp("What {s} stands for: a,b,c.", valueName: "names"))
    var subdomains: String?

    @Option(
        help: ArgumentHelp("The zooms that the server has: 0-19.", valueName: "zooms"),
        transform: ArgumentValues.zooms)
    var serverZooms: ClosedRange<Int> = 0...22

    @Option(help: "What its tiles are: image, vector, json, any.")
    var kind: SourceKind = .image

    @Option(
        help: ArgumentHelp(
            "A header field for every request; its value comes from an environment variable or a file, so that it shows "
                + "in no list of processes. Repeatable.",
            valueName: "NAME=ENV:VAR|NAME=FILE:PATH"),
        transform: HeaderOption.init)
    var header: [HeaderOption] = []

    @Option(help: ArgumentHelp("Requests at a time.", valueName: "n"), transform: ArgumentValues.count)
    var concurrency: Int = 4

    @Option(help: ArgumentHelp("Requests in a second at most.", valueName: "n"))
    var rate: Double?

    @Option(
        help: ArgumentHelp(
            "How long to wait for a server that has stopped answering or asks to be left alone: 10m, 2h. One that never "
                + "answered is given up after 15 s.", valueName: "age"),
        transform: ArgumentValues.age)
    var patience: Int = 600

    @Option(
        help: ArgumentHelp(
            "A host whose terms forbid downloading regions to the public, but allow it to you. Repeatable.",
            valueName: "host"))
    var allowBulk: [String] = []

    @Option(help: ArgumentHelp("How requests say who they come from.", valueName: "text"))
    var userAgent: String?

    @Option(
        help: ArgumentHelp("How long tiles are fresh where the server does not say: 7d, 12h.", valueName: "age"),
        transform: ArgumentValues.age)
    var lifetime: Int = 7 * 86_400

    func validate() throws {
        guard (1...256).contains(concurrency) else {
            throw ValidationError("--concurrency \(concurrency): expected 1 to 256")
        }
        if let rate, !(rate.isFinite && rate > 0) {
            throw ValidationError("--rate \(rate): expected a number above 0")
        }
    }

    /// The source as the library has it.
    func tileSource() throws -> TileSource {
        var made: TileSource
        do {
            let names = subdomains.map { $0.split(separator: ",").map(String.init) } ?? []
            made = try TileSource(source.description, template: url, subdomains: names, zooms: serverZooms)
        } catch let error as TileCacheError {
            throw Failure(.usage, "--url: \(error.message)")
        }
        guard made.template.scheme != .file else {
            throw Failure(.usage, "--url: local files need no download; 'tilegc import' takes a folder in")
        }
        made.kind = kind.tileKind
        made.lifetimes.unstated = .seconds(lifetime)
        for option in header { made.headers.append(try option.field()) }
        return made
    }

    /// How a download goes about it.
    var options: DownloadOptions {
        var options = DownloadOptions()
        // Who types the command knows which network it is.
        options.networks = .any
        options.concurrency = concurrency
        options.requestsPerSecond = rate
        options.patience = .seconds(patience)
        options.firstPatience = .seconds(min(patience, 15))
        return options
    }

    /// The hosts of `--allow-bulk`.
    var bulkAllowedHosts: Set<String> { Set(allowBulk.map { $0.lowercased() }) }

    /// Opens a cache with a connection to the world.
    func open(_ argument: CacheArgument, createIfMissing: Bool) throws -> Fetcher {
        var configuration = TileCacheConfiguration()
        configuration.requestsPerHost = concurrency
        // Nobody looks at a map here: all requests are the download's.
        configuration.requestsForVisible = 0
        configuration.userAgent = userAgent ?? "tilegc/\(LibraryVersion.text) swift-tile-cache"
        configuration.bulkAllowedHosts = bulkAllowedHosts
        var transport = AsyncHTTPClientTransport.Configuration()
        transport.connectionsPerHost = concurrency
        let store = try argument.open(createIfMissing: createIfMissing)
        // Before any server is asked: nothing of it could be kept.
        guard !store.isReadOnly else {
            try store.close()
            throw Failure(
                .inputOutput,
                "\(argument.cache) can only be read, so nothing was fetched: see its disk, its owner and its mode")
        }
        return Fetcher(
            store: store, transport: AsyncHTTPClientTransport(configuration: transport), configuration: configuration)
    }
}

/// `--kind`.
enum SourceKind: String, ExpressibleByArgument, CaseIterable {
    case image, vector, json, any

    var tileKind: TileKind {
        switch self {
        case .image: .image
        case .vector: .vector
        case .json: .json
        case .any: .any
        }
    }
}

/// A header field whose value is kept out of the command line.
struct HeaderOption {
    private enum Place {
        case environment(String)
        case file(String)
    }
    private let name: HTTPField.Name
    private let place: Place

    init(_ text: String) throws {
        let parts = text.split(separator: "=", maxSplits: 1).map(String.init)
        guard parts.count == 2, let name = HTTPField.Name(parts[0]) else {
            throw ValidationError("expected NAME=ENV:VAR or NAME=FILE:PATH")
        }
        if parts[1].hasPrefix("ENV:") {
            place = .environment(String(parts[1].dropFirst(4)))
        } else if parts[1].hasPrefix("FILE:") {
            place = .file(String(parts[1].dropFirst(5)))
        } else {
            throw ValidationError(
                "--header \(parts[0]): a value on the command line shows in the list of processes; put it into an "
                    + "environment variable (\(parts[0])=ENV:VAR) or a file (\(parts[0])=FILE:PATH)")
        }
        self.name = name
    }

    /// Reads the value.
    func field() throws -> HTTPField {
        let value: String
        switch place {
        case .environment(let variable):
            guard let found = ProcessInfo.processInfo.environment[variable], !found.isEmpty else {
                throw Failure(.usage, "--header \(name): the environment variable \(variable) is not set")
            }
            value = found
        case .file(let path):
            do { value = try String(contentsOfFile: path, encoding: .utf8) } catch {
                throw Failure(.noInput, "--header \(name): \(path) cannot be read: \(error)")
            }
        }
        let trimmed = value.split(whereSeparator: \.isNewline).first.map(String.init) ?? ""
        guard !trimmed.isEmpty, HTTPField.isValidValue(trimmed) else {
            throw Failure(.usage, "--header \(name): the value is empty or is no header field's value")
        }
        return HTTPField(name: name, value: trimmed)
    }
}
