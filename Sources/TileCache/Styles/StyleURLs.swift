import HTTPCaching
import HTTPTypes

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension StyleLink {
    /// A URL without a scheme, by the document's own.
    func resolved(_ text: String) throws -> String {
        guard let base = URIReference(base), let reference = URIReference(text) else {
            throw TileCacheError(.invalidStyle, "\(place) names what is no URL")
        }
        return base.resolving(reference).description
    }
}

extension StyleDocument {
    /// The URLs of everything that it names besides tiles and TileJSONs, as MapLibre Native makes them, one by one.
    ///
    /// Of a style that has few bytes they may have very many: who adds them stops at the first that is too long.
    func addURLs(glyphRanges: [String], to add: (String) throws -> Void) throws {
        for url in files { try add(url) }
        for sprite in sprites {
            let end = sprite.firstIndex { $0 == "?" || $0 == "#" } ?? sprite.endIndex
            for ending in [".json", ".png", "@2x.json", "@2x.png"] {
                try add(sprite[..<end] + ending + sprite[end...])
            }
        }
        guard let glyphs else { return }
        for fonts in fontStacks {
            // Longer than any URL that is kept: it is not put together.
            guard fonts.utf8.count <= 1024 else {
                try add(glyphs + fonts.fullyPercentEncoded)
                continue
            }
            let name = fonts.fullyPercentEncoded
            for range in glyphRanges {
                try add(glyphs.replacingPlaceholders { $0 == "fontstack" ? name : $0 == "range" ? range : nil })
            }
        }
    }
}

extension String {
    /// All bytes encoded but letters, digits and `-._~`, with small letters.
    fileprivate var fullyPercentEncoded: String {
        var text = ""
        for byte in utf8 {
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E:
                text.unicodeScalars.append(Unicode.Scalar(byte))
            default: text += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }
        }
        return text
    }
}

extension HTTPRequest {
    /// A GET of a URL; `nil` if it is not absolute.
    init?(getting url: URL) {
        guard let reference = URIReference(url.absoluteString) else { return nil }
        self.init(
            method: .get, scheme: reference.scheme, authority: reference.authority, path: reference.requestTarget)
    }
}
