import Foundation
import HTTPCaching
import NIOCore
import Testing
import TileStore

@testable import TileProxyServer

/// The table of answers that are ready.
@Suite(.timeLimit(.minutes(30)))
struct PreparedHitsTests {
    /// One entry of a store, which is as good as any other.
    private func withCandidate(_ body: (Candidate) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "hits-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let store = try TileStore(at: folder)
        let key = try TileKey("a:/b")
        let metadata = TileMetadata(
            response: ResponseFields(status: 200, mediaType: "text/plain"), storedAt: Timestamp(seconds: 0),
            expires: Timestamp(seconds: 60))
        try store.put(Data("hello".utf8), for: key, metadata: metadata)
        let tile = try #require(try store.read(key))
        try body(Candidate(key: key, tile, nil))
        try store.close()
    }

    /// The fields of a request that no variant depends on.
    private var anyone: HeadFields { HeadFields(bytes: ByteBuffer(), spans: [], present: []) }

    private func find(_ target: String, _ hits: PreparedHits) -> PreparedHits.Hit? {
        Array(target.utf8).withUnsafeBytes { hits.find($0, anyone) }
    }

    @Test
    func aMapOfTenThousandTilesHasRoom() throws {
        try withCandidate { candidate in
            var hits = PreparedHits()
            for i in 0..<10_000 {
                let hit = try #require(PreparedHits.Hit(candidate, target: Array("/tiles/\(i)".utf8), anyone, via: "v"))
                hits.keep(hit)
            }
            let found = (0..<10_000).count { find("/tiles/\($0)", hits) != nil }
            // Where a pair of slots was a set it was about 9,300.
            #expect(found > 9_950)
            #expect(find("/tiles/10000", hits) == nil)
        }
    }

    @Test
    func theNewestForATargetCountsAndTheOldestOfASetGoes() throws {
        try withCandidate { candidate in
            var hits = PreparedHits(sets: 1)
            func keep(_ target: String) throws -> PreparedHits.Hit {
                let hit = try #require(PreparedHits.Hit(candidate, target: Array(target.utf8), anyone, via: "v"))
                hits.keep(hit)
                return hit
            }
            for i in 0..<8 { _ = try keep("/\(i)") }
            let again = try keep("/3")
            #expect(find("/3", hits) === again)
            for i in 0..<8 { #expect(find("/\(i)", hits) != nil, "\(i)") }
            _ = try keep("/8")
            #expect(find("/0", hits) == nil)
            for i in 1...8 { #expect(find("/\(i)", hits) != nil, "\(i)") }
        }
    }
}
