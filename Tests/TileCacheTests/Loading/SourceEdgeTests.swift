import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// Sources that are changed after they were made.
@Suite(.timeLimit(.minutes(60)))
struct SourceEdgeTests {
    /// The sum of the last zoom and the levels overflowed.
    @Test(arguments: [0...Int.max, 30...40, Int.min...3, -5...(-1)])
    func zoomsThatAreSetLaterAreLimited(zooms: ClosedRange<Int>) throws {
        var source = try TileSource("lab", template: "https://tiles.example/{z}/{x}/{y}.png")
        source.overzoom = OverzoomRules(levels: 8)
        source.zooms = zooms
        #expect((0...28).contains(source.zooms.lowerBound) && (0...28).contains(source.zooms.upperBound))
        #expect((0...28).contains(source.servedZooms.upperBound))
        _ = try? source.key(z: 28, x: 0, y: 0)
        #expect(throws: TileCacheError.self) { try source.key(z: 29, x: 0, y: 0) }
    }

    /// The header fields were shown, with the tokens in them.
    @Test func dumpingASourceShowsNoSecret() throws {
        var source = try TileSource(
            "lab", template: "https://tiles.example/{z}/{x}/{y}.png?key={token}", values: ["token": "s3cr3t"])
        source.headers[.authorization] = "Bearer s3cr3t"
        var text = "\(source) \(String(reflecting: source)) \([source])"
        dump(source, to: &text)
        #expect(!text.contains("s3cr3t") && text.contains("lab"))
    }

    /// It was stored as it was, and nobody could decode it.
    @Test(arguments: ["br", "zstd", "deflate", "gzip"])
    func aPlainPictureWithAFalseCodingIsStoredWithoutIt(coding: String) async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60", .contentEncoding: coding])
        let tile = try #require(try await lab.load(1, .cacheOnly))
        #expect(try tile.decodedData() == Picture.png(1))
    }
}
