import ContentCoding
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A chunk of a set's list: some hundred tiles that follow each other.
package struct SetChunk: Sendable {
    /// The tiles, as a range of the whole list.
    package let range: Range<Int>
    /// The SHA-256 of its canonical JSON.
    package let digest: BlobDigest
    /// The length of its canonical JSON.
    package let length: Int
}

/// Where chunks begin: at tiles that a rule picks by their place alone.
///
/// So a tile that is added or removed changes the chunk that it is in, and no other one.
enum ChunkRule {
    /// Whether a chunk begins at a tile.
    ///
    /// - Parameters:
    ///   - before: The tile before it.
    ///   - count: How many tiles the chunk before it has.
    static func begins(at key: SetKey, after before: SetKey, count: Int) -> Bool {
        if count >= SetBounds.tilesOfChunk { return true }
        return key.place != before.place && (key.place &* 0x9E37_79B9_7F4A_7C15) >> 54 == 0
    }
}

/// All tiles of a set in their order, cut into chunks.
package struct SetList: Sendable {
    /// The tiles.
    package let tiles: [SetTile]
    /// The chunks.
    package let chunks: [SetChunk]
    /// What names the whole list.
    package let root: SetRoot

    /// Takes tiles in any order, each key once.
    package init(_ unordered: [SetTile]) {
        var tiles = unordered
        if !zip(tiles, tiles.dropFirst()).allSatisfy({ $0.key < $1.key }) { tiles.sort { $0.key < $1.key } }
        var chunks: [SetChunk] = []
        var start = 0
        for end in 1..<max(1, tiles.count + 1) {
            guard
                end == tiles.count
                    || ChunkRule.begins(at: tiles[end].key, after: tiles[end - 1].key, count: end - start)
            else { continue }
            guard start < end else { continue }
            let bytes = Self.encoded(tiles[start..<end])
            chunks.append(SetChunk(range: start..<end, digest: bytes.digest, length: bytes.count))
            start = end
        }
        self.tiles = tiles
        self.chunks = chunks
        root = SetRoot(chunks.map { .init(digest: $0.digest, tiles: $0.range.count, length: $0.length) })
    }

    /// A chunk's canonical JSON.
    package func encoded(_ chunk: SetChunk) -> [UInt8] { Self.encoded(tiles[chunk.range]) }

    private static func encoded(_ tiles: ArraySlice<SetTile>) -> [UInt8] {
        let runs = TileRuns(tiles)
        var json = CanonicalJSON()
        json.raw("{")
        runs.writeKinds(&json)
        json.raw(",")
        runs.writeRuns(&json)
        json.raw("}")
        return json.bytes
    }

    /// The JSON of a list, that is a root, a chunk or a delta, from the file that a set has of it.
    ///
    /// - Parameter length: The length of the JSON, as whatever names the list says.
    /// - Returns: `nil` if the file is damaged: the JSON is another one than the digest names, or longer.
    package static func unpacked(_ stored: [UInt8], _ digest: BlobDigest, length: Int) -> [UInt8]? {
        checked(Gzip.decode(Data(stored), limit: length), digest, length: length)
    }

    /// The JSON of a list from the body of an answer.
    ///
    /// There it may come without its gzip: many servers call the file's own gzip a content coding, and some clients take every coding
    /// off, asked for or not.
    /// - Parameter length: The length of the JSON; `nil` if nothing says it, then at most that of a root.
    /// - Returns: `nil` if it is another one than the digest names, or longer.
    package static func received(_ body: [UInt8], _ digest: BlobDigest, length: Int?) -> [UInt8]? {
        let plain = Gzip.isMarked(Data(body)) ? Gzip.decode(Data(body), limit: length ?? SetBounds.root) : Data(body)
        return checked(plain, digest, length: length)
    }

    private static func checked(_ json: Data?, _ digest: BlobDigest, length: Int?) -> [UInt8]? {
        guard let json, length.map({ $0 == json.count }) ?? (json.count <= SetBounds.root),
            json.withUnsafeBytes({ BlobDigest(hashing: $0) }) == digest
        else { return nil }
        return [UInt8](json)
    }

    /// Reads a chunk whose digest and length are those that the root says.
    ///
    /// - Throws: ``SetError``.
    package static func decode(_ bytes: [UInt8], of item: SetRoot.Item) throws -> [SetTile] {
        do throws(Flaw) {
            guard let object = bytes.json?.object else { throw Flaw("it is no JSON object") }
            let tiles = try TileRuns.tiles(object, most: SetBounds.tilesOfChunk)
            guard tiles.count == item.tiles else {
                throw Flaw("it has \(tiles.count) tiles, and the root says \(item.tiles)")
            }
            guard encoded(tiles[...]) == bytes else { throw Flaw("it is not written in the one form that chunks have") }
            return tiles
        } catch { throw SetError(.damaged, "chunk \(item.digest) of the set is wrong: \(error.text)") }
    }
}

extension SetList {
    /// What is wrong with where a chunk begins; `nil` if it may follow the one before it.
    ///
    /// - Parameters:
    ///   - first: The key of its first tile.
    ///   - before: The last key of the chunk before it, and how many tiles that has.
    package static func flaw(inChunkFrom first: SetKey, after before: (last: SetKey, count: Int)) -> String? {
        guard before.last < first else { return "tile \(first.text) is not in its place, or is there twice" }
        guard ChunkRule.begins(at: first, after: before.last, count: before.count) else {
            return "no chunk begins at tile \(first.text)"
        }
        return nil
    }

    /// What is wrong with where a chunk ends; `nil` if it ends where it has to.
    ///
    /// - Parameter tiles: Its tiles, in order.
    package static func flaw(inChunk tiles: [SetTile]) -> String? {
        let cut = tiles.indices.dropFirst().first {
            ChunkRule.begins(at: tiles[$0].key, after: tiles[$0 - 1].key, count: $0)
        }
        return cut.map { "another chunk begins at tile \(tiles[$0].key.text)" }
    }
}

/// The list of a set's chunks; its digest names the set.
package struct SetRoot: Hashable, Sendable {
    /// A chunk as the root names it.
    package struct Item: Hashable, Sendable {
        package let digest: BlobDigest
        package let tiles: Int
        package let length: Int
    }

    /// The chunks in the order of their tiles.
    package let items: [Item]
    /// The canonical JSON.
    package let bytes: [UInt8]
    /// Its SHA-256.
    package let digest: BlobDigest

    /// How many tiles the set has.
    package var tiles: Int { items.reduce(0) { $0 + $1.tiles } }

    init(_ items: [Item]) {
        self.items = items
        var json = CanonicalJSON()
        json.raw("{\"chunks\":")
        json.list(items) { json, item in
            json.raw("[\"")
            json.hex(item.digest)
            json.raw("\",")
            json.integer(item.tiles)
            json.raw(",")
            json.integer(item.length)
            json.raw("]")
        }
        json.raw("}")
        bytes = json.bytes
        digest = bytes.digest
    }

    /// Reads a root.
    ///
    /// - Throws: ``SetError``.
    package init(_ bytes: [UInt8]) throws {
        do throws(Flaw) { self = try Self.read(bytes) } catch {
            throw SetError(.damaged, "the root \(bytes.digest) of the set is wrong: \(error.text)")
        }
    }

    private static func read(_ bytes: [UInt8]) throws(Flaw) -> SetRoot {
        guard let list = bytes.json?.object?["chunks"]?.array else { throw Flaw("it has no list of chunks") }
        guard list.count <= SetBounds.chunks else {
            throw Flaw("it has \(list.count) chunks; at most \(SetBounds.chunks) are possible")
        }
        var items: [Item] = []
        for entry in list {
            guard let parts = entry.array, parts.count == 3, let name = parts[0].string, let digest = BlobDigest(name),
                let tiles = parts[1].integer, (1...Int64(SetBounds.tilesOfChunk)).contains(tiles),
                let length = parts[2].integer, (1...Int64(SetBounds.chunk)).contains(length)
            else { throw Flaw("it names a chunk that is none") }
            items.append(Item(digest: digest, tiles: Int(tiles), length: Int(length)))
        }
        let root = SetRoot(items)
        guard root.bytes == bytes else { throw Flaw("it is not written in the one form that roots have") }
        return root
    }
}
