import ContentCoding
import Foundation
import Testing
import TileSets
import TileStore
import TileStoreTesting

/// Sets that somebody has made to do harm: each is refused with a clear error, and the cache is as it was.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct HostileSetTests {
    /// Bytes that are served in a set's place, by path.
    private final class Shop {
        var files: [String: [UInt8]] = [:]

        func add(list: [UInt8]) throws -> BlobDigest {
            let digest = list.withUnsafeBytes { BlobDigest(hashing: $0) }
            files[SetPaths.list(digest)] = [UInt8](try Gzip.encode(Data(list)))
            return digest
        }

        func add(blob: [UInt8]) -> BlobDigest {
            let digest = blob.withUnsafeBytes { BlobDigest(hashing: $0) }
            files[SetPaths.blob(digest)] = blob
            return digest
        }
    }

    /// A set that somebody wrote by hand.
    private struct Forgery {
        var chunks: [String]
        var counts: [Int]
        var tiles: Int
        var blobs = 1
        var bytes = 5
        var root: String?
    }

    private static let body = Array("hello".utf8)

    private func shop(_ forgery: Forgery) throws -> Shop {
        let shop = Shop()
        _ = shop.add(blob: Self.body)
        let items = try zip(forgery.chunks, forgery.counts).map { text, count in
            "[\"\(try shop.add(list: Array(text.utf8)))\",\(count),\(text.utf8.count)]"
        }
        let root = forgery.root ?? "{\"chunks\":[\(items.joined(separator: ","))]}"
        let digest = try shop.add(list: Array(root.utf8))
        shop.files["set.json"] =
            SetDocument(
                name: "evil", time: Timestamp(seconds: 1_600_000_000), root: digest, rootLength: root.utf8.count,
                tiles: forgery.tiles, blobs: forgery.blobs, bytes: forgery.bytes
            ).encoded
        return shop
    }

    private static var digest: String { "\(body.withUnsafeBytes { BlobDigest(hashing: $0) })" }

    private static func chunk(_ key: String, count: Int = 1, blob: String = digest, size: Int = 5) -> String {
        "{\"kinds\":[[\"image/png\",null]],\"runs\":[[\"\(key)\",\(count),\"\(blob)\",\(size),0]]}"
    }

    /// Pulls a forged set into a cache that was pulled from an honest one.
    private func expectRefusal(
        _ shop: Shop, _ note: String, _ code: SetError.Code = .damaged, limit: Int? = nil
    ) async throws {
        let lab = try SetLab(seed: 4)
        try lab.change(30)
        try lab.publish()
        try await lab.pull(CountingFetcher(lab.files()))
        if let limit { try lab.puller.setLimits(StoreLimits(capacity: limit)) }
        var before: [TileEntry] = []
        try lab.puller.forEachEntry { before.append($0) }
        let files = shop.files
        let fetcher = CountingFetcher(lab.files()) { .some(files[$0]) }
        do {
            try await lab.pull(fetcher)
            Issue.record("\(note): it was pulled")
        } catch let error as SetError {
            #expect(error.code == code, "\(note): \(error)")
            #expect(error.message.count > 20)
        }
        var after: [TileEntry] = []
        try lab.puller.forEachEntry { after.append($0) }
        // What was fetched of a set that is not whole is of use when it is.
        if code == .incomplete {
            after.removeAll { $0.key.tile == nil && $0.key.description != "map:pull/state" }
            lab.toleratesParts = true
        }
        #expect(after.map(\.key) == before.map(\.key), "\(note)")
        #expect(after.map(\.blob) == before.map(\.blob), "\(note)")
        try lab.expectPulled()
    }

    @Test func aForgedSetThatIsRightIsPulled() async throws {
        let lab = try SetLab(seed: 4)
        let files = try shop(Forgery(chunks: [Self.chunk("1/0/0")], counts: [1], tiles: 1)).files
        let report = try await lab.pull(CountingFetcher(lab.files()) { .some(files[$0]) })
        #expect(report.fetchedBlobs == 1)
    }

    @Test func setsThatContradictThemselvesAreRefused() async throws {
        let one = Self.chunk("1/0/0")
        let table: [(String, Forgery)] = [
            ("more tiles than its lists", Forgery(chunks: [one], counts: [1], tiles: 2)),
            ("fewer", Forgery(chunks: [one], counts: [1], tiles: 0)),
            ("other blobs", Forgery(chunks: [one], counts: [1], tiles: 1, blobs: 2)),
            ("other bytes", Forgery(chunks: [one], counts: [1], tiles: 1, bytes: 6)),
            ("a chunk with other tiles than the root says", Forgery(chunks: [one], counts: [3], tiles: 3)),
            ("a chunk that comes twice", Forgery(chunks: [one, one], counts: [1, 1], tiles: 2)),
            ("chunks out of order", Forgery(chunks: [Self.chunk("2/0/0"), one], counts: [1, 1], tiles: 2)),
            ("cut as no set is", Forgery(chunks: [one, Self.chunk("1/1/0")], counts: [1, 1], tiles: 2)),
            (
                "two sizes of one blob",
                Forgery(
                    chunks: [
                        "{\"kinds\":[[null,null]],\"runs\":[[\"1/0/0\",1,\"\(Self.digest)\",5,0],[\"1/1/0\",1,\"\(Self.digest)\",6,0]]}"
                    ], counts: [2], tiles: 2)
            ),
            (
                "a blob that is longer than is said",
                Forgery(chunks: [Self.chunk("1/0/0", size: 4)], counts: [1], tiles: 1, bytes: 4)
            ),
            (
                "a blob that is shorter",
                Forgery(chunks: [Self.chunk("1/0/0", size: 6)], counts: [1], tiles: 1, bytes: 6)
            ),
            ("a path for a key", Forgery(chunks: [Self.chunk("../../../etc/passwd")], counts: [1], tiles: 1)),
            (
                "a path for a blob",
                Forgery(chunks: [Self.chunk("1/0/0", blob: "../../../../etc/passwd")], counts: [1], tiles: 1)
            ),
            ("a chunk that is no JSON", Forgery(chunks: ["<html>"], counts: [1], tiles: 1)),
            (
                "a million chunks",
                Forgery(
                    chunks: [], counts: [], tiles: 1_000_000,
                    root: "{\"chunks\":["
                        + Array(repeating: "[\"\(Self.digest)\",1,9]", count: 180_000).joined(separator: ",") + "]}")
            ),
            ("a root that is a chunk", Forgery(chunks: [], counts: [], tiles: 1, root: one)),
        ]
        for (note, forgery) in table { try await expectRefusal(shop(forgery), note) }
    }

    @Test func bytesThatAreNotThoseOfTheirNameAreRefused() async throws {
        let honest = try shop(Forgery(chunks: [Self.chunk("1/0/0")], counts: [1], tiles: 1)).files
        for path in honest.keys.sorted() where path != "set.json" {
            let shop = Shop()
            shop.files = honest
            shop.files[path]?[4] ^= 1
            if path.hasSuffix(".gz") {
                // Sound gzip of something else.
                shop.files[path] = [UInt8](try Gzip.encode(Data("{\"chunks\":[]}".utf8)))
            }
            try await expectRefusal(shop, "other bytes in \(path)")
            shop.files[path] = []
            try await expectRefusal(shop, "no bytes in \(path)")
            shop.files[path] = nil
            try await expectRefusal(shop, "no \(path)", .incomplete)
        }
    }

    @Test func bombsAreRefused() async throws {
        let bomb = [UInt8](try Gzip.encode(Data(count: 200 << 20), level: 9))
        let honest = try shop(Forgery(chunks: [Self.chunk("1/0/0")], counts: [1], tiles: 1)).files
        for path in honest.keys.sorted() where path.hasSuffix(".gz") {
            let shop = Shop()
            shop.files = honest
            shop.files[path] = Array(bomb.prefix(900))
            try await expectRefusal(shop, "the start of a bomb in \(path)")
            shop.files[path] = bomb
            try await expectRefusal(shop, "a bomb in \(path)")
        }
        let shop = Shop()
        shop.files["set.json"] = [UInt8](repeating: 0x5B, count: 2 << 20)
        try await expectRefusal(shop, "a document that is too long")
    }

    @Test func aSetThatIsLargerThanTheCacheMayBeIsRefusedBeforeItStarts() async throws {
        let body = [UInt8](repeating: 7, count: 100_000)
        let shop = Shop()
        let blob = shop.add(blob: body)
        let chunk = Self.chunk("1/0/0", blob: "\(blob)", size: body.count)
        let made = try self.shop(Forgery(chunks: [chunk], counts: [1], tiles: 1, bytes: body.count))
        made.files.merge(shop.files) { first, _ in first }
        try await expectRefusal(made, "a large set", .tooLarge, limit: 65_536)
    }

    @Test func aSetOfMoreTilesThanAreAllowedIsRefusedBeforeItsListsAreRead() async throws {
        let lab = try SetLab(seed: 4)
        try lab.change(20)
        try lab.publish()
        let fetcher = CountingFetcher(lab.files())
        var puller = SetPuller(store: lab.puller, source: lab.source, from: fetcher, now: lab.clock.now)
        puller.mostTiles = lab.model.count - 1
        let error = await #expect(throws: SetError.self) { _ = try await puller.pull() }
        #expect(error?.code == .tooLarge)
        #expect(fetcher.counts == ["set.json": 1])
        puller.mostTiles = lab.model.count
        _ = try await puller.pull()
        try lab.expectPulled()
    }

    @Test func anotherRootThanTheExpectedOneIsRefused() async throws {
        let lab = try SetLab(seed: 4)
        try lab.change(5)
        try lab.publish()
        let fetcher = CountingFetcher(lab.files())
        var puller = SetPuller(store: lab.puller, source: lab.source, from: fetcher, now: lab.clock.now)
        puller.expected = Self.body.withUnsafeBytes { BlobDigest(hashing: $0) }
        let error = await #expect(throws: SetError.self) { _ = try await puller.pull() }
        #expect(error?.code == .unexpectedRoot)
        #expect(fetcher.counts == ["set.json": 1])
        puller.expected = try SetDocument(try #require(lab.folderDisk.contents("set.json")), at: "").root
        _ = try await puller.pull()
        try lab.expectPulled()
    }

    @Test func aRegionOfTheUsersIsNotReplaced() async throws {
        let lab = try SetLab(seed: 4)
        try lab.change(5)
        try lab.publish()
        let span = try TileSpan(zoom: 1, columns: 0...1, rows: 0...1)
        try lab.puller.pin(PinnedRegion(name: "map", source: lab.source, spans: [span]))
        let error = await #expect(throws: SetError.self) { try await lab.pull(CountingFetcher(lab.files())) }
        #expect(error?.code == .invalid)
    }
}
