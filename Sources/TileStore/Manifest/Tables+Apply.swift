extension Tables {
    /// What a line did to the tables.
    enum Applied: Equatable {
        case done
        case rotate(UInt64)
        case header
        case end(Int)
        /// Not a line that this program could have written here.
        case damaged
    }

    /// Carries out one line without its checksum, which was right.
    ///
    /// Doing it twice changes nothing: records are absolute.
    ///
    /// - Parameter inCheckpoint: Whether the line stands in a checkpoint, whose definitions do not count for the journal.
    @inline(__always)
    func apply(_ body: UnsafeRawBufferPointer, _ reader: borrowing LineReader, inCheckpoint: Bool = false) -> Applied {
        var put = PutLine()
        if reader.readPut(body, &put) { return apply(put) ? .done : .damaged }
        return applyAny(body, reader, inCheckpoint)
    }

    private func applyAny(
        _ body: UnsafeRawBufferPointer, _ reader: borrowing LineReader, _ inCheckpoint: Bool
    ) -> Applied {
        var keys: [UnsafeRawBufferPointer] = []
        if let change = reader.readKeys(body, into: &keys) {
            apply(change, to: keys)
            return .done
        }
        guard let line = reader.readAny(body) else { return .damaged }
        if case .put(let put) = line { return apply(put) ? .done : .damaged }
        return applyRare(line, inCheckpoint)
    }

    /// Enters the state of a key; `false` if it cannot be one.
    @inline(__always)
    func apply(_ put: PutLine) -> Bool {
        guard let key = packed(put.key), let set = sets.slot(put.set), isPlausible(put.recency) else {
            return false
        }
        return self.put(
            key,
            NewState(
                blob: put.blob, size: put.size, set: set, details: put.details, storedAt: put.storedAt,
                expires: put.expires, recency: put.recency, lastUsed: put.lastUsed ?? put.storedAt))
    }

    /// Carries out what a line says of some keys; what is no key, or not there, is passed over.
    private func apply(_ change: LineReader.KeysChange, to keys: [UnsafeRawBufferPointer]) {
        for text in keys {
            guard let key = known(text) else { continue }
            switch change {
            case .gone: remove(key)
            case .expire(let time): if let slot = find(key) { expire(slot, at: time) }
            }
        }
    }

    private func applyRare(_ line: ManifestLine, _ inCheckpoint: Bool) -> Applied {
        switch line {
        case .put: return .damaged
        case .set(let number, let fields): sets.define(number, fields, current: !inCheckpoint)
        case .gone(let keys):
            for key in keys { if let packed = known(key) { remove(packed) } }
        case .drop(let digest): drop(digest)
        case .uses(let keys, let first, let time):
            guard isPlausible(first), UInt64(keys.count) <= Self.recencyEnd - first else { return .damaged }
            for (i, key) in keys.enumerated() {
                nextSequence = max(nextSequence, first + UInt64(i) + 1)
                if let packed = known(key), let slot = find(packed) { use(slot, first + UInt64(i), at: time) }
            }
        case .expire(let keys, let time):
            for key in keys { if let packed = known(key), let slot = find(packed) { expire(slot, at: time) } }
        case .region(let region): setRegion(region.name, region)
        case .regionGone(let name): setRegion(name, nil)
        case .limits(let limits): self.limits = limits
        case .boot(let id): boot = id
        case .blobRecency(let digest, let recency):
            guard isPlausible(recency) else { return .damaged }
            remember(digest, recency)
        case .rotate(let next): return .rotate(next)
        case .journalHeader: return .header
        case .end(let count): return .end(count)
        }
        return .done
    }

    /// The packed form of a key's text, its names entered if they are new; `nil` if the text is no key.
    @inline(__always)
    func packed(_ key: KeyText) -> PackedKey? {
        guard let source = names.enter(lineSource: key.source) else { return nil }
        guard let tile = key.tile else { return packedResource(key.text, source) }
        guard let variant = names.enter(variant: tile.scale, tile.format) else { return nil }
        return PackedKey(source: source, z: tile.z, x: tile.x, y: tile.y, variant: variant)
    }

    /// Rare and long: checked by the ordinary parser.
    private func packedResource(_ text: UnsafeRawBufferPointer, _ source: UInt16) -> PackedKey? {
        guard let key = try? TileKey(utf8: text), case .resource(let resource) = key.address else { return nil }
        guard let number = names.enter(resource: resource.text, source) else { return nil }
        return PackedKey(position: PackedKey.resourceZoom << 56 | number, source: source, variant: 0)
    }

    /// The packed form of a key, its names entered if they are new; `nil` if there is no room for them.
    func entering(_ key: TileKey) -> PackedKey? {
        if let known = packed(key) { return known }
        guard bound(beyond: key, nil, needsEntry: false, needsBlob: false) == nil else { return nil }
        return Array(key.description.utf8).withUnsafeBytes { KeyText($0).flatMap { packed($0) } }
    }

    /// The packed form of a key's text if such an entry can exist.
    private func known(_ text: String) -> PackedKey? { (try? TileKey(text)).flatMap { packed($0) } }

    /// The same for bytes of a line.
    private func known(_ text: UnsafeRawBufferPointer) -> PackedKey? {
        guard let key = KeyText(text) else { return nil }
        guard let tile = key.tile else { return known(String(decoding: text, as: UTF8.self)) }
        guard let source = names.known(lineSource: key.source),
            let variant = names.known(variant: tile.scale, tile.format)
        else { return nil }
        return PackedKey(source: source, z: tile.z, x: tile.x, y: tile.y, variant: variant)
    }
}
