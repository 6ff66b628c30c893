import HTTPCaching
import HTTPTypes
import HTTPWire
import NIOCore

/// Reads responses from an origin, one after another.
///
/// Bends where RFC 9112 says how (bare LF, folding, blanks before a colon); what leaves the body's end in doubt is an
/// error all the same.
struct ResponseParser {
    enum Event {
        /// A 1xx response.
        case interim(HTTPResponse)
        /// The final head, and the length of what follows if it is known.
        case head(HTTPResponse, length: Int64?)
        /// Some of the body.
        case bytes(ByteBuffer)
        /// The response is complete.
        case end(HTTPFields?)
        /// More input is needed.
        case needsMore
    }

    private enum State {
        case head
        case length(Int64)
        case chunked(ChunkedDecoder)
        case untilClose
        case end(HTTPFields?)
        case done
    }

    private let limits: UpstreamLimits
    private let isHead: Bool
    private var state = State.head
    private var scanner: FieldScanner
    private var statusLine: FieldScanner.Line?
    private var interimCount = 0
    private var interimBytes = 0
    /// Whether the connection may be used again after this response.
    private(set) var isReusable = true
    /// Whether any byte of the response has come.
    private(set) var hasBegun = false

    init(limits: UpstreamLimits, isHead: Bool) {
        self.limits = limits
        self.isHead = isHead
        scanner = FieldScanner(strict: false, fieldLimit: limits.fieldCount)
    }

    mutating func next(_ input: inout ByteBuffer) throws(Violation) -> Event {
        if input.readableBytes > 0 { hasBegun = true }
        switch state {
        case .head: return try head(&input)
        case .length(let left):
            let size = Int(clamping: min(left, Int64(input.readableBytes)))
            guard size > 0, let bytes = input.readSlice(length: size) else { return .needsMore }
            state = left == Int64(size) ? .end(nil) : .length(left - Int64(size))
            return .bytes(bytes)
        case .chunked(var decoder):
            let event = try decoder.next(&input)
            switch event {
            case .bytes(let bytes):
                state = .chunked(decoder)
                return .bytes(bytes)
            case .needsMore:
                state = .chunked(decoder)
                return .needsMore
            case .end(let trailers):
                state = .done
                return .end(trailers?.all.forwardableTrailers)
            }
        case .untilClose:
            guard let bytes = input.readSlice(length: input.readableBytes), bytes.readableBytes > 0 else {
                return .needsMore
            }
            return .bytes(bytes)
        case .end(let trailers):
            state = .done
            return .end(trailers)
        case .done: return .needsMore
        }
    }

    /// The origin has ended the connection in order: that completes only a body that had no other end.
    mutating func ended() -> Event? {
        isReusable = false
        switch state {
        case .untilClose, .end:
            state = .done
            return .end(nil)
        default: return nil
        }
    }

    private mutating func head(_ input: inout ByteBuffer) throws(Violation) -> Event {
        let result = input.withUnsafeReadableBytes { bytes in
            Result { () throws(Violation) -> (status: Int, reason: String, minor: UInt8)? in try scan(bytes) }
        }
        guard let line = try result.get() else {
            if input.readableBytes > limits.headBytes { throw Violation(431, "the head is too large") }
            return .needsMore
        }
        // A head that came in one piece is complete before anybody has counted it.
        guard scanner.next <= limits.headBytes else { throw Violation(431, "the head is too large") }
        guard let bytes = input.readSlice(length: scanner.next) else { return .needsMore }
        let raw = HeadFields(bytes: bytes, spans: scanner.spans, present: scanner.present)
        scanner = FieldScanner(strict: false, fieldLimit: limits.fieldCount)
        statusLine = nil
        let response = HTTPResponse(
            status: .init(code: line.status, reasonPhrase: line.reason), headerFields: raw.all)
        if line.status < 200 {
            guard line.status != 101 else { throw Violation(502, "a switch of protocols that nobody asked for") }
            interimCount += 1
            interimBytes += bytes.readableBytes
            guard interimCount <= 64, interimBytes <= limits.headBytes else {
                throw Violation(431, "too many interim responses")
            }
            return .interim(response)
        }
        if line.minor == 48 || raw.has("close", in: .connection) {
            isReusable = line.minor == 48 && raw.has("keep-alive", in: .connection)
        }
        // Whoever speaks HTTP/1.0 and sends chunks is not to be trusted with another request (RFC 9112 §6.1).
        if line.minor == 48, raw.contains(.transferEncoding) { isReusable = false }
        let length = try frame(raw, response.headerFields, status: line.status)
        return .head(response, length: length)
    }

    /// Decides where the body ends (RFC 9112 §6.3).
    private mutating func frame(_ fields: HeadFields, _ all: HTTPFields, status: Int) throws(Violation) -> Int64? {
        let hasLength = fields.contains(.contentLength) && !fields.contains(.transferEncoding)
        let length = hasLength ? try length(all) : nil
        if isHead || isBodiless(status) {
            // A 204 says nothing of a body (RFC 9110 §8.6). One that does may send it, and whenever it comes, it must not
            // be taken for the next response.
            if status == 204, fields.contains(.transferEncoding) || length ?? 0 > 0 { isReusable = false }
            state = .end(nil)
            return isHead || status == 304 ? length : nil
        }
        if fields.contains(.transferEncoding) {
            // Transfer-Encoding wins over Content-Length, but such a sender is not to be trusted with another request.
            if fields.contains(.contentLength) { isReusable = false }
            let isChunked =
                fields.count(of: .transferEncoding) == 1
                && fields.withValue(of: .transferEncoding) { $0.equals(lowercase: "chunked") } ?? false
            guard isChunked else { throw Violation(502, "a transfer coding other than chunked") }
            state = .chunked(ChunkedDecoder(fieldLimit: limits.fieldCount, trailerBytes: limits.headBytes))
            return nil
        }
        guard let length else {
            state = .untilClose
            isReusable = false
            return nil
        }
        state = length == 0 ? .end(nil) : .length(length)
        return length
    }

    /// The `Content-Length`; the same number several times is one (RFC 9112 §6.3).
    private func length(_ fields: HTTPFields) throws(Violation) -> Int64? {
        var found: Int?
        for field in fields where field.name == .contentLength {
            for part in field.value.utf8.split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false) {
                let number = Array(part).withUnsafeBytes { $0.trimmed.decimal }
                guard let number, found == nil || found == number else {
                    throw Violation(502, "a Content-Length that is none")
                }
                found = number
            }
        }
        return found.map { Int64($0) }
    }

    private mutating func scan(
        _ bytes: UnsafeRawBufferPointer
    ) throws(Violation) -> (status: Int, reason: String, minor: UInt8)? {
        if statusLine == nil { statusLine = try scanner.line(bytes) }
        guard let line = statusLine, try scanner.fields(bytes) else { return nil }
        let text = bytes.part(line.start, line.end)
        guard text.count >= 12, text.part(0, 7).equals(lowercase: "http/1."), text[7].isDigit,
            text[8] == 32, let status = text.part(9, 12).decimal, (100...999).contains(status),
            text.count == 12 || text[12] == 32
        else { throw Violation(502, "not a status line") }
        let reason = text.count > 13 ? String(decoding: text.part(13, text.count).prefix(256), as: UTF8.self) : ""
        return (status, reason, text[7])
    }
}
