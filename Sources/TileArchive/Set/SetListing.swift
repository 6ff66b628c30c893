package import TileSets
package import TileStore

/// The list of one version of a published set, whose chunks are read as they are needed.
///
/// It reads nothing itself: a ``SetSearch`` names the chunk that it needs next, and whoever drives it brings the bytes from a
/// folder or a server. Chunks are kept in ``ChunkCache``; where chunks begin is remembered for as long as the list lives.
package final class SetListing: Sendable {
    /// The root, which names the version.
    package let root: BlobDigest
    /// The chunks in the order of their tiles.
    package let items: [SetRoot.Item]
    /// The keys of chunks' first tiles, by the number of the chunk, as far as they are known.
    private let firsts = Locked<[Int: SetKey]>([:])

    /// A list by the root that names its chunks.
    package init(_ root: SetRoot) { (self.root, items) = (root.digest, root.items) }

    /// How many tiles the list has, by its root.
    package var tiles: Int { items.reduce(0) { $0 + $1.tiles } }

    /// The tiles of a chunk from the body of an answer.
    ///
    /// It decompresses and hashes, which takes milliseconds.
    /// - Throws: ``SetError`` if it is not the chunk that the root names.
    package func chunk(_ body: [UInt8], number: Int) throws -> [SetTile] {
        let item = items[number]
        guard let bytes = SetList.received(body, item.digest, length: item.length) else {
            throw SetError(.damaged, "chunk \(item.digest) of the set is damaged")
        }
        return try SetList.decode(bytes, of: item)
    }

    /// Keeps a chunk's tiles, which are those that the root names.
    package func keep(_ tiles: [SetTile], as number: Int) {
        ChunkCache.shared.insert(tiles, items[number].digest)
        keep(first: tiles.first, number)
    }

    /// A chunk's tiles, if they are in memory.
    package func known(_ number: Int) -> [SetTile]? {
        // The cache is shared by all sets, and another one's root may lie about how many tiles the chunk has.
        guard let tiles = ChunkCache.shared.find(items[number].digest), tiles.count == items[number].tiles else {
            return nil
        }
        keep(first: tiles.first, number)
        return tiles
    }

    /// The tile of a place, if the chunks that lead to it are in memory.
    package func known(at place: SetKey) -> SetTile? {
        var search = SetSearch(place, in: self)
        guard case .tile(let tile) = search.next(), tile.key.isAtPlace(of: place) else { return nil }
        return tile
    }

    /// The key of a chunk's first tile, if it is known.
    fileprivate func first(of number: Int) -> SetKey? {
        firsts.withLock { $0[number] } ?? known(number)?.first?.key
    }

    private func keep(first: SetTile?, _ number: Int) { firsts.withLock { $0[number] = first?.key } }
}

/// The search for the first tile of a list that is not before a key.
///
/// A value that is asked for its next step and told what it needs, so that the search is the same whether chunks lie in a folder or
/// at a server. It ends after at most 19 chunks, also where the list is in disorder.
package struct SetSearch: Sendable {
    /// What comes next.
    package enum Step: Sendable {
        /// The first tile that is not before the key.
        case tile(SetTile)
        /// All tiles are before the key.
        case none
        /// The chunk with this number has to be read first.
        case chunk(Int)
    }

    private let listing: SetListing
    private let key: SetKey
    /// The chunks in which the last one lies that begins at or before the key.
    private var low = 0
    private var high: Int
    /// How many chunks were searched beyond that one.
    private var further = 0
    /// What was read last: somebody else's chunks may have put it out of memory already.
    private var taken: (number: Int, tiles: [SetTile])?

    /// A search that has not begun.
    package init(_ key: SetKey, in listing: SetListing) {
        (self.key, self.listing) = (key, listing)
        high = listing.items.count
    }

    /// The numbers of the chunks that it has looked at, each once: with them it finds the same again.
    package private(set) var path: [Int] = []

    /// Goes on as far as what is known leads.
    package mutating func next() -> Step {
        guard high > 0 else { return .none }
        while high - low > 1 {
            let middle = (low + high) / 2
            look(at: middle)
            guard let first = taken(middle)?.first?.key ?? listing.first(of: middle) else { return .chunk(middle) }
            if first <= key { low = middle } else { high = middle }
        }
        // A place whose tiles are cut in two by the length of the chunk, which is rare, goes on in the next one.
        while further < 2, low + further < listing.items.count {
            look(at: low + further)
            guard let tiles = taken(low + further) ?? listing.known(low + further) else {
                return .chunk(low + further)
            }
            let index = Self.index(of: key, in: tiles)
            if index < tiles.count { return .tile(tiles[index]) }
            further += 1
        }
        return .none
    }

    private mutating func look(at number: Int) { if !path.contains(number) { path.append(number) } }

    /// Takes the tiles of the chunk that ``next()`` has named.
    package mutating func take(_ tiles: [SetTile], as number: Int) { taken = (number, tiles) }

    private func taken(_ number: Int) -> [SetTile]? { taken.flatMap { $0.number == number ? $0.tiles : nil } }

    /// Where the first tile is that is not before a key.
    private static func index(of key: SetKey, in tiles: [SetTile]) -> Int {
        var (low, high) = (0, tiles.count)
        while low < high {
            let middle = (low + high) / 2
            if tiles[middle].key < key { low = middle + 1 } else { high = middle }
        }
        return low
    }
}

extension SetKey {
    /// The key of a place's tile of scale 1 without a format, which is the first one there; `nil` where no place is.
    package init?(z: Int, x: Int, y: Int) {
        guard (0...28).contains(z), (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y) else { return nil }
        self.init(TileAddress(unchecked: z, x, y, 1, nil))
    }
}
