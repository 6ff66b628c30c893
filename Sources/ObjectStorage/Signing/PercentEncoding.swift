import HTTPWire

/// Percent-encoding as signatures want it: every byte but `A-Z a-z 0-9 - . _ ~`, in upper-case hexadecimal digits.
enum PercentEncoding {
    private static func isUnreserved(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: true
        default: false
        }
    }

    /// Encodes bytes.
    ///
    /// - Parameter isKept: Which bytes stay as they are; without it the unreserved ones.
    static func encode(_ bytes: some Sequence<UInt8>, keeping isKept: ((UInt8) -> Bool)? = nil) -> String {
        var out: [UInt8] = []
        for byte in bytes {
            if isKept?(byte) ?? isUnreserved(byte) {
                out.append(byte)
            } else {
                out += [0x25, digit(byte >> 4), digit(byte & 15)]
            }
        }
        return String(decoding: out, as: UTF8.self)
    }

    private static func digit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 + value : 0x37 + value }

    /// Encodes a key for a path: slashes stay.
    static func encode(path: String) -> String { encode(path.utf8) { isUnreserved($0) || $0 == 0x2F } }

    /// Decodes; `nil` if a `%` is not followed by two hexadecimal digits.
    ///
    /// - Parameter plusIsBlank: Whether `+` stands for a blank, as in forms.
    static func decode(_ bytes: some Collection<UInt8>, plusIsBlank: Bool = false) -> [UInt8]? {
        var out: [UInt8] = []
        out.reserveCapacity(bytes.count)
        var rest = bytes.makeIterator()
        while let byte = rest.next() {
            switch byte {
            case 0x25:
                guard let high = rest.next()?.hexDigit, let low = rest.next()?.hexDigit else { return nil }
                out.append(high << 4 | low)
            case 0x2B where plusIsBlank: out.append(0x20)
            default: out.append(byte)
            }
        }
        return out
    }
}
