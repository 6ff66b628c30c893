import Dispatch

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Reads a checkpoint in chunks: helpers check lines and take them apart, one thread carries them out in their order.
///
/// The caller's thread needs no helper: what none has taken in hand it does itself, so a pool of threads that has none to
/// spare costs time and nothing else.
final class CheckpointReader: @unchecked Sendable {
    // `state` is touched under its lock alone, and a chunk by the one thread that has taken it out of `state`. Whoever
    // reads from the file holds `reading`, so chunks follow each other in the file as their numbers do.
    private struct State {
        var idle: [CheckpointChunk]
        var ready: [Int: CheckpointChunk] = [:]
        /// Chunks in the hands of helpers.
        var busy = 0
        /// Nothing more is to be read.
        var isOver = false
    }
    private struct Position {
        var offset: Int64 = 0
        var number = 0
        var isAtEnd = false
    }
    private let files: any FileSystem
    private let file: OpenFile
    private let reading = Locked(Position())
    private let state: Monitor<State>
    private let helpers: Int

    /// - Parameters:
    ///   - helpers: How many threads may help.
    ///   - chunkSize: How many bytes are read at a time; longer lines are read all the same.
    init(_ files: any FileSystem, _ file: OpenFile, helpers: Int, chunkSize: Int) {
        self.files = files
        self.file = file
        self.helpers = helpers
        state = Monitor(State(idle: (0..<(helpers * 2 + 1)).map { _ in CheckpointChunk(size: chunkSize) }))
    }

    /// How many helpers pay for a file of some length.
    static func helpers(for size: Int64) -> Int {
        // Below that it is read before a thread has started.
        size < 4 << 20 ? 0 : min(3, max(0, processorCount() - 1))
    }

    /// Calls the body with all chunks in their order, on this thread.
    func forEachChunk(_ body: (CheckpointChunk) throws -> Void) throws {
        // Helpers come when the first one is there: a short file has no other.
        var started = false
        var number = 0
        defer { finish() }
        while true {
            enum Turn { case carryOut(CheckpointChunk), read(CheckpointChunk), over }
            let turn = state.wait { state -> Turn? in
                if let chunk = state.ready.removeValue(forKey: number) { return .carryOut(chunk) }
                if state.isOver, state.busy == 0 { return .over }
                if !state.isOver, let chunk = state.idle.popLast() { return .read(chunk) }
                return nil
            }
            switch turn {
            case .over: return
            case .read(let chunk): readAndParse(chunk)
            case .carryOut(let chunk):
                number += 1
                if let failure = chunk.failure { throw failure }
                if !started {
                    started = true
                    for _ in 0..<helpers { DispatchQueue.global(qos: .userInitiated).async { [self] in help() } }
                }
                try body(chunk)
                giveBack(chunk)
            }
        }
    }

    private func giveBack(_ chunk: CheckpointChunk) {
        state.withLock { $0.idle.append(chunk) }
        if helpers > 0 { state.wakeAll() }
    }

    /// Ends the reading, be it complete or not: when it returns, no helper uses the file any more.
    private func finish() {
        state.withLock { $0.isOver = true }
        state.wakeAll()
        state.wait { $0.busy == 0 ? () : nil }
    }

    private func help() {
        while true {
            let chunk = state.wait { state -> CheckpointChunk?? in
                if state.isOver { return .some(nil) }
                guard let chunk = state.idle.popLast() else { return nil }
                state.busy += 1
                return chunk
            }
            guard let chunk else { return }
            readAndParse(chunk)
            state.withLock { $0.busy -= 1 }
            state.wakeAll()
        }
    }

    private func readAndParse(_ chunk: CheckpointChunk) {
        let number = reading.withLock { position -> Int? in
            guard !position.isAtEnd else { return nil }
            position.isAtEnd = chunk.fill(from: files, file, at: position.offset)
            position.offset += Int64(chunk.length)
            position.number += 1
            return position.number - 1
        }
        if let number { chunk.parse(isFirst: number == 0) }
        state.withLock { state in
            if let number { state.ready[number] = chunk } else { state.idle.append(chunk) }
            if number == nil || chunk.isLast { state.isOver = true }
        }
    }
}

/// Some whole lines of a checkpoint, and what they say.
final class CheckpointChunk {
    private var buffer: UnsafeMutableRawBufferPointer
    /// The bytes that it covers.
    private(set) var length = 0
    private(set) var isLast = false
    /// Why it could not be read.
    private(set) var failure: (any Error)?
    /// Lines that are damaged or cut off.
    private(set) var damage = 0
    /// The file's first line, in its first chunk.
    private(set) var header = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The states of keys, and between them the other lines, each with how many states come before it.
    @exclusivity(unchecked) private(set) var puts: ContiguousArray<PutLine> = []
    @exclusivity(unchecked) private(set) var others: [(before: Int, body: UnsafeRawBufferPointer)] = []
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
    fileprivate func fill(from files: any FileSystem, _ file: OpenFile, at offset: Int64) -> Bool {
        (length, isLast, failure, damage) = (0, true, nil, 0)
        do {
            while true {
                let n = try files.read(file, into: buffer, at: offset)
                isLast = n < buffer.count
                length = UnsafeRawBufferPointer(rebasing: buffer[..<n]).lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
                if isLast, length < n { damage += 1 }
                if isLast || length > 0 { break }
                // One line that is longer than the chunk.
                guard buffer.count < 1 << 26 else {
                    (isLast, damage) = (true, 1)
                    break
                }
                let larger = buffer.count * 2
                buffer.deallocate()
                buffer = .allocate(byteCount: larger, alignment: 8)
            }
        } catch { failure = error }
        return isLast
    }

    /// Checks the lines and takes them apart.
    fileprivate func parse(isFirst: Bool) {
        puts.removeAll(keepingCapacity: true)
        others.removeAll(keepingCapacity: true)
        header = UnsafeRawBufferPointer(start: nil, count: 0)
        usedTags = 0
        var from = 0
        if isFirst, let end = newline(0) {
            header = UnsafeRawBufferPointer(rebasing: buffer[..<end])
            from = end + 1
        }
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

func processorCount() -> Int {
    #if canImport(Darwin)
    return Int(sysconf(_SC_NPROCESSORS_ONLN))
    #else
    return Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    #endif
}
