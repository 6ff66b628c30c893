import ContentCoding
import Foundation
import HTTPTypes
import TileArchive
import TileStore

@testable import TileProxyServer

/// A PMTiles file that a test lays out as it likes.
enum TestArchive {
    /// The bytes of an archive.
    ///
    /// - Parameters:
    ///   - tiles: By their numbers.
    ///   - leafOf: How many tiles a leaf directory has; `nil` for all of them in the root.
    ///   - type: What the header says that tiles are: 1 for vector tiles, 2 for PNG.
    ///   - change: Changes the header at last.
    static func bytes(
        _ tiles: [UInt64: Data], leafOf: Int? = nil, packs: Bool = true, type: UInt8 = 2, metadata: String = "{}",
        change: (inout PMTilesHeader) -> Void = { _ in }
    ) throws -> Data {
        func pack(_ data: Data) throws -> Data { packs ? try Gzip.encode(data) : data }
        var data = Data()
        var entries: [PMTilesEntry] = []
        for (tile, bytes) in tiles.sorted(by: { $0.key < $1.key }) {
            entries.append(
                PMTilesEntry(tile: tile, offset: UInt64(data.count), length: UInt32(bytes.count), run: 1))
            data.append(bytes)
        }
        var leaves = Data()
        var root = entries
        if let leafOf {
            root = []
            for start in stride(from: 0, to: entries.count, by: leafOf) {
                let part = entries[start..<min(start + leafOf, entries.count)]
                let leaf = try pack(PMTilesDirectory.encode(part))
                root.append(
                    PMTilesEntry(
                        tile: part[start].tile, offset: UInt64(leaves.count), length: UInt32(leaf.count), run: 0))
                leaves.append(leaf)
            }
        }
        return try file(root: pack(PMTilesDirectory.encode(root)), leaves, data, pack(Data(metadata.utf8))) {
            $0.internalCompression = packs ? .gzip : .none
            $0.tileType = type
            $0.maxZoom = 6
            change(&$0)
        }
    }

    /// Puts sections together.
    static func file(
        root: Data, _ leaves: Data, _ data: Data, _ metadata: Data = Data(), change: (inout PMTilesHeader) -> Void
    ) throws -> Data {
        var header = PMTilesHeader()
        header.root = .init(offset: UInt64(PMTilesHeader.length), length: UInt64(root.count))
        header.metadata = .init(offset: header.root.offset + header.root.length, length: UInt64(metadata.count))
        header.leaves = .init(offset: header.metadata.offset + header.metadata.length, length: UInt64(leaves.count))
        header.data = .init(offset: header.leaves.offset + header.leaves.length, length: UInt64(data.count))
        change(&header)
        return header.bytes + root + metadata + leaves + data
    }

    /// Pictures for all tiles of some zooms, each with a text of its own.
    static func pictures(_ zooms: ClosedRange<Int>, _ text: String) -> [UInt64: Data] {
        var tiles: [UInt64: Data] = [:]
        for z in zooms {
            for x in 0..<(1 << z) {
                for y in 0..<(1 << z) { tiles[TileID.number(z: z, x: x, y: y)] = TileLab.png("\(text) \(z)/\(x)/\(y)") }
            }
        }
        return tiles
    }
}

/// A static server with one file, as RFC 9110 describes it, which a test can replace and have misbehave.
final class ArchiveSite: Sendable {
    private struct State {
        var file = Data()
        var fields: HTTPFields = [:]
        var twist: @Sendable (HTTPRequest, inout TileLab.Answer) -> Void = { _, _ in }
        var isAway = false
    }

    private let state = Locked(State())

    init(_ file: Data, tag: String? = "\"1\"", modified: String? = "Mon, 23 Nov 2026 10:00:00 GMT") {
        become(file, tag: tag, modified: modified)
    }

    /// Replaces the file.
    func become(_ file: Data, tag: String?, modified: String? = "Mon, 23 Nov 2026 10:00:00 GMT") {
        var fields: HTTPFields = [.cacheControl: "max-age=60", .contentType: "application/octet-stream"]
        (fields[.eTag], fields[.lastModified]) = (tag, modified)
        state.withLock { ($0.file, $0.fields) = (file, fields) }
    }

    /// Changes answers from now on.
    func twist(_ twist: @escaping @Sendable (HTTPRequest, inout TileLab.Answer) -> Void) {
        state.withLock { $0.twist = twist }
    }

    /// Whether there is no server.
    func isAway(_ isAway: Bool) { state.withLock { $0.isAway = isAway } }

    func answer(_ request: HTTPRequest) throws -> TileLab.Answer {
        let now = state.withLock { $0 }
        if now.isAway { throw Away() }
        var answer = TileLab.Answer(fields: now.fields, body: now.file)
        let (asked, tag) = (request.headerFields, now.fields[.eTag])
        if let wanted = asked[.ifMatch], wanted != tag {
            answer = TileLab.Answer(status: 412)
        } else if let wanted = asked[.ifUnmodifiedSince], wanted != now.fields[.lastModified] {
            answer = TileLab.Answer(status: 412)
        } else if let known = asked[.ifNoneMatch], known == tag {
            (answer.status, answer.body) = (304, Data())
        } else if asked[.ifNoneMatch] == nil, let known = asked[.ifModifiedSince], known == now.fields[.lastModified] {
            (answer.status, answer.body) = (304, Data())
        } else if let range = asked[.range] {
            let ends = range.dropFirst(6).split(separator: "-").compactMap { Int($0) }
            if ends.count == 2, ends[0] < now.file.count {
                let last = min(ends[1], now.file.count - 1)
                answer.status = 206
                answer.body = now.file.subdata(in: ends[0]..<(last + 1))
                answer.fields[.contentRange] = "bytes \(ends[0])-\(last)/\(now.file.count)"
            } else {
                answer = TileLab.Answer(status: 416, fields: [.contentRange: "bytes */\(now.file.count)"])
            }
        }
        now.twist(request, &answer)
        return answer
    }

    struct Away: Error {}
}

extension TileLab.Origin {
    /// The ranges that were asked for, and forgets them.
    func ranges() -> [String] {
        asked.withLock { asked in
            defer { asked = [] }
            return asked.map { $0.headerFields[.range] ?? "all" }
        }
    }
}
