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
    /// The value of `Host` where it is not the origin's own: for a server that is asked under another name.
    package var host: String?

    package init(method: String, target: String, fields: HTTPFields, body: Body = .none, host: String? = nil) {
        self.method = method
        self.target = target
        self.fields = fields
        self.body = body
        self.host = host
    }

    /// What keeps a text from being a request's target; `nil` if nothing does.
    ///
    /// Every path and query of RFC 3986 may be sent, and what servers write into redirects besides: all of printable ASCII but
    /// `#`. Blanks, controls and bytes beyond ASCII would be read as something else, or not at all.
    package static func objection(toTarget target: String) -> String? {
        guard target.utf8.first == UInt8(ascii: "/") else { return "a path that does not begin with a slash" }
        guard let bad = target.utf8.first(where: { $0 <= 32 || $0 >= 127 || $0 == UInt8(ascii: "#") }) else {
            return nil
        }
        switch bad {
        case 32: return "a blank in the path or query; write %20"
        case UInt8(ascii: "#"): return "a fragment (#), which is never sent to a server"
        case 127...: return "a byte beyond ASCII in the path or query; percent-encode it"
        default: return "a control character in the path or query"
        }
    }

    /// Names of fields that say where the message ends, or belong to the connection: nobody but the client sets them.
    package static let reserved: Set<String> = [
        "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    ]

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
        buffer.writeString(host ?? origin.authority)
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
    /// The request has its connection, and its head goes out now; its body may follow.
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
