/// What an index image is made of: `manifest/index-<n>.bin`, the tables as they are in memory.
///
/// JSON is the truth; an image only spares reading it. A file is a head, blocks of bytes, a directory of the blocks and a
/// tail. The tail is written last, so a file that was cut off has none. All numbers are in the byte order of the machine
/// that wrote it, which the head tells.
enum IndexImage {
    static func path(_ n: UInt64) -> String { "manifest/index-\(n).bin" }

    /// What a block holds.
    enum Kind: UInt32, CaseIterable {
        /// A segment of entry records.
        case entries = 1
        /// A segment of blob records.
        case blobs = 2
        /// A segment of the details of entries.
        case details = 3
        /// The cells of a segment of the index of entries.
        case entryIndex = 4
        /// The same of the index of blobs.
        case blobIndex = 5
        /// Numbers of resources and their names.
        case resources = 6
        /// Sets of response fields by their slots.
        case sets = 7
        /// Everything that is small: ``ImageState``.
        case state = 8
    }

    /// Where a block lies, and what it is.
    struct Block {
        var kind: Kind
        /// Whether it holds single parts, each with its number, that changed while the image was written.
        var isPatch: Bool
        /// Which segment it is; for patches nothing.
        var number: Int
        var offset: Int
        var length: Int
        var checksum: UInt64
    }

    static let headLength = 40
    static let tailLength = 48
    static let blockLength = 40
    private static let headMark: UInt64 = 0x3158_444E_4945_4C54  // "TLEINDX1" in memory
    private static let tailMark: UInt64 = 0x444E_4558_444E_4954
    /// Reads as another number where bytes lie in the other order.
    private static let byteOrder: UInt64 = 0x0102_0304_0506_0708
    /// Changes whenever a record, a cell or a block is laid out in another way, or a flag of one means something else.
    ///
    /// 2: resources may be pinned, which programs before it know nothing of.
    private static var layout: UInt64 {
        2 | UInt64(MemoryLayout<EntryRecord>.stride) << 16 | UInt64(MemoryLayout<BlobRecord>.stride) << 32
    }

    static func head(_ generation: UInt64) -> [UInt64] { sealed([headMark, byteOrder, layout, generation]) }

    /// Whether a file begins as an image of a checkpoint must.
    static func isHead(_ words: [UInt64], of generation: UInt64) -> Bool { words == head(generation) }

    /// - Parameters:
    ///   - at: Where the directory begins.
    ///   - blocks: Of how many blocks it tells.
    ///   - checksum: The directory's.
    static func tail(directory at: Int, blocks: Int, checksum: UInt64, generation: UInt64) -> [UInt64] {
        sealed([tailMark, UInt64(at), UInt64(blocks), checksum, generation])
    }

    /// Takes a tail apart; `nil` if it is none.
    static func directory(_ tail: [UInt64], of generation: UInt64) -> (offset: Int, blocks: Int, checksum: UInt64)? {
        guard tail.count == 6, tail == sealed(Array(tail.dropLast())), tail[0] == tailMark, tail[4] == generation,
            tail[1] < 1 << 40, tail[2] < 1 << 24
        else { return nil }
        return (Int(tail[1]), Int(tail[2]), tail[3])
    }

    /// Words with their checksum behind them.
    private static func sealed(_ words: [UInt64]) -> [UInt64] {
        words + [words.withUnsafeBytes { LineChecksum.xxh64($0) }]
    }
}

extension IndexImage.Block {
    var words: [UInt64] {
        [
            UInt64(kind.rawValue) | (isPatch ? 1 << 32 : 0), UInt64(number), UInt64(offset), UInt64(length),
            checksum,
        ]
    }

    init?(_ words: ArraySlice<UInt64>) {
        let words = Array(words)
        guard words.count == 5, let kind = IndexImage.Kind(rawValue: UInt32(truncatingIfNeeded: words[0])),
            words[0] >> 33 == 0, words[1] < 1 << 32, words[2] < 1 << 40, words[3] < 1 << 32
        else { return nil }
        self.init(
            kind: kind, isPatch: words[0] >> 32 == 1, number: Int(words[1]), offset: Int(words[2]),
            length: Int(words[3]), checksum: words[4])
    }
}

/// The checkpoint that an image goes with, and how far in the journals it is.
struct ImagePosition: Equatable {
    /// The checkpoint's number, length, time of change, and checksum of its first and last bytes.
    var checkpoint: UInt64 = 0
    var checkpointLength: UInt64 = 0
    var checkpointSeconds: UInt64 = 0
    var checkpointNanoseconds: UInt64 = 0
    var checkpointEnds: UInt64 = 0
    /// The journal, the offset up to which it was carried out, and the checksum of the line that ends there.
    var journal: UInt64 = 0
    var offset: UInt64 = 0
    var lastChecksum: UInt64 = 0

    var words: [UInt64] {
        [
            checkpoint, checkpointLength, checkpointSeconds, checkpointNanoseconds, checkpointEnds, journal, offset,
            lastChecksum,
        ]
    }

    init() {}

    init(_ words: ArraySlice<UInt64>) {
        let w = Array(words)
        (checkpoint, checkpointLength, checkpointSeconds, checkpointNanoseconds) = (w[0], w[1], w[2], w[3])
        (checkpointEnds, journal, offset, lastChecksum) = (w[4], w[5], w[6], w[7])
    }

    static let wordCount = 8
}

extension FileSystem {
    /// What tells a checkpoint from another one of the same number, without reading all of it.
    func stamp(_ checkpoint: OpenFile, _ number: UInt64, _ position: inout ImagePosition) throws(FileError) {
        let status = try status(of: checkpoint)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 8192, alignment: 8)
        defer { buffer.deallocate() }
        let half = buffer.count / 2
        let first = try read(checkpoint, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<half]), at: 0)
        let last = try read(
            checkpoint, into: UnsafeMutableRawBufferPointer(rebasing: buffer[half...]),
            at: max(0, status.size - Int64(half)))
        let ends = [
            LineChecksum.xxh64(UnsafeRawBufferPointer(rebasing: buffer[..<first])),
            LineChecksum.xxh64(UnsafeRawBufferPointer(rebasing: buffer[half..<(half + last)])),
        ]
        position.checkpoint = number
        position.checkpointLength = UInt64(status.size)
        position.checkpointSeconds = UInt64(bitPattern: status.modified)
        position.checkpointNanoseconds = UInt64(status.modifiedNanoseconds)
        position.checkpointEnds = ends.withUnsafeBytes { LineChecksum.xxh64($0) }
    }

    /// The checksum of the journal's line that ends at an offset; `nil` if none does.
    func checksumOfLine(before offset: Int64, in journal: OpenFile) throws(FileError) -> UInt32? {
        guard offset >= Int64(LineReader.tailLength + 1) else { return nil }
        var tail = [UInt8](repeating: 0, count: 12)
        let result = tail.withUnsafeMutableBytes { buffer -> Result<Int, FileError> in
            do throws(FileError) { return .success(try read(journal, into: buffer, at: offset - 12)) } catch {
                return .failure(error)
            }
        }
        // …c":"xxxxxxxx"} and the end of the line.
        guard try result.get() == 12, tail[0] == 0x22, tail[9] == 0x22, tail[10] == 0x7D, tail[11] == 0x0A else {
            return nil
        }
        return tail.withUnsafeBytes { LineReader.checksum($0, at: 1) }
    }
}
