import TileStore

/// What somebody asks to be purged: the body of a request to `/_tileproxy/purge`.
///
/// A field that nobody knows is refused: a condition with a typing mistake in its name would else be no condition. So is one that is
/// there twice, of which only one would count.
struct PurgeRequest: Sendable {
    /// The source, or the upstream, by its name.
    var source: SourceName
    /// Only these zooms.
    var zooms: ClosedRange<Int>?
    /// Only what this box touches.
    var box: GeoBox?
    /// Only these tiles.
    var tiles: TileSet?
    /// Whether entries are removed; else they are marked stale.
    var removes = false

    /// Why a body is none, naming the field.
    struct Mistake: Error, Equatable {
        var message: String
    }

    private static let fields = ["source", "zooms", "bbox", "tiles", "remove"]

    /// Reads a body.
    init(json bytes: UnsafeRawBufferPointer) throws(Mistake) {
        var duplicate: String?
        guard let members = JSONValue(bytes, depth: 4, duplicate: &duplicate)?.object else {
            throw Mistake(message: "The body is no JSON object.")
        }
        if let duplicate { throw Mistake(message: "The field \(quoted(duplicate)) is there twice") }
        for name in members.keys.sorted() where !Self.fields.contains(name) {
            let near = Self.fields.min { distance($0, name) < distance($1, name) }
            let hint = near.flatMap { distance($0, name) <= 2 ? "; did you mean \"\($0)\"?" : nil } ?? ""
            throw Mistake(message: "There is no field \(quoted(name))\(hint)")
        }
        guard let name = members["source"]?.string else {
            throw Mistake(message: "source: expected the name of a source or an upstream")
        }
        do { source = try SourceName(name) } catch { throw Self.mistake("source", error) }
        if let value = members["zooms"] { zooms = try Self.zooms(value) }
        if let value = members["bbox"] { box = try Self.box(value) }
        if let value = members["tiles"] { tiles = try Self.tiles(value, source) }
        if let value = members["remove"] {
            guard case .bool(let removes) = value else { throw Mistake(message: "remove: expected true or false") }
            self.removes = removes
        }
    }

    private static func mistake(_ field: String, _ error: any Error) -> Mistake {
        Mistake(message: "\(field): \((error as? StoreError)?.message ?? "\(error)")")
    }

    private static func zooms(_ value: JSONValue) throws(Mistake) -> ClosedRange<Int> {
        let zooms =
            value.string.flatMap { ConfigValue.zooms($0) } ?? value.integer.flatMap { ConfigValue.zooms("\($0)") }
        guard let zooms else { throw Mistake(message: "zooms: expected \"0-14\" or \"7\", within 0 to 28") }
        return zooms
    }

    private static func box(_ value: JSONValue) throws(Mistake) -> GeoBox {
        let edges = (value.array ?? []).compactMap(\.double)
        guard value.array?.count == 4, edges.count == 4 else {
            throw Mistake(message: "bbox: expected [west, south, east, north] in degrees")
        }
        do {
            return try GeoBox(west: edges[0], south: edges[1], east: edges[2], north: edges[3])
        } catch { throw mistake("bbox", error) }
    }

    private static func tiles(_ value: JSONValue, _ source: SourceName) throws(Mistake) -> TileSet {
        guard let items = value.array else { throw Mistake(message: "tiles: expected a list of \"z/x/y\"") }
        var tiles: [PackedTile] = []
        tiles.reserveCapacity(items.count)
        for (number, item) in items.enumerated() {
            // Each is read as a list of its own, which has one line.
            guard var text = item.string, !text.utf8.contains(0x0A) else {
                throw Mistake(message: "tiles[\(number)]: expected \"z/x/y\"")
            }
            var reader = TileListReader(source: source.description)
            let before = tiles.count
            do throws(TileListError) {
                let read = text.withUTF8 { bytes in
                    Result { () throws(TileListError) in
                        try reader.read(UnsafeRawBufferPointer(bytes), into: &tiles)
                        try reader.finish(into: &tiles)
                    }
                }
                try read.get()
            } catch { throw Mistake(message: "tiles[\(number)]: \(error.message)") }
            guard tiles.count == before + 1 else { throw Mistake(message: "tiles[\(number)]: expected \"z/x/y\"") }
        }
        var builder = TileSetBuilder()
        do throws(StoreError) {
            try builder.insert(tiles)
            return try builder.set()
        } catch { throw mistake("tiles", error) }
    }

    /// The same for the store.
    var selection: EntrySelection {
        var selection = EntrySelection()
        selection.source = source
        selection.zooms = zooms
        selection.box = box
        selection.tiles = tiles
        return selection
    }
}
