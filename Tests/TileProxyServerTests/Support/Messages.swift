import Logging
import TileStore

/// What was logged.
final class Messages: Sendable {
    private let lines = Locked<[(level: Logger.Level, text: String)]>([])

    /// A logger whose messages come here.
    var logger: Logger { Logger(label: "test") { _ in Handler(messages: self) } }

    /// What was logged as an error or worse.
    var errors: [String] { lines.withLock { $0.filter { $0.level >= .error }.map(\.text) } }

    /// What was logged as a notice.
    var notices: [String] { lines.withLock { $0.filter { $0.level == .notice }.map(\.text) } }
    /// What was logged as a warning.
    var warnings: [String] { lines.withLock { $0.filter { $0.level == .warning }.map(\.text) } }

    private struct Handler: LogHandler {
        let messages: Messages
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.debug

        init(messages: Messages) { self.messages = messages }

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            messages.lines.withLock { $0.append((event.level, "\(event.message) \(event.metadata ?? [:])")) }
        }
    }
}
