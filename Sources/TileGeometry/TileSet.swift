/// Tiles that somebody has listed, and what is above and below them as far as that is asked for.
///
/// Takes 12 bytes for each different tile, whatever is above and below.
package struct TileSet: Sendable {
    /// How many different tiles there can be.
    package static let most = 1 << 24

    /// The tiles, each once, ascending.
    private let tiles: [PackedTile]
    /// How often each was listed.
    private let counts: [UInt32]
    /// The lowest zoom at which tiles above listed ones belong to it; 29 for none.
    private let parents: Int
    /// The highest zoom at which tiles below listed ones belong to it; -1 for none.
    private let children: Int
    /// The listed tiles below which others belong to it, without those that lie below one of them.
    private let roots: [PackedTile]

    fileprivate init(_ tiles: [PackedTile], _ counts: [UInt32], parents: Int, children: Int) {
        (self.tiles, self.counts, self.parents, self.children) = (tiles, counts, parents, children)
        var roots: [PackedTile] = []
        for tile in tiles where tile.z < children && roots.last?.covers(tile) != true { roots.append(tile) }
        self.roots = roots
    }

    /// How many different tiles were listed.
    package var count: Int { tiles.count }

    /// The listed tiles, each once, in their order.
    package var listed: [PackedTile] { tiles }

    /// How often a listed tile was listed, by its place among ``listed``.
    package func timesListed(at place: Int) -> Int { Int(counts[place]) }

    /// The same with other tiles above and below.
    ///
    /// - Parameters:
    ///   - parents: From which zoom on tiles above listed ones belong to it; `nil` for none.
    ///   - children: Up to which zoom tiles below listed ones belong to it; `nil` for none.
    package func widened(parentsTo parents: Int?, childrenTo children: Int?) -> TileSet {
        TileSet(tiles, counts, parents: parents ?? 29, children: children ?? -1)
    }

    /// Whether a tile belongs to it.
    package func contains(_ tile: PackedTile) -> Bool {
        var place: Int?
        return contains(tile, &place)
    }

    /// The same, telling the place of a tile that was itself listed.
    package func contains(_ tile: PackedTile, _ place: inout Int?) -> Bool {
        let next = Self.place(of: tile, in: tiles)
        if next < tiles.count {
            if tiles[next] == tile {
                place = next
                return true
            }
            // What follows a tile in the order begins with what is below it.
            if tile.z >= parents, tile.covers(tiles[next]) { return true }
        }
        guard tile.z <= children, !roots.isEmpty else { return false }
        // Roots do not lie below one another: only the last one before the tile can cover it.
        let after = Self.place(of: tile, in: roots)
        return after > 0 && roots[after - 1].covers(tile)
    }

    /// Its tiles, each once; `nil` if some are below listed ones, which can be more than can be named.
    package func members() -> [PackedTile]? {
        guard roots.isEmpty else { return nil }
        guard parents <= 28 else { return tiles }
        var members: [PackedTile] = []
        members.reserveCapacity(tiles.count + tiles.count / 3)
        var last: PackedTile?
        for tile in tiles {
            for zoom in parents..<max(parents, tile.z) {
                let above = tile.ancestor(zoom: zoom)
                // What is above the tile before, or is that tile, is there already.
                if let last, above.covers(last) { continue }
                members.append(above)
            }
            members.append(tile)
            last = tile
        }
        return members
    }

    /// How many of some sorted tiles come before one.
    private static func place(of tile: PackedTile, in tiles: [PackedTile]) -> Int {
        tiles.withUnsafeBufferPointer { tiles in
            var (low, count) = (0, tiles.count)
            while count > 0 {
                let half = count / 2
                if tiles[low + half] < tile {
                    low += half + 1
                    count -= half + 1
                } else {
                    count = half
                }
            }
            return low
        }
    }
}

/// Makes a ``TileSet`` of tiles in any order, of which many may be the same.
///
/// Sorts them a part at a time, so that a list whose lines repeat themselves takes no more memory than its different tiles.
package struct TileSetBuilder: Sendable {
    /// Sorted, each once.
    private var tiles: [PackedTile] = []
    private var counts: [UInt32] = []
    private var unsorted: [PackedTile] = []

    /// How many wait to be sorted at most.
    private static let part = 1 << 20

    package init() {}

    /// Takes tiles in.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/tooMany``.
    package mutating func insert(_ new: [PackedTile]) throws(StoreError) {
        unsorted.append(contentsOf: new)
        if unsorted.count >= Self.part { try settle() }
    }

    /// The set.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/tooMany``.
    package consuming func set() throws(StoreError) -> TileSet {
        try settle()
        return TileSet(tiles, counts, parents: 29, children: -1)
    }

    /// Sorts what was not sorted yet into the rest.
    private mutating func settle() throws(StoreError) {
        guard !unsorted.isEmpty else { return }
        PackedTile.sort(&unsorted)
        var (new, newCounts): ([PackedTile], [UInt32]) = ([], [])
        new.reserveCapacity(unsorted.count)
        newCounts.reserveCapacity(unsorted.count)
        for tile in unsorted {
            if new.last == tile {
                newCounts[newCounts.count - 1] = Self.sum(newCounts[newCounts.count - 1], 1)
            } else {
                new.append(tile)
                newCounts.append(1)
            }
        }
        unsorted.removeAll(keepingCapacity: true)
        if tiles.isEmpty { (tiles, counts) = (new, newCounts) } else { merge(new, newCounts) }
        guard tiles.count <= TileSet.most else {
            throw StoreError(
                .tooMany, "the list has more than \(TileSet.most) different tiles: give it in parts")
        }
    }

    private mutating func merge(_ new: [PackedTile], _ newCounts: [UInt32]) {
        var (all, allCounts): ([PackedTile], [UInt32]) = ([], [])
        all.reserveCapacity(tiles.count + new.count)
        allCounts.reserveCapacity(tiles.count + new.count)
        var (i, j) = (0, 0)
        while i < tiles.count || j < new.count {
            if j == new.count || i < tiles.count && tiles[i] < new[j] {
                all.append(tiles[i])
                allCounts.append(counts[i])
                i += 1
            } else if i == tiles.count || new[j] < tiles[i] {
                all.append(new[j])
                allCounts.append(newCounts[j])
                j += 1
            } else {
                all.append(tiles[i])
                allCounts.append(Self.sum(counts[i], newCounts[j]))
                (i, j) = (i + 1, j + 1)
            }
        }
        (tiles, counts) = (all, allCounts)
    }

    private static func sum(_ a: UInt32, _ b: UInt32) -> UInt32 {
        let (sum, isTooMuch) = a.addingReportingOverflow(b)
        return isTooMuch ? .max : sum
    }
}
