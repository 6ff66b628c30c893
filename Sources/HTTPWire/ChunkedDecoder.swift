package import NIOCore

/// Takes a chunked body apart (RFC 9112 §7.1); strict, for both directions.
///
/// A line must end in CRLF, a size has at most 15 digits, and extensions are dropped and bounded.
package struct ChunkedDecoder {
    package enum Event {
        /// Some of the body.
        case bytes(ByteBuffer)
        /// The body is complete; what follows are its trailers.
        case end(HeadFields?)
        /// More input is needed.
        case needsMore
    }

    private enum State {
        case size, data(Int), dataEnd, trailers, done
    }

    private var state = State.size
    private var trailers: FieldScanner
    private let lineLimit = 256
    private let trailerLimit: Int

    package init(fieldLimit: Int, trailerBytes: Int) {
        trailers = FieldScanner(strict: true, fieldLimit: fieldLimit)
        trailerLimit = trailerBytes
    }

    package mutating func next(_ input: inout ByteBuffer) throws(Violation) -> Event {
        while true {
            switch state {
            case .size:
                guard let size = try size(&input) else { return .needsMore }
                state = size == 0 ? .trailers : .data(size)
            case .data(let left):
                guard let bytes = input.readSlice(length: min(left, input.readableBytes)), bytes.readableBytes > 0
                else { return .needsMore }
                state = bytes.readableBytes == left ? .dataEnd : .data(left - bytes.readableBytes)
                return .bytes(bytes)
            case .dataEnd:
                guard let end = input.getInteger(at: input.readerIndex, as: UInt16.self) else {
                    if let byte = input.getInteger(at: input.readerIndex, as: UInt8.self), byte != 13 {
                        throw Violation(400, "a chunk longer than its size")
                    }
                    return .needsMore
                }
                guard end == 0x0D0A else { throw Violation(400, "a chunk longer than its size") }
                input.moveReaderIndex(forwardBy: 2)
                state = .size
            case .trailers:
                let result = input.withUnsafeReadableBytes { bytes in
                    Result { () throws(Violation) -> Bool in try trailers.fields(bytes) }
                }
                guard try result.get() else {
                    if input.readableBytes > trailerLimit { throw Violation(431, "trailers too large") }
                    return .needsMore
                }
                // Those that came in one piece are complete before anybody has counted them.
                guard trailers.next <= trailerLimit else { throw Violation(431, "trailers too large") }
                state = .done
                guard let bytes = input.readSlice(length: trailers.next), !trailers.spans.isEmpty else {
                    return .end(nil)
                }
                return .end(HeadFields(bytes: bytes, spans: trailers.spans, present: trailers.present))
            case .done: return .needsMore
            }
        }
    }

    private func size(_ input: inout ByteBuffer) throws(Violation) -> Int? {
        let result = input.withUnsafeReadableBytes { bytes in
            Result { () throws(Violation) -> (size: Int, length: Int)? in
                var scanner = FieldScanner(strict: true, fieldLimit: 0)
                guard let line = try scanner.line(bytes) else {
                    // The line's end may have come in part: its CR does not count.
                    if bytes.count > lineLimit + 1 { throw Violation(400, "a chunk size line without end") }
                    return nil
                }
                guard line.end <= lineLimit else { throw Violation(400, "a chunk size line that is too long") }
                return (try Self.number(bytes.part(0, line.end)), scanner.next)
            }
        }
        guard let found = try result.get() else { return nil }
        input.moveReaderIndex(forwardBy: found.length)
        return found.size
    }

    private static func number(_ line: UnsafeRawBufferPointer) throws(Violation) -> Int {
        var (value, digits) = (0, 0)
        while digits < line.count, let digit = line[digits].hexDigit {
            guard digits < 15 else { throw Violation(400, "a chunk size that is too large") }
            value = value << 4 | Int(digit)
            digits += 1
        }
        let rest = line.part(digits, line.count).trimmed
        guard digits > 0, rest.isEmpty || rest[0] == 59, rest.allSatisfy(\.isFieldText) else {
            throw Violation(400, "a chunk size that is none")
        }
        return value
    }
}
