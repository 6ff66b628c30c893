import HTTPTypes
import TileCache
import TileCacheNIO
import TileCacheTesting

/// The transports that have to keep the contract.
enum Carrier: String, CaseIterable, Sendable {
    case asyncHTTPClient
    case urlSession

    func make() -> any TileTransport {
        switch self {
        case .asyncHTTPClient: AsyncHTTPClientTransport()
        case .urlSession: URLSessionTransport()
        }
    }

    /// URLSession as it is on Linux, with what it cannot keep there.
    var isLinuxURLSession: Bool {
        #if canImport(FoundationNetworking)
        self == .urlSession
        #else
        false
        #endif
    }
}

extension TileTransport {
    /// Sends a GET request and gives back what came, or the error.
    func get(
        _ origin: LocalOrigin, _ path: String = "/secret?token=secret", _ fields: HTTPFields = [:],
        bodyLimit: Int = 1 << 20, timeout: Duration = .seconds(300)
    ) async -> Result<TransportResponse, TransportError> {
        await outcome(origin.request(path, fields), bodyLimit: bodyLimit, timeout: timeout)
    }

    func outcome(
        _ head: HTTPRequest, bodyLimit: Int = 1 << 20, timeout: Duration = .seconds(300)
    ) async -> Result<TransportResponse, TransportError> {
        do {
            return .success(try await send(TransportRequest(head: head, bodyLimit: bodyLimit, timeout: timeout)))
        } catch {
            return .failure(error)
        }
    }
}

extension Result where Success == TransportResponse, Failure == TransportError {
    /// The error's code; `nil` if there was an answer.
    var code: TransportError.Code? {
        switch self {
        case .success: nil
        case .failure(let error): error.code
        }
    }

    /// The body as text; `nil` if there was an error.
    var text: String? {
        switch self {
        case .success(let answer): String(decoding: answer.body, as: UTF8.self)
        case .failure: nil
        }
    }
}
