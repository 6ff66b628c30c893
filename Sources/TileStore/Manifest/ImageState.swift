/// The small part of the tables as an image has it: accounts, heads of lists, names, regions, limits.
struct ImageState {
    var position = ImagePosition()
    var damagedLines: UInt64 = 0
    var hashSeed: UInt64 = 0
    var blockSize: UInt64 = 0
    var entrySlots: UInt64 = 0
    var blobSlots: UInt64 = 0
    var freeEntry: UInt64 = 0
    var freeBlob: UInt64 = 0
    var firstEntry: UInt64 = 0
    var lastEntry: UInt64 = 0
    var firstBlob: UInt64 = 0
    var lastBlob: UInt64 = 0
    var nextResource: UInt64 = 0
    var nextSet: UInt64 = 0
    var setSlots: UInt64 = 0
    var generation: UInt64 = 0
    var nextSequence: UInt64 = 0
    var entryCount: UInt64 = 0
    var unpinnedEntries: UInt64 = 0
    var blobCount: UInt64 = 0
    var blobBytes: UInt64 = 0
    var logicalBytes: UInt64 = 0
    var allocatedUnpinned: UInt64 = 0
    var allocatedPinned: UInt64 = 0
    var detailSegments: UInt64 = 0
    var detailsUsed: UInt64 = 0
    /// The heads of the lists of free blocks of details, then how many cells are taken in each segment of both indexes.
    var freeDetails: [UInt32] = []
    var entryCells: [UInt32] = []
    var blobCells: [UInt32] = []
    var sources: [String] = []
    var variants: [(scale: Int, format: String?)] = []
    /// Limits, the machine's start and regions, as lines of the manifest.
    var lines: [UInt8] = []

    private static var fields: [WritableKeyPath<ImageState, UInt64>] {
        [
            \.damagedLines, \.hashSeed, \.blockSize, \.entrySlots, \.blobSlots, \.freeEntry, \.freeBlob,
            \.firstEntry, \.lastEntry, \.firstBlob, \.lastBlob, \.nextResource, \.nextSet, \.setSlots,
            \.generation, \.nextSequence, \.entryCount, \.unpinnedEntries, \.blobCount, \.blobBytes,
            \.logicalBytes, \.allocatedUnpinned, \.allocatedPinned, \.detailSegments, \.detailsUsed,
        ]
    }

    init() {}

    func write(to out: inout LineBuffer) {
        for word in position.words { out.word(word) }
        for field in Self.fields { out.word(self[keyPath: field]) }
        for list in [freeDetails, entryCells, blobCells] {
            out.word(UInt64(list.count))
            list.withUnsafeBytes { out.raw($0) }
        }
        out.word(UInt64(sources.count))
        for source in sources { out.counted(source) }
        out.word(UInt64(variants.count))
        for variant in variants {
            out.word(UInt64(variant.scale))
            out.word(variant.format == nil ? 0 : 1)
            out.counted(variant.format ?? "")
        }
        out.word(UInt64(lines.count))
        lines.withUnsafeBytes { out.raw($0) }
    }

    /// - Returns: `nil` if it is not what ``write(to:)`` writes.
    init?(_ bytes: UnsafeRawBufferPointer) {
        var scan = ImageScan(bytes)
        var words: [UInt64] = []
        for _ in 0..<ImagePosition.wordCount {
            guard let word = scan.word() else { return nil }
            words.append(word)
        }
        position = ImagePosition(words[...])
        for field in Self.fields {
            guard let word = scan.word() else { return nil }
            self[keyPath: field] = word
        }
        func list() -> [UInt32]? {
            guard let count = scan.count(of: 4), let bytes = scan.take(count * 4) else { return nil }
            return (0..<count).map { bytes.loadUnaligned(fromByteOffset: $0 * 4, as: UInt32.self) }
        }
        guard let free = list(), let entryCells = list(), let blobCells = list(), let sourceCount = scan.count(of: 8)
        else { return nil }
        (freeDetails, self.entryCells, self.blobCells) = (free, entryCells, blobCells)
        for _ in 0..<sourceCount {
            guard let source = scan.counted() else { return nil }
            sources.append(source)
        }
        guard let variantCount = scan.count(of: 24) else { return nil }
        for _ in 0..<variantCount {
            guard let scale = scan.word(), scale < 1 << 16, let hasFormat = scan.word(), let format = scan.counted()
            else { return nil }
            variants.append((Int(scale), hasFormat == 0 ? nil : format))
        }
        guard let length = scan.count(of: 1), let lines = scan.take(length), scan.isAtEnd else { return nil }
        self.lines = Array(lines)
    }
}

extension LineBuffer {
    /// Eight bytes in the machine's order.
    mutating func word(_ value: UInt64) { withUnsafeBytes(of: value) { raw($0) } }

    /// A text with its length before it.
    mutating func counted(_ text: String) {
        var text = text
        text.withUTF8 { utf8 in
            word(UInt64(utf8.count))
            raw(UnsafeRawBufferPointer(utf8))
        }
    }
}

/// Reads what an image's blocks are made of; `nil` where there is not enough.
struct ImageScan {
    private let bytes: UnsafeRawBufferPointer
    private var at = 0

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    var isAtEnd: Bool { at == bytes.count }

    mutating func take(_ count: Int) -> UnsafeRawBufferPointer? {
        guard count >= 0, count <= bytes.count - at else { return nil }
        defer { at += count }
        return UnsafeRawBufferPointer(rebasing: bytes[at..<(at + count)])
    }

    mutating func word() -> UInt64? { take(8)?.loadUnaligned(as: UInt64.self) }

    /// A number of things that each take so many bytes at least: never more than there can be.
    mutating func count(of size: Int) -> Int? {
        guard let word = word(), word <= UInt64((bytes.count - at) / size) else { return nil }
        return Int(word)
    }

    mutating func counted() -> String? {
        guard let length = count(of: 1), let text = take(length) else { return nil }
        return String(decoding: text, as: UTF8.self)
    }
}
