import HTTPTypes
import NIOCore

/// What an exchange sends its response through: a connection of HTTP/1.1, or a stream of HTTP/2.
protocol ExchangeLink: AnyObject {
    /// Whether more can be sent without piling it up.
    var isWritable: Bool { get }
    /// Calls the body once more can be sent, or never if the client goes away.
    func notifyWhenWritable(_ body: @escaping () -> Void)
    /// The responder wants a part of the request's body.
    func demand(_ body: @escaping (Exchange.BodyPart) -> Void)

    func sendInterim(_ response: HTTPResponse)
    /// A whole response follows at once: what the responder has not taken of the request's body it does not want.
    func wantsNoMoreBody()
    /// Sends a response's head, and says how the body's end will be marked.
    ///
    /// - Parameter isEmpty: Whether no body may follow, whatever the length says.
    func sendHead(_ response: HTTPResponse, length: Int64?, isEmpty: Bool, to request: RequestHead) -> Exchange.Framing
    /// Sends a part of a body, which is not empty.
    func sendPart(_ bytes: ByteBuffer, _ framing: Exchange.Framing)
    /// Sends what marks the end of a response.
    func sendEnd(_ trailers: HTTPFields?, _ framing: Exchange.Framing)
    /// The exchange has sent all of its response.
    func exchangeFinished()
    /// Breaks the response off so that the client sees it is not complete.
    func abort()
}

extension HTTPField {
    /// Whether it belongs to the connection and is for the server to write.
    var isFraming: Bool {
        let name = name.canonicalName
        // Most names have another length than these.
        return switch name.utf8.count {
        case 10: name == "connection" || name == "keep-alive"
        case 14: name == "content-length"
        case 17: name == "transfer-encoding"
        default: false
        }
    }
}
