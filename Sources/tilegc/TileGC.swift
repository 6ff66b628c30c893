import ArgumentParser
import TileArchive
import TileStore

/// The command line of a tile cache.
struct TileGC: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tilegc",
        abstract: "Looks into a tile cache, collects its garbage, checks it, and moves tiles in and out.",
        discussion: """
            CACHE is the cache's folder. Every command works while other processes use the cache, and none leaves it \
            worse when it is interrupted.

            Reports go to standard output, as text or with --json as JSON; messages and progress to standard error.
            Exit status: 0 done; 1 the check found something, or tiles could not be had; 64 usage; 65 a wrong line in a \
            list, nothing was done; 66 no such cache or input; 74 input/output error or another process in the way; 77 \
            refused by a server; 130 interrupted.
            """,
        version: "tilegc \(LibraryVersion.text)",
        subcommands: [
            Stats.self, List.self, Show.self, Cat.self, Collect.self, Limit.self, Remove.self, Expire.self,
            Verify.self, Compact.self, Import.self, Export.self, Seed.self, Revalidate.self, Regions.self,
            Coverage.self, Watch.self, Info.self, Diff.self, Convert.self, Publish.self, Pull.self, Shared.self,
        ])

    /// Parses, runs, and turns whatever went wrong into one line and an exit status.
    static func main() async {
        do {
            if let word = unknownTopic { throw Failure(.usage, noSuchCommand(word)) }
            var command = try parseAsRoot()
            if var waiting = command as? any AsyncParsableCommand {
                try await waiting.run()
            } else {
                try command.run()
            }
        } catch let status as ExitCode {
            exit(withError: status)
        } catch let failure as Failure {
            fail(failure)
        } catch let error as StoreError {
            fail(Failure(error))
        } catch let error as ArchiveError {
            fail(Failure(error))
        } catch {
            // Help and the version are "errors" that succeed; the rest are the parser's own.
            guard exitCode(for: error) != .success else { exit(withError: error) }
            if let message = unknownCommand { fail(Failure(.usage, message)) }
            fail(Failure(.usage, "\(message(for: error)) (see '\(helpCommand)')"))
        }
    }

    /// What to type for help on what was typed.
    private static var helpCommand: String {
        let names = configuration.subcommands.compactMap { $0.configuration.commandName }
        let command = CommandLine.arguments.dropFirst().first { names.contains($0) }
        return command.map { "tilegc help \($0)" } ?? "tilegc --help"
    }

    /// What to say if the first word is no command.
    private static var unknownCommand: String? {
        guard let word = CommandLine.arguments.dropFirst().first, !word.hasPrefix("-"), !words.contains(word) else {
            return nil
        }
        return noSuchCommand(word)
    }

    /// What `help` is to explain, if that is no command: the parser would print the general help and succeed.
    private static var unknownTopic: String? {
        let arguments = CommandLine.arguments.dropFirst()
        guard arguments.first == "help", let word = arguments.dropFirst().first, !word.hasPrefix("-"),
            !words.contains(word)
        else { return nil }
        return word
    }

    /// The first words that a command line may have.
    private static var words: [String] {
        configuration.subcommands.compactMap { $0.configuration.commandName } + ["help"]
    }

    private static func noSuchCommand(_ word: String) -> String {
        let near = words.map { ($0, distance($0, word)) }.filter { $0.1 <= 2 }.min { $0.1 < $1.1 }
        return "there is no command '\(word.printable)'" + (near.map { "; did you mean '\($0.0)'?" } ?? "")
            + " ('tilegc --help' lists the commands)"
    }

    /// Says what went wrong and ends the process.
    static func fail(_ failure: Failure) -> Never {
        Message.print(failure.message)
        exit(withError: ExitCode(failure.status.rawValue))
    }
}
