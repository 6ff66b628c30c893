#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// One line of a directory: a run of tiles with one content, or a directory further down.
package struct PMTilesEntry: Equatable, Sendable, BitwiseCopyable {
    package var tile: UInt64
    package var offset: UInt64
    package var length: UInt32
    /// How many tiles have this content; 0 for a directory.
    package var run: UInt32

    package init(tile: UInt64, offset: UInt64, length: UInt32, run: UInt32) {
        self.tile = tile
        self.offset = offset
        self.length = length
        self.run = run
    }

    /// The tile after the run.
    @inline(__always)
    package var end: UInt64 { tile &+ UInt64(run) }
}

/// A directory: entries in the order of their tiles.
///
/// On disk: their number, then all tiles (as differences), all runs, all lengths, all offsets, each a varint; an offset
/// of 0 means "right after the one before", others are one more than they say.
package struct PMTilesDirectory: Sendable {
    /// More entries than that in one directory are refused.
    ///
    /// They take 6 MiB here; real ones have some thousands.
    package static let mostEntries = 1 << 18
    /// More bytes than that in one directory are refused, whatever they expand to.
    package static let mostBytes = 8 << 20

    package private(set) var entries: [PMTilesEntry]

    /// Parses the uncompressed bytes.
    ///
    /// What it points to is checked against the sections of the file, and that tiles ascend within their bounds: so a
    /// directory can neither lead outside nor back to itself.
    /// - Parameters:
    ///   - bytes: The directory, uncompressed.
    ///   - tiles: The numbers that may occur in it.
    ///   - name: What to call it in messages.
    package init(
        _ bytes: Data, tiles: Range<UInt64>, dataLength: UInt64, leavesLength: UInt64, name: @autoclosure () -> String
    ) throws {
        func damaged(_ why: String) -> ArchiveError { ArchiveError(.damaged, "\(name()): \(why)") }
        entries = try bytes.withUnsafeBytes { bytes in
            var reader = VarintReader(bytes)
            guard let count = reader.next() else { throw damaged("the directory is empty or cut short") }
            guard count > 0 else { throw damaged("the directory has no entries") }
            // Each takes at least four bytes: a number without bytes behind it is not believed.
            guard count <= UInt64(Self.mostEntries), count <= UInt64(bytes.count / 4) else {
                throw damaged("the directory claims \(count) entries in \(bytes.count) bytes")
            }
            var entries = [PMTilesEntry](
                repeating: PMTilesEntry(tile: 0, offset: 0, length: 0, run: 0), count: Int(count))
            let short = "the directory is cut short"
            var tile: UInt64 = 0
            for i in entries.indices {
                guard let step = reader.next() else { throw damaged(short) }
                guard let next = tile.adding(step), i == 0 || step > 0 else {
                    throw damaged("entry \(i) does not come after the one before")
                }
                tile = next
                guard tiles.contains(tile) else {
                    throw damaged(
                        "entry \(i) is for tile \(tile), outside of \(tiles.lowerBound)..<\(tiles.upperBound)")
                }
                entries[i].tile = tile
            }
            for i in entries.indices {
                guard let run = reader.next() else { throw damaged(short) }
                let end = i + 1 < entries.count ? entries[i + 1].tile : tiles.upperBound
                guard run <= UInt64(UInt32.max), run <= end - entries[i].tile else {
                    throw damaged("entry \(i) covers \(run) tiles, more than there are up to the next one")
                }
                entries[i].run = UInt32(run)
            }
            for i in entries.indices {
                guard let length = reader.next() else { throw damaged(short) }
                guard length > 0, length <= UInt64(UInt32.max) else { throw damaged("entry \(i) has \(length) bytes") }
                entries[i].length = UInt32(length)
            }
            for i in entries.indices {
                guard let raw = reader.next() else { throw damaged(short) }
                if raw > 0 {
                    entries[i].offset = raw - 1
                } else if i > 0, let next = entries[i - 1].offset.adding(UInt64(entries[i - 1].length)) {
                    entries[i].offset = next
                } else {
                    throw damaged("entry \(i) lies after one that does not exist")
                }
                let room = entries[i].run == 0 ? leavesLength : dataLength
                guard let end = entries[i].offset.adding(UInt64(entries[i].length)), end <= room else {
                    let what = entries[i].run == 0 ? "the directories" : "the tiles"
                    throw damaged(
                        "entry \(i) points to \(entries[i].length) bytes at \(entries[i].offset), outside of \(what) "
                            + "(\(room) bytes)")
                }
            }
            return entries
        }
    }

    /// Where the entry is that covers a tile: its run, or the directory that may have it.
    package func index(for tile: UInt64) -> Int? {
        var (low, high) = (0, entries.count)
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].tile <= tile { low = middle + 1 } else { high = middle }
        }
        guard low > 0 else { return nil }
        return entries[low - 1].run == 0 || tile < entries[low - 1].end ? low - 1 : nil
    }

    /// The bytes of a directory, uncompressed.
    package static func encode(_ entries: some Collection<PMTilesEntry>) -> Data {
        var bytes = Data(capacity: entries.count * 8)
        func put(_ value: UInt64) {
            var value = value
            while value >= 0x80 {
                bytes.append(UInt8(truncatingIfNeeded: value) | 0x80)
                value >>= 7
            }
            bytes.append(UInt8(value))
        }
        put(UInt64(entries.count))
        var last: UInt64 = 0
        for entry in entries {
            put(entry.tile &- last)
            last = entry.tile
        }
        for entry in entries { put(UInt64(entry.run)) }
        for entry in entries { put(UInt64(entry.length)) }
        var expected: UInt64?
        for entry in entries {
            put(entry.offset == expected ? 0 : entry.offset &+ 1)
            expected = entry.offset &+ UInt64(entry.length)
        }
        return bytes
    }
}

/// Reads little-endian varints of at most 64 bits.
private struct VarintReader {
    private let bytes: UnsafeRawBufferPointer
    private var at = 0

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    /// The next number; `nil` where the bytes end or it has more than 64 bits.
    @inline(__always)
    mutating func next() -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while at < bytes.count {
            let byte = bytes[at]
            at &+= 1
            if shift == 63, byte > 1 { return nil }
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
            shift &+= 7
            if shift > 63 { return nil }
        }
        return nil
    }
}
