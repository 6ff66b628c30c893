#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

// Before the lock.
extension TileStore {
    /// The most bytes that a blob may have.
    static var largestBlob: Int { Int(UInt32.max) - 1 }

    @inline(__always)
    func check(_ metadata: borrowing TileMetadata, size: Int) throws {
        var length = 0
        if case .text(let text) = metadata.tag { length = text.utf8.count }
        guard size <= Self.largestBlob, length <= TagBytes.longest, metadata.response.storage.isStorable else {
            throw refusal(copy metadata, size, tagLength: length)
        }
    }

    private func refusal(_ metadata: TileMetadata, _ size: Int, tagLength: Int) -> StoreError {
        if size > Self.largestBlob {
            return StoreError(.invalidValue, "a blob of \(size) bytes is too large; the most is 4 GiB - 2")
        }
        if tagLength > TagBytes.longest {
            return StoreError(.invalidValue, "an ETag of more than \(TagBytes.longest) bytes cannot be kept")
        }
        let response = metadata.response
        if !(200...599).contains(response.status) {
            return StoreError(.invalidValue, "status \(response.status) is not final (200 to 599)")
        }
        let (length, most) = (response.storage.length, ResponseFields.Storage.longest)
        return StoreError(
            .invalidValue, "response fields of \(length) bytes cannot be kept; the most is \(most)")
    }

    /// Hashes, and stages what is to be staged.
    func prepare(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        try hash(requests)
        _ = try stage(requests, known: [])
    }

    /// Refuses what cannot be stored, and hashes the rest.
    func hash(_ requests: UnsafeMutableBufferPointer<PutRequest>) throws {
        for i in requests.indices {
            try check(requests[i].metadata, size: requests[i].size)
            guard !isReadOnly else {
                throw StoreError(
                    .readOnly, "\(files.location) is open for reading alone; \(requests[i].key) cannot be stored")
            }
            if case .memory(let data) = requests[i].bytes, requests[i].digest == nil {
                requests[i].digest = data.withUnsafeBytes { BlobDigest(hashing: $0) }
            }
        }
    }

    /// Stages the bytes of those whose blob does not look live (its file is there and of the right length), unless they are
    /// to be written where they belong.
    ///
    /// - Parameter known: Blobs that will be live by then. One that is not after all is written under the lock.
    /// - Returns: The blobs of these requests that will be.
    func stage(
        _ requests: UnsafeMutableBufferPointer<PutRequest>, known: [Set<BlobDigest>]
    ) throws -> Set<BlobDigest> {
        var ready: Set<BlobDigest> = []
        let now = environment.coarseTicks()
        var last: BlobDigest?
        for i in requests.indices {
            // Equal ones often follow each other.
            guard let digest = requests[i].digest, digest != last else { continue }
            last = digest
            if known.contains(where: { $0.contains(digest) }) { continue }
            let check = blobCheck(digest)
            let isVouched = check != nil && blobs.isVouched(digest, at: now)
            if !isVouched, ready.insert(digest).inserted {
                do throws(FileError) { try provide(&requests[i], digest, check, now) } catch {
                    guard error.number == Errno.noEntry else { throw StoreError(error, in: files.location) }
                    // The folder itself is gone: the one in its place is entered under the lock.
                    try hold { _ in }
                    do throws(FileError) { try provide(&requests[i], digest, blobCheck(digest), now) } catch {
                        throw StoreError(error, in: files.location)
                    }
                }
            }
        }
        return ready
    }

    /// What the tables say of a live blob's file; `nil` if the blob does not look live.
    func blobCheck(_ digest: BlobDigest) -> BlobCheck? {
        tables.read { t, _ in
            t.find(digest).map { BlobCheck(isVerified: t.blobs[$0].pointee.isVerified, tables: t.number) }
        }
    }

    /// Sees to it that a blob's bytes are in its place, or staged, or noted as to be written.
    ///
    /// - Parameter check: What the tables say of the blob; `nil` if it does not look live.
    func provide(
        _ request: inout PutRequest, _ digest: BlobDigest, _ check: BlobCheck?, _ now: UInt64
    ) throws(FileError) {
        if let check, try isThere(request, digest, check) {
            blobs.vouch(for: digest, at: now)
        } else if check != nil || !isMadeInPlace(request) {
            // Where readers may look for a blob it has to be whole from its first moment on.
            try stage(&request)
        } else {
            request.looksNew = true
        }
    }

    /// Whether a live blob's file is there and right: where a read would hash it, it is compared with the bytes at hand, or
    /// hashed where these are many or in a file.
    ///
    /// Otherwise the put would rely on a damaged file, and the next read would find a miss.
    private func isThere(
        _ request: PutRequest, _ digest: BlobDigest, _ check: BlobCheck
    ) throws(FileError) -> Bool {
        guard try blobs.reader.isThere(digest, size: request.size) else { return false }
        guard needsCheck(check) else { return true }
        guard let data = request.data, request.size <= BlobReader.mostAtOnce else {
            // A blob that cannot be read is written anew.
            do throws(FileError) { return try openBlob(digest, size: request.size, check) != nil } catch {
                return false
            }
        }
        guard blobs.reader.equals(data, digest) else { return false }
        if !check.isVerified { markVerified(digest, in: check.tables) }
        return true
    }

    /// Whether a new blob of this size is written where it belongs, under the lock: a name in `staging/` first, and another one
    /// afterwards, cost as much as the file itself.
    ///
    /// Not where writing takes long, as then the others would wait for it.
    @inline(__always)
    func isMadeInPlace(_ request: borrowing PutRequest) -> Bool {
        guard !isDurable, request.size <= 1 << 17 else { return false }
        if case .staged = request.bytes { return false }
        return true
    }

    /// Sees to it that a file in `staging/` can be renamed to the blob's place; in durable mode it is synced.
    func stage(_ request: inout PutRequest) throws(FileError) {
        switch request.bytes {
        case .none: return
        case .staged(let file):
            if isDurable { try file.sync() }
            request.staged = file.path
        case .memory(let data):
            request.staged = try blobs.staging.write(data, sync: isDurable)
        }
    }

    /// Removes what was staged and has not been put in place.
    func discard(_ requests: UnsafeMutableBufferPointer<PutRequest>) {
        for i in requests.indices {
            if case .staged(let file) = requests[i].bytes {
                if requests[i].isPublisher { file.release() } else { file.discard() }
                requests[i].staged = nil
                continue
            }
            guard let staged = requests[i].staged else { continue }
            requests[i].staged = nil
            blobs.staging.discard(staged)
        }
    }
}
