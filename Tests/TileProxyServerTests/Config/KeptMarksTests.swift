import Foundation
import SharedTier
import Testing
import TileStore

@testable import TileProxyServer

/// What a proxy keeps of its fleet's index.
@Suite struct KeptMarksTests {
    private func known() throws -> KnownMarks {
        var marks = Marks()
        marks.raise(try SourceName("osm"), to: Epoch.first.next(at: Timestamp(seconds: 1_790_000_000), random: 7))
        return KnownMarks(marks: marks, offset: ClockOffset(seconds: -3))
    }

    @Test func whatIsKeptForOneBucketIsReadForItAlone() throws {
        let cache = FileManager.default.temporaryDirectory.appendingPathComponent("kept-\(UUID())")
        try FileManager.default.createDirectory(at: cache, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: cache) }
        let kept = KeptMarks(cache: cache.path, bucket: "https://s3.example/a")
        #expect(kept.read() == nil)
        for _ in 0..<2 { try kept.write(try known()) }
        #expect(kept.read() == (try known()))
        #expect(KeptMarks(cache: cache.path, bucket: "https://s3.example/b").read() == nil)
    }

    /// The folder was made again with nothing but this in it, and was no cache any more.
    @Test func aRemovedCacheIsNotMadeAnew() throws {
        let cache = FileManager.default.temporaryDirectory.appendingPathComponent("kept-\(UUID())")
        let marks = try known()
        #expect(throws: (any Error).self) {
            try KeptMarks(cache: cache.path, bucket: "https://s3.example/a").write(marks)
        }
        #expect(!FileManager.default.fileExists(atPath: cache.path))
    }
}
