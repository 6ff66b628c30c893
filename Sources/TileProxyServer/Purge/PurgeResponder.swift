import HTTPListener
import HTTPTypes
import HTTPWire
import NIOCore

/// Answers `/_tileproxy/purge` on one event loop.
///
/// For programs and people with the token, and for no page: what a browser sends names its origin, or is no JSON.
final class PurgeResponder {
    /// A body on its way.
    private final class Incoming {
        var bytes = ByteBuffer()
    }

    private let service: PurgeService
    private let loop: any EventLoop

    init(_ service: PurgeService, loop: any EventLoop) { (self.service, self.loop) = (service, loop) }

    /// Answers a request; its host is this server's own.
    func respond(_ exchange: Exchange) {
        let head = exchange.head
        guard head.methodText == "POST" else {
            return exchange.reply(405, "Send it with POST.", fields: [.allow: "POST"])
        }
        guard head.fields.values(named: "origin").isEmpty else {
            return exchange.reply(403, "This is not for pages of web sites.")
        }
        let shown = head.fields.values(named: "authorization")
        guard shown.count == 1, service.token.admits(shown[0]) else {
            let fields: HTTPFields = [.wwwAuthenticate: "Bearer realm=\"tileproxy\""]
            return exchange.reply(
                401, "It needs Authorization: Bearer, with the token of the configuration.", fields: fields)
        }
        let types = head.fields.values(named: "content-type")
        guard types.count == 1, Self.isJSON(types[0]), head.fields.values(named: "content-encoding").isEmpty else {
            return exchange.reply(415, "Expected Content-Type: application/json.")
        }
        if case .length(let length) = head.body, length > Int64(PurgeService.mostBytes) { return tooLarge(exchange) }
        if let seconds = service.enter() {
            return exchange.reply(429, "Too many at a time.", fields: [.retryAfter: "\(seconds)"])
        }
        read(exchange, Incoming())
    }

    private func tooLarge(_ exchange: Exchange) {
        exchange.reply(413, "Expected at most \(PurgeService.mostBytes) bytes: send the tiles in several requests.")
    }

    private static func isJSON(_ type: String) -> Bool {
        type.prefix { $0 != ";" }.filter { $0 != " " && $0 != "\t" }.lowercased() == "application/json"
    }

    private func read(_ exchange: Exchange, _ incoming: Incoming) {
        exchange.nextBodyPart { [self] part in
            switch part {
            case .bytes(var bytes):
                guard incoming.bytes.readableBytes + bytes.readableBytes <= PurgeService.mostBytes else {
                    service.giveUp()
                    return tooLarge(exchange)
                }
                incoming.bytes.writeBuffer(&bytes)
                read(exchange, incoming)
            case .end: purge(incoming.bytes, exchange)
            case .failed: service.giveUp()
            }
        }
    }

    private func purge(_ body: ByteBuffer, _ exchange: Exchange) {
        let client = exchange.client.clientName
        service.purge(body, from: client, on: loop) { outcome in
            switch outcome {
            case .expired(let count): Self.reply(exchange, "{\"expired\":\(count)}\n")
            case .removed(let count): Self.reply(exchange, "{\"removed\":\(count)}\n")
            case .refused(let reason): exchange.reply(400, reason)
            case .failed(let error): exchange.reply(503, "The cache failed, and not all was done: \(error)")
            case .bucketFailed(let count, let error):
                exchange.reply(
                    502,
                    "\(count) entries of this proxy were marked stale, but the shared bucket could not be told; send it again: "
                        + "\(error)")
            }
        }
    }

    private static func reply(_ exchange: Exchange, _ text: String) {
        let fields: HTTPFields = [
            .contentType: "application/json", .cacheControl: "no-store", .xContentTypeOptions: "nosniff",
        ]
        exchange.reply(HTTPResponse(status: .ok, headerFields: fields), body: ByteBuffer(string: text))
    }
}
