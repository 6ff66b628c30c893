import Logging
import NIOCore
import Testing
import TileStore

@testable import TileProxyServer

/// A disk that is full must not fill the log as well.
@Suite(.timeLimit(.minutes(60)))
struct RepeatedFailuresTests {
    /// What was asked to be done later.
    private final class Later: Sendable {
        private let bodies = Locked<[@Sendable () -> Void]>([])

        func add(_ body: @escaping @Sendable () -> Void) { bodies.withLock { $0.append(body) } }

        func pass() {
            let due = bodies.withLock { bodies in
                defer { bodies = [] }
                return bodies
            }
            for body in due { body() }
        }

        var count: Int { bodies.withLock { $0.count } }
    }

    @Test
    func aThousandFailuresAreALineAndACountAMinute() {
        let (messages, later) = (Messages(), Later())
        let failures = RepeatedFailures(messages.logger) { pause, body in
            #expect(pause == .seconds(60))
            later.add(body)
        }
        for i in 0..<1000 { failures.report(.error, "not stored", ["key": "\(i)"]) }
        failures.report(.error, "not read", kind: "a", [:])
        failures.report(.error, "not read", kind: "b", [:])
        #expect(messages.errors.count == 3)
        later.pass()
        #expect(messages.errors.count == 4 && messages.errors.last?.contains("999") == true)
        for i in 0..<10 { failures.report(.error, "not stored", ["key": "\(i)"]) }
        later.pass()
        #expect(messages.errors.count == 5)
        later.pass()
        #expect(messages.errors.count == 5 && later.count == 0, "nothing more is due once it is over")
        failures.report(.error, "not stored", [:])
        #expect(messages.errors.count == 6)
    }
}
