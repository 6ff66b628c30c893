// Finding the entries of listed tiles.
extension TileStore {
    /// How many lines of a list name a tile of which there is no entry, in whatever scale and format.
    ///
    /// What is above and below listed tiles does not count.
    /// - Parameter source: The source that the tiles are of; `nil` for any.
    package func unknownLines(of tiles: TileSet, source: SourceName?) throws -> Int {
        try catchUp()
        let t = tables.read { t, _ in t }
        var isKnown = [Bool](repeating: false, count: tiles.count)
        scan(t, of: tiles.widened(parentsTo: nil, childrenTo: nil), source: source) { _, place in
            if let place { isKnown[place] = true }
        }
        return isKnown.indices.reduce(0) { sum, place in
            isKnown[place] ? sum : sum + tiles.timesListed(at: place)
        }
    }

    /// Walks the entries of some tiles, each in all its scales and formats, in slices as ``scan(_:_:)`` does.
    ///
    /// Looks each tile up, or looks through all entries, whichever is less to do.
    /// - Parameters:
    ///   - source: The source that the tiles are of; `nil` for any.
    ///   - body: Called with an entry's slot, and the place of a tile that was itself listed.
    func scan(_ t: Tables, of tiles: TileSet, source: SourceName?, _ body: (UInt32, Int?) -> Void) {
        let (sources, variants, entries) = tables.read { _, _ -> (Range<Int>, Range<Int>, Int) in
            var sources = t.names.sources.indices
            if let source {
                let number = t.names.source(source.description).map(Int.init)
                sources = number.map { $0..<($0 + 1) } ?? 0..<0
            }
            return (sources, t.names.variants.indices, t.entryAccount.count)
        }
        let perTile = max(1, sources.count * variants.count)
        let most = perTile <= 1024 ? entries / perTile : 0
        if tiles.count <= most, let members = tiles.members(), members.count <= most {
            return lookUp(members, listed: tiles.listed, t, sources, variants, body)
        }
        scan(t) { slot in
            let key = t.entries[slot].pointee.key
            guard !key.isResource, sources.contains(Int(key.source)) else { return }
            var place: Int?
            if tiles.contains(PackedTile(z: key.zoom, x: key.column, y: key.row), &place) { body(slot, place) }
        }
    }

    /// Looks up tiles; both lists are in the tiles' order, and all that are listed are among the members.
    private func lookUp(
        _ members: [PackedTile], listed: [PackedTile], _ t: Tables, _ sources: Range<Int>, _ variants: Range<Int>,
        _ body: (UInt32, Int?) -> Void
    ) {
        var (from, next) = (0, 0)
        let slice = max(1, 16384 / max(1, sources.count * variants.count))
        while from < members.count {
            let end = min(from + slice, members.count)
            tables.read { _, _ in
                for tile in members[from..<end] {
                    let isListed = next < listed.count && listed[next] == tile
                    let (z, x, y) = (tile.z, tile.x, tile.y)
                    for source in sources {
                        for variant in variants {
                            let key = PackedKey(source: UInt16(source), z: z, x: x, y: y, variant: UInt16(variant))
                            if let slot = t.find(key) { body(slot, isListed ? next : nil) }
                        }
                    }
                    if isListed { next += 1 }
                }
            }
            from = end
            giveWay()
        }
    }
}
