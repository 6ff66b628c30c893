extension TileStore {
    var hasPendingUses: Bool {
        var found = false
        tables.forEachLocal { if !$0.uses.isEmpty { found = true } }
        return found
    }

    /// Writes down the uses that were noted since the last time: many keys to a line.
    ///
    /// Happens by itself at least every ten seconds, before anything is evicted, and on ``close()``.
    public func flush() throws {
        guard !isReadOnly else { return }
        try hold { try flushUses($0) }
    }

    /// Under the lock.
    func flushUses(_ ledger: Ledger) throws {
        // Nobody replaces the tables during a hold of the lock.
        let current = tables.read { t, _ in t }
        var noted: [PendingUse] = []
        tables.forEachLocal { local in
            if !local.uses.isEmpty { noted += local.uses.take().value(in: current) ?? [] }
        }
        guard !noted.isEmpty else { return }
        let order = UseLog.lastOfEqual(noted)
        // A use counts only if the key still has what was used.
        let (keys, first) = tables.read { t, _ -> ([TileKey], UInt64) in
            var keys: [TileKey] = []
            keys.reserveCapacity(order.count)
            for use in order {
                guard let slot = t.find(use.key) else { continue }
                let blob = t.entries[slot].pointee.blob
                let digest = blob == noSlot ? nil : t.blobs[blob].pointee.digest
                if PendingUse(key: use.key, blob: digest) == use { keys.append(t.key(use.key)) }
            }
            return (keys, t.nextSequence)
        }
        guard !keys.isEmpty, first + UInt64(keys.count) < Tables.recencyEnd else { return }
        var lines = LineBuffer(capacity: 1 << 14)
        let now = environment.now()
        var from = 0
        while from < keys.count {
            let to = min(from + 256, keys.count)
            lines.uses(keys[from..<to], first: first + UInt64(from), at: now)
            from = to
        }
        do { try appendRecords(lines, ledger) } catch {
            // They can be written down later; those that were are known by then and count once more at most.
            var left: [PendingUse]? = order
            tables.forEachLocal { local in
                guard let uses = left else { return }
                left = nil
                // Others may have been noted since; those are later.
                let later = local.uses.take().value(in: current) ?? []
                local.uses.replace(uses + later, in: current)
            }
            throw error
        }
    }

    /// Before puts that may bring an eviction: what this process has used must not be taken for unused.
    func flushIfEvictionIsNear(
        _ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>, _ ledger: Ledger
    ) throws {
        let glance = ledger.glance
        var near = batches.reduce(0) { $0 + $1.count } > glance.entryRoom
        if glance.byteRoom != nil || glance.shareRoom != nil {
            let bytes = batches.reduce(0) { $1.reduce($0) { $0 + allocated($1.size) } }
            near = near || glance.byteRoom.map { bytes > $0 } ?? false
            if !near, let room = glance.shareRoom, bytes > room {
                // Sources of which nothing is stored now lose nothing, unless they hold too much already.
                near =
                    room < 0
                    || tables.read { t, _ in
                        batches.contains { $0.contains { t.shareRoom(of: $0.key).map { bytes > $0 } ?? false } }
                    }
            }
        }
        if near { try flushUses(ledger) }
    }
}
