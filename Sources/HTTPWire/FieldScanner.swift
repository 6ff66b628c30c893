#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Reads the lines of a head or of trailers, as they come in.
///
/// It remembers how far it got, so that a head that drips in byte by byte costs no more than one that comes at once.
/// Strict for requests: what two servers could read differently is how requests are smuggled (RFC 9112 §11.2). For
/// responses it bends where RFC 9112 says how: lines may end in a bare LF, values may be folded, and blanks before a
/// colon are dropped.
package struct FieldScanner {
    /// What a line is, given by its bounds.
    package struct Line {
        package var start: Int
        package var end: Int
    }

    private let isStrict: Bool
    private let fieldLimit: Int
    /// The start of the first line that is not complete yet.
    package private(set) var next = 0
    package private(set) var spans: [HeadFields.Span] = []
    package private(set) var present: FieldSet = []

    package init(strict: Bool, fieldLimit: Int) {
        isStrict = strict
        self.fieldLimit = fieldLimit
    }

    /// Takes the next line; `nil` until its end has come.
    package mutating func line(_ bytes: UnsafeRawBufferPointer) throws(Violation) -> Line? {
        guard next < bytes.count, let base = bytes.baseAddress,
            let found = memchr(base + next, 10, bytes.count - next)
        else { return nil }
        let feed = base.distance(to: UnsafeRawPointer(found))
        let start = next
        next = feed + 1
        if feed > start, bytes[feed - 1] == 13 { return Line(start: start, end: feed - 1) }
        if isStrict { throw Violation(400, "a line ends without CR") }
        return Line(start: start, end: feed)
    }

    /// Takes field lines up to and with the empty one.
    ///
    /// - Returns: Whether the empty line has come.
    package mutating func fields(_ bytes: UnsafeRawBufferPointer) throws(Violation) -> Bool {
        while let line = try line(bytes) {
            if line.start == line.end { return true }
            if bytes[line.start].isBlank {
                if isStrict { throw Violation(400, "obsolete line folding") }
                try fold(line, bytes)
                continue
            }
            try add(line, bytes)
        }
        return false
    }

    private mutating func add(_ line: Line, _ bytes: UnsafeRawBufferPointer) throws(Violation) {
        guard spans.count < fieldLimit else { throw Violation(431, "too many header fields") }
        var colon = line.start
        while colon < line.end, bytes[colon].isToken { colon += 1 }
        var nameEnd = colon
        if !isStrict { while colon < line.end, bytes[colon].isBlank { colon += 1 } }
        guard colon < line.end, bytes[colon] == 58, nameEnd > line.start else {
            throw Violation(400, "a header line without a name")
        }
        nameEnd = min(nameEnd, line.start + Int(UInt16.max))
        var (start, end) = (colon + 1, line.end)
        while start < end, bytes[start].isBlank { start += 1 }
        while end > start, bytes[end - 1].isBlank { end -= 1 }
        try check(start, end, bytes)
        if spans.isEmpty { spans.reserveCapacity(16) }
        let known = KnownField(bytes.part(line.start, nameEnd))
        present.insert(FieldSet(known))
        spans.append(
            HeadFields.Span(
                nameStart: UInt32(clamping: line.start), valueStart: UInt32(clamping: start),
                valueLength: UInt32(clamping: end - start), nameLength: UInt16(clamping: nameEnd - line.start),
                known: known))
    }

    /// Makes a folded line part of the value before it; the line end between them stays and is made blank by the reader.
    private mutating func fold(_ line: Line, _ bytes: UnsafeRawBufferPointer) throws(Violation) {
        guard let last = spans.indices.last else { throw Violation(400, "folding before the first header field") }
        var end = line.end
        while end > line.start, bytes[end - 1].isBlank { end -= 1 }
        try check(line.start, end, bytes)
        spans[last].valueLength = UInt32(clamping: end - Int(spans[last].valueStart))
    }

    @inline(__always)
    private func check(_ start: Int, _ end: Int, _ bytes: UnsafeRawBufferPointer) throws(Violation) {
        var bad = false
        for i in start..<end { bad = bad || !bytes[i].isFieldText }
        if bad { throw Violation(400, "a control character in a header field") }
    }
}
