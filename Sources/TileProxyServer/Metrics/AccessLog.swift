import Dispatch
package import HTTPCaching
package import HTTPListener
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// One line for each request, written by a thread of its own so that no event loop waits for a disk or a pipe.
///
/// What cannot be written in time is dropped and counted: a log that nobody reads must not stop the server.
package final class AccessLog: Sendable {
    private struct State {
        var lines: [UInt8] = []
        var dropped = 0
        var file: Int32
        var isClosed = false
    }
    private let format: ProxyConfiguration.AccessLog.Format
    private let path: String
    private let state: Locked<State>
    private let queue = DispatchQueue(label: "access-log")
    private static let most = 4 << 20

    /// Opens the log.
    ///
    /// - Throws: ``ConfigError`` if the file cannot be opened.
    package init(_ configuration: ProxyConfiguration.AccessLog) throws(ConfigError) {
        format = configuration.format
        path = configuration.path
        state = Locked(State(file: try Self.open(path)))
        flushLater()
    }

    /// Writes four times a second for as long as somebody holds the log open.
    private func flushLater() {
        queue.asyncAfter(deadline: .now() + .milliseconds(250)) { [weak self] in
            guard let self, !self.state.withLock({ $0.isClosed }) else { return }
            self.flush()
            self.flushLater()
        }
    }

    private static func open(_ path: String) throws(ConfigError) -> Int32 {
        guard path != "-" else { return 1 }
        let file = openFile(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o640)
        guard file >= 0 else { throw ConfigError(place: path, key: "accessLog", "the access log cannot be opened") }
        return file
    }

    /// Opens the file again, after it was moved away.
    package func reopen() throws(ConfigError) {
        guard path != "-" else { return }
        let new = try Self.open(path)
        queue.sync {
            flush()
            let old = state.withLock { state in
                defer { state.file = new }
                return state.file
            }
            closeFile(old)
        }
    }

    /// Adds a line.
    func add(_ line: AccessLine) {
        let bytes = line.bytes(format)
        state.withLock { state in
            guard state.lines.count + bytes.count <= Self.most, !state.isClosed else {
                state.dropped += 1
                return
            }
            state.lines += bytes
        }
    }

    /// How many lines were dropped.
    package var dropped: Int { state.withLock { $0.dropped } }

    private func flush() {
        let (lines, file) = state.withLock { state in
            defer { state.lines = [] }
            return (state.lines, state.file)
        }
        var rest = lines[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { write(file, $0.baseAddress, $0.count) }
            if written > 0 {
                rest = rest.dropFirst(written)
            } else if errno != EINTR {
                state.withLock { $0.dropped += 1 }
                return
            }
        }
    }

    /// Writes what is left, and no more.
    package func close() {
        queue.sync {
            flush()
            state.withLock { $0.isClosed = true }
        }
    }
}

/// What a line of the access log says.
package struct AccessLine: Sendable {
    package var client: String
    package var time: HTTPDate
    package var method: String
    /// The path; a query only where it is no secret of the operator's or a client's: never on tile routes.
    package var path: String
    /// `nil` for a message that was refused before it became a request; its method and path are `-`.
    package var version: HTTPVersion?
    package var status: Int
    package var bytes: Int
    package var referrer: String?
    package var agent: String?
    package var cache: String
    package var microseconds: Int

    package init(
        client: String, time: HTTPDate, method: String, path: String, version: HTTPVersion?, status: Int, bytes: Int,
        referrer: String?, agent: String?, cache: String, microseconds: Int
    ) {
        self.client = client
        self.time = time
        self.method = method
        self.path = path
        self.version = version
        self.status = status
        self.bytes = bytes
        self.referrer = referrer
        self.agent = agent
        self.cache = cache
        self.microseconds = microseconds
    }

    /// The line with its end.
    func bytes(_ format: ProxyConfiguration.AccessLog.Format) -> [UInt8] {
        switch format {
        case .combined:
            let request = version.map { "\(Self.quoted(method)) \(Self.quoted(path)) \($0.text)" } ?? "-"
            let agent = Self.quoted(agent ?? "-")
            let line =
                "\(client) - - [\(Self.date(time))] \"\(request)\" \(status) "
                + "\(bytes) \"\(Self.quoted(Self.withoutQuery(referrer) ?? "-"))\" \"\(agent)\" "
                + "\(cache) \(microseconds)\n"
            return Array(line.utf8)
        case .json:
            struct Line: Encodable {
                var time, client, method, path, `protocol`: String
                var status, bytes: Int
                var referrer, agent: String?
                var cache: String
                var microseconds: Int
            }
            let line = Line(
                time: Timestamp(seconds: time.seconds).description, client: client, method: method, path: path,
                protocol: version?.text ?? "-", status: status, bytes: bytes,
                referrer: Self.withoutQuery(referrer), agent: agent, cache: cache, microseconds: microseconds)
            return Array((JSONText.of(line) + "\n").utf8)
        }
    }

    /// Where somebody came from may carry tokens in its query, or a user's name and password.
    static func withoutQuery(_ url: String?) -> String? {
        guard let url else { return nil }
        let plain = url.prefix { $0 != "?" && $0 != "#" }
        guard let start = plain.firstRange(of: "://")?.upperBound else { return String(plain) }
        let host = plain[start...].prefix { $0 != "/" }
        guard let at = host.lastIndex(of: "@") else { return String(plain) }
        return String(plain[..<start]) + String(plain[plain.index(after: at)...])
    }

    /// What a client sends cannot end a line or a quotation, nor write to a terminal.
    static func quoted(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars.prefix(1024) {
            if scalar == "\"" || scalar == "\\" || scalar.value < 32 || (127...159).contains(scalar.value) {
                let digits = String(scalar.value, radix: 16, uppercase: true)
                result += "\\x" + (digits.count < 2 ? "0" : "") + digits
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    /// `21/Nov/2026:15:52:00 +0000`.
    static func date(_ time: HTTPDate) -> String {
        // "Sat, 21 Nov 2026 15:52:00 GMT"
        let parts = time.description.split(separator: " ")
        guard parts.count == 6 else { return "-" }
        return "\(parts[1])/\(parts[2])/\(parts[3]):\(parts[4]) +0000"
    }
}

// The class has functions of these names itself.
private func openFile(_ path: String, _ flags: Int32, _ mode: mode_t) -> Int32 { open(path, flags, mode) }
private func closeFile(_ file: Int32) { close(file) }
