#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

// Under the lock.
extension TileStore {
    /// Puts a blob in its place.
    func publish(_ request: inout PutRequest, _ pending: PendingRecords, _ ledger: Ledger) throws {
        guard let digest = request.digest else { return }
        guard try ledger.confirmFolder() else {
            throw StoreError(.busy, "\(files.location) was replaced while a tile was put into it; try again")
        }
        if request.looksNew, !request.isPlaced, let check = blobCheck(digest) {
            // Another process has put it since: its file is looked at like that of any live blob.
            request.looksNew = false
            do throws(FileError) { try provide(&request, digest, check, environment.coarseTicks()) } catch {
                throw StoreError(error, in: files.location)
            }
            guard request.staged != nil else { return }
        }
        if !isDurable { try markUnsynced(ledger) }
        // A durable store may have synced the file that is replaced, and counts on that: its successor is synced too.
        let isReplacing = !isDurable && tables.read { t, _ in t.find(digest) != nil }
        if !request.isPlaced {
            try prepareShard(digest.shard)
            if isReplacing, let staged = request.staged { try syncIfThere(staged) }
            if try request.staged != nil || !isMadeInPlace(request) || !makeInPlace(request, digest) {
                // It may have looked live before the lock and is not: evicted meanwhile.
                if request.staged == nil {
                    do throws(FileError) { try stage(&request) } catch { throw StoreError(error, in: files.location) }
                }
                try moveStaged(&request, digest)
            }
            request.staged = nil
        }
        request.isPublisher = true
        pending.published.insert(digest)
        if !ledger.unrecorded.isEmpty { ledger.unrecorded.remove(digest) }
        memory.remove(digest)
        // Fresh bytes in an old blob's place are checked anew when they are read.
        if tables.read({ t, _ in t.find(digest) != nil }) {
            tables.write { t in
                if let slot = t.find(digest) { t.blobs.change(slot).pointee.flags &= ~BlobRecord.verified }
            }
        }
        if isReplacing { try syncIfThere(digest.path) }
        if isDurable || isReplacing { try files.syncFolder(ShardSet.path(digest.shard)) }
        if isDurable { noteSynced(digest) }
    }

    // MARK: Many at once

    /// Requests that are worth looking at together for blobs to write.
    static var fewestTogether: Int { 4 }
    static var mostTogether: Int { 256 }

    /// Writes the new blobs of some requests where they belong, with all processors.
    ///
    /// Making a file is the kernel's work for the most part, and in two folders it does it at the same time. What fails is
    /// tried again when its turn comes, and then says why.
    ///
    /// - Returns: Whether any were written.
    func placeAhead(
        _ requests: UnsafeMutableBufferPointer<PutRequest>, _ range: Range<Int>, _ pending: PendingRecords,
        _ ledger: Ledger
    ) throws -> Bool {
        guard !isDurable else { return false }
        var places: [Int] = []
        var brought: Set<BlobDigest> = []
        tables.read { t, _ in
            for i in range {
                // Only the first that brings a blob writes it ahead. Where an earlier one brings it as a staged file, the blob may
                // have been recorded and have gone again before a later one's turn.
                guard let digest = requests[i].digest, t.find(digest) == nil, !pending.published.contains(digest),
                    brought.insert(digest).inserted, requests[i].staged == nil, isMadeInPlace(requests[i])
                else { continue }
                places.append(i)
            }
        }
        guard places.count >= Self.fewestTogether, try ledger.confirmFolder() else { return false }
        try markUnsynced(ledger)
        for place in places { if let digest = requests[place].digest { try prepareShard(digest.shard) } }
        let (files, share) = (files, 4)
        // Each place is one share's alone, and all have come back when this returns.
        nonisolated(unsafe) let shared = requests
        let chosen = places
        environment.spread((chosen.count + share - 1) / share) { part in
            for i in chosen[(part * share)..<min(chosen.count, (part + 1) * share)] {
                guard let digest = shared[i].digest, let data = shared[i].data else { continue }
                shared[i].isPlaced = data.withUnsafeBytes { bytes in
                    do throws(FileError) { try files.createFile(digest.path, bytes, sync: false) } catch {
                        return false
                    }
                    return true
                }
            }
        }
        return true
    }

    /// Removes blobs that were written ahead and whose turn did not come, or that were not wanted then.
    func removeUnpublished(_ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>) {
        for requests in batches {
            for request in requests where request.isPlaced && !request.isPublisher {
                guard let digest = request.digest, !tables.read({ t, _ in t.find(digest) != nil }) else { continue }
                // What stays behind is a file that nothing counts, as after a crash.
                _ = try? files.unlink(digest.path)
            }
        }
    }

    // MARK: One

    /// Writes a blob where it belongs.
    ///
    /// Nobody looks for it there before its record stands. Who is killed meanwhile leaves a part of it, as a file that
    /// nothing counts.
    ///
    /// - Returns: `false` if something is in its place.
    private func makeInPlace(_ request: borrowing PutRequest, _ digest: BlobDigest) throws -> Bool {
        guard let data = request.data else { return false }
        for isLast in [false, true] {
            let failure = data.withUnsafeBytes { bytes -> FileError? in
                do throws(FileError) { try files.createFile(digest.path, bytes, sync: false) } catch { return error }
                return nil
            }
            guard let failure else { return true }
            if failure.number == Errno.exists { return false }
            guard failure.number == Errno.noEntry, !isLast else { throw StoreError(failure, in: files.location) }
            try forgetShards(digest.shard)
        }
        return false
    }

    /// Syncs a file; one that is gone is for the next step to notice.
    private func syncIfThere(_ path: String) throws {
        do throws(FileError) {
            let file = try files.open(path, .read)
            defer { files.close(file) }
            try files.sync(file)
        } catch {
            guard error.number == Errno.noEntry else { throw error }
        }
    }

    /// Renames what was staged to its place.
    private func moveStaged(_ request: inout PutRequest, _ digest: BlobDigest) throws {
        guard let staged = request.staged else { return }
        let path = digest.path
        do throws(FileError) {
            try files.rename(staged, to: path)
            return
        } catch {
            if error.number == Errno.noEntry {
                try forgetShards(digest.shard)
                if try files.status(at: staged) == nil { try stageAgain(&request) }
            } else if let status = try files.status(at: path), status.kind == .folder {
                try quarantine(path)
            } else {
                throw error
            }
        }
        if let staged = request.staged { try files.rename(staged, to: path) }
    }

    /// A staged file is gone: its folder was removed, or somebody has cleared it.
    private func stageAgain(_ request: inout PutRequest) throws {
        request.staged = nil
        if case .staged(let file) = request.bytes {
            throw StoreError(
                .busy,
                "\(files.location)/\(file.path) was removed before \(request.key) was stored, with the cache's folder or by "
                    + "itself; fetch the tile again")
        }
        try stage(&request)
    }

    /// Makes a shard's folder again that went away: a purge, a person.
    private func forgetShards(_ shard: UInt8) throws {
        shards.withLock { $0 = ShardSet() }
        try prepareShard(shard)
    }
}
