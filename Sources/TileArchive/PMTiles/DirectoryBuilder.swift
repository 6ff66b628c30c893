import ContentCoding

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Collects the entries of a PMTiles file in the order of their tiles, joins runs, and lays out the directories.
///
/// Entries go to a temporary file once there are many, so that memory stays bounded.
package struct DirectoryBuilder {
    private let file: ScratchFile
    private var current: PMTilesEntry?
    private var next: UInt64 = 0
    package private(set) var entryCount = 0
    package private(set) var tileCount: UInt64 = 0

    /// A leaf is not made smaller than this; they grow where the root would not fit otherwise.
    package static let smallestLeaf = 4096

    package init() throws { file = try ScratchFile.unnamed() }

    /// Adds one tile; tiles come in ascending order.
    package mutating func add(_ tile: UInt64, offset: UInt64, length: UInt32) throws {
        guard tile >= next else {
            throw ArchiveError(.invalidValue, "tile \(tile) comes after tile \(next - 1): tiles must ascend")
        }
        next = tile + 1
        tileCount += 1
        if var run = current, run.offset == offset, run.length == length, run.end == tile, run.run < UInt32.max {
            run.run += 1
            current = run
            return
        }
        try settle()
        current = PMTilesEntry(tile: tile, offset: offset, length: length, run: 1)
    }

    private mutating func settle() throws {
        guard let entry = current else { return }
        try withUnsafeBytes(of: entry) { try file.append($0) }
        entryCount += 1
        current = nil
    }

    /// What the directories came to.
    package struct Layout {
        package var root: Data
        /// The leaf directories, one after another; `nil` where the root has all entries.
        package var leaves: ScratchFile?
    }

    /// Lays out the directories, gzipped, with a root of at most so many bytes.
    package mutating func finish(longestRoot: Int = PMTilesHeader.longestRoot, smallestLeaf: Int = smallestLeaf) throws
        -> Layout
    {
        try settle()
        try file.flush()
        // A root of more entries than bytes can hardly fit: do not compress millions to learn that.
        if entryCount <= longestRoot {
            let root = try Gzip.encode(PMTilesDirectory.encode(try entries(from: 0, count: entryCount)))
            if root.count <= longestRoot { return Layout(root: root) }
        }
        var leafSize = max(smallestLeaf, entryCount / 3500)
        while true {
            let leaves = try ScratchFile.unnamed()
            var pointers: [PMTilesEntry] = []
            var at = 0
            while at < entryCount {
                let part = try entries(from: at, count: min(leafSize, entryCount - at))
                let bytes = try Gzip.encode(PMTilesDirectory.encode(part))
                pointers.append(
                    PMTilesEntry(tile: part[0].tile, offset: leaves.size, length: UInt32(bytes.count), run: 0))
                try leaves.append(bytes)
                at += part.count
            }
            let root = try Gzip.encode(PMTilesDirectory.encode(pointers))
            if root.count <= longestRoot {
                try leaves.flush()
                return Layout(root: root, leaves: leaves)
            }
            leafSize += leafSize / 5 + 1
            guard leafSize <= PMTilesDirectory.mostEntries else {
                throw ArchiveError(.invalidValue, "\(entryCount) directory entries do not fit into one PMTiles file")
            }
        }
    }

    private func entries(from first: Int, count: Int) throws -> [PMTilesEntry] {
        let stride = MemoryLayout<PMTilesEntry>.stride
        return try [PMTilesEntry](unsafeUninitializedCapacity: count) { entries, filled in
            let bytes = UnsafeMutableRawBufferPointer(entries)
            let whole = UnsafeMutableRawBufferPointer(rebasing: bytes[..<(count * stride)])
            guard try file.read(into: whole, at: UInt64(first * stride)) == whole.count else {
                throw ArchiveError(.io, "a temporary file was cut short by somebody else")
            }
            filled = count
        }
    }
}
