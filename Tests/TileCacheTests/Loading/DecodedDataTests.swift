import ContentCoding
import Foundation
import Testing
import TileStore

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct DecodedDataTests {
    private func tile(_ data: Data?, _ coding: String?) throws -> CachedTile {
        CachedTile(
            key: try TileKey("t/0/0/0"), data: data, status: 200, mediaType: nil, contentEncoding: coding, etag: nil,
            lastModified: nil, origin: .network, freshUntil: .distantPast)
    }

    @Test func gzipIsTakenOff() throws {
        let plain = Data((0..<5000).map { UInt8(truncatingIfNeeded: $0 / 7) })
        let once = try Gzip.encode(plain)
        let twice = try Gzip.encode(once)
        #expect(try tile(plain, nil).decodedData() == plain)
        #expect(try tile(once, "gzip").decodedData() == plain)
        #expect(try tile(once, "GZIP").decodedData() == plain)
        #expect(try tile(once, nil).decodedData() == plain)
        #expect(try tile(twice, "gzip").decodedData() == plain)
        // Named, and not applied: the bytes are what they are.
        #expect(try tile(plain, "gzip").decodedData() == plain)
        #expect(try tile(nil, "gzip").decodedData() == nil)
    }

    @Test func damageBombsAndOtherCodingsAreErrors() throws {
        let bomb = try Gzip.encode(Data(count: 10_000_000))
        #expect(throws: TileCacheError.self) { try tile(bomb, "gzip").decodedData(limit: 1_000_000) }
        #expect(throws: TileCacheError.self) { try tile(bomb.prefix(100), "gzip").decodedData() }
        #expect(throws: TileCacheError.self) { try tile(Data([1]), "br").decodedData() }
    }
}
