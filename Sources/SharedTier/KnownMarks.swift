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
    /// How far it was before this machine's clock was set back.
    package let former: FormerOffsets

    package init(marks: Marks, offset: ClockOffset, former: FormerOffsets = FormerOffsets()) {
        (self.marks, self.offset, self.former) = (marks, offset, former)
    }

    /// Whether all of it is said by what was kept before, but for seconds that do not count.
    func isSaid(by kept: KnownMarks) -> Bool {
        marks == kept.marks && (offset.seconds - kept.offset.seconds).magnitude <= Marks.slack
            && former.isSaid(by: kept.former, today: offset)
    }

    /// As it is kept: the index as it is in the bucket, with one or two members more.
    package var json: Data {
        let periods = former.periods.map { "[\($0.offset.seconds), \($0.until.seconds)]" }
        let former = periods.isEmpty ? "" : ",\n  \"former\": [\(periods.joined(separator: ", "))]"
        return Data((marks.json.dropLast(3) + ",\n  \"offset\": \(offset.seconds)\(former)\n}\n").utf8)
    }

    /// Reads what was kept.
    ///
    /// - Returns: `nil` if it is not what ``json`` writes.
    package init?(json: Data) {
        let read = json.withUnsafeBytes { bytes -> KnownMarks? in
            guard let marks = Marks(json: bytes), let root = JSONValue(bytes, depth: 8)?.object,
                let seconds = root["offset"]?.integer, let former = root["former"].map(Self.former) ?? FormerOffsets()
            else { return nil }
            return KnownMarks(marks: marks, offset: ClockOffset(seconds: seconds), former: former)
        }
        guard let read, !read.offset.isImplausible else { return nil }
        self = read
    }

    private static func former(_ value: JSONValue) -> FormerOffsets? {
        guard let list = value.array, list.count <= FormerOffsets.most else { return nil }
        var former = FormerOffsets()
        for period in list {
            let numbers = period.array?.compactMap(\.integer) ?? []
            guard period.array?.count == 2, numbers.count == 2,
                (0...Timestamp.distantFuture.seconds).contains(numbers[1])
            else { return nil }
            let offset = ClockOffset(seconds: numbers[0])
            guard !offset.isImplausible else { return nil }
            former.note(offset, until: Timestamp(seconds: numbers[1]))
        }
        return former
    }
}
