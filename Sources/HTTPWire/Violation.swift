/// Why a message is refused: the status to answer with, and a few words for the log and the body.
package struct Violation: Error, Hashable, Sendable {
    package var status: Int
    package var reason: StaticString

    package init(_ status: Int, _ reason: StaticString) {
        self.status = status
        self.reason = reason
    }

    package static func == (a: Violation, b: Violation) -> Bool {
        a.status == b.status && "\(a.reason)" == "\(b.reason)"
    }
    package func hash(into hasher: inout Hasher) { hasher.combine(status) }
}
