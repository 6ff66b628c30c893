import ContentCoding

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Writes PMTiles, version 3: clustered, contents once, directories as small as they get.
///
/// Tiles are written as they come, behind room for header and root; once the directories are known, the tiles of a file
/// of usual size are moved up behind them, into the order that the format recommends. In a large one they stay, and the
/// other sections follow them, which the format allows: at most 16 KiB are left empty.
package final class PMTilesWriter: ArchiveWriter {
    private let output: OutputFile
    private let file: ScratchFile
    private var directory: DirectoryBuilder
    private var contents: UInt64 = 0

    private static let dataStart: UInt64 = 16_384
    /// Files with more tile data than that are not rearranged.
    private let mostMoved: UInt64

    package init(_ path: String, movingAtMost mostMoved: UInt64 = 64 << 20) throws {
        output = try OutputFile(path)
        file = try ScratchFile(creating: output)
        directory = try DirectoryBuilder()
        self.mostMoved = mostMoved
        try file.skip(to: Self.dataStart)
    }

    package func add(_ data: Data) throws -> UInt64 {
        let offset = file.size - Self.dataStart
        try file.append(data)
        contents += 1
        return offset
    }

    package func place(_ tile: UInt64, content: UInt64, length: Int) throws {
        guard let length = UInt32(exactly: length), length > 0 else {
            throw ArchiveError(.invalidValue, "\(output.path): a tile of \(length) bytes cannot be written")
        }
        try directory.add(tile, offset: content, length: length)
    }

    package func finish(_ summary: ArchiveSummary) throws {
        try file.flush()
        let layout = try directory.finish()
        let metadata = try Gzip.encode(Data(JSON.object(summary.metadata.pmtilesMembers).text.utf8))
        let dataLength = file.size - Self.dataStart
        let leavesLength = layout.leaves?.size ?? 0

        var header = PMTilesHeader()
        header.root = .init(offset: UInt64(PMTilesHeader.length), length: UInt64(layout.root.count))
        let rootEnd = header.root.offset + header.root.length
        if dataLength <= mostMoved {
            header.metadata = .init(offset: rootEnd, length: UInt64(metadata.count))
            header.leaves = .init(offset: rootEnd + header.metadata.length, length: leavesLength)
            header.data = .init(offset: header.leaves.offset + leavesLength, length: dataLength)
            try move(dataLength, from: Self.dataStart, to: header.data.offset)
            try file.truncate(to: header.data.offset + dataLength)
        } else {
            header.data = .init(offset: Self.dataStart, length: dataLength)
            header.metadata = .init(offset: Self.dataStart + dataLength, length: UInt64(metadata.count))
            header.leaves = .init(offset: header.metadata.offset + header.metadata.length, length: leavesLength)
        }
        header.addressedTiles = directory.tileCount
        header.entries = UInt64(directory.entryCount)
        header.contents = contents
        header.isClustered = true
        summary.describe(&header)

        try header.bytes.withUnsafeBytes { try file.write($0, at: 0) }
        try layout.root.withUnsafeBytes { try file.write($0, at: header.root.offset) }
        try metadata.withUnsafeBytes { try file.write($0, at: header.metadata.offset) }
        if let leaves = layout.leaves { try copy(leaves, to: header.leaves.offset) }
        try output.commit()
    }

    /// Moves tile data within the file; the ranges may overlap.
    private func move(_ length: UInt64, from source: UInt64, to target: UInt64) throws {
        guard source != target else { return }
        try withUnsafeTemporaryAllocation(byteCount: 1 << 20, alignment: 16) { buffer in
            var done: UInt64 = 0
            while done < length {
                let count = min(UInt64(buffer.count), length - done)
                // Towards the end, the last piece goes first, so that nothing is overwritten before it was read.
                let at = target < source ? done : length - done - count
                let piece = UnsafeMutableRawBufferPointer(rebasing: buffer[..<Int(count)])
                guard try file.read(into: piece, at: source + at) == piece.count else { throw cutShort }
                try file.write(UnsafeRawBufferPointer(piece), at: target + at)
                done += count
            }
        }
    }

    private func copy(_ leaves: ScratchFile, to target: UInt64) throws {
        try withUnsafeTemporaryAllocation(byteCount: 1 << 20, alignment: 16) { buffer in
            var done: UInt64 = 0
            while done < leaves.size {
                let count = Int(min(UInt64(buffer.count), leaves.size - done))
                let piece = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
                guard try leaves.read(into: piece, at: done) == count else { throw cutShort }
                try file.write(UnsafeRawBufferPointer(piece), at: target + done)
                done += UInt64(count)
            }
        }
    }

    private var cutShort: ArchiveError {
        ArchiveError(.io, "\(output.temporaryPath) was cut short by somebody else")
    }
}
