import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What a process that has ended leaves behind.
struct Outcome {
    /// The exit status; `nil` if a signal ended it.
    var status: Int32?
    /// The signal that ended it.
    var signal: Int32?
    var output = Data()
    var messages = ""

    var text: String { String(decoding: output, as: UTF8.self) }
    var lines: [Substring] { text.split(separator: "\n") }

    /// The output as one JSON document.
    func json() throws -> [String: Any] {
        guard let object = try JSONSerialization.jsonObject(with: output) as? [String: Any] else {
            throw TestFailure("no JSON object: \(text) \(messages)")
        }
        return object
    }

    /// The output as JSON Lines.
    func jsonLines() throws -> [[String: Any]] {
        try lines.map { line in
            guard let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any] else {
                throw TestFailure("no JSON object: \(line)")
            }
            return object
        }
    }
}

struct TestFailure: Error, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

/// A running `tilegc`, or another program.
///
/// Its output goes to files, so that it never waits for a reader.
final class Child {
    let pid: pid_t
    private let folder: String
    private var ended: Outcome?

    /// The built `tilegc`: next to the test bundle.
    static let tilegc = built("tilegc", unless: "TILEGC")
    /// The built `tileproxy`, likewise.
    static let tileproxy = built("tileproxy", unless: "TILEPROXY")

    /// The built program of an app that downloads a region, likewise.
    static let regionDownload = built("region-download", unless: "REGION_DOWNLOAD")

    private static func built(_ name: String, unless variable: String) -> String {
        if let path = ProcessInfo.processInfo.environment[variable] { return path }
        let starts = [CommandLine.arguments[0]] + Bundle.allBundles.map(\.bundlePath)
        for start in starts {
            var folder = URL(fileURLWithPath: start).deletingLastPathComponent()
            for _ in 0..<6 {
                let candidate = folder.appendingPathComponent(name).path
                var isFolder: ObjCBool = false
                if FileManager.default.fileExists(atPath: candidate, isDirectory: &isFolder), !isFolder.boolValue,
                    FileManager.default.isExecutableFile(atPath: candidate)
                {
                    return candidate
                }
                folder.deleteLastPathComponent()
            }
        }
        return name
    }

    /// Starts a program.
    ///
    /// - Parameter output: Where its standard output goes, instead of into ``Outcome/output``.
    init(_ arguments: [String], of program: String = Child.tilegc, output: Int32? = nil) throws {
        folder = NSTemporaryDirectory() + "/tilegc-child-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        #if canImport(Darwin)
        var actions: posix_spawn_file_actions_t?
        #else
        var actions = posix_spawn_file_actions_t()
        #endif
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        if let output {
            posix_spawn_file_actions_adddup2(&actions, output, 1)
        } else {
            posix_spawn_file_actions_addopen(&actions, 1, folder + "/out", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        }
        posix_spawn_file_actions_addopen(&actions, 2, folder + "/err", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        // Threads of a test runner may block signals, and a child would inherit that.
        #if canImport(Darwin)
        var attributes: posix_spawnattr_t?
        #else
        var attributes = posix_spawnattr_t()
        #endif
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        var arguments: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) }
        arguments.append(nil)
        defer { for argument in arguments { free(argument) } }
        var pid: pid_t = 0
        let result = posix_spawnp(&pid, program, &actions, &attributes, arguments, environ)
        guard result == 0 else {
            throw TestFailure("cannot start \(program): \(String(cString: strerror(result)))")
        }
        self.pid = pid
    }

    deinit {
        if ended == nil {
            kill(pid, SIGKILL)
            var status: Int32 = 0
            waitpid(pid, &status, 0)
        }
        removeFolder(folder)
    }

    /// Sends a signal, unless the process has been waited for.
    func send(_ signal: Int32) {
        if ended == nil { kill(pid, signal) }
    }

    /// Whether it has ended within so many milliseconds.
    func hasEnded(within milliseconds: Int) -> Bool {
        if ended != nil { return true }
        var left = milliseconds
        while true {
            var status: Int32 = 0
            if waitpid(pid, &status, WNOHANG) == pid {
                var outcome = Outcome()
                if status & 0x7F == 0 { outcome.status = status >> 8 & 0xFF } else { outcome.signal = status & 0x7F }
                outcome.output = FileManager.default.contents(atPath: folder + "/out") ?? Data()
                let messages = FileManager.default.contents(atPath: folder + "/err") ?? Data()
                outcome.messages = String(decoding: messages, as: UTF8.self)
                ended = outcome
                return true
            }
            if left <= 0 { return false }
            usleep(1000)
            left -= 1
        }
    }

    /// What it has written to standard error so far.
    var said: String {
        String(decoding: FileManager.default.contents(atPath: folder + "/err") ?? Data(), as: UTF8.self)
    }

    /// Waits for its end, at most a minute.
    func wait() throws -> Outcome {
        guard hasEnded(within: 60_000), let ended else {
            throw TestFailure("process \(pid) did not end within a minute")
        }
        return ended
    }
}

/// Runs `tilegc` to its end.
@discardableResult
func tilegc(_ arguments: String...) throws -> Outcome { try Child(arguments).wait() }

/// Runs `tilegc`, which has to succeed.
@discardableResult
func succeed(_ arguments: String...) throws -> Outcome {
    let outcome = try Child(arguments).wait()
    guard outcome.status == 0 else {
        throw TestFailure("tilegc \(arguments): status \(outcome.status ?? -1), \(outcome.messages)")
    }
    return outcome
}
