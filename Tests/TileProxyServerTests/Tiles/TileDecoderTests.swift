import ContentCoding
import Foundation
import HTTPTypes
import Testing
import TileCache
import TileStore
import TileStoreTesting

@testable import TileProxyServer

extension TileDecoder {
    /// Decodes a tile, for one who waits.
    func decode(_ data: Data, _ digest: BlobDigest) async -> Outcome {
        await withCheckedContinuation { continuation in
            decode(data, digest) { continuation.resume(returning: $0) }
        }
    }
}

/// gzip'd tiles for clients that do not take gzip.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct TileDecoderTests {
    private func digest(_ data: Data) -> BlobDigest { data.withUnsafeBytes { BlobDigest(hashing: $0) } }

    private func zeros(_ count: Int, seed: UInt8 = 0) throws -> Data {
        try Gzip.encode(Data([seed]) + Data(count: count - 1), level: 9)
    }

    private static func with(
        _ tile: Data, coding: String?, _ body: (TileLab) async throws -> Void
    ) async throws {
        var fields: HTTPFields = [
            .cacheControl: "max-age=60", .eTag: "\"v1\"", .contentType: "application/vnd.mapbox-vector-tile",
        ]
        fields[.contentEncoding] = coding
        let answer = TileLab.Answer(fields: fields, body: tile)
        try await TileLab.with(
            "v=https://tiles.example/{z}/{x}/{y}.pbf", { $0.kind = .vector }, origin: { _ in answer }, body)
    }

    @Test(arguments: ["gzip", nil])
    func howeverManyClientsTakeNoGzipATileIsDecodedOnce(coding: String?) async throws {
        try await Self.with(try zeros(1 << 20), coding: coding) { lab in
            try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<16 {
                    group.addTask { try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "identity"]).body.count }
                }
                for try await count in group { #expect(count == 1 << 20) }
            }
            let later = try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "identity"])
            #expect(later.body.count == 1 << 20 && later[.contentEncoding] == nil && later[.eTag] == "\"v1-identity\"")
            let coded = try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "gzip"])
            #expect(coded[.contentEncoding] == "gzip" && coded.body.count < 1 << 18)
            #expect(lab.service.decoder.count == 1 && lab.origin.count == 1)
        }
    }

    @Test
    func aBombIsTriedOnceAndGivenAsItIs() async throws {
        let bomb = try zeros(20 << 20)
        try await Self.with(bomb, coding: "gzip") { lab in
            for _ in 0..<5 {
                let answer = try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "identity"])
                #expect(answer.status == 200 && answer.body == bomb && answer[.contentEncoding] == "gzip")
            }
            #expect(lab.service.decoder.count == 1)
        }
    }

    @Test
    func moreThanAllDecodedTilesMayTakeIsRefusedUntilSomeAreRead() async throws {
        var limits = TileDecoder.Limits()
        (limits.tileBytes, limits.bytes, limits.keptBytes) = (1 << 20, 5 << 19, 0)
        let decoder = TileDecoder(limits)
        let tiles = try (0..<3).map { try zeros(1 << 20, seed: $0) }
        var held: [DecodedTile] = []
        for tile in tiles.prefix(2) {
            guard case .decoded(let decoded) = await decoder.decode(tile, digest(tile)) else {
                Issue.record("not decoded")
                return
            }
            held.append(decoded)
        }
        guard case .busy = await decoder.decode(tiles[2], digest(tiles[2])) else {
            Issue.record("decoded though there is no room")
            return
        }
        #expect(held.count == 2)
        held = []
        guard case .decoded = await decoder.decode(tiles[2], digest(tiles[2])) else {
            Issue.record("the room did not come back")
            return
        }
    }
}
