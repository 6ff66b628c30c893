// What follows when a blob is found to be damaged: `BlobReader` says whether it is.
extension TileStore {
    /// A blob could not be read: confirms it under the lock, drops it with all its entries, puts the file aside.
    func settleDamage(_ digest: BlobDigest) throws {
        guard !isReadOnly else { return }
        try hold { ledger in
            guard let size = tables.read({ t, _ in t.find(digest).map { Int(t.blobs[$0].pointee.size) } }),
                let damaged = try blobs.reader.damage(of: digest, size: size)
            else { return }
            try drop(damaged, ledger)
        }
    }

    /// Drops a damaged blob with all its entries and puts its file aside.
    ///
    /// Under the lock.
    func drop(_ damaged: DamagedBlob, _ ledger: Ledger) throws {
        guard let folder = try ledger.confirmFolder() else { return }
        memory.remove(damaged.digest)
        blobs.forget(damaged.digest)
        var lines = LineBuffer(capacity: 256)
        lines.drop(damaged.digest)
        do throws(AppendFailure) { try ledger.append(lines, .live(tables)) } catch {
            // The record can wait: without its file the blob is a miss, and the next reader tries again.
            guard error.cause.isFull else { throw error }
        }
        try blobs.setAside(damaged, folder)
        forgetReleased(ledger)
    }
}
