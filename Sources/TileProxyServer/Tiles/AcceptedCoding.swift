import HTTPWire

/// Which content codings a client takes, as far as it matters here: gzip.
enum AcceptedCoding {
    /// Whether an `Accept-Encoding` permits gzip (RFC 9110 §12.5.3).
    ///
    /// Without the field it is not sent, although it would be permitted: who says nothing usually cannot decode.
    static func permitsGzip(_ value: UnsafeRawBufferPointer) -> Bool {
        var any: Bool?
        for member in value.split(separator: 44) {
            let parts = UnsafeRawBufferPointer(rebasing: member).split(separator: 59)
            guard let first = parts.first else { continue }
            let coding = UnsafeRawBufferPointer(rebasing: first).trimmed
            let isRefused = parts.dropFirst().contains { isZero(UnsafeRawBufferPointer(rebasing: $0).trimmed) }
            if coding.equals(lowercase: "gzip") || coding.equals(lowercase: "x-gzip") { return !isRefused }
            if coding.equals(lowercase: "*") { any = !isRefused }
        }
        return any ?? false
    }

    /// `q=0`, `q=0.0`, `q=0.00`, `q=0.000`.
    private static func isZero(_ weight: UnsafeRawBufferPointer) -> Bool {
        guard weight.count >= 3, weight[0].lowercased == 113, weight[1] == 61, weight[2] == 48 else { return false }
        return weight.dropFirst(3).allSatisfy { $0 == 46 || $0 == 48 }
    }
}

extension HeadFields {
    /// Whether the client takes gzip.
    @inline(__always)
    var permitsGzip: Bool { withValue(of: .acceptEncoding, AcceptedCoding.permitsGzip) ?? false }
}
