package import HTTPTypes
public import NIOCore

/// A field that the server itself looks at, so that it is found without comparing names again.
///
/// A number and no enum: comparing two, and making a set of one, is then a matter of one instruction in other modules too.
@usableFromInline package struct KnownField: Equatable, Sendable {
    @usableFromInline let number: UInt8

    @inlinable init(number: UInt8) { self.number = number }

    @inlinable package static func == (a: KnownField, b: KnownField) -> Bool { a.number == b.number }

    @inlinable package static var other: KnownField { KnownField(number: 0) }
    @inlinable package static var host: KnownField { KnownField(number: 1) }
    @inlinable package static var range: KnownField { KnownField(number: 2) }
    @inlinable package static var accept: KnownField { KnownField(number: 3) }
    @inlinable package static var cookie: KnownField { KnownField(number: 4) }
    @inlinable package static var expect: KnownField { KnownField(number: 5) }
    @inlinable package static var pragma: KnownField { KnownField(number: 6) }
    @inlinable package static var upgrade: KnownField { KnownField(number: 7) }
    @inlinable package static var trailer: KnownField { KnownField(number: 8) }
    @inlinable package static var te: KnownField { KnownField(number: 9) }
    @inlinable package static var ifMatch: KnownField { KnownField(number: 10) }
    @inlinable package static var ifRange: KnownField { KnownField(number: 11) }
    @inlinable package static var connection: KnownField { KnownField(number: 12) }
    @inlinable package static var cacheControl: KnownField { KnownField(number: 13) }
    @inlinable package static var authorization: KnownField { KnownField(number: 14) }
    @inlinable package static var ifNoneMatch: KnownField { KnownField(number: 15) }
    @inlinable package static var contentLength: KnownField { KnownField(number: 16) }
    @inlinable package static var transferEncoding: KnownField { KnownField(number: 17) }
    @inlinable package static var ifModifiedSince: KnownField { KnownField(number: 18) }
    @inlinable package static var ifUnmodifiedSince: KnownField { KnownField(number: 19) }
    @inlinable package static var via: KnownField { KnownField(number: 20) }
    @inlinable package static var acceptEncoding: KnownField { KnownField(number: 21) }
    @inlinable package static var maxForwards: KnownField { KnownField(number: 22) }

    init(_ name: UnsafeRawBufferPointer) {
        switch name.count {
        case 2: self = name.equals(lowercase: "te") ? .te : .other
        case 3: self = name.equals(lowercase: "via") ? .via : .other
        case 4: self = name.equals(lowercase: "host") ? .host : .other
        case 5: self = name.equals(lowercase: "range") ? .range : .other
        case 6: self = Self.six(name)
        case 7:
            self = name.equals(lowercase: "upgrade") ? .upgrade : name.equals(lowercase: "trailer") ? .trailer : .other
        case 8:
            self =
                name.equals(lowercase: "if-match") ? .ifMatch : name.equals(lowercase: "if-range") ? .ifRange : .other
        case 10: self = name.equals(lowercase: "connection") ? .connection : .other
        case 12: self = name.equals(lowercase: "max-forwards") ? .maxForwards : .other
        case 13: self = Self.thirteen(name)
        case 14: self = name.equals(lowercase: "content-length") ? .contentLength : .other
        case 15: self = name.equals(lowercase: "accept-encoding") ? .acceptEncoding : .other
        case 17:
            self =
                name.equals(lowercase: "transfer-encoding")
                ? .transferEncoding : name.equals(lowercase: "if-modified-since") ? .ifModifiedSince : .other
        case 19: self = name.equals(lowercase: "if-unmodified-since") ? .ifUnmodifiedSince : .other
        default: self = .other
        }
    }

    private static func six(_ name: UnsafeRawBufferPointer) -> KnownField {
        if name.equals(lowercase: "accept") { return .accept }
        if name.equals(lowercase: "cookie") { return .cookie }
        if name.equals(lowercase: "expect") { return .expect }
        return name.equals(lowercase: "pragma") ? .pragma : .other
    }

    private static func thirteen(_ name: UnsafeRawBufferPointer) -> KnownField {
        if name.equals(lowercase: "cache-control") { return .cacheControl }
        if name.equals(lowercase: "authorization") { return .authorization }
        return name.equals(lowercase: "if-none-match") ? .ifNoneMatch : .other
    }
}

/// A set of known fields: which of them a head has.
@usableFromInline package struct FieldSet: OptionSet, Sendable {
    @usableFromInline package let rawValue: UInt32
    @inlinable package init(rawValue: UInt32) { self.rawValue = rawValue }
    @inlinable package init(_ field: KnownField) { rawValue = 1 << UInt32(field.number) }

    /// The fields that make a request conditional, or ask for a part.
    @inlinable package static var conditions: FieldSet {
        FieldSet(.ifMatch).union(FieldSet(.ifNoneMatch)).union(FieldSet(.ifModifiedSince))
            .union(FieldSet(.ifUnmodifiedSince)).union(FieldSet(.ifRange)).union(FieldSet(.range))
    }
    /// The fields that ask something of a cache.
    @inlinable package static var cacheWishes: FieldSet { FieldSet(.cacheControl).union(FieldSet(.pragma)) }
}

/// The fields of a head as they came: places in its bytes, so that nothing is copied before somebody asks.
@usableFromInline package struct HeadFields: Sendable {
    /// Where a field lies, counted from the head's first byte.
    @usableFromInline package struct Span: Sendable {
        @usableFromInline package var nameStart: UInt32
        @usableFromInline package var valueStart: UInt32
        @usableFromInline package var valueLength: UInt32
        @usableFromInline package var nameLength: UInt16
        @usableFromInline package var known: KnownField
    }

    /// The head as it came.
    @usableFromInline package let bytes: ByteBuffer
    /// Where each field lies, in the order in which they came.
    @usableFromInline package let spans: [Span]
    /// Which known fields are among them.
    @usableFromInline package let present: FieldSet

    package init(bytes: ByteBuffer, spans: [Span], present: FieldSet) {
        self.bytes = bytes
        self.spans = spans
        self.present = present
    }

    /// Whether there is a field.
    @inlinable package func contains(_ field: KnownField) -> Bool { present.contains(FieldSet(field)) }

    /// How many lines there are of a field.
    package func count(of field: KnownField) -> Int {
        contains(field) ? spans.reduce(0) { $0 + ($1.known == field ? 1 : 0) } : 0
    }

    /// Runs a body on the bytes of the first value of a field; `nil` without one.
    @inlinable package func withValue<R>(of field: KnownField, _ body: (UnsafeRawBufferPointer) -> R) -> R? {
        guard contains(field) else { return nil }
        return bytes.withUnsafeReadableBytes { all in
            for span in spans where span.known == field { return body(value(span, all)) }
            return nil
        }
    }

    /// Whether any line of a comma-separated field has a member, whatever its case; the member is in lower case.
    package func has(_ member: StaticString, in field: KnownField) -> Bool {
        guard contains(field) else { return false }
        return bytes.withUnsafeReadableBytes { all in
            spans.contains { span in
                span.known == field
                    && value(span, all).split(separator: UInt8(ascii: ",")).contains {
                        UnsafeRawBufferPointer(rebasing: $0).trimmed.equals(lowercase: member)
                    }
            }
        }
    }

    /// The first value of a field as text.
    package func first(_ field: KnownField) -> String? {
        withValue(of: field) { String(decoding: $0, as: UTF8.self) }
    }

    /// The first value of a field by its name in lower case, for fields that the server does not know.
    package func first(named name: StaticString) -> String? {
        bytes.withUnsafeReadableBytes { all in
            spans.first { isNamed(name, $0, all) }.map { String(decoding: value($0, all), as: UTF8.self) }
        }
    }

    /// The values of all lines of a field by its name in lower case.
    package func values(named name: StaticString) -> [String] {
        bytes.withUnsafeReadableBytes { all in
            spans.filter { isNamed(name, $0, all) }.map { String(decoding: value($0, all), as: UTF8.self) }
        }
    }

    private func isNamed(_ name: StaticString, _ span: Span, _ all: UnsafeRawBufferPointer) -> Bool {
        let start = Int(span.nameStart)
        return all.part(start, start + Int(span.nameLength)).equals(lowercase: name)
    }

    /// All fields as values, in order, bytes verbatim.
    package var all: HTTPFields {
        var fields = HTTPFields()
        fields.reserveCapacity(spans.count)
        bytes.withUnsafeReadableBytes { all in
            for span in spans {
                let start = Int(span.nameStart)
                guard let name = fieldName(all.part(start, start + Int(span.nameLength))) else { continue }
                let value = value(span, all)
                // The same, but much quicker where it is plain text, as nearly always.
                fields.append(
                    value.allSatisfy { $0 < 128 }
                        ? HTTPField(name: name, value: String(decoding: value, as: UTF8.self))
                        : HTTPField(name: name, value: value))
            }
        }
        return fields
    }

    @inlinable package func value(_ span: Span, _ all: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        let start = Int(span.valueStart)
        return all.part(start, start + Int(span.valueLength))
    }
}

/// The name that these bytes are, as they are spelled; `nil` if they are none.
private func fieldName(_ bytes: UnsafeRawBufferPointer) -> HTTPField.Name? {
    if bytes.count < usualNames.count {
        for (text, name) in usualNames[bytes.count] where isSame(bytes, text) { return name }
    }
    return HTTPField.Name(String(decoding: bytes, as: UTF8.self))
}

/// Whether bytes are a text of as many.
@inline(__always)
private func isSame(_ bytes: UnsafeRawBufferPointer, _ text: StaticString) -> Bool {
    let other = text.utf8Start
    for index in bytes.indices where bytes[index] != other[index] { return false }
    return true
}

/// Names as nearly all servers and clients spell them, made once; by their lengths.
private let usualNames: [[(text: StaticString, name: HTTPField.Name)]] = {
    let texts: [StaticString] = [
        "Accept", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Access-Control-Allow-Origin", "Age",
        "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date", "ETag", "Expires",
        "Host", "If-Modified-Since", "If-None-Match", "Last-Modified", "Location", "Referer", "Server",
        "Strict-Transport-Security", "Transfer-Encoding", "User-Agent", "Vary", "Via",
    ]
    let longest = texts.map(\.utf8CodeUnitCount).max() ?? 0
    var names = [[(text: StaticString, name: HTTPField.Name)]](repeating: [], count: longest + 1)
    for text in texts {
        if let name = HTTPField.Name("\(text)") { names[text.utf8CodeUnitCount].append((text, name)) }
    }
    return names
}()
