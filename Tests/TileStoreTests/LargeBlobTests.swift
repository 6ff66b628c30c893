import Foundation
import Testing
import TileStore
import TileStoreTesting

/// One system call reads less than 2 GiB, and a blob may have 4 GiB.
///
/// Here a call reads 1,000 bytes.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct LargeBlobTests {
    private static let sizes = [0, 1, 999, 1000, 1001, 1999, 2000, 2001, 3500]

    @Test(arguments: sizes)
    func aFileThatTakesSeveralReadsIsReadWhole(size: Int) throws {
        let folder = TemporaryFolder()
        try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
        let files = DiskFileSystem(location: folder.path, mostAtOnce: 1000)
        let bytes = (0..<size).map { UInt8(truncatingIfNeeded: $0 / 7) }
        try bytes.withUnsafeBytes { try files.createFile("blob", $0, sync: false) }
        // Of a file that is too long as much as there is room for, so that it shows.
        for room in [size + 1, size + 2000, max(1, size)] {
            var buffer = [UInt8](repeating: 0, count: room)
            let count = try "blob".withCString { path in
                try buffer.withUnsafeMutableBytes { try files.readFile(path, into: $0) }
            }
            #expect(count == size, "room for \(room)")
            #expect(Array(buffer.prefix(size)) == bytes, "room for \(room)")
        }
    }

    @Test(arguments: sizes)
    func aBlobThatTakesSeveralReadsIsNoDamage(size: Int) throws {
        let folder = TemporaryFolder()
        let lab = try Lab()
        let store = try TileStore(
            environment: lab.clock.environment(DiskFileSystem(location: folder.path, mostAtOnce: 1000)),
            configuration: Lab.plain)
        let bytes = lab.bytes(1, size: size)
        try store.put(bytes, for: lab.key(1), metadata: lab.metadata())
        #expect(try store.read(lab.key(1))?.data == bytes)
        #expect(try store.verify().ok)
        #expect(try store.entry(for: lab.key(1))?.size == size)
        try store.close()
    }

    /// Damage of a large blob was confirmed with all of it in memory, under the lock.
    @Test func aLargeBlobIsCheckedInPieces() throws {
        let lab = try Lab()
        let size = 5_000_000
        let bytes = lab.bytes(1, size: size)
        let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
        let most = 1 << 20
        try lab.store.put(bytes, for: lab.key(1), metadata: lab.metadata())
        try lab.reopen()
        _ = lab.files.takeGreatestRead()
        try lab.store.put(bytes, for: lab.key(2), metadata: lab.metadata())
        #expect((1...most).contains(lab.files.takeGreatestRead()), "a put of bytes that are there")
        #expect(try lab.store.verify().ok)
        #expect((1...most).contains(lab.files.takeGreatestRead()), "a check")
        guard case .file(let file) = try lab.store.open(lab.key(1), wholeUpTo: 1000)?.body else {
            Issue.record("not opened as a file")
            return
        }
        lab.disk.corrupt(digest.path) { $0[size / 2] ^= 1 }
        #expect(try lab.store.open(lab.key(1), wholeUpTo: 1000) == nil)
        #expect((1...most).contains(lab.files.takeGreatestRead()), "damage")
        #expect(try lab.store.entry(for: lab.key(2)) == nil)
        // Who has it open goes on reading, though it has been removed.
        var piece = [UInt8](repeating: 0, count: 100)
        try piece.withUnsafeMutableBytes { try file.read(into: $0, at: size - 100) }
        #expect(piece.elementsEqual(bytes.suffix(100)))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A blob's open file can be read to its end after the blob was evicted, replaced or put into quarantine")
    func anOpenFileOutlivesItsBlob() throws {
        let folder = TemporaryFolder()
        var configuration = Lab.plain
        configuration.digestCheck = .first
        let store = try TileStore(at: folder.path, configuration: configuration)
        let metadata = TileMetadata(storedAt: Timestamp(seconds: 1), expires: Timestamp(seconds: 2))
        let key = try TileKey("a/9/0/0")
        let bytes = Data((0..<600_000).map { UInt8(truncatingIfNeeded: $0 &* 13) })
        let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
        for end in 0..<3 {
            try store.put(bytes, for: key, metadata: metadata)
            // Hashed by the first opening, so that the second one need not wait.
            _ = try store.open(key, wholeUpTo: 1000)
            guard case .tile(let tile) = try store.openNow(key, wholeUpTo: 1000), case .file(let file) = tile.body
            else {
                Issue.record("end \(end): not opened at once")
                return
            }
            switch end {
            case 0: _ = try store.evict(toBytes: 0)
            case 1: try store.put(Data([1]), for: key, metadata: metadata)
            default:
                // Another file in its place, which is found to be damaged.
                let path = folder.path + "/" + digest.path
                try FileManager.default.removeItem(atPath: path)
                try Data(count: 600_000).write(to: URL(fileURLWithPath: path))
                let other = try TileStore(at: folder.path, configuration: configuration)
                #expect(try other.open(key, wholeUpTo: 1000) == nil)
                try other.close()
                try store.catchUp()
                #expect(try store.read(key) == nil)
            }
            #expect(!FileManager.default.fileExists(atPath: folder.path + "/" + digest.path))
            var piece = [UInt8](repeating: 0, count: 250_000)
            for from in [350_000, 0] {
                let isThere = piece.withUnsafeMutableBytes { file.readNow(into: $0, at: from) }
                if !isThere { try piece.withUnsafeMutableBytes { try file.read(into: $0, at: from) } }
                #expect(piece.elementsEqual(bytes[from..<(from + 250_000)]), "end \(end)")
            }
        }
        try store.close()
    }
}
