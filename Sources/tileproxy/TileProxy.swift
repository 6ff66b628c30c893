import ArgumentParser
import TileStore

/// The command line of the caching tile proxy.
struct TileProxy: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tileproxy",
        abstract: "Serves map tiles, styles, fonts and sprites from a cache, and fetches what is missing or stale.",
        version: "tileproxy \(LibraryVersion.text)",
        subcommands: [Serve.self])

    /// Parses and runs; a mistake on the command line is one line on standard error.
    static func main() async {
        do {
            var command = try parseAsRoot()
            if var waiting = command as? any AsyncParsableCommand {
                try await waiting.run()
            } else {
                try command.run()
            }
        } catch let status as ExitCode {
            exit(withError: status)
        } catch {
            // Help and the version are "errors" that succeed.
            guard exitCode(for: error) == .validationFailure else { exit(withError: error) }
            let arguments = CommandLine.arguments.dropFirst()
            let help = arguments.first == "serve" ? "tileproxy help serve" : "tileproxy --help"
            Serve.complain("\(message(for: error)) (see '\(help)')")
            exit(withError: ExitCode(64))
        }
    }
}
