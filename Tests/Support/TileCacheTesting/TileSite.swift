package import HTTPTypes
import NIOCore
import NIOHTTP1

/// Tiles at `/z/x/y.png` in memory, with validators: an origin for regions, examples and benchmarks.
///
/// Answers are laid out beforehand, so that serving one costs a look-up and a write.
package struct TileSite: Sendable {
    private struct Page: Sendable {
        var tag: String
        var full: PreparedAnswer
        var notModified: PreparedAnswer
    }
    private var pages: [String: Page] = [:]
    private let missing = PreparedAnswer(HTTPResponse(status: .notFound), body: ByteBuffer())

    /// Lays out all tiles of some zooms.
    ///
    /// - Parameters:
    ///   - zooms: 0...6 is 5,461 tiles.
    ///   - fields: What every answer carries besides `ETag` and `Content-Type: image/png`, 304s included.
    ///   - body: The bytes of a tile.
    package init(
        zooms: ClosedRange<Int>, fields: HTTPFields = [:],
        body: (_ zoom: Int, _ column: Int, _ row: Int) -> [UInt8] = { TileSite.noise(zoom: $0, column: $1, row: $2) }
    ) {
        for zoom in zooms {
            for column in 0..<(1 << zoom) {
                for row in 0..<(1 << zoom) {
                    set("/\(zoom)/\(column)/\(row).png", body(zoom, column, row), fields: fields)
                }
            }
        }
    }

    /// Puts a page at a path, or another body under the same path.
    package mutating func set(_ path: String, _ body: [UInt8], type: String = "image/png", fields: HTTPFields = [:]) {
        // FNV-1a, 64 bits: enough for a tag.
        let hash = body.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        let tag = "\"\(String(hash, radix: 16))\""
        var common = fields
        common[.eTag] = tag
        var full = common
        full[.contentType] = type
        pages[path] = Page(
            tag: tag,
            full: PreparedAnswer(HTTPResponse(status: .ok, headerFields: full), body: ByteBuffer(bytes: body)),
            notModified: PreparedAnswer(HTTPResponse(status: .notModified, headerFields: common), body: ByteBuffer()))
    }

    /// All paths, sorted.
    package var paths: [String] { pages.keys.sorted() }

    /// Answers from memory: 200, 304 if `If-None-Match` is the page's tag, or 404.
    package func answer(_ request: OriginRequest) -> LocalAnswer {
        guard let page = pages[request.path] else { return LocalAnswer(missing) }
        let asked = request.head.headers.first(name: "if-none-match")
        return LocalAnswer(asked == page.tag ? page.notModified : page.full)
    }

    /// 5,000 bytes that begin as a PNG does and else are different for every tile.
    package static func noise(zoom: Int, column: Int, row: Int) -> [UInt8] {
        var state = UInt64(truncatingIfNeeded: (zoom << 58) ^ (column << 29) ^ row)
        var bytes: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
        while bytes.count < 5_000 {
            // SplitMix64's step.
            state &+= 0x9E37_79B9_7F4A_7C15
            var z = state
            z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
            z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
            z ^= z >> 31
            for shift in stride(from: 0, to: 64, by: 8) { bytes.append(UInt8(truncatingIfNeeded: z >> shift)) }
        }
        return bytes
    }
}
