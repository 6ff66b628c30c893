import Foundation
import Testing
import TileStore
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct PutFromFileTests {
    private let metadata = TileMetadata(
        response: ResponseFields(mediaType: "image/png"), storedAt: Timestamp(seconds: 1_700_000_000),
        expires: Timestamp(seconds: 1_800_000_000))

    @Test func aFileIsStoredAsItIsAndStays() throws {
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path + "/cache")
        let path = folder.path + "/ocean.png"
        let data = Data((0..<70_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })
        try data.write(to: URL(fileURLWithPath: path))
        let key = try TileKey("osm/3/4/5")
        let outcome = try store.put(fileAt: path, for: key, metadata: metadata)
        #expect(outcome == .stored(blob: data.withUnsafeBytes { BlobDigest(hashing: $0) }, newBlob: true))
        // What becomes of the file is nothing to the tile.
        try Data("other".utf8).write(to: URL(fileURLWithPath: path))
        #expect(try store.read(key)?.data == data)
        try store.close()
    }

    @Test(arguments: [0, 256 << 10, (256 << 10) + 1, 3_000_000])
    func aFileOfAnySizeIsStoredWhole(size: Int) throws {
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path + "/cache")
        let path = folder.path + "/ocean.png"
        let data = Data((0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 >> 8) })
        try data.write(to: URL(fileURLWithPath: path))
        let key = try TileKey("osm/3/4/5")
        for isNew in [true, false] {
            let outcome = try store.put(fileAt: path, for: key, metadata: metadata)
            #expect(outcome == .stored(blob: data.withUnsafeBytes { BlobDigest(hashing: $0) }, newBlob: isNew))
        }
        #expect(try store.read(key)?.data == data)
        try store.close()
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path + "/cache/staging") == [])
    }

    @Test(arguments: ["nothing.png", "objects"])
    func aFileThatCannotBeReadIsAnErrorThatNamesIt(name: String) throws {
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path)
        let key = try TileKey("osm/3/4/5")
        let error = #expect(throws: StoreError.self) {
            try store.put(fileAt: folder.path + "/" + name, for: key, metadata: metadata)
        }
        #expect(error?.code == .io && error?.message.contains(name) == true)
        #expect(try store.read(key) == nil)
        try store.close()
    }
}
