import Foundation
import HTTPTypes
import TileStore

@testable import TileCache

/// A server in memory: answers by a closure that the test may change, and remembers what it was asked.
final class ScriptedTransport: TileTransport {
    typealias Script = @Sendable (TransportRequest) async throws -> TransportResponse

    private struct State {
        var script: Script
        var requests: [TransportRequest] = []
        var active: [String: Int] = [:]
        var mostActive: [String: Int] = [:]
        var cancelled = 0
    }

    private let state: Locked<State>

    init(_ script: @escaping Script = { _ in .answer(404) }) { state = Locked(State(script: script)) }

    /// All requests so far, in order.
    var requests: [TransportRequest] { state.withLock { $0.requests } }
    var count: Int { state.withLock { $0.requests.count } }
    var paths: [String] { requests.compactMap(\.head.path) }
    /// How many requests ended because they were cancelled.
    var cancelled: Int { state.withLock { $0.cancelled } }
    var active: Int { state.withLock { $0.active.values.reduce(0, +) } }

    func count(of path: String) -> Int { state.withLock { $0.requests.count { $0.head.path == path } } }
    /// The most requests that were under way to a host at once.
    func mostActive(_ host: String) -> Int { state.withLock { $0.mostActive[host] ?? 0 } }

    /// What is answered from now on.
    func script(_ script: @escaping Script) { state.withLock { $0.script = script } }
    /// Answers the same each time from now on.
    func answer(_ answer: TransportResponse) { script { _ in answer } }
    /// Cannot be reached from now on.
    func goOffline() { script { _ in throw TransportError(.connection, "no route to the host") } }

    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        let host = request.head.authority ?? ""
        let script = state.withLock { state in
            state.requests.append(request)
            state.active[host, default: 0] += 1
            state.mostActive[host] = max(state.mostActive[host] ?? 0, state.active[host] ?? 0)
            return state.script
        }
        defer { state.withLock { $0.active[host, default: 1] -= 1 } }
        do { return try await script(request) } catch let error as TransportError { throw error } catch {
            state.withLock { $0.cancelled += 1 }
            throw TransportError(.cancelled, "the request was cancelled")
        }
    }
}

extension TransportResponse {
    /// An answer; a tile unless it says otherwise.
    static func answer(_ status: Int = 200, _ fields: HTTPFields = [:], body: Data? = nil) -> TransportResponse {
        TransportResponse(
            head: HTTPResponse(status: HTTPResponse.Status(code: status), headerFields: fields),
            body: body ?? (status == 200 ? Picture.png(1) : Data()))
    }
}

/// Bodies that pass for pictures, told apart by their number.
enum Picture {
    static func png(_ number: Int, size: Int = 64) -> Data {
        var data = Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
        data.append(contentsOf: withUnsafeBytes(of: UInt64(number).bigEndian, Array.init))
        data.append(Data(count: max(0, size - data.count)))
        return data
    }
}
