#if NIO
import AsyncHTTPClient
import HTTPTypes
import NIOCore
import NIOHTTP1
import TileCache

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Puts one answer together and stops it where it breaks a limit.
///
/// The client calls it on the request's event loop, one call after another, and never again once the request's future is
/// complete. Only then is it read from elsewhere; that is what makes it safe to share.
final class AnswerCollector: HTTPClientResponseDelegate, @unchecked Sendable {
    typealias Response = TransportResponse

    private let bodyLimit: Int
    private let headLimit: Int
    private let host: String
    private let isHead: Bool
    private var head = HTTPResponse(status: .ok)
    private var body = Data()
    private var promised: Int?
    /// Whether the head of the final answer came.
    private(set) var headArrived = false

    init(request: TransportRequest, headLimit: Int) {
        bodyLimit = max(0, request.bodyLimit)
        self.headLimit = headLimit
        host = request.head.host
        isHead = request.head.method == .head
    }

    func didReceiveHead(
        task: HTTPClient.Task<TransportResponse>, _ head: HTTPResponseHead
    ) -> EventLoopFuture<Void> {
        headArrived = true
        do throws(TransportError) {
            try take(head)
            return task.eventLoop.makeSucceededVoidFuture()
        } catch {
            return task.eventLoop.makeFailedFuture(error)
        }
    }

    func didReceiveBodyPart(
        task: HTTPClient.Task<TransportResponse>, _ part: ByteBuffer
    ) -> EventLoopFuture<Void> {
        guard part.readableBytes <= bodyLimit - body.count else {
            return task.eventLoop.makeFailedFuture(bodyTooLarge)
        }
        part.withUnsafeReadableBytes { body.append(contentsOf: $0) }
        return task.eventLoop.makeSucceededVoidFuture()
    }

    func didFinishRequest(task: HTTPClient.Task<TransportResponse>) throws -> TransportResponse {
        if let promised, promised != body.count {
            throw TransportError(.truncated, "\(host): the body has \(body.count) B of \(promised) B")
        }
        return TransportResponse(head: head, body: body)
    }

    private var bodyTooLarge: TransportError {
        TransportError(.bodyTooLarge, "\(host): the body is larger than \(bodyLimit) B")
    }

    private func take(_ received: HTTPResponseHead) throws(TransportError) {
        let code = Int(received.status.code)
        // 101 would be the answer to an upgrade; none is ever asked for.
        guard (200...999).contains(code) else {
            throw TransportError(.malformed, "\(host): status \(code) is no final answer")
        }
        var size = 0
        for (name, value) in received.headers { size += name.utf8.count + value.utf8.count + 4 }
        guard size <= headLimit else {
            throw TransportError(.headTooLarge, "\(host): the header fields are \(size) B, above \(headLimit) B")
        }
        var fields = HTTPFields()
        fields.reserveCapacity(received.headers.count)
        for (name, value) in received.headers {
            guard let name = HTTPField.Name(name) else {
                throw TransportError(.malformed, "\(host): a header field's name is no token")
            }
            fields.append(HTTPField(name: name, value: value))
        }
        head = HTTPResponse(status: .init(code: code), headerFields: fields)

        // These have no body, whatever length they name: it is that of the representation (RFC 9110 section 8.6).
        guard !isHead, code != 204, code != 304 else { return }
        guard !received.headers.contains(name: "transfer-encoding"),
            let length = received.headers.first(name: "content-length").flatMap(Int.init)
        else { return }
        guard length <= bodyLimit else { throw bodyTooLarge }
        promised = length
        // A promise may be a lie: no more than a large tile is reserved on its word.
        body.reserveCapacity(min(max(0, length), 1 << 20))
    }
}
#endif
