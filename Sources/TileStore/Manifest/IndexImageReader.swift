import Dispatch

/// Reads an index image back into tables.
///
/// Whatever is not as it should be makes it no image at all: then the manifest is read instead.
struct IndexImageReader {
    private let files: any FileSystem
    private let file: OpenFile
    private let generation: UInt64
    private let bounds: TableBounds

    init(_ files: any FileSystem, _ file: OpenFile, _ generation: UInt64, _ bounds: TableBounds) {
        self.files = files
        self.file = file
        self.generation = generation
        self.bounds = bounds
    }

    /// What is wrong with an image; nobody is told more than that it was not used.
    private enum Flaw: Error { case notAnImage, damaged }

    /// The tables, and where in the journals they are.
    ///
    /// - Parameter accept: Whether the image goes with the files that are there: asked before much is read.
    func load(accept: (ImageState) throws -> Bool) throws -> (Tables, ImageState)? {
        do {
            let blocks = try directory()
            guard let last = blocks.last, last.kind == .state else { throw Flaw.damaged }
            let bytes = try contents(last)
            defer { bytes.deallocate() }
            guard let state = ImageState(UnsafeRawBufferPointer(bytes)), try accept(state),
                let tables = Tables.restoring(state, bounds)
            else { return nil }
            try restore(blocks, state, tables)
            return (tables, state)
        } catch is Flaw {
            return nil
        } catch is FileError {
            // Whatever else the files refuse, reading the manifest says.
            return nil
        }
    }

    private func words(at offset: Int, _ count: Int) throws -> [UInt64] {
        var words = [UInt64](repeating: 0, count: count)
        let read = try words.withUnsafeMutableBytes { try files.read(file, into: $0, at: Int64(offset)) }
        guard read == count * 8 else { throw Flaw.notAnImage }
        return words
    }

    private func directory() throws -> [IndexImage.Block] {
        let status = try files.status(of: file)
        guard status.kind == .file, status.isOurs,
            status.size > Int64(IndexImage.headLength + IndexImage.tailLength), status.size < 1 << 40
        else { throw Flaw.notAnImage }
        guard IndexImage.isHead(try words(at: 0, IndexImage.headLength / 8), of: generation) else {
            throw Flaw.notAnImage
        }
        let size = Int(status.size)
        let tail = try words(at: size - IndexImage.tailLength, IndexImage.tailLength / 8)
        guard let directory = IndexImage.directory(tail, of: generation),
            directory.offset + directory.blocks * IndexImage.blockLength == size - IndexImage.tailLength
        else { throw Flaw.notAnImage }
        let words = try words(at: directory.offset, directory.blocks * IndexImage.blockLength / 8)
        guard words.withUnsafeBytes({ LineChecksum.xxh64($0) }) == directory.checksum else { throw Flaw.damaged }
        var end = IndexImage.headLength
        return try stride(from: 0, to: words.count, by: IndexImage.blockLength / 8).map { at in
            guard let block = IndexImage.Block(words[at..<(at + IndexImage.blockLength / 8)]), block.offset == end
            else { throw Flaw.damaged }
            end += block.length
            guard end <= directory.offset else { throw Flaw.damaged }
            return block
        }
    }

    private func contents(_ block: IndexImage.Block) throws -> UnsafeMutableRawBufferPointer {
        let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: block.length, alignment: 8)
        do {
            try Piece(block, bytes).read(files, file)
            return bytes
        } catch {
            bytes.deallocate()
            throw error
        }
    }

    /// A block and the memory into which it is read.
    private struct Piece: @unchecked Sendable {
        // Each piece has memory of its own, which one thread fills while nobody else knows the tables.
        let offset: Int
        let checksum: UInt64
        let target: UnsafeMutableRawBufferPointer

        init(_ block: IndexImage.Block, _ memory: UnsafeMutableRawBufferPointer) throws {
            guard block.length <= memory.count else { throw Flaw.damaged }
            (offset, checksum) = (block.offset, block.checksum)
            target = UnsafeMutableRawBufferPointer(rebasing: memory[..<block.length])
        }

        func read(_ files: any FileSystem, _ file: OpenFile) throws {
            guard try files.read(file, into: target, at: Int64(offset)) == target.count,
                LineChecksum.xxh64(UnsafeRawBufferPointer(target)) == checksum
            else { throw Flaw.damaged }
        }
    }

    private func restore(_ blocks: [IndexImage.Block], _ state: ImageState, _ tables: Tables) throws {
        // A segment may have been copied twice, then the later copy counts, and of the patches those behind it.
        var latest: [UInt64: Int] = [:]
        for (i, block) in blocks.enumerated() where !block.isPatch { latest[Self.place(block.kind, block.number)] = i }
        func cells(_ kind: IndexImage.Kind) -> Int {
            latest.values.reduce(0) { $0 + (blocks[$1].kind == kind ? blocks[$1].length / 4 : 0) }
        }
        tables.entryIndex.reserve(cells: cells(.entryIndex))
        tables.blobIndex.reserve(cells: cells(.blobIndex))
        var pieces: [Piece] = []
        for (i, block) in blocks.enumerated() where !block.isPatch {
            guard latest[Self.place(block.kind, block.number)] == i,
                let memory = try memory(for: block, state, tables)
            else { continue }
            pieces.append(try Piece(block, memory))
        }
        try clear(state, tables, except: latest)
        try read(pieces)
        let copied = latest.mapValues { blocks[$0].offset }
        for block in blocks {
            if block.isPatch {
                let bytes = try contents(block)
                defer { bytes.deallocate() }
                try apply(block, UnsafeRawBufferPointer(bytes), tables, copied)
            } else if block.kind == .sets {
                let bytes = try contents(block)
                defer { bytes.deallocate() }
                guard tables.sets.restore(UnsafeRawBufferPointer(bytes)) else { throw Flaw.damaged }
            }
        }
        tables.sets.finishRestoring()
        // Names last: whether one is needed is asked of the index.
        for block in blocks where block.kind == .resources {
            let bytes = try contents(block)
            defer { bytes.deallocate() }
            guard tables.restoreResources(UnsafeRawBufferPointer(bytes)) else { throw Flaw.damaged }
        }
    }

    private static func place(_ kind: IndexImage.Kind, _ number: Int) -> UInt64 {
        UInt64(kind.rawValue) << 32 | UInt64(number)
    }

    /// Where a segment's bytes belong; `nil` for what is read later.
    private func memory(
        for block: IndexImage.Block, _ state: ImageState, _ tables: Tables
    ) throws -> UnsafeMutableRawBufferPointer? {
        let i = block.number
        switch block.kind {
        case .entries:
            guard i < tables.entries.segments else { throw Flaw.damaged }
            return tables.entries.memory(ofSegment: i)
        case .blobs:
            guard i < tables.blobs.segments else { throw Flaw.damaged }
            return tables.blobs.memory(ofSegment: i)
        case .details:
            guard i < tables.details.segmentCount else { throw Flaw.damaged }
            return tables.details.memory(ofSegment: i)
        case .entryIndex:
            guard i < SlotIndex.segmentCount, block.length % 4 == 0,
                let cells = tables.entryIndex.restore(
                    segment: i, cells: block.length / 4, count: state.entryCells[i])
            else { throw Flaw.damaged }
            return cells
        case .blobIndex:
            guard i < SlotIndex.segmentCount, block.length % 4 == 0,
                let cells = tables.blobIndex.restore(segment: i, cells: block.length / 4, count: state.blobCells[i])
            else { throw Flaw.damaged }
            return cells
        case .resources, .sets, .state: return nil
        }
    }

    /// What began after its kind had been copied is in patches alone: before them there is nothing.
    private func clear(_ state: ImageState, _ tables: Tables, except copied: [UInt64: Int]) throws {
        for i in 0..<tables.entries.segments where copied[Self.place(.entries, i)] == nil {
            tables.entries.memory(ofSegment: i).initializeMemory(as: UInt8.self, repeating: 0)
        }
        for i in 0..<tables.blobs.segments where copied[Self.place(.blobs, i)] == nil {
            tables.blobs.memory(ofSegment: i).initializeMemory(as: UInt8.self, repeating: 0)
        }
        for i in 0..<SlotIndex.segmentCount {
            if state.entryCells[i] > 0, copied[Self.place(.entryIndex, i)] == nil { throw Flaw.damaged }
            if state.blobCells[i] > 0, copied[Self.place(.blobIndex, i)] == nil { throw Flaw.damaged }
        }
    }

    /// Reads and checks pieces: on several threads if there is much.
    private func read(_ pieces: [Piece]) throws {
        let bytes = pieces.reduce(0) { $0 + $1.target.count }
        let threads = bytes < 1 << 20 ? 1 : min(4, pieces.count, processorCount())
        guard threads > 1 else {
            for piece in pieces { try piece.read(files, file) }
            return
        }
        let next = Locked(0)
        let failure = Locked<(any Error)?>(nil)
        let (files, file) = (files, file)
        DispatchQueue.concurrentPerform(iterations: threads) { _ in
            while true {
                let range = next.withLock { next -> Range<Int> in
                    let from = next
                    next = min(pieces.count, next + 4)
                    return from..<next
                }
                if range.isEmpty || failure.withLock({ $0 != nil }) { return }
                do { for i in range { try pieces[i].read(files, file) } } catch {
                    failure.withLock { $0 = error }
                }
            }
        }
        if let error = failure.withLock({ $0 }) { throw error }
    }

    /// Puts single parts in their places.
    private func apply(
        _ block: IndexImage.Block, _ bytes: UnsafeRawBufferPointer, _ tables: Tables, _ copied: [UInt64: Int]
    ) throws {
        func parts(of size: Int, _ body: (Int, UnsafeRawBufferPointer) throws -> Void) throws {
            guard bytes.count % (4 + size) == 0 else { throw Flaw.damaged }
            for at in stride(from: 0, to: bytes.count, by: 4 + size) {
                let number = Int(bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self))
                try body(number, UnsafeRawBufferPointer(rebasing: bytes[(at + 4)..<(at + 4 + size)]))
            }
        }
        func put(_ index: borrowing SlotIndex, _ kind: IndexImage.Kind) throws {
            try parts(of: SlotIndex.group * 4) { part, bytes in
                // An older state of a segment that was made anew afterwards.
                let copy = copied[Self.place(kind, part >> SlotIndex.groupShift)] ?? 0
                if block.offset < copy { return }
                guard let group = index.group(part) else { throw Flaw.damaged }
                group.copyMemory(from: bytes)
            }
        }
        switch block.kind {
        case .entries:
            try parts(of: MemoryLayout<EntryRecord>.stride) { slot, bytes in
                guard slot < Int(tables.entries.count) else { throw Flaw.damaged }
                UnsafeMutableRawPointer(tables.entries.change(UInt32(slot)))
                    .copyMemory(from: bytes.baseAddress.unsafelyUnwrapped, byteCount: bytes.count)
            }
        case .blobs:
            try parts(of: MemoryLayout<BlobRecord>.stride) { slot, bytes in
                guard slot < Int(tables.blobs.count) else { throw Flaw.damaged }
                UnsafeMutableRawPointer(tables.blobs.change(UInt32(slot)))
                    .copyMemory(from: bytes.baseAddress.unsafelyUnwrapped, byteCount: bytes.count)
            }
        case .details:
            try parts(of: DetailArena.group * 4) { part, bytes in
                guard let group = tables.details.group(part) else { throw Flaw.damaged }
                group.copyMemory(from: bytes)
            }
        case .entryIndex: try put(tables.entryIndex, .entryIndex)
        case .blobIndex: try put(tables.blobIndex, .blobIndex)
        case .resources, .sets, .state: throw Flaw.damaged
        }
    }
}
