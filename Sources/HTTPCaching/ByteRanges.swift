package import HTTPTypes

/// How to answer a request for ranges from a complete stored response (RFC 9110 §14).
package enum RangeOutcome: Hashable, Sendable {
    /// With the whole: there is no `Range`, or it is to be ignored.
    case whole
    /// 206, as planned.
    case partial(RangePlan)
    /// 416 with this head and no body.
    case unsatisfiable(HTTPResponse)
}

/// A 206: its head, and where its bytes come from.
package struct RangePlan: Hashable, Sendable {
    /// A stretch of stored bytes and what is sent before it.
    package struct Part: Hashable, Sendable {
        /// The delimiter and fields of a part of a multipart body; empty if there is only one part.
        package var prefix: String
        /// The bytes to send, as offsets into the stored body.
        package var bytes: Range<Int64>
    }

    /// The head to send, with `Content-Range` or the multipart type, `Content-Length` and `Age`.
    package var response: HTTPResponse
    /// The parts in order; at least one.
    package var parts: [Part]
    /// What is sent after the last part; empty if there is only one.
    package var suffix: String
}

/// The value of a `Range` field, of unit `bytes`.
///
/// https://www.rfc-editor.org/rfc/rfc9110.html#section-14.1.2
package struct ByteRanges: Hashable, Sendable {
    /// One range as it was asked for.
    package enum Spec: Hashable, Sendable {
        /// From a first to a last byte, both included; to the end without a last.
        case from(Int64, through: Int64?)
        /// So many bytes at the end.
        case last(Int64)
    }

    /// What was asked for, in the order it was.
    package var specs: [Spec]

    /// Reads a `Range` field; `nil` if it is invalid, or of another unit, and thus to be ignored (§14.2).
    ///
    /// - Parameter limit: With more ranges than this it is ignored: nobody needs them, and each costs (§17.15).
    package init?(_ text: some StringProtocol, limit: Int = 16) {
        let line = Array(text.utf8)[...].trimmed
        guard let mark = line.firstIndex(of: UInt8(ascii: "=")), line[..<mark].equalsIgnoringCase("bytes") else {
            return nil
        }
        var specs: [Spec] = []
        for part in line[(mark + 1)...].split(separator: UInt8(ascii: ",")) {
            let part = part.trimmed
            if part.isEmpty { continue }
            guard specs.count < limit, let dash = part.firstIndex(of: UInt8(ascii: "-")) else { return nil }
            let (first, last) = (part[..<dash], part[(dash + 1)...])
            if first.isEmpty {
                guard let count = position(last) else { return nil }
                specs.append(.last(count))
            } else {
                guard let start = position(first) else { return nil }
                guard !last.isEmpty else {
                    specs.append(.from(start, through: nil))
                    continue
                }
                guard let end = position(last), end >= start else { return nil }
                specs.append(.from(start, through: end))
            }
        }
        guard !specs.isEmpty else { return nil }
        self.specs = specs
    }

    /// The ranges within a body of some length, in order, those that touch or nearly touch made one.
    ///
    /// Empty if none lies within it.
    package func resolved(length: Int64) -> [Range<Int64>] {
        var ranges: [Range<Int64>] = []
        for spec in specs {
            var range: Range<Int64>
            switch spec {
            case .from(let first, let last):
                guard first < length else { continue }
                range = first..<(min(last ?? .max, length - 1) + 1)
            case .last(let count):
                guard count > 0, length > 0 else { continue }
                range = max(0, length - count)..<length
            }
            // A gap smaller than a part's head costs less than the head (§14.2).
            while let near = ranges.firstIndex(where: { touches($0, range) }) {
                let known = ranges.remove(at: near)
                range = min(known.lowerBound, range.lowerBound)..<max(known.upperBound, range.upperBound)
            }
            ranges.append(range)
        }
        return ranges
    }

    private func touches(_ a: Range<Int64>, _ b: Range<Int64>) -> Bool {
        max(a.lowerBound, b.lowerBound) - min(a.upperBound, b.upperBound) <= 80
    }
}

/// The value of a `Content-Range` field, of unit `bytes`, that names bytes and the whole length (RFC 9110 §14.4).
package struct ContentRange: Hashable, Sendable {
    /// Which bytes the body is; not empty.
    package let bytes: Range<Int64>
    /// How many bytes the whole has.
    package let length: Int64

    /// Reads a value; `nil` for every other one: of another unit, without a length, or one that contradicts itself.
    package init?(_ text: some StringProtocol) {
        let line = Array(text.utf8)[...].trimmed
        let unit = "bytes ".utf8
        guard line.count > unit.count, line.prefix(unit.count).equalsIgnoringCase("bytes "),
            let dash = line.firstIndex(of: UInt8(ascii: "-")), let slash = line.firstIndex(of: UInt8(ascii: "/")),
            dash < slash, let first = position(line[(line.startIndex + unit.count)..<dash]),
            let last = position(line[(dash + 1)..<slash]), let length = position(line[(slash + 1)...]),
            first <= last, last < length
        else { return nil }
        bytes = first..<(last + 1)
        self.length = length
    }
}

/// A position in a body: digits, at most `Int64.max`.
private func position(_ text: ArraySlice<UInt8>) -> Int64? {
    guard !text.isEmpty else { return nil }
    var value: Int64 = 0
    for byte in text {
        guard byte.isDigit else { return nil }
        let (tens, overflow) = value.multipliedReportingOverflow(by: 10)
        let (sum, more) = tens.addingReportingOverflow(Int64(byte - 48))
        value = overflow || more ? .max : sum
    }
    return value
}

extension ClientPreconditions {
    /// Whether `If-Range` lets a `Range` be obeyed: it is missing, or names this very version (RFC 9110 §13.1.5).
    ///
    /// A tag must match strongly. A date must be that of a strong `Last-Modified`, exactly.
    package func permitsRange(of stored: Validators, now: HTTPDate) -> Bool {
        guard let ifRange else { return true }
        if let date = HTTPDate(parsing: ifRange.value, now: now) { return stored.strongLastModified == date }
        guard let tag = EntityTag(ifRange), let known = stored.entityTag else { return false }
        return tag.matchesStrongly(known)
    }

    /// Plans the answer to the range that is asked for, after ``outcome(for:status:method:role:now:)`` was `proceed`.
    ///
    /// Only GET on a stored 200 has ranges; else, and where the request is to be ignored, the whole is sent.
    ///
    /// - Parameters:
    ///   - stored: The stored response.
    ///   - length: How many bytes are stored.
    ///   - age: The `Age` to send.
    ///   - boundary: A text that parts the ranges, if there are several: token characters that do not occur in the body,
    ///     at most 70. A random one will do.
    ///   - now: For two-digit years.
    package func rangeOutcome(
        of stored: StoredResponse, length: Int64, method: HTTPRequest.Method = .get, age: Int, boundary: String,
        now: HTTPDate
    ) -> RangeOutcome {
        guard let range, method == .get, stored.status.code == 200, (1...1 << 60).contains(length),
            permitsRange(of: stored.validators, now: now), let asked = ByteRanges(range)
        else { return .whole }
        let ranges = asked.resolved(length: length)
        var head = stored.response(age: age)
        head.headerFields[.contentRange] = nil
        guard let first = ranges.first else {
            let fields: HTTPFields = [.contentRange: "bytes */\(length)", .contentLength: "0"]
            return .unsatisfiable(HTTPResponse(status: .rangeNotSatisfiable, headerFields: fields))
        }
        head.status = .partialContent
        if ranges.count == 1 {
            head.headerFields[.contentRange] = contentRange(first, length)
            head.headerFields[.contentLength] = String(first.count)
            return .partial(RangePlan(response: head, parts: [.init(prefix: "", bytes: first)], suffix: ""))
        }
        let clean = String(decoding: boundary.utf8.filter { $0.isDigit || $0.isLetter }.prefix(70), as: UTF8.self)
        let delimiter = clean.isEmpty ? "part" : clean
        let type = stored.fields.first(.contentType).map { "Content-Type: \($0)\r\n" } ?? ""
        let parts = ranges.enumerated().map { index, range in
            let start = (index == 0 ? "" : "\r\n") + "--\(delimiter)\r\n"
            return RangePlan.Part(
                prefix: start + type + "Content-Range: \(contentRange(range, length))\r\n\r\n", bytes: range)
        }
        let suffix = "\r\n--\(delimiter)--\r\n"
        let total = parts.reduce(Int64(suffix.utf8.count)) { $0 + Int64($1.prefix.utf8.count + $1.bytes.count) }
        head.headerFields[.contentType] = "multipart/byteranges; boundary=\(delimiter)"
        head.headerFields[.contentLength] = String(total)
        return .partial(RangePlan(response: head, parts: parts, suffix: suffix))
    }
}

private func contentRange(_ range: Range<Int64>, _ length: Int64) -> String {
    "bytes \(range.lowerBound)-\(range.upperBound - 1)/\(length)"
}
