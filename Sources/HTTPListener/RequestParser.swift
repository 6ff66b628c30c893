import HTTPWire
import NIOCore

/// Reads requests' heads, one after another; strict, and bounded by the limits.
struct RequestParser {
    private let limits: ServerLimits
    private let isSecure: Bool
    private var scanner: FieldScanner
    private var requestLine: FieldScanner.Line?

    /// - Parameter isSecure: Whether the requests come over TLS.
    init(limits: ServerLimits, isSecure: Bool = false) {
        self.limits = limits
        self.isSecure = isSecure
        scanner = FieldScanner(strict: true, fieldLimit: limits.fieldCount)
    }

    /// Whether a head has begun and is not complete.
    private(set) var isUnderWay = false

    /// Takes a head from the front of the input; `nil` until it is complete.
    ///
    /// After a violation nothing more can be read from this client.
    mutating func next(_ input: inout ByteBuffer, isOurs: (UnsafeRawBufferPointer) -> Bool) throws(Violation)
        -> RequestHead?
    {
        if !isUnderWay {
            // A client may send an empty line after a body (RFC 9112 §2.2).
            while let byte = input.getInteger(at: input.readerIndex, as: UInt8.self), byte == 13 || byte == 10 {
                input.moveReaderIndex(forwardBy: 1)
            }
            guard input.readableBytes > 0 else { return nil }
            isUnderWay = true
        }
        let scanned = input.withUnsafeReadableBytes { bytes in
            Result { () throws(Violation) -> Parts? in try scan(bytes, isOurs) }
        }
        guard let parts = try scanned.get() else { return nil }
        defer { reset() }
        guard let bytes = input.readSlice(length: scanner.next) else { return nil }
        let fields = HeadFields(bytes: bytes, spans: scanner.spans, present: scanner.present)
        let body = try Self.framing(fields, isHTTP11: parts.isHTTP11, limit: limits.bodyBytes)
        let connection = fields.has("close", in: .connection)
        return RequestHead(
            method: parts.method, version: parts.isHTTP11 ? .http11 : .http10, isSecure: isSecure, fields: fields,
            body: body,
            keepAlive: !connection && (parts.isHTTP11 || fields.has("keep-alive", in: .connection)),
            methodRange: parts.methodRange, pathRange: parts.path, queryRange: parts.query,
            authorityRange: parts.authority)
    }

    private mutating func reset() {
        scanner = FieldScanner(strict: true, fieldLimit: limits.fieldCount)
        requestLine = nil
        isUnderWay = false
    }

    private struct Parts {
        var method: RequestHead.Method
        var methodRange: Range<Int>
        var path: Range<Int>
        var query: Range<Int>?
        var authority: Range<Int>?
        var isHTTP11: Bool
    }

    private mutating func scan(
        _ bytes: UnsafeRawBufferPointer, _ isOurs: (UnsafeRawBufferPointer) -> Bool
    ) throws(Violation) -> Parts? {
        guard bytes[0].isToken else { throw Violation(400, "not HTTP") }
        if requestLine == nil { requestLine = try scanner.line(bytes) }
        guard let line = requestLine else {
            if bytes.count > limits.targetBytes + 64 { throw Violation(414, "the target is too long") }
            if bytes.count > limits.headBytes { throw Violation(431, "the head is too large") }
            return nil
        }
        guard line.end - line.start <= limits.targetBytes + 64 else { throw Violation(414, "the target is too long") }
        guard try scanner.fields(bytes) else {
            if bytes.count > limits.headBytes { throw Violation(431, "the head is too large") }
            return nil
        }
        guard scanner.next <= limits.headBytes else { throw Violation(431, "the head is too large") }
        return try parts(line, bytes, isOurs)
    }

    private func parts(
        _ line: FieldScanner.Line, _ bytes: UnsafeRawBufferPointer, _ isOurs: (UnsafeRawBufferPointer) -> Bool
    ) throws(Violation) -> Parts {
        var space = line.start
        while space < line.end, bytes[space].isToken { space += 1 }
        // "METHOD SP target SP HTTP/1.x"
        guard space < line.end, bytes[space] == 32, space > line.start, line.end - space > 10,
            bytes[line.end - 9] == 32, Self.isHTTP1(bytes.part(line.end - 8, line.end))
        else { throw Self.complaint(bytes.part(line.start, line.end)) }
        // A higher minor version is read as the highest that is known (RFC 9110 §2.5).
        let isHTTP11 = bytes[line.end - 1] != 48
        let name = bytes.part(line.start, space)
        guard space - line.start <= 32 else { throw Violation(501, "a method that is too long") }
        let method = try Self.method(name)
        let start = space + 1
        guard line.end - 9 - start <= limits.targetBytes else { throw Violation(414, "the target is too long") }
        let target = try RequestTarget(bytes.part(start, line.end - 9), isOptions: method == .options)
        try checkHost(bytes, isHTTP11: isHTTP11)
        if let authority = target.authority {
            let bytes = bytes.part(start + authority.lowerBound, start + authority.upperBound)
            guard isOurs(bytes) else { throw Violation(421, "a target on another host") }
        }
        func moved(_ range: Range<Int>) -> Range<Int> { (start + range.lowerBound)..<(start + range.upperBound) }
        return Parts(
            method: method, methodRange: line.start..<space, path: moved(target.path),
            query: target.query.map(moved), authority: target.authority.map(moved), isHTTP11: isHTTP11)
    }

    /// Whether these eight bytes are `HTTP/1.` and a digit; the name is case-sensitive (RFC 9112 §2.3).
    @inline(__always)
    private static func isHTTP1(_ version: UnsafeRawBufferPointer) -> Bool {
        guard version.count == 8 else { return false }
        // Compared as a number: "HTTP/1." read backwards, the last byte left out.
        let word = UInt64(littleEndian: version.loadUnaligned(as: UInt64.self))
        return word & 0x00FF_FFFF_FFFF_FFFF == 0x002E_312F_5054_5448 && version[7].isDigit
    }

    private static func complaint(_ line: UnsafeRawBufferPointer) -> Violation {
        let isOther = line.count > 8 && line.part(line.count - 8, line.count - 3).equals(lowercase: "http/")
        return isOther && !isHTTP1(line.part(line.count - 8, line.count))
            ? Violation(505, "a version other than HTTP/1") : Violation(400, "not a request line")
    }

    private static func method(_ name: UnsafeRawBufferPointer) throws(Violation) -> RequestHead.Method {
        func matches(_ text: StaticString) -> Bool {
            name.count == text.utf8CodeUnitCount && zip(name, text.withUTF8Buffer(Array.init)).allSatisfy { $0 == $1 }
        }
        if name.count == 3, name[0] == 71, name[1] == 69, name[2] == 84 { return .get }
        if matches("HEAD") { return .head }
        if matches("OPTIONS") { return .options }
        // No tunnels, and nothing that echoes a client's credentials back to a script.
        if matches("CONNECT") || matches("TRACE") { throw Violation(405, "a method that is not served") }
        return .other
    }

    private func checkHost(_ bytes: UnsafeRawBufferPointer, isHTTP11: Bool) throws(Violation) {
        var seen = 0
        guard scanner.present.contains(FieldSet(.host)) else {
            if isHTTP11 { throw Violation(400, "no Host") }
            return
        }
        for span in scanner.spans where span.known == .host {
            seen += 1
            let value = bytes.part(Int(span.valueStart), Int(span.valueStart) + Int(span.valueLength))
            guard seen == 1, RequestTarget.isAuthority(value) else { throw Violation(400, "a Host that is none") }
        }
    }

    /// How the body's end is found; whatever could be read in two ways is refused (RFC 9112 §6.3, §11.2).
    static func framing(_ fields: HeadFields, isHTTP11: Bool, limit: Int64) throws(Violation) -> RequestHead.Body {
        guard !fields.present.isDisjoint(with: [FieldSet(.contentLength), FieldSet(.transferEncoding)]) else {
            return .none
        }
        if fields.contains(.transferEncoding) {
            guard isHTTP11, !fields.contains(.contentLength), fields.count(of: .transferEncoding) == 1 else {
                throw Violation(400, "a body with two lengths")
            }
            let isChunked = fields.withValue(of: .transferEncoding) { $0.equals(lowercase: "chunked") } ?? false
            guard isChunked else { throw Violation(501, "a transfer coding other than chunked") }
            return .chunked
        }
        guard fields.count(of: .contentLength) == 1,
            let length = fields.withValue(of: .contentLength, \.decimal) ?? nil
        else { throw Violation(400, "a Content-Length that is none") }
        guard length <= limit else { throw Violation(413, "the body is too large") }
        return length == 0 ? .none : .length(Int64(length))
    }
}
