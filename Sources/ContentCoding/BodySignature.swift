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
        self = body.withUnsafeBytes { Self.look(UnsafeRawBufferPointer(rebasing: $0.prefix(512))) }
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
        case 0xFF: return head.count >= 3 && head[1] == 0xD8 && head[2] == 0xFF ? .jpeg : .unknown
        case 0x1F: return head.count > 1 && head[1] == 0x8B ? .gzip : .unknown
        case UInt8(ascii: "R"): return begins("RIFF") && begins("WEBP", at: 8) ? .webp : .unknown
        case UInt8(ascii: "G"): return begins("GIF87a") || begins("GIF89a") ? .gif : .unknown
        default: break
        }
        if begins("ftyp", at: 4), begins("avi", at: 8) || begins("mif1", at: 8) { return .avif }
        return text(head)
    }

    private static func text(_ head: UnsafeRawBufferPointer) -> BodySignature {
        var rest = head[...]
        if rest.starts(with: [0xEF, 0xBB, 0xBF]) { rest = rest.dropFirst(3) }
        rest = rest.drop { $0 == 0x20 || $0 == 0x09 || $0 == 0x0A || $0 == 0x0D }
        switch rest.first {
        case UInt8(ascii: "{"), UInt8(ascii: "["): return .json
        case UInt8(ascii: "<"): break
        default: return .unknown
        }
        let lower = rest.prefix(16).map { (0x41...0x5A).contains($0) ? $0 + 0x20 : $0 }
        func begins(_ marks: [String]) -> Bool { marks.contains { lower.starts(with: Array($0.utf8)) } }
        if begins(["<!doctype html", "<html", "<head", "<body", "<title", "<script", "<p>", "<h1"]) { return .html }
        return begins(["<?xml", "<!--", "<!doctype"]) ? .xml : .unknown
    }
}
