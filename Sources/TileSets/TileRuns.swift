import TileStore

/// Tiles as lists write them: kinds once, and stretches of equal neighbours as one run.
///
/// A run is `[key, count, digest, size, kind]`: so many tiles from the key on along its zoom's curve, of one scale and format,
/// with the same bytes. Runs are as long as they can be, so there is one way to write a list.
struct TileRuns {
    private var kinds: [SetKind] = []
    private var numbers: [SetKind: Int] = [:]
    private var runs: [(first: SetTile, count: Int)] = []

    /// How many runs there are.
    var count: Int { runs.count }

    init(_ tiles: some Sequence<SetTile>) {
        var next: SetKey?
        for tile in tiles {
            if let last = runs.last, last.first.isContent(like: tile), next == tile.key {
                runs[runs.count - 1].count += 1
            } else {
                runs.append((tile, 1))
                if numbers[tile.kind] == nil {
                    numbers[tile.kind] = kinds.count
                    kinds.append(tile.kind)
                }
            }
            next = tile.key.advanced(by: 1)
        }
    }

    /// Writes `"kinds":[…]`.
    func writeKinds(_ json: inout CanonicalJSON) {
        json.raw("\"kinds\":")
        json.list(kinds) { json, kind in
            json.list([kind.type, kind.coding]) { $0.optional($1) }
        }
    }

    /// Writes `"runs":[…]`.
    func writeRuns(_ json: inout CanonicalJSON) {
        json.raw("\"runs\":")
        json.list(runs) { json, run in
            json.raw("[")
            json.string(run.first.key.text)
            json.raw(",")
            json.integer(run.count)
            json.raw(",\"")
            json.hex(run.first.blob)
            json.raw("\",")
            json.integer(run.first.size)
            json.raw(",")
            json.integer(numbers[run.first.kind] ?? 0)
            json.raw("]")
        }
    }

    /// Reads runs: keys ascend, each is there once and in range.
    ///
    /// - Parameters:
    ///   - object: What `kinds` and `runs` are members of.
    ///   - most: So many tiles at most.
    /// - Throws: What is wrong.
    static func tiles(_ object: [String: JSONValue], most: Int) throws(Flaw) -> [SetTile] {
        guard let names = object["kinds"]?.array, names.count <= 64, let runs = object["runs"]?.array else {
            throw Flaw("it has no list of kinds or of runs")
        }
        var kinds: [SetKind] = []
        for name in names {
            guard let pair = name.array, pair.count == 2, pair.allSatisfy({ $0 == .null || $0.string != nil }),
                let kind = SetKind(type: pair[0].string, coding: pair[1].string)
            else { throw Flaw("it names a type or a coding that sets do not have") }
            kinds.append(kind)
        }
        var tiles: [SetTile] = []
        tiles.reserveCapacity(min(runs.count, most))
        var last: SetKey?
        for run in runs {
            guard let parts = run.array, parts.count == 5, let text = parts[0].string, let count = parts[1].integer,
                let name = parts[2].string, let size = parts[3].integer, let kind = parts[4].integer
            else { throw Flaw("it has a run that is none") }
            guard let key = SetKey(text) else { throw Flaw("it has a key that is none") }
            guard let blob = BlobDigest(name) else { throw Flaw("tile \(key.text) has no SHA-256") }
            guard (1...Int64(SetBounds.tile)).contains(size) else {
                throw Flaw("tile \(key.text) has \(size) bytes; 1 to \(SetBounds.tile) are possible")
            }
            guard kind >= 0, kind < kinds.count else { throw Flaw("tile \(key.text) has no kind") }
            guard count >= 1, count <= most - tiles.count, key.advanced(by: Int(count) - 1) != nil else {
                throw Flaw("a run of \(count) tiles from \(key.text) on is too long")
            }
            for step in 0..<Int(count) {
                guard let key = key.advanced(by: step) else { break }
                if let last, key <= last { throw Flaw("tile \(key.text) is not in its place, or is there twice") }
                last = key
                tiles.append(SetTile(key: key, blob: blob, size: Int(size), kind: kinds[Int(kind)]))
            }
        }
        return tiles
    }
}

/// What is wrong with a list.
struct Flaw: Error {
    let text: String
    init(_ text: String) { self.text = text }
}

extension CanonicalJSON {
    mutating func hex(_ digest: BlobDigest) { append(digest.description.utf8) }
}
