#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A blob whose file is missing, of another length, no plain file, or has other bytes.
///
/// Only ``BlobReader/damage(of:size:quick:)`` makes one, so that no other file is set aside.
struct DamagedBlob {
    let digest: BlobDigest
    /// Whether something is in the blob's place.
    let isThere: Bool

    fileprivate init(_ digest: BlobDigest, isThere: Bool) { (self.digest, self.isThere) = (digest, isThere) }
}

/// Reads blobs' files and judges them: this is where it is decided that a blob is damaged.
struct BlobReader: Sendable {
    private let files: any FileSystem
    /// The files that are being read in pieces.
    private let shared = OpenBlobs()

    init(_ files: any FileSystem) { self.files = files }

    /// Blobs of more bytes are looked at before memory is taken for them, since a damaged manifest may say any size; and
    /// where their bytes are not returned, they are read in pieces.
    static var mostAtOnce: Int { 1 << 20 }

    // MARK: Judging

    /// Whether a blob's file is there with the right length, by an `lstat`.
    func isThere(_ digest: BlobDigest, size: Int) throws(FileError) -> Bool {
        guard let status = try files.status(at: digest.path) else { return false }
        return status.kind == .file && status.size == Int64(size)
    }

    /// Whether a blob's file is there and has the blob's bytes.
    ///
    /// - Throws: What the disk or the process's limits answered, which says nothing about the blob.
    func isIntact(_ digest: BlobDigest, size: Int) throws(FileError) -> Bool {
        if size > Self.mostAtOnce { return try openInPlace(digest, size: size, hashes: true) != nil }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size + 1, alignment: 8)
        defer { buffer.deallocate() }
        return try fill(buffer, digest, hashes: true, onlyCached: false)
    }

    /// What is wrong with a blob's file; `nil` if nothing is.
    ///
    /// - Parameter quick: Looks at its length instead of its bytes.
    /// - Throws: As ``isIntact(_:size:)``.
    func damage(of digest: BlobDigest, size: Int, quick: Bool = false) throws(FileError) -> DamagedBlob? {
        // What is reached through a link is not the cache's.
        let shard = String(digest.path.dropLast(digest.path.utf8.count - 10))
        guard try files.status(at: shard)?.kind == .folder else { return DamagedBlob(digest, isThere: false) }
        if try quick ? isThere(digest, size: size) : isIntact(digest, size: size) { return nil }
        return DamagedBlob(digest, isThere: try files.status(at: digest.path) != nil)
    }

    /// Whether a blob's file has the same bytes as some at hand.
    ///
    /// What cannot be read does not.
    func equals(_ data: Data, _ digest: BlobDigest) -> Bool {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: data.count + 1, alignment: 8)
        defer { buffer.deallocate() }
        do throws(FileError) {
            guard try fill(buffer, digest, hashes: false, onlyCached: false) else { return false }
        } catch { return false }
        return data.withUnsafeBytes { bytes in
            guard let mine = bytes.baseAddress, let theirs = buffer.baseAddress else { return bytes.isEmpty }
            return memcmp(mine, theirs, bytes.count) == 0
        }
    }

    // MARK: Reading

    /// Reads a blob's file into memory that has room for one byte more, so that a file that is too long shows without an
    /// fstat; `false` if it is missing, of another length, no plain file, or, where it is hashed, has other bytes.
    @inline(__always)
    func fill(
        _ buffer: UnsafeMutableRawBufferPointer, _ digest: BlobDigest, hashes: Bool, onlyCached: Bool
    ) throws(FileError) -> Bool {
        let count: Int?
        do throws(FileError) {
            count = try digest.withPath { path throws(FileError) in
                onlyCached ? try files.readCachedFile(path, into: buffer) : try files.readFile(path, into: buffer)
            }
        } catch {
            // A link, a folder: something that the store never made is in the blob's place. The rest is the disk's fault.
            if error.isForeignObject { return false }
            throw error
        }
        let size = buffer.count - 1
        guard count == size else { return false }
        return !hashes || BlobDigest(hashing: UnsafeRawBufferPointer(rebasing: buffer[..<size])) == digest
    }

    /// Opens a blob's file for reading in pieces, or shares it with those who read it already; `nil` if it is missing, of another
    /// length, no plain file, or, where it is hashed, has other bytes.
    func open(_ digest: BlobDigest, size: Int, hashes: Bool) throws(FileError) -> BlobFile? {
        if let file = shared.file(digest) {
            if file.size == size, try file.isInPlace() {
                guard hashes else { return file }
                if try file.hashes(to: digest) { return file }
            }
            // Another file is in the blob's place by now, or none, or this one is damaged.
            shared.forget(digest)
        }
        guard let file = try openInPlace(digest, size: size, hashes: hashes) else { return nil }
        return shared.share(file, digest)
    }

    /// Has the next reader open a blob's file anew; those who read it now are not disturbed.
    func forget(_ digest: BlobDigest) { shared.forget(digest) }

    /// How many files are shared.
    var sharedCount: Int { shared.count }

    /// Opens what is in a blob's place now.
    private func openInPlace(_ digest: BlobDigest, size: Int, hashes: Bool) throws(FileError) -> BlobFile? {
        let path = digest.path
        let opened: OpenFile
        do throws(FileError) { opened = try files.open(path, .read) } catch {
            if error.number == Errno.noEntry || error.isForeignObject { return nil }
            throw error
        }
        let status: FileStatus
        do throws(FileError) { status = try files.status(of: opened) } catch {
            files.close(opened)
            throw error
        }
        // It closes the descriptor, whatever comes next.
        let file = BlobFile(files, opened, number: status.number, size: size, path: path)
        guard status.kind == .file, status.size == Int64(size) else { return nil }
        if hashes, try !file.hashes(to: digest) { return nil }
        return file
    }
}
