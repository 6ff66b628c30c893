import HTTPTypes

/// What an object has besides its bytes: values of any bytes by names, within what every server keeps.
///
/// A value is sent percent-encoded but for 0x21 to 0x7E without `%`, and is then at most 256 bytes long; all names and values
/// together are at most 2 KiB.
package struct S3Metadata: Hashable, Sendable {
    /// The longest value, as it is sent.
    package static let valueLimit = 256
    /// The bytes of all names and values, as they are sent.
    package static let totalLimit = 2048

    /// The values by name.
    package let values: [String: [UInt8]]

    /// No metadata.
    package static let none = S3Metadata(checked: [:])

    private init(checked values: [String: [UInt8]]) { self.values = values }

    /// - Throws: Why it cannot be sent.
    package init(_ values: [String: [UInt8]]) throws(S3Error) {
        var total = 0
        for (name, value) in values {
            guard Self.isName(name) else {
                throw S3Error(
                    .invalid, "metadata: \(name.debugDescription) is no name of a-z, 0-9 and -, with a letter first")
            }
            // Servers forget a name without a value.
            guard !value.isEmpty else { throw S3Error(.invalid, "metadata: \(name) is empty; leave it out") }
            let count = Self.encode(value).utf8.count
            guard count <= Self.valueLimit else {
                throw S3Error(.invalid, "metadata: \(name) takes \(count) bytes; \(Self.valueLimit) are the most")
            }
            total += name.utf8.count + count
        }
        guard total <= Self.totalLimit else {
            throw S3Error(.invalid, "metadata: all of it takes \(total) bytes; \(Self.totalLimit) are the most")
        }
        self.values = values
    }

    private static func isName(_ name: String) -> Bool {
        guard let first = name.utf8.first, (0x61...0x7A).contains(first), name.utf8.count <= 64 else { return false }
        return name.utf8.allSatisfy { (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2D }
    }

    private static func encode(_ value: [UInt8]) -> String {
        PercentEncoding.encode(value) { $0 > 0x20 && $0 < 0x7F && $0 != 0x25 }
    }

    private static let prefix = "x-amz-meta-"

    /// The fields that carry it.
    var fields: [CanonicalRequest.Pair] {
        values.sorted { $0.key < $1.key }.map { .init(Self.prefix + $0.key, Self.encode($0.value)) }
    }

    /// Reads it from an answer.
    ///
    /// - Throws: If somebody else has written the object, in another way.
    init(_ fields: HTTPFields) throws(S3AnswerDefect) {
        var values: [String: [UInt8]] = [:]
        for field in fields where field.name.canonicalName.hasPrefix(Self.prefix) {
            let name = String(field.name.canonicalName.dropFirst(Self.prefix.utf8.count))
            guard let value = PercentEncoding.decode(field.value.utf8) else {
                throw S3AnswerDefect("metadata that is wrongly percent-encoded (\(name))")
            }
            guard values.updateValue(value, forKey: name) == nil else {
                throw S3AnswerDefect("metadata with \(name) twice")
            }
        }
        self.values = values
    }
}
