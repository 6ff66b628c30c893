import ContentCoding
import Foundation
import Testing

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct TileKindTests {
    private static let bodies: [(Data, BodySignature)] = [
        (Picture.png(1), .png), (Data([0xFF, 0xD8, 0xFF, 0xE0, 0]), .jpeg), (Data("RIFF....WEBPVP8 ".utf8), .webp),
        (Data([0, 0, 0, 28] + Array("ftypavif".utf8)), .avif), (Data([0, 0, 0, 28] + Array("ftypmif1".utf8)), .avif),
        (Data("GIF89a....".utf8), .gif), (Data([0x1F, 0x8B, 8, 0]), .gzip), (Data(), .empty),
        (Data("<!DOCTYPE html><html>".utf8), .html), (Data(" \r\n\t<HTML lang=en>".utf8), .html),
        (Data([0xEF, 0xBB, 0xBF] + Array("<html>".utf8)), .html),
        (Data("<?xml version=\"1.0\"?><ServiceException>".utf8), .xml), (Data("<!-- -->".utf8), .xml),
        (Data("{\"error\":1}".utf8), .json), (Data(" [1]".utf8), .json), (Data([0x1A, 0x10, 0x0A]), .unknown),
        (Data([0x89, 0x50]), .unknown), (Data("RIFF".utf8), .unknown), (Data("Not found".utf8), .unknown),
    ]

    @Test func firstBytesTellWhatABodyIs() {
        for (body, expected) in Self.bodies {
            #expect(BodySignature(body) == expected)
            // A slice does not begin at zero.
            let padded = Data([1, 2, 3]) + body
            #expect(BodySignature(padded[(padded.startIndex + 3)...]) == expected)
        }
    }

    @Test func anyBytesAtAllAreLookedAtWithoutATrap() {
        for length in 0..<40 {
            for byte in [0, 0x20, 0x3C, 0x7B, 0x89, 0xEF, 0xFF] as [UInt8] {
                _ = BodySignature(Data(repeating: byte, count: length))
            }
        }
    }

    /// Nothing, which is no tile, if it cannot be compressed.
    private static func zipped(_ data: Data) -> Data { (try? Gzip.encode(data)) ?? Data() }

    /// Kind, body, media type, coding, whether it may be a tile.
    private static let rows: [(TileKind, Data, String?, String?, Bool)] = [
        (.image, Picture.png(1), "image/png", nil, true),
        (.image, Picture.png(1), "image/jpeg", nil, true),
        (.image, Picture.png(1), "application/octet-stream", nil, true),
        (.image, Picture.png(1), nil, nil, true),
        (.image, Picture.png(1), "text/html; charset=utf-8", nil, false),
        (.image, Data("<html>".utf8), "image/png", nil, false),
        (.image, Data("{}".utf8), "image/png", nil, false),
        (.image, Data("Not found".utf8), "text/plain", nil, false),
        (.image, Data("????".utf8), "image/jxl", nil, true),
        (.image, Data(), "image/png", nil, false),
        (.image, zipped(Picture.png(1)), "image/png", "gzip", true),
        (.image, Data([0x1F, 0x8B, 8]), "image/png", "gzip", false),
        (.image, Data([0x1F, 0x8B, 8]), "text/html", "gzip", false),
        (.vector, Data([0x1A, 0x10]), "application/x-protobuf", nil, true),
        (.vector, zipped(Data([0x1A, 0x10])), nil, nil, true),
        (.vector, Data([0x1F, 0x8B, 8]), nil, nil, false),
        (.vector, Data("{\"message\":\"no\"}".utf8), "application/json", nil, false),
        (.vector, Data("<html>".utf8), "application/x-protobuf", nil, false),
        (.json, Data("{}".utf8), "application/json", nil, true),
        (.json, Data("<html>".utf8), "application/json", nil, false),
        (.any, Data("<?xml ?>".utf8), "application/xml", nil, true),
        (.any, Data("<?xml ?><svg>".utf8), "image/svg+xml", nil, true),
        (.any, Data("<?xml ?>".utf8), nil, nil, true),
        (.image, Data("<?xml ?><ServiceException>".utf8), "image/png", nil, false),
        (.any, Data("<html>".utf8), nil, nil, false),
        (.any, Data("<!doctype HTML>".utf8), "application/xml", nil, false),
        (.any, Data("text".utf8), "text/plain", nil, true),
        (.any, Data(), nil, nil, false),
    ]

    /// What is stored of it could never be decoded, or not to its end.
    @Test(arguments: [TileKind.vector, .json, .any])
    func gzipThatIsNotWholeIsNoTile(kind: TileKind) throws {
        let content =
            kind == .json ? Data("{\"a\":[\(String(repeating: "1,", count: 3000))2]}".utf8) : Data(count: 5000)
        let whole = try Gzip.encode(content)
        func objection(_ body: Data, _ coding: String? = "gzip") -> String? {
            kind.objection(to: body, mediaType: nil, contentEncoding: coding)
        }
        for coding in ["gzip", nil] {
            #expect(objection(whole, coding) == nil)
            #expect(objection(whole + whole, coding) == nil, "two members are one content")
            for length in 2..<whole.count { #expect(objection(whole.prefix(length), coding) != nil, "\(length) bytes") }
            // The checksum, the length, what is behind.
            for place in [8, 5, 4, 1] {
                var wrong = whole
                wrong[wrong.count - place] ^= 1
                #expect(objection(wrong, coding) != nil, "byte \(place) from the end")
            }
            #expect(objection(whole + Data([0]), coding) != nil)
            #expect(objection(whole + whole.dropLast(), coding) != nil)
        }
        #expect(objection(try Gzip.encode(whole)) == nil, "applied twice")
        #expect(objection(try Gzip.encode(whole.dropLast(9))) != nil, "of what is cut")
    }

    @Test func gzipThatGrowsWithoutBoundIsNoTile() throws {
        let bomb = try Gzip.encode(Data(count: 65 << 20))
        #expect(
            TileKind.vector.objection(to: bomb, mediaType: nil, contentEncoding: "gzip")
                == "gzip that expands to more than 64 MiB")
    }

    @Test func bytesDecideWhetherABodyMayBeATile() {
        for (kind, body, type, coding, isFine) in Self.rows {
            let objection = kind.objection(to: body, mediaType: type, contentEncoding: coding)
            #expect((objection == nil) == isFine, "\(kind) \(type ?? "no type") \(body.count): \(objection ?? "fine")")
        }
    }
}
