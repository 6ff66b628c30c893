import ContentCoding
import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// Bodies that are no tile, whatever their header says of them.
@Suite(.timeLimit(.minutes(60)))
struct UntrueBodyTests {
    private static let page = Data("<!DOCTYPE html><title>Login</title>".utf8)
    private static let text = Data("Rate limit exceeded, try again later.\n".utf8)
    private static let json = Data("{\"message\":\"Not authorized\"}".utf8)
    private static func gzip(_ data: Data) throws -> Data { try Gzip.encode(data) }
    private static func spaced(_ text: String, _ spaces: Int = 700) -> Data {
        Data((String(repeating: "\r\n ", count: spaces) + text).utf8)
    }
    private static func wide(_ text: String, bigEndian: Bool, marked: Bool) -> Data {
        var data = marked ? Data(bigEndian ? [0xFE, 0xFF] : [0xFF, 0xFE]) : Data()
        for unit in text.utf16 {
            let bytes = [UInt8(unit >> 8), UInt8(unit & 255)]
            data.append(contentsOf: bigEndian ? bytes : bytes.reversed())
        }
        return data
    }

    /// A sound picture of one pixel.
    private static let png = Data(
        [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0, 0, 0, 13] + Array("IHDR".utf8) + [0, 0, 0, 1, 0, 0, 0, 1]
            + [8, 0, 0, 0, 0, 0x3A, 0x7E, 0x9B, 0x55, 0, 0, 0, 9] + Array("IDAT".utf8)
            + [0x78, 0x9C, 0x63, 0, 0, 0, 2, 0, 1, 0x48, 0xAF, 0xA4, 0x71, 0, 0, 0, 0] + Array("IEND".utf8)
            + [0xAE, 0x42, 0x60, 0x82])
    private static let jpeg = Data(
        [0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xC0, 0, 4, 1, 2, 0xFF, 0xDA, 0, 4, 1, 2] + [9, 9, 0xFF, 0, 9]
            + [0xFF, 0xD9])
    private static let webp = Data(
        Array("RIFF".utf8) + [16, 0, 0, 0] + Array("WEBPVP8L".utf8) + [4, 0, 0, 0, 1, 2, 3, 4])
    private static let avif = Data(
        [0, 0, 0, 16] + Array("ftypavif".utf8) + [0, 0, 0, 0, 0, 0, 0, 12] + Array("mdat".utf8) + [1, 2, 3, 4])

    private struct Row {
        var name: String
        var kind: TileKind
        var body: Data
        var type: String?
        var coding: String?
        var isFine = false
    }

    private static func rows() throws -> [Row] {
        var rows: [Row] = []
        func refuse(_ name: String, _ kinds: [TileKind], _ body: Data, _ type: String? = nil, _ coding: String? = nil) {
            for kind in kinds { rows.append(Row(name: name, kind: kind, body: body, type: type, coding: coding)) }
        }
        func allow(_ name: String, _ kinds: [TileKind], _ body: Data, _ type: String? = nil, _ coding: String? = nil) {
            for kind in kinds {
                rows.append(Row(name: name, kind: kind, body: body, type: type, coding: coding, isFine: true))
            }
        }
        let all: [TileKind] = [.image, .vector, .json, .any]
        let codings = ["identity", "", "UTF-8", "utf8", "none", "identity, identity", "latin1", "bogus", "br", "gzip"]
        for coding in codings {
            refuse("HTML with the coding '\(coding)'", all, page, "image/png", coding)
            // What is in brotli cannot be seen; text that claims to be gzip can.
            if coding != "br" { refuse("text with the coding '\(coding)'", [.image, .vector], text, nil, coding) }
            allow("PNG with the coding '\(coding)'", [.image], png, "image/png", coding)
        }
        let types = [
            "image/png", "image/jpeg", "image/webp", "image/gif", "image/avif", "image/jxl", "text/plain", nil,
        ]
        for type in types {
            refuse("text labelled \(type ?? "nothing")", [.image, .vector], text, type)
            refuse("JSON labelled \(type ?? "nothing")", [.image, .vector], json, type)
        }
        refuse("bytes labelled as PNG", [.image], Data([1, 2, 3, 4, 5, 6, 7, 8, 9]), "image/png")
        allow("bytes of a format that is not known", [.image], Data([0xFF, 0x0A, 0, 0x10, 1, 2, 3, 4, 5]), "image/jxl")
        refuse("text as JSON", [.json], text)
        allow("JSONP", [.json], Data("grid({\"keys\":[]});".utf8))
        refuse("a picture as a vector tile", [.vector, .json], png)
        // White space, marks and prologues before the page.
        let pages = [
            "<html>", "<HTML lang=en>", "<head><title>", "<div class=x>", "<table>", "<center><h1>502", "<h1>Oops",
            "<p>No", "<meta charset=x>", "<!-- a --><html>", "<!-- a -->\n<!-- b -->\n<!doctype html>",
            "<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"x\">", "<?xml version=\"1.0\"?><html xmlns=\"x\">",
        ]
        for page in pages {
            refuse("a page that begins with \(page)", all, Data(page.utf8))
            refuse("white space before \(page)", all, spaced(page))
            refuse("a mark before \(page)", all, Data([0xEF, 0xBB, 0xBF]) + spaced(page))
            refuse("\(page) in gzip", all, try gzip(Data(page.utf8)), nil, "gzip")
            refuse("\(page) in gzip without a name", all, try gzip(Data(page.utf8)))
            refuse("\(page) in gzip twice", [.vector, .any], try gzip(gzip(Data(page.utf8))), nil, "gzip")
            for (big, marked) in [(true, true), (false, true), (true, false), (false, false)] {
                refuse("\(page) in UTF-16", all, wide(page, bigEndian: big, marked: marked))
            }
        }
        let documents = [
            "<?xml version=\"1.0\"?><ServiceException>", "<Error><Code>AccessDenied</Code>", "<!-- x --><a1>",
        ]
        for document in documents {
            refuse("a document: \(document)", [.image, .vector, .json], Data(document.utf8))
            refuse("white space before \(document)", [.image, .vector, .json], spaced(document))
            refuse("\(document) in gzip", [.image, .vector, .json], try gzip(Data(document.utf8)), nil, "gzip")
        }
        allow("SVG", [.any], Data("<svg xmlns=\"http://www.w3.org/2000/svg\">".utf8))
        allow("SVG with a prologue", [.any], Data("<?xml version=\"1.0\"?>\n<!-- x -->\n<svg>".utf8))
        refuse("JSON in gzip", [.vector, .image], try gzip(json), nil, "gzip")
        refuse("text in gzip", [.vector, .image], try gzip(text), nil, "gzip")
        refuse("white space before JSON", [.vector, .image], spaced("{}"))
        allow("a vector tile", [.vector], Data([0x1A, 0x10, 0x0A, 0x05, 0x77, 0x61, 0x74, 0x65, 0x72]))
        allow("a vector tile in gzip", [.vector], try gzip(Data([0x1A, 0x10, 0x0A])), nil, "gzip")
        allow("a vector tile in gzip without a name", [.vector], try gzip(Data([0x1A, 0x10, 0x0A])))
        allow("JSON", [.json], try gzip(json), nil, "gzip")
        allow("a picture in gzip", [.image], try gzip(png), "image/png", "gzip")
        let half = png.prefix(png.count - 12)
        refuse("a picture that breaks off, in gzip", [.image], try gzip(half), "image/png", "gzip")
        refuse("gzip of a picture that breaks off", [.image], try gzip(png).dropLast(12), "image/png", "gzip")
        refuse("the same, applied twice", [.image], try gzip(gzip(half)), "image/png", "gzip")
        allow("a picture in gzip twice", [.image], try gzip(gzip(png)), "image/png", "gzip")
        allow("brotli", [.vector], Data([0x0B, 0x02, 0x80, 0x03]), nil, "br")
        // Pictures that break off, at any length.
        for (name, picture) in [("PNG", png), ("JPEG", jpeg), ("WebP", webp), ("AVIF", avif)] {
            allow(name, [.image], picture)
            allow("\(name) with bytes behind it", [.image, .any], picture + (name == "AVIF" ? Data() : Data(count: 9)))
            // From where its first bytes tell the format.
            for length in 16..<picture.count where name != "AVIF" || length != 16 {
                refuse("\(length) bytes of a \(name)", [.image, .any], picture.prefix(length), "image/x")
            }
        }
        refuse("the signature of a PNG", [.image], png.prefix(8), "image/png")
        refuse("the signature of a JPEG", [.image], jpeg.prefix(3), "image/jpeg")
        refuse("the signature of a GIF", [.image], Data("GIF89a".utf8), "image/gif")
        return rows
    }

    @Test func whatIsNoTileIsRefusedWhateverItsHeaderSays() throws {
        for row in try Self.rows() {
            let objection = row.kind.objection(to: row.body, mediaType: row.type, contentEncoding: row.coding)
            #expect((objection == nil) == row.isFine, "\(row.kind): \(row.name): \(objection ?? "fine")")
        }
    }

    @Test(arguments: ["identity", "", "UTF-8"])
    func aPageWithACodingThatIsNoneIsNeverStored(coding: String) async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        lab.transport.answer(.answer(200, [.contentType: "image/png", .contentEncoding: coding], body: Self.page))
        #expect(await lab.failure(from: source)?.code == .badBody)
        #expect(try await lab.load(1, .cacheOnly) == nil)
    }

    @Test func aPictureWhoseCodingIsACharacterSetCanBeDecoded() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60", .contentEncoding: "UTF-8"], body: Self.png)
        let tile = try #require(try await lab.load())
        #expect(tile.contentEncoding == nil)
        #expect(try tile.decodedData() == Self.png)
    }

    /// The rules must refuse nothing that is sound: 1,365 real tiles.
    @Test func everyRealTileIsTakenAndNoHalfOfOne() throws {
        var folder = URL(fileURLWithPath: #filePath)
        for _ in 0..<4 { folder.deleteLastPathComponent() }
        folder.appendPathComponent("Sample/world")
        let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
        var count = 0
        for case let file as URL in files ?? FileManager.DirectoryEnumerator() where file.pathExtension == "png" {
            let data = try Data(contentsOf: file)
            count += 1
            #expect(TileKind.image.accepts(data), "\(file.path)")
            #expect(!TileKind.image.accepts(data.prefix(data.count / 2)), "half of \(file.path)")
        }
        #expect(count > 1000)
    }
}
