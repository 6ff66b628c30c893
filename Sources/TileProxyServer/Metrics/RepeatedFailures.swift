import Logging
import NIOCore
import NIOPosix
import TileStore

/// Logs failures that repeat, such as those of a full disk: the first of a kind at once, then a count a minute.
final class RepeatedFailures: Sendable {
    private struct Kind {
        var count = 0
        var last: Logger.Metadata = [:]
    }

    /// How long failures of one kind are counted before they are logged.
    static let pause = TimeAmount.seconds(60)

    private let logger: Logger
    private let after: @Sendable (TimeAmount, @escaping @Sendable () -> Void) -> Void
    /// Those that have been logged within the last pause.
    private let kinds = Locked<[String: Kind]>([:])

    /// - Parameter after: Calls a body after a while.
    init(
        _ logger: Logger,
        after: @escaping @Sendable (TimeAmount, @escaping @Sendable () -> Void) -> Void = { pause, body in
            MultiThreadedEventLoopGroup.singleton.any().scheduleTask(in: pause, body)
        }
    ) {
        self.logger = logger
        self.after = after
    }

    /// Reports a failure.
    ///
    /// - Parameters:
    ///   - message: What happened; there are few different ones.
    ///   - kind: What is counted by itself, if that is more than the message: a source, say.
    func report(_ level: Logger.Level, _ message: String, kind: String = "", _ metadata: Logger.Metadata) {
        let name = message + "\n" + kind
        let isFirst = kinds.withLock { kinds in
            guard kinds[name] == nil else {
                kinds[name]?.count += 1
                kinds[name]?.last = metadata
                return false
            }
            kinds[name] = Kind()
            return true
        }
        guard isFirst else { return }
        logger.log(level: level, "\(message)", metadata: metadata)
        countLater(level, message, name)
    }

    private func countLater(_ level: Logger.Level, _ message: String, _ name: String) {
        after(Self.pause) { [weak self] in self?.tell(level, message, name) }
    }

    /// Logs how often it has happened since; once it has not, the next one is a first one again.
    private func tell(_ level: Logger.Level, _ message: String, _ name: String) {
        let repeated = kinds.withLock { kinds -> Kind? in
            guard let kind = kinds[name], kind.count > 0 else {
                kinds[name] = nil
                return nil
            }
            kinds[name] = Kind()
            return kind
        }
        guard let repeated else { return }
        var metadata = repeated.last
        metadata["times"] = "\(repeated.count)"
        metadata["seconds"] = "\(Self.pause.nanoseconds / 1_000_000_000)"
        logger.log(level: level, "\(message), again", metadata: metadata)
        countLater(level, message, name)
    }
}
