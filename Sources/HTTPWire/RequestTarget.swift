#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The parts of a request's target, after everything that could be read in two ways was refused.
///
/// Nothing is rewritten: what goes on to an origin is what the client sent. Refused are controls, blanks, bytes beyond
/// ASCII, `\`, `#`, broken or overlong percent-encodings, an encoded NUL, `.` and `..` segments however they are
/// written, and a path that begins with `//`, which would read as a host in a URL.
package struct RequestTarget {
    /// The path, counted from the target's first byte.
    package var path: Range<Int>
    /// The query without `?`.
    package var query: Range<Int>?
    /// The authority of the absolute form.
    package var authority: Range<Int>?

    /// Reads a target; `isOptions` permits `*`.
    package init(_ bytes: UnsafeRawBufferPointer, isOptions: Bool) throws(Violation) {
        var start = 0
        if bytes.count == 1, bytes[0] == 42, isOptions {
            path = 0..<1
            return
        }
        guard bytes.count > 0 else { throw Violation(400, "no target") }
        if bytes[0] != 47 {
            guard let end = Self.authority(bytes) else { throw Violation(400, "a target that is no path") }
            authority = end
            start = end.upperBound
        }
        var end = start
        var isPlain = true
        while end < bytes.count, bytes[end] != 63 {
            let byte = bytes[end]
            guard byte > 32, byte < 127, byte != 92, byte != 35 else { throw Violation(400, "a character in the path") }
            if byte == 37 || byte == 46 { isPlain = false }
            end += 1
        }
        path = start..<end
        if end < bytes.count {
            for i in (end + 1)..<bytes.count {
                guard bytes[i] > 32, bytes[i] < 127, bytes[i] != 35 else {
                    throw Violation(400, "a character in the query")
                }
            }
            query = (end + 1)..<bytes.count
        }
        if path.isEmpty, authority == nil { throw Violation(400, "no path") }
        if path.count > 1, bytes[start + 1] == 47 { throw Violation(400, "a path that begins with //") }
        if !isPlain { try Self.checkSegments(bytes.part(start, end)) }
    }

    /// The authority of `http://authority…`.
    private static func authority(_ bytes: UnsafeRawBufferPointer) -> Range<Int>? {
        for (length, scheme) in [(7, "http://" as StaticString), (8, "https://")]
        where bytes.count > length && bytes.part(0, length).equals(lowercase: scheme) {
            var end = length
            while end < bytes.count, bytes[end] != 47, bytes[end] != 63 { end += 1 }
            guard end > length, isAuthority(bytes.part(length, end)) else { return nil }
            return length..<end
        }
        return nil
    }

    /// Whether it is a host with or without a port, and nothing else (RFC 3986 §3.2.2, §3.2.3).
    ///
    /// A host is a name of letters, digits and `-._~`, an IPv4 address, or an IPv6 address in brackets. There is no user. The
    /// port may be empty, as RFC 3986 has it, and is at most 65535.
    package static func isAuthority(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard (1...255).contains(bytes.count) else { return false }
        var end = 0
        if bytes[0] == UInt8(ascii: "[") {
            while end < bytes.count, bytes[end] != UInt8(ascii: "]") { end += 1 }
            guard end < bytes.count, isIPv6(bytes.part(1, end)) else { return false }
            end += 1
        } else {
            while end < bytes.count, isNameByte(bytes[end]) { end += 1 }
        }
        guard end > 0, end < bytes.count else { return end > 0 }
        guard bytes[end] == UInt8(ascii: ":") else { return false }
        let port = bytes.part(end + 1, bytes.count)
        return port.isEmpty || port.decimal.map { $0 <= 65535 } ?? false
    }

    private static func isNameByte(_ byte: UInt8) -> Bool {
        byte.isDigit || byte.lowercased &- 97 < 26 || byte == 45 || byte == 46 || byte == 95 || byte == 126
    }

    /// Whether the system reads it as an IPv6 address.
    private static func isIPv6(_ bytes: UnsafeRawBufferPointer) -> Bool {
        // The longest has 45 characters: 39 of it, or 30 and an IPv4 address.
        guard (2...45).contains(bytes.count), bytes.allSatisfy({ $0.hexDigit != nil || $0 == 58 || $0 == 46 }) else {
            return false
        }
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 46) { text in
            for i in 0..<bytes.count { text[i] = CChar(bitPattern: bytes[i]) }
            text[bytes.count] = 0
            return withUnsafeTemporaryAllocation(byteCount: 16, alignment: 8) { address in
                inet_pton(AF_INET6, text.baseAddress, address.baseAddress) == 1
            }
        }
    }

    /// Looks at percent-encodings and at each segment as its reader might see it.
    private static func checkSegments(_ path: UnsafeRawBufferPointer) throws(Violation) {
        var (dots, others) = (0, 0)
        var previous: UInt8 = 0
        var index = 0
        func endSegment() throws(Violation) {
            if others == 0, dots == 1 || dots == 2 { throw Violation(400, "a . or .. segment") }
            (dots, others) = (0, 0)
        }
        while index < path.count {
            var byte = path[index]
            var encoded = false
            if byte == 37 {
                guard index + 2 < path.count, let high = path[index + 1].hexDigit, let low = path[index + 2].hexDigit
                else { throw Violation(400, "a broken percent-encoding") }
                byte = high << 4 | low
                encoded = true
                index += 2
                if byte == 0 { throw Violation(400, "an encoded NUL") }
                if (0x80...0xBF).contains(byte), isOverlong(previous, byte) {
                    throw Violation(400, "an overlong encoding")
                }
            }
            previous = encoded ? byte : 0
            switch byte {
            case 47, 92: try endSegment()
            case 46: dots += 1
            // A server may cut parameters off a segment before it looks for dots.
            case 59 where others == 0: try endSegment(); others = 1
            default: others += 1
            }
            index += 1
        }
        try endSegment()
    }

    /// Whether a continuation byte after this first byte spells a character in more bytes than it needs.
    private static func isOverlong(_ first: UInt8, _ second: UInt8) -> Bool {
        switch first {
        case 0xC0, 0xC1: true
        case 0xE0: second < 0xA0
        case 0xF0: second < 0x90
        default: false
        }
    }
}
