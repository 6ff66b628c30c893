import Foundation
import Testing
import TileStore
import TileStoreTesting

/// One system call reads less than 2 GiB, and a blob may have 4 GiB.
///
/// Here a call reads 1,000 bytes.
@Suite(.timeLimit(.minutes(30)), .ownCores)
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
}
