import HTTPListener
import HTTPTypes
import NIOCore

/// Sends requests that came without TLS to where it is spoken.
///
/// Health is told without it too: a load balancer that asks follows no redirects.
final class SecureRedirect: Responder {
    private let port: Int
    private let secure: any Responder

    /// - Parameters:
    ///   - port: Where TLS is spoken, as clients see it.
    ///   - secure: What answers there.
    init(to port: Int, of secure: any Responder) {
        self.port = port
        self.secure = secure
    }

    func answer(_ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer) -> Answered? {
        nil
    }

    func respond(_ exchange: Exchange) {
        if exchange.head.path == AdminResponder.prefix + "/health" {
            secure.respond(exchange)
            return
        }
        guard let location = Self.location(of: exchange.head, port) else {
            exchange.reply(400, "This is served over https only.")
            return
        }
        exchange.reply(308, "This is served over https: \(location)", fields: [.location: location])
    }

    /// The same URL with TLS; `nil` if the request does not say for which host it is.
    static func location(of request: RequestHead, _ port: Int) -> String? {
        guard var host = request.host, !host.isEmpty, request.path != "*" else { return nil }
        let end = host.lastIndex(of: "]") ?? host.startIndex
        if let colon = host[end...].lastIndex(of: ":") { host = String(host[..<colon]) }
        guard !host.isEmpty else { return nil }
        return "https://\(host)\(port == 443 ? "" : ":\(port)")\(request.target)"
    }
}
