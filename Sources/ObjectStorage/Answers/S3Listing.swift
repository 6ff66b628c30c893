import HTTPWire
package import TileStore

/// One page of a listing.
package struct S3Listing: Hashable, Sendable {
    /// An object, as listings have it.
    package struct Item: Hashable, Sendable {
        /// The object's key.
        package var key: String
        /// Bytes of its body.
        package var size: Int64
        /// Its entity tag, with quotes.
        package var entityTag: String?
        /// When it was written, by the server's clock, if it says so.
        package var modified: Timestamp?
    }

    /// In the order of their keys' bytes.
    package var items: [Item] = []
    /// What keys begin with, up to the delimiter, where one was given.
    package var commonPrefixes: [String] = []
    /// What the next page is asked for with; `nil` on the last.
    package var next: String?

    /// Reads an answer to ListObjectsV2.
    ///
    /// - Parameters:
    ///   - most: How many entries were asked for.
    ///   - prefix: What keys were asked to begin with.
    /// - Throws: What is wrong with it, in words.
    init(_ root: XMLElement, most: Int, prefix: String) throws(S3AnswerDefect) {
        guard root.name == "ListBucketResult" else { throw S3AnswerDefect("no listing, but <\(root.name)>") }
        // Keys may have characters that XML has not: they are asked for percent-encoded.
        let isEncoded = try root.text(of: "EncodingType").map { $0 == "url" } ?? false
        func decode(_ text: String) throws(S3AnswerDefect) -> String {
            guard isEncoded else { return text }
            guard let bytes = PercentEncoding.decode(text.utf8, plusIsBlank: true) else {
                throw S3AnswerDefect("a listing with a key that is wrongly percent-encoded")
            }
            let key = String(decoding: bytes, as: UTF8.self)
            guard key.utf8.elementsEqual(bytes) else { throw S3AnswerDefect("a listing with a key that is not UTF-8") }
            return key
        }
        for child in root.children where child.name == "Contents" {
            guard let key = try child.text(of: "Key"), !key.isEmpty else {
                throw S3AnswerDefect("a listing with an object without a key")
            }
            guard let text = try child.text(of: "Size"), let size = Self.number(text) else {
                throw S3AnswerDefect("a listing with an object without a size")
            }
            let modified = try child.text(of: "LastModified").flatMap { Self.time($0) }
            items.append(
                Item(key: try decode(key), size: size, entityTag: try child.text(of: "ETag"), modified: modified))
        }
        for child in root.children where child.name == "CommonPrefixes" {
            guard let text = try child.text(of: "Prefix") else {
                throw S3AnswerDefect("a listing with a common prefix without a text")
            }
            commonPrefixes.append(try decode(text))
        }
        guard items.count + commonPrefixes.count <= most else {
            throw S3AnswerDefect("a listing of more than the \(most) that were asked for")
        }
        let texts = items.map(\.key) + commonPrefixes
        guard texts.allSatisfy({ $0.utf8.starts(with: prefix.utf8) }) else {
            throw S3AnswerDefect("a listing with a key that does not begin with the prefix")
        }
        switch try root.text(of: "IsTruncated") {
        case "true":
            guard let token = try root.text(of: "NextContinuationToken"), !token.isEmpty else {
                throw S3AnswerDefect("a listing that goes on, but does not say how")
            }
            next = token
        case "false": break
        default: throw S3AnswerDefect("a listing that does not say whether it goes on")
        }
    }

    /// The time of `2026-01-31T12:00:00.000Z`; `nil` for anything else, and for years before 1970.
    static func time(_ text: String) -> Timestamp? {
        let bytes = Array(text.utf8)
        guard (20...30).contains(bytes.count), bytes.last == UInt8(ascii: "Z"),
            [4, 7].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }), bytes[10] == UInt8(ascii: "T"),
            [13, 16].allSatisfy({ bytes[$0] == UInt8(ascii: ":") }),
            bytes.count == 20
                || bytes[19] == UInt8(ascii: ".")
                    && bytes[20..<bytes.count - 1].allSatisfy({ $0.isDigit })
        else { return nil }
        func number(_ range: Range<Int>, _ allowed: ClosedRange<Int>) -> Int? {
            guard bytes[range].allSatisfy({ $0.isDigit }) else { return nil }
            let value = bytes[range].reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) }
            return allowed.contains(value) ? value : nil
        }
        guard let year = number(0..<4, 1970...9999), let month = number(5..<7, 1...12),
            let day = number(8..<10, 1...31),
            let hour = number(11..<13, 0...23), let minute = number(14..<16, 0...59),
            let second = number(17..<19, 0...60)
        else { return nil }
        // Days since 1970-01-01 in the Gregorian calendar: years begin with March, so that a leap day is their last.
        let shifted = month > 2 ? year : year - 1
        let days =
            shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + (153 * ((month + 9) % 12) + 2) / 5 + day - 1
            - 719_468
        return Timestamp(seconds: Int64(days * 86_400 + hour * 3600 + minute * 60 + second))
    }

    private static func number(_ text: String) -> Int64? {
        guard (1...18).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return Int64(text)
    }
}

/// What is wrong with an answer, in words.
struct S3AnswerDefect: Error, Hashable {
    let words: String
    init(_ words: String) { self.words = words }
}

extension XMLElement {
    /// The text of the child of a name; `nil` without one.
    ///
    /// - Throws: If there are several, or if it has elements in place of a text.
    func text(of name: String) throws(S3AnswerDefect) -> String? {
        let found = children.filter { $0.name == name }
        guard let child = found.first else { return nil }
        guard found.count == 1, child.children.isEmpty else {
            throw S3AnswerDefect("an answer with more than one text as <\(name)>")
        }
        return child.text
    }
}
