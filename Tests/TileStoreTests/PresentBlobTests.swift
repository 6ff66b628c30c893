import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Entries that are recorded by the names of blobs that are there.
struct PresentBlobTests {
    private func metadata(_ lab: Lab, type: String = "image/png") -> TileMetadata {
        TileMetadata(
            response: ResponseFields(mediaType: type), storedAt: lab.clock.now,
            expires: lab.clock.now.adding(seconds: 60))
    }

    @Test func anEntryIsRecordedByItsBlobsName() throws {
        let lab = try Lab()
        try lab.store.put(lab.bytes(1), for: lab.key(1), metadata: metadata(lab))
        try lab.store.put(lab.bytes(2), for: lab.key(2), metadata: metadata(lab))
        let blob = try #require(try lab.store.entry(for: lab.key(1))?.blob)
        let tiles = [lab.key(2), lab.key(3)].map {
            PresentBlob(key: $0, blob: blob, size: 1000, metadata: metadata(lab, type: "image/webp"))
        }
        #expect(try lab.store.record(present: tiles).isEmpty)
        for key in [lab.key(2), lab.key(3)] {
            let tile = try #require(try lab.store.read(key))
            #expect(tile.data == lab.bytes(1))
            #expect(tile.entry.metadata.response.mediaType == "image/webp")
        }
        #expect(try lab.store.references(to: blob) == 3)
        // The blob that nothing names any more is gone.
        #expect(try lab.store.statistics().blobs == 1)
        try lab.reopen()
        #expect(try lab.store.read(lab.key(3))?.data == lab.bytes(1))
        #expect(try lab.store.verify().ok)
    }

    @Test func whatIsNotThereIsHandedBack() throws {
        let lab = try Lab()
        try lab.store.put(lab.bytes(1), for: lab.key(1), metadata: metadata(lab))
        let blob = try #require(try lab.store.entry(for: lab.key(1))?.blob)
        let unknown = lab.bytes(9).withUnsafeBytes { BlobDigest(hashing: $0) }
        func tile(_ blob: BlobDigest, _ size: Int) -> PresentBlob {
            PresentBlob(key: lab.key(5), blob: blob, size: size, metadata: metadata(lab))
        }
        #expect(try lab.store.record(present: [tile(unknown, 1000), tile(blob, 999)]).count == 2)
        #expect(try lab.store.entry(for: lab.key(5)) == nil)
        // An entry whose file is gone.
        lab.disk.remove(blob.path)
        #expect(try lab.store.record(present: [tile(blob, 1000)]).count == 1)
    }
}
