#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Some whole lines of a checkpoint, and what they say.
final class CheckpointChunk {
    private var buffer: UnsafeMutableRawBufferPointer
    /// Which chunk of the file it is.
    var number = 0
    /// The bytes that it has.
    private(set) var length = 0
    /// How many bytes of the file it stands for: more, where a line was passed over that is longer than any.
    private(set) var covered: Int64 = 0
    private(set) var isLast = false
    /// Why it could not be read.
    private(set) var failure: (any Error)?
    /// Lines that are damaged or cut off.
    private(set) var damage = 0
    /// The states of keys, and between them the other lines, each with how many states come before it.
    @exclusivity(unchecked) private(set) var puts: ContiguousArray<PutLine> = []
    @exclusivity(unchecked) private(set) var others: [(before: Int, body: UnsafeRawBufferPointer)] = []
    /// Which line with the state of a key, of those of all chunks, its first one is.
    @exclusivity(unchecked) var firstPut = 0
    /// What the states of keys find among the blobs: as many as there are, once that has been asked.
    @exclusivity(unchecked) var places: ContiguousArray<Tables.BlobPlace> = []
    private let reader = LineReader()
    // Tags that do not stand in the lines as they are.
    private var tags = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var usedTags = 0

    init(size: Int) { buffer = .allocate(byteCount: size, alignment: 8) }

    deinit {
        buffer.deallocate()
        tags.deallocate()
    }

    /// Reads whole lines from an offset on; `true` if they are the last.
    func fill(from files: any FileSystem, _ file: OpenFile, at offset: Int64) -> Bool {
        (length, covered, isLast, failure, damage) = (0, 0, true, nil, 0)
        do {
            while true {
                let n = try files.read(file, into: buffer, at: offset)
                isLast = n < buffer.count
                length = UnsafeRawBufferPointer(rebasing: buffer[..<n]).lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
                if isLast, length < n { damage += 1 }
                if isLast || length > 0 { break }
                // One line that is longer than the chunk.
                guard buffer.count < 1 << 26 else {
                    damage = 1
                    covered = try passLine(files, file, at: offset)
                    return isLast
                }
                let larger = buffer.count * 2
                buffer.deallocate()
                buffer = .allocate(byteCount: larger, alignment: 8)
            }
        } catch { failure = error }
        covered = Int64(length)
        return isLast
    }

    /// Reads on to the end of a line that is longer than any of the store's: the right ones behind it count.
    ///
    /// - Returns: How many bytes it has with its line break.
    private func passLine(_ files: any FileSystem, _ file: OpenFile, at offset: Int64) throws(FileError) -> Int64 {
        var passed: Int64 = 0
        while true {
            let n = try files.read(file, into: buffer, at: offset + passed)
            if let end = UnsafeRawBufferPointer(rebasing: buffer[..<n]).firstIndex(of: 0x0A) {
                return passed + Int64(end) + 1
            }
            passed += Int64(n)
            if n < buffer.count {
                isLast = true
                return passed
            }
        }
    }

    /// Checks the lines and takes them apart.
    func parse() {
        puts.removeAll(keepingCapacity: true)
        others.removeAll(keepingCapacity: true)
        usedTags = 0
        // The file's first line is no record.
        var from = number == 0 ? newline(0).map { $0 + 1 } ?? length : 0
        var put = PutLine()
        while from < length, let end = newline(from) {
            var line = UnsafeRawBufferPointer(rebasing: buffer[from..<end])
            from = end &+ 1
            if line.last == 0x2C { line = UnsafeRawBufferPointer(rebasing: line.dropLast()) }
            // The brackets behind the last record.
            if line.count == 2, line[0] == 0x5D { continue }
            guard let body = LineReader.body(of: line) else {
                damage += 1
                continue
            }
            if reader.readPut(body, &put) {
                keepTag(&put)
                puts.append(put)
            } else {
                others.append((puts.count, body))
            }
        }
    }

    private func newline(_ from: Int) -> Int? {
        guard let base = buffer.baseAddress, let found = memchr(base + from, 0x0A, length - from) else { return nil }
        return UnsafeRawPointer(found) - UnsafeRawPointer(base)
    }

    /// Moves a tag that does not stand in the chunk to where it outlasts the next line.
    private func keepTag(_ put: inout PutLine) {
        let tag = put.details.tag.bytes
        guard let start = tag.baseAddress, let base = UnsafeRawPointer(buffer.baseAddress),
            start < base || start >= base + buffer.count
        else { return }
        if tags.count < buffer.count {
            // Never while one is kept: the buffer grows only when it is filled.
            tags.deallocate()
            tags = .allocate(byteCount: buffer.count, alignment: 1)
        }
        // Tags are shorter than the lines in which they stand, so there is room for all.
        let place = UnsafeMutableRawBufferPointer(rebasing: tags[usedTags..<(usedTags + tag.count)])
        place.copyMemory(from: tag)
        usedTags += tag.count
        put.details.tag.bytes = UnsafeRawBufferPointer(place)
    }
}
