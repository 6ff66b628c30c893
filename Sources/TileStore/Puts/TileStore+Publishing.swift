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
        guard let folder = try ledger.confirmFolder() else {
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
            blobs.shards.lookAgainIfDue(at: environment.coarseTicks())
            try blobs.shards.prepare(digest.shard)
            if isReplacing, let staged = request.staged { try blobs.syncStaged(staged) }
            if try request.staged != nil || !isMadeInPlace(request) || !makeInPlace(request, digest, folder) {
                // It may have looked live before the lock and is not: evicted meanwhile.
                if request.staged == nil {
                    do throws(FileError) { try stage(&request) } catch { throw StoreError(error, in: files.location) }
                }
                if let staged = request.staged {
                    try blobs.publish(staged, as: digest, folder) { try stageAgain(&request) }
                }
            }
            request.staged = nil
        }
        request.isPublisher = true
        pending.published.insert(digest)
        ledger.unrecorded.putBack(digest)
        memory.remove(digest)
        // Fresh bytes in an old blob's place are checked anew when they are read.
        if tables.read({ t, _ in t.find(digest) != nil }) {
            tables.write { $0.forget(BlobRecord.verified, of: digest) }
        }
        if isReplacing { try blobs.syncIfThere(digest) }
        if isDurable || isReplacing { try blobs.shards.sync(digest.shard) }
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
        guard places.count >= Self.fewestTogether, let folder = try ledger.confirmFolder() else { return false }
        try markUnsynced(ledger)
        blobs.shards.lookAgainIfDue(at: environment.coarseTicks())
        for place in places { if let digest = requests[place].digest { try blobs.shards.prepare(digest.shard) } }
        let (blobs, share) = (blobs, 4)
        // Each place is one share's alone, and all have come back when this returns.
        nonisolated(unsafe) let shared = requests
        let chosen = places
        environment.spread((chosen.count + share - 1) / share) { part in
            for i in chosen[(part * share)..<min(chosen.count, (part + 1) * share)] {
                guard let digest = shared[i].digest, let data = shared[i].data else { continue }
                shared[i].isPlaced = data.withUnsafeBytes { blobs.tryToPlace($0, as: digest, folder) }
            }
        }
        return true
    }

    /// Removes blobs that were written ahead and whose turn did not come, or that were not wanted then.
    func removeUnpublished(
        _ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>, _ ledger: Ledger
    ) {
        for requests in batches {
            for request in requests where request.isPlaced && !request.isPublisher {
                guard let digest = request.digest else { continue }
                // What stays behind is a file that nothing counts, as after a crash.
                try? unlinkUnnamed(CollectionOfOne(digest), ledger)
            }
        }
    }

    // MARK: One

    /// Writes a blob where it belongs; `false` if something is in its place.
    private func makeInPlace(
        _ request: borrowing PutRequest, _ digest: BlobDigest, _ folder: borrowing FolderHold
    ) throws -> Bool {
        guard let data = request.data else { return false }
        return try data.withUnsafeBytes { try blobs.place($0, as: digest, folder) }
    }

    /// A staged file is gone: its folder was removed, or somebody has cleared it.
    ///
    /// - Returns: The path of another one.
    private func stageAgain(_ request: inout PutRequest) throws -> String {
        let gone = request.staged ?? "staging"
        request.staged = nil
        if case .memory = request.bytes { try stage(&request) }
        guard let staged = request.staged else {
            throw StoreError(
                .busy,
                "\(files.location)/\(gone) was removed before \(request.key) was stored, with the cache's folder or by itself; "
                    + "fetch the tile again")
        }
        return staged
    }
}
