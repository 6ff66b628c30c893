import Foundation
import HTTPCaching
import NIOCore
import Testing
import TileStore

@testable import TileProxyServer

/// The table of answers that are ready.
@Suite(.timeLimit(.minutes(60)))
struct PreparedHitsTests {
    /// One entry of a store, which is as good as any other.
    private func withCandidate(_ body: (Candidate, TileStore) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "hits-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let store = try TileStore(at: folder)
        let key = try TileKey("a:/b")
        let metadata = TileMetadata(
            response: ResponseFields(status: 200, mediaType: "text/plain"), storedAt: Timestamp(seconds: 0),
            expires: Timestamp(seconds: 60))
        try store.put(Data("hello".utf8), for: key, metadata: metadata)
        let tile = try #require(try store.open(key, wholeUpTo: .max))
        try body(Candidate(key: key, tile, nil), store)
        try store.close()
    }

    /// The fields of a request that no variant depends on.
    private var anyone: HeadFields { HeadFields(bytes: ByteBuffer(), spans: [], present: []) }

    private func hit(
        _ target: String, _ candidate: Candidate, _ store: TileStore, via: String = "v"
    ) throws -> PreparedHits.Hit {
        try #require(
            Array(target.utf8).withUnsafeBytes { PreparedHits.Hit(candidate, target: $0, anyone, via: via, store) })
    }

    private func find(_ target: String, _ hits: PreparedHits) -> PreparedHits.Hit? {
        Array(target.utf8).withUnsafeBytes { hits.find($0, anyone) }
    }

    @Test
    func aMapOfTenThousandTilesHasRoom() throws {
        try withCandidate { candidate, store in
            var hits = PreparedHits()
            for i in 0..<10_000 {
                hits.keep(try hit("/tiles/\(i)", candidate, store))
            }
            let found = (0..<10_000).count { find("/tiles/\($0)", hits) != nil }
            // Where a pair of slots was a set it was about 9,300.
            #expect(found > 9_950)
            #expect(find("/tiles/10000", hits) == nil)
        }
    }

    @Test
    func longHeadsTakeNoMoreRoomThanIsGiven() throws {
        try withCandidate { candidate, store in
            var hits = PreparedHits(bytes: 100_000)
            let via = String(repeating: "v", count: 3000)
            for i in 0..<100 { hits.keep(try hit("/\(i)", candidate, store, via: via)) }
            let found = (0..<100).count { find("/\($0)", hits) != nil }
            #expect((1...32).contains(found), "about 3.3 KB each")
            #expect(find("/99", hits) != nil)
        }
    }

    @Test
    func theNewestForATargetCountsAndTheOldestOfASetGoes() throws {
        try withCandidate { candidate, store in
            var hits = PreparedHits(sets: 1)
            func keep(_ target: String) throws -> PreparedHits.Hit {
                let hit = try hit(target, candidate, store)
                hits.keep(hit)
                return hit
            }
            for i in 0..<8 { _ = try keep("/\(i)") }
            let again = try keep("/3")
            #expect(try #require(find("/3", hits)) === again)
            for i in 0..<8 { #expect(find("/\(i)", hits) != nil, "\(i)") }
            _ = try keep("/8")
            #expect(find("/0", hits) == nil)
            for i in 1...8 { #expect(find("/\(i)", hits) != nil, "\(i)") }
        }
    }
}
