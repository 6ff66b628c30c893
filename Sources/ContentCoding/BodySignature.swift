#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What the first bytes of a tile say that it is: they cost nothing to look at and do not lie as media types do.
package enum BodySignature: Hashable, Sendable {
    case png, jpeg, webp, avif, gif, gzip, html, xml, json, empty, unknown

    /// Looks at the first bytes.
    package init(_ body: Data) {
        self = body.withUnsafeBytes { Self.look($0) }
    }

    /// Whether bytes look like text and like nothing else: no control characters but those of lines, at the beginning.
    ///
    /// No picture and no vector tile begins so: a PNG, JPEG or gzip has control characters or none of ASCII, and a vector
    /// tile begins with the number of a field.
    package static func isText(_ body: Data) -> Bool {
        !body.isEmpty && body.prefix(512).allSatisfy { $0 >= 0x20 && $0 != 0x7F || isSpace($0) }
    }

    /// The media type of a picture; `nil` for everything else.
    package var pictureType: String? {
        switch self {
        case .png: "image/png"
        case .jpeg: "image/jpeg"
        case .webp: "image/webp"
        case .avif: "image/avif"
        case .gif: "image/gif"
        case .gzip, .html, .xml, .json, .empty, .unknown: nil
        }
    }

    private static func look(_ head: UnsafeRawBufferPointer) -> BodySignature {
        func begins(_ bytes: StaticString, at offset: Int = 0) -> Bool {
            let count = bytes.utf8CodeUnitCount
            guard head.count >= offset + count else { return false }
            for i in 0..<count where head[offset + i] != bytes.utf8Start[i] { return false }
            return true
        }
        guard let first = head.first else { return .empty }
        switch first {
        case 0x89:
            guard head.count >= 8 else { return .unknown }
            return UInt64(bigEndian: head.loadUnaligned(as: UInt64.self)) == 0x8950_4E47_0D0A_1A0A ? .png : .unknown
        case 0xFF where head.count < 2 || head[1] != 0xFE:
            return head.count >= 3 && head[1] == 0xD8 && head[2] == 0xFF ? .jpeg : .unknown
        case 0x1F: return head.count > 1 && head[1] == 0x8B ? .gzip : .unknown
        case UInt8(ascii: "R"): return begins("RIFF") && begins("WEBP", at: 8) ? .webp : .unknown
        case UInt8(ascii: "G"): return begins("GIF87a") || begins("GIF89a") ? .gif : .unknown
        default: break
        }
        if begins("ftyp", at: 4), begins("avi", at: 8) || begins("mif1", at: 8) { return .avif }
        return text(head)
    }

    /// What begins with white space is text or nothing we know; it is skipped however long it is.
    private static func text(_ body: UnsafeRawBufferPointer) -> BodySignature {
        guard let first = body.first else { return .empty }
        // What can begin such a text, its white space or a byte order mark: all else is decided by its first byte.
        switch first {
        case UInt8(ascii: "<"), UInt8(ascii: "["), UInt8(ascii: "{"), 0xEF, 0xFE, 0xFF, 0: break
        default: if !isSpace(first) { return .unknown }
        }
        var marks = TextStart(body)
        marks.skipSpace()
        switch marks.byte(0) {
        case UInt8(ascii: "{"), UInt8(ascii: "["): return .json
        case UInt8(ascii: "<"): break
        default: return .unknown
        }
        // The prologue of a page may hold comments and an XML declaration.
        var isXML = false
        for _ in 0..<8 {
            if marks.skip(past: "<!--", end: "-->") || marks.skip(past: "<?xml", end: "?>") {
                isXML = true
                marks.skipSpace()
                continue
            }
            break
        }
        if htmlMarks.contains(where: { marks.begins($0) }) { return .html }
        if isXML || marks.begins("<!") || marks.begins("<?") { return .xml }
        // An element without any declaration, as the errors of some servers.
        return marks.byte(1).map { (0x61...0x7A).contains($0) } ?? false ? .xml : .unknown
    }

    fileprivate static func isSpace(_ byte: UInt8) -> Bool {
        byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0B || byte == 0x0C || byte == 0x0D
    }

    /// How pages begin, in lower case; of a tag only the name, which ends at a space, a slash or a bracket.
    ///
    /// The list of https://mimesniff.spec.whatwg.org/#identifying-a-resource-with-an-unknown-mime-type, and what else
    /// error pages begin with.
    private static let htmlMarks = [
        "<!doctype html", "<html", "<head", "<script", "<iframe", "<h1", "<h2", "<h3", "<div", "<font", "<table", "<a",
        "<style", "<title", "<b", "<body", "<br", "<p", "<center", "<meta", "<link", "<pre", "<span", "<hr", "<img",
        "<form", "<ul",
    ]
}

/// The beginning of a text in ASCII, UTF-8 or UTF-16, read as lower-case ASCII.
private struct TextStart {
    private var body: Slice<UnsafeRawBufferPointer>
    /// Bytes of a character: 2 in UTF-16.
    private let width: Int
    /// Where in a character its low byte is.
    private let low: Int

    init(_ whole: UnsafeRawBufferPointer) {
        func begins(_ bytes: [UInt8]) -> Bool { whole.starts(with: bytes) }
        switch () {
        case _ where begins([0xEF, 0xBB, 0xBF]): (body, width, low) = (whole.dropFirst(3), 1, 0)
        case _ where begins([0xFF, 0xFE]): (body, width, low) = (whole.dropFirst(2), 2, 0)
        case _ where begins([0xFE, 0xFF]): (body, width, low) = (whole.dropFirst(2), 2, 1)
        case _ where begins([0x3C, 0x00]), _ where begins([0x20, 0x00]): (body, width, low) = (whole[...], 2, 0)
        case _ where begins([0x00, 0x3C]), _ where begins([0x00, 0x20]): (body, width, low) = (whole[...], 2, 1)
        default: (body, width, low) = (whole[...], 1, 0)
        }
    }

    /// A character in lower case; `nil` past the end, 0 for one that is not ASCII.
    func byte(_ index: Int) -> UInt8? {
        let at = body.startIndex + index * width
        guard at + width <= body.endIndex else { return nil }
        if width == 2, body[at + 1 - low] != 0 { return 0 }
        let byte = body[at + low]
        return (0x41...0x5A).contains(byte) ? byte + 0x20 : byte
    }

    mutating func skipSpace() {
        while let next = byte(0), BodySignature.isSpace(next) { body = body.dropFirst(width) }
    }

    /// Whether it begins with a mark; a mark that is a tag's name ends there.
    func begins(_ mark: String) -> Bool {
        var index = 0
        for wanted in mark.utf8 {
            guard byte(index) == wanted else { return false }
            index += 1
        }
        guard let last = mark.utf8.last, last != UInt8(ascii: "!"), last != UInt8(ascii: "?") else { return true }
        guard let next = byte(index) else { return true }
        return BodySignature.isSpace(next) || next == UInt8(ascii: ">") || next == UInt8(ascii: "/")
    }

    /// Skips what begins and ends with certain marks, if it is there; whatever follows a mark without its end is skipped.
    mutating func skip(past start: String, end: String) -> Bool {
        var index = 0
        for wanted in start.utf8 {
            guard byte(index) == wanted else { return false }
            index += 1
        }
        let end = Array(end.utf8)
        // A prologue is short; what is longer is not looked through.
        while index < 4096, byte(index) != nil {
            if end.indices.allSatisfy({ byte(index + $0) == end[$0] }) {
                body = body.dropFirst((index + end.count) * width)
                return true
            }
            index += 1
        }
        body = body.dropFirst(body.count)
        return true
    }
}
