/// Why a message is refused: the status to answer with, and a few words for the log and the body.
struct Violation: Error, Hashable, Sendable {
    var status: Int
    var reason: StaticString

    init(_ status: Int, _ reason: StaticString) {
        self.status = status
        self.reason = reason
    }

    static func == (a: Violation, b: Violation) -> Bool { a.status == b.status && "\(a.reason)" == "\(b.reason)" }
    func hash(into hasher: inout Hasher) { hasher.combine(status) }
}
