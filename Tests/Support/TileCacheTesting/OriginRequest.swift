package import HTTPTypes
import NIOHTTP1

/// A request as a local origin received it.
package struct OriginRequest: Sendable {
    let head: HTTPRequestHead

    /// The method's name.
    package var method: String { head.method.rawValue }
    /// Path and query, as they came.
    package var path: String { head.uri }
    /// All header fields, in order.
    package var fields: HTTPFields {
        var fields = HTTPFields()
        for (name, value) in head.headers {
            guard let name = HTTPField.Name(name) else { continue }
            fields.append(HTTPField(name: name, value: value))
        }
        return fields
    }
    /// The request as a value of swift-http-types.
    package var request: HTTPRequest {
        HTTPRequest(
            method: HTTPRequest.Method(rawValue: method) ?? .get, scheme: nil,
            authority: head.headers.first(name: "host"), path: path, headerFields: fields)
    }
}

/// What a local origin has seen.
struct OriginLog {
    var requests: [OriginRequest] = []
    var counts: [String: Int] = [:]
    var inProgress = 0
    var maxConcurrent = 0
    var connections = 0
    var connectionsMade = 0
    var bytesSent = 0
    var bytesReceived = 0
    private var waiters: [(isDone: @Sendable (OriginLog) -> Bool, resume: CheckedContinuation<Void, Never>)] = []

    mutating func forget() {
        requests = []
        counts = [:]
        maxConcurrent = inProgress
        bytesSent = 0
        bytesReceived = 0
    }

    /// Resumes at once, or when a change makes the condition true.
    mutating func wait(
        _ continuation: CheckedContinuation<Void, Never>, until isDone: @escaping @Sendable (OriginLog) -> Bool
    ) {
        if isDone(self) { continuation.resume() } else { waiters.append((isDone, continuation)) }
    }

    mutating func changed() {
        guard !waiters.isEmpty else { return }
        let (all, log) = (waiters, self)
        waiters = all.filter { waiter in
            guard waiter.isDone(log) else { return true }
            waiter.resume.resume()
            return false
        }
    }
}
