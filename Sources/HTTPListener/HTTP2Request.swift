import HTTPTypes
import HTTPWire
import NIOCore
import NIOHPACK

/// Makes of the fields of an HTTP/2 request the head that the rest of the server reads.
///
/// The fields are written down as a head of HTTP/1.1 and read by its parser, so that both versions have one set of rules
/// and limits. What could not stand in such a head, or could be read in two ways there, is malformed (RFC 9113 §8.2, §8.3); nobody
/// else looks at that, and the library that reads frames is told not to.
enum HTTP2Request {
    /// Why a request is not answered by a responder.
    enum Refusal: Error {
        /// It breaks the rules of HTTP/2: its stream is reset (RFC 9113 §8.1.1).
        case malformed
        /// It is answered with a status.
        case violation(Violation)
    }

    /// Reads a request's fields.
    ///
    /// - Parameter hasBody: Whether the stream goes on after them.
    static func head(
        _ fields: HPACKHeaders, hasBody: Bool, limits: ServerLimits, allocator: ByteBufferAllocator
    ) throws(Refusal) -> RequestHead {
        var text = try transcribe(fields, allocator)
        guard text.readableBytes <= limits.headBytes else {
            throw .violation(Violation(431, "the head is too large"))
        }
        var parser = RequestParser(limits: limits, isSecure: true)
        let head: RequestHead?
        do throws(Violation) { head = try parser.next(&text) { _ in false } } catch { throw .violation(error) }
        guard let head, text.readableBytes == 0 else { throw .malformed }
        return head.overHTTP2(hasBody: hasBody)
    }

    /// The fields behind a body.
    ///
    /// - Returns: `nil` if they are malformed, or too many.
    static func trailers(_ fields: HPACKHeaders, limits: ServerLimits) -> HTTPFields? {
        guard fields.count <= limits.fieldCount else { return nil }
        var trailers = HTTPFields()
        for (name, value, _) in fields {
            guard isPlain(name: name), isPlain(value: value), !isOfConnection(name, value),
                let name = HTTPField.Name(name)
            else { return nil }
            trailers.append(HTTPField(name: name, value: value))
        }
        return trailers
    }

    private static func transcribe(
        _ fields: HPACKHeaders, _ allocator: ByteBufferAllocator
    ) throws(Refusal) -> ByteBuffer {
        var (method, scheme, path, authority, host): (String?, String?, String?, String?, String?)
        var cookies: [String] = []
        var size = 64
        var isBehindPseudoFields = false
        func set(_ place: inout String?, _ value: String) throws(Refusal) {
            guard place == nil else { throw .malformed }
            place = value
        }
        for (name, value, _) in fields {
            size += name.utf8.count + value.utf8.count + 4
            guard isPlain(value: value) else { throw .malformed }
            if name.utf8.first == UInt8(ascii: ":") {
                // Before all others, each once, and none but those of requests (RFC 9113 §8.3).
                guard !isBehindPseudoFields else { throw .malformed }
                switch name {
                case ":method": try set(&method, value)
                case ":scheme": try set(&scheme, value)
                case ":path": try set(&path, value)
                case ":authority": try set(&authority, value)
                default: throw .malformed
                }
                continue
            }
            isBehindPseudoFields = true
            switch name {
            case "host": try set(&host, value)
            // Clients may split them for the sake of compression (RFC 9113 §8.2.3).
            case "cookie": cookies.append(value)
            default: break
            }
        }
        guard let method, !method.isEmpty, method.utf8.allSatisfy(\.isToken) else { throw .malformed }
        guard method != "CONNECT" else { throw .violation(Violation(405, "a method that is not served")) }
        guard scheme != nil, let path, path.utf8.first == UInt8(ascii: "/") || path == "*",
            path.utf8.allSatisfy({ $0 > 32 && $0 < 127 })
        else { throw .malformed }
        // Two names for the host could be read differently by this server and by one behind it (RFC 9113 §8.3.1).
        if let authority, let host, authority.lowercased() != host.lowercased() { throw .malformed }
        var text = allocator.buffer(capacity: size)
        text.writeString(method)
        text.writeInteger(UInt8(32))
        text.writeString(path)
        text.writeStaticString(" HTTP/1.1\r\n")
        if let host = authority ?? host { write("host", host, to: &text) }
        for (name, value, _) in fields {
            if name.utf8.first == UInt8(ascii: ":") || name == "host" || name == "cookie" { continue }
            guard isPlain(name: name), !isOfConnection(name, value) else { throw .malformed }
            write(name, value, to: &text)
        }
        if !cookies.isEmpty { write("cookie", cookies.joined(separator: "; "), to: &text) }
        text.writeStaticString("\r\n")
        return text
    }

    private static func write(_ name: String, _ value: String, to text: inout ByteBuffer) {
        text.writeString(name)
        text.writeStaticString(": ")
        text.writeString(value)
        text.writeStaticString("\r\n")
    }

    /// Whether a name is a token in lower case (RFC 9113 §8.2.1).
    private static func isPlain(name: String) -> Bool {
        !name.isEmpty && name.utf8.allSatisfy { $0.isToken && $0.lowercased == $0 }
    }

    /// Whether a value ends no line, and has no blanks at its ends (RFC 9113 §8.2.1).
    private static func isPlain(value: String) -> Bool {
        let bytes = value.utf8
        guard let first = bytes.first, let last = bytes.last else { return true }
        return !first.isBlank && !last.isBlank && bytes.allSatisfy(\.isFieldText)
    }

    /// Whether a field would say something of a connection of HTTP/1.1 (RFC 9113 §8.2.2).
    private static func isOfConnection(_ name: String, _ value: String) -> Bool {
        switch name {
        case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade": true
        case "te": value.lowercased() != "trailers"
        default: false
        }
    }
}

extension RequestHead {
    /// The same head as one of HTTP/2, where the end of a body needs no field that says it.
    fileprivate func overHTTP2(hasBody: Bool) -> RequestHead {
        RequestHead(
            method: method, version: .http2, isSecure: true, fields: fields,
            body: hasBody && body == .none && !fields.contains(.contentLength) ? .chunked : body, keepAlive: true,
            methodRange: methodRange, pathRange: pathRange, queryRange: queryRange, authorityRange: nil)
    }
}
