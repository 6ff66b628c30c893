import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What a node knows of its fleet's index, to be kept over a restart: what was expired stays so while the bucket is away.
package struct KnownMarks: Equatable, Sendable {
    /// What is stale.
    package let marks: Marks
    /// How far the bucket's clock was from this machine's.
    package let offset: ClockOffset

    package init(marks: Marks, offset: ClockOffset) { (self.marks, self.offset) = (marks, offset) }

    /// As it is kept: the index as it is in the bucket, with one member more.
    package var json: Data { Data((marks.json.dropLast(3) + ",\n  \"offset\": \(offset.seconds)\n}\n").utf8) }

    /// Reads what was kept.
    ///
    /// - Returns: `nil` if it is not what ``json`` writes.
    package init?(json: Data) {
        let read = json.withUnsafeBytes { bytes -> KnownMarks? in
            guard let marks = Marks(json: bytes),
                let seconds = JSONValue(bytes, depth: 8)?.object?["offset"]?.integer
            else { return nil }
            return KnownMarks(marks: marks, offset: ClockOffset(seconds: seconds))
        }
        guard let read, !read.offset.isImplausible else { return nil }
        self = read
    }
}
