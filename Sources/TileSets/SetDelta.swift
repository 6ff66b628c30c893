package import TileStore

/// What changes one list into another: keys that go, and tiles that come or have other bytes.
///
/// Nobody has to believe one: what it makes of the old list either has the new root or has not.
package struct SetDelta: Hashable, Sendable {
    package let from: BlobDigest
    package let to: BlobDigest
    /// In their order.
    package let removed: [SetKey]
    /// In the order of their keys.
    package let changed: [SetTile]

    package init(from: BlobDigest, to: BlobDigest, removed: [SetKey], changed: [SetTile]) {
        self.from = from
        self.to = to
        self.removed = removed
        self.changed = changed
    }

    /// Compares two lists; both are in order.
    ///
    /// What both have alike may be left out of both.
    package init(from: BlobDigest, _ old: [SetTile], to: BlobDigest, _ new: [SetTile]) {
        var removed: [SetKey] = []
        var changed: [SetTile] = []
        var i = 0
        for tile in new {
            while i < old.count, old[i].key < tile.key {
                removed.append(old[i].key)
                i += 1
            }
            if i < old.count, old[i].key == tile.key {
                if !old[i].isContent(like: tile) { changed.append(tile) }
                i += 1
            } else {
                changed.append(tile)
            }
        }
        removed.append(contentsOf: old[i...].map(\.key))
        self.init(from: from, to: to, removed: removed, changed: changed)
    }

    /// This one and then another one, as one.
    package func followed(by next: SetDelta) -> SetDelta {
        var removed = Set(removed)
        var changed = Dictionary(uniqueKeysWithValues: changed.map { ($0.key, $0) })
        for key in next.removed {
            changed[key] = nil
            removed.insert(key)
        }
        for tile in next.changed {
            removed.remove(tile.key)
            changed[tile.key] = tile
        }
        return SetDelta(
            from: from, to: next.to, removed: removed.sorted(), changed: changed.values.sorted { $0.key < $1.key })
    }

    /// The list that it makes of another one, which is in order.
    package func applied(to tiles: [SetTile]) -> [SetTile] {
        var result: [SetTile] = []
        result.reserveCapacity(tiles.count + changed.count)
        var (gone, next) = (0, 0)
        for tile in tiles {
            while next < changed.count, changed[next].key < tile.key {
                result.append(changed[next])
                next += 1
            }
            if next < changed.count, changed[next].key == tile.key { continue }
            while gone < removed.count, removed[gone] < tile.key { gone += 1 }
            if gone < removed.count, removed[gone] == tile.key { continue }
            result.append(tile)
        }
        result.append(contentsOf: changed[next...])
        return result
    }

    /// Its canonical JSON; `nil` if it is larger than a delta may be.
    package var encoded: [UInt8]? {
        let runs = TileRuns(changed)
        guard runs.count + removed.count <= SetBounds.changes, changed.count <= SetBounds.changes else { return nil }
        var json = CanonicalJSON()
        json.raw("{\"from\":\"")
        json.hex(from)
        json.raw("\",")
        runs.writeKinds(&json)
        json.raw(",\"removed\":")
        json.list(removed) { $0.string($1.text) }
        json.raw(",")
        runs.writeRuns(&json)
        json.raw(",\"to\":\"")
        json.hex(to)
        json.raw("\"}")
        return json.bytes.count <= SetBounds.delta ? json.bytes : nil
    }

    /// Reads a delta.
    ///
    /// - Throws: ``SetError``.
    package init(_ bytes: [UInt8]) throws {
        do throws(Flaw) { self = try Self.read(bytes) } catch {
            throw SetError(.damaged, "delta \(bytes.digest) of the set is wrong: \(error.text)")
        }
    }

    private static func read(_ bytes: [UInt8]) throws(Flaw) -> SetDelta {
        guard let object = bytes.json?.object, let from = object["from"]?.string.flatMap({ BlobDigest($0) }),
            let to = object["to"]?.string.flatMap({ BlobDigest($0) }), let names = object["removed"]?.array,
            names.count <= SetBounds.changes
        else { throw Flaw("it does not say from where to where it leads, or what goes") }
        var removed: [SetKey] = []
        for name in names {
            guard let key = name.string.flatMap({ SetKey($0) }), removed.last.map({ $0 < key }) ?? true else {
                throw Flaw("it removes a key that is none, or is not in its place")
            }
            removed.append(key)
        }
        let changed = try TileRuns.tiles(object, most: SetBounds.changes)
        let delta = SetDelta(from: from, to: to, removed: removed, changed: changed)
        guard delta.encoded == bytes else { throw Flaw("it is not written in the one form that deltas have") }
        return delta
    }
}
