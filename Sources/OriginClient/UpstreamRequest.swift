package import HTTPTypes
import HTTPWire
package import NIOCore

/// A request towards an origin: its head as it shall be sent, and how its body is framed.
package struct UpstreamRequest: Sendable {
    /// How the body goes out.
    package enum Body: Hashable, Sendable {
        case none
        case length(Int64)
        case chunked
    }

    /// The method verbatim.
    package var method: String
    /// Path and query verbatim.
    package var target: String
    /// All fields but `Host`, `Content-Length` and `Transfer-Encoding`.
    package var fields: HTTPFields
    /// The body's framing.
    package var body: Body

    package init(method: String, target: String, fields: HTTPFields, body: Body = .none) {
        self.method = method
        self.target = target
        self.fields = fields
        self.body = body
    }

    /// Whether the request may be sent once more after a kept connection turned out to be dead.
    var isRepeatable: Bool {
        guard body == .none else { return false }
        switch method {
        case "GET", "HEAD", "OPTIONS", "PUT", "DELETE": return true
        default: return false
        }
    }

    /// Writes the head.
    func write(to origin: Origin, into buffer: inout ByteBuffer) {
        buffer.writeString(method)
        buffer.writeStaticString(" ")
        buffer.writeString(target)
        buffer.writeStaticString(" HTTP/1.1\r\nHost: ")
        buffer.writeString(origin.authority)
        buffer.writeStaticString("\r\n")
        buffer.writeFields(fields)
        switch body {
        case .none:
            // Servers answer 411 to a POST that says nothing of its body.
            if method == "POST" || method == "PUT" || method == "PATCH" {
                buffer.writeStaticString("Content-Length: 0\r\n")
            }
        case .length(let length): buffer.writeField("Content-Length: ", Int(clamping: length))
        case .chunked: buffer.writeStaticString("Transfer-Encoding: chunked\r\n")
        }
        buffer.writeStaticString("\r\n")
    }
}

/// Is told what an origin answers; on the event loop of the call.
package protocol UpstreamReceiver: AnyObject {
    /// The request's head is out; its body may follow.
    func upstreamIsReady(_ call: UpstreamCall)
    /// A 1xx response.
    func upstreamSent(interim: HTTPResponse)
    /// The final head. Without a length the body's end shows only when it comes.
    func upstreamSent(head: HTTPResponse, length: Int64?)
    /// A part of the body.
    func upstreamSent(bytes: ByteBuffer)
    /// The response is complete.
    func upstreamEnded(trailers: HTTPFields?)
    /// There will be no response, or no more of it.
    func upstreamFailed(_ failure: UpstreamFailure)
}
