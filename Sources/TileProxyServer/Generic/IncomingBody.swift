import CacheEngine
import NIOCore
import TileStore

/// A body on its way from its origin into the store: in memory while it is small, else in a file of `staging/`.
///
/// The file is written on threads that may wait, in order, one write at a time. What waits for that is in memory; whoever
/// feeds it stops while ``isFull``. All that was taken can be read, also when the writing has failed or was given up.
/// Belongs to its event loop.
final class IncomingBody: @unchecked Sendable {
    // Sendable so that a write on another thread can call it back on its loop; nothing else is touched off the loop.

    /// Up to this size it stays in memory, and fits into the buffers of one connection.
    static let inMemoryUpTo = Candidate.wholeUpTo
    /// Bytes that may wait to be written before the origin has to wait.
    static let mostWaiting = 512 << 10
    /// Bytes that are worth a write: one for each few bytes of an origin that is slow would be too many.
    private static let batch = 64 << 10
    /// Parts that are smaller are put together: a million single bytes must not be a million buffers.
    private static let smallPart = 16 << 10

    private let writer: BodyWriter
    private let limit: Int
    private let budget: StagingBudget
    private let threads: BlockingPool
    private let loop: any EventLoop
    /// What it has of the budget.
    private var taken = 0
    /// How many bytes the writer has; the rest is in `waiting`.
    private var staged = 0
    private var waiting: [ByteBuffer] = []
    private var waitingBytes = 0
    /// How many of those that wait are being written.
    private var inFlight = 0
    private var hasFile = false
    private var whenWritten: (() -> Void)?

    /// Why nothing more is written, if the disk, or the store, is the reason.
    private(set) var failure: (any Error)?
    /// Whether nothing more is written.
    private(set) var isGivenUp = false
    /// Called when something has been written, or could not be.
    var onProgress: (() -> Void)?

    /// - Throws: `StoreError` if the store takes nothing.
    init(_ cache: GenericCache, limit: Int, loop: any EventLoop) throws {
        writer = try cache.store.beginBody(limit: limit, inMemoryUpTo: Self.inMemoryUpTo)
        self.limit = limit
        self.loop = loop
        budget = cache.budget
        threads = cache.worker.staging
    }

    deinit {
        budget.give(taken)
        guard hasFile else { return }
        // The last close of a removed file frees its blocks, which may take a while.
        threads.submit { [writer] in writer.abort() }
    }

    /// How many bytes were taken.
    var count: Int { staged + waitingBytes }

    /// Whether so much waits to be written that the origin has to wait.
    var isFull: Bool { !isGivenUp && waitingBytes >= Self.mostWaiting }

    /// How many parts wait to be written.
    var waitingParts: Int { waiting.count }

    // MARK: Taking

    /// Takes a part.
    ///
    /// - Returns: `false` if it gets too long, or the budget has no room; then the part was not taken.
    /// - Throws: `StoreError` if the store takes nothing more; neither was it then.
    func append(_ bytes: ByteBuffer) throws -> Bool {
        let size = bytes.readableBytes
        guard !isGivenUp, size <= limit - count, budget.take(size) else { return false }
        taken += size
        guard waiting.isEmpty else {
            enqueue(bytes)
            write()
            return true
        }
        do {
            if try bytes.withUnsafeReadableBytes({ try writer.appendNow($0) }) {
                staged += size
                return true
            }
        } catch {
            budget.give(size)
            taken -= size
            giveUp()
            failure = error
            throw error
        }
        enqueue(bytes)
        write()
        return true
    }

    /// Keeps a part for a client that has not had what came before it; it is not written.
    func keep(_ bytes: ByteBuffer) { enqueue(bytes) }

    private func enqueue(_ bytes: ByteBuffer) {
        let size = bytes.readableBytes
        waitingBytes += size
        guard size < Self.smallPart, waiting.count > inFlight, var last = waiting.popLast() else {
            waiting.append(bytes)
            return
        }
        if last.readableBytes < Self.smallPart {
            last.writeImmutableBuffer(bytes)
            waiting.append(last)
        } else {
            waiting += [last, bytes]
        }
    }

    // MARK: Writing

    private func write() {
        let least = whenWritten == nil ? Self.batch : 1
        guard inFlight == 0, !isGivenUp, waitingBytes >= least else { return }
        inFlight = waiting.count
        hasFile = true
        let (parts, writer, loop) = (waiting, writer, loop)
        threads.submit {
            let result = Result {
                for part in parts { try part.withUnsafeReadableBytes { try writer.append($0) } }
            }
            loop.execute { self.wrote(result) }
        }
    }

    private func wrote(_ result: Result<Void, any Error>) {
        inFlight = 0
        // After a failure too: what was written before it can be read.
        let count = writer.body.count
        while staged < count, let part = waiting.first {
            waiting.removeFirst()
            staged += part.readableBytes
            waitingBytes -= part.readableBytes
        }
        if case .failure(let error) = result, !isGivenUp {
            giveUp()
            failure = error
        }
        write()
        if inFlight == 0 {
            let next = whenWritten
            whenWritten = nil
            next?()
        }
        onProgress?()
    }

    /// Has all that waits written, and calls a body once nothing is being written any more.
    func finish(_ body: @escaping () -> Void) {
        whenWritten = body
        write()
        guard inFlight == 0 else { return }
        whenWritten = nil
        body()
    }

    /// Writes nothing more, and has the file removed; what was taken can still be read.
    func giveUp() {
        guard !isGivenUp else { return }
        isGivenUp = true
        if hasFile { threads.submit { [writer] in writer.abort() } } else { writer.abort() }
    }

    // MARK: Storing

    /// What is to be put.
    var bytes: PutBody { .pieces(writer) }

    /// It has become a blob, and counts towards the store's capacity from now on.
    func isStored() {
        budget.give(taken)
        taken = 0
    }

    /// The whole of it with its part of the budget, if it is in memory.
    func held() -> HeldBody? {
        guard let data = writer.body.memory, data.count == count else { return nil }
        defer { taken = 0 }
        return HeldBody(data, taken, budget)
    }

    // MARK: Reading

    /// A piece from an offset on, of at most ``BodySender/pieceBytes``; `nil` if only ``read(at:then:)`` can tell.
    func readNow(at offset: Int) -> ByteBuffer? {
        guard offset < staged else { return readWaiting(at: offset - staged) }
        let piece = offset..<min(offset + BodySender.pieceBytes, staged)
        return ByteBuffer(piece, now: { writer.body.readNow(into: $0, at: piece.lowerBound) })
    }

    /// The same, read on a thread that may wait; the result comes on the loop.
    func read(at offset: Int, then next: @escaping @Sendable (Result<ByteBuffer, any Error>) -> Void) {
        let piece = offset..<min(offset + BodySender.pieceBytes, staged)
        ByteBuffer.read(
            piece, on: loop, { [writer] in try writer.body.read(into: $0, at: piece.lowerBound) }, then: next)
    }

    private func readWaiting(at offset: Int) -> ByteBuffer? {
        var start = 0
        for part in waiting {
            let end = start + part.readableBytes
            if offset < end {
                let length = min(end - offset, BodySender.pieceBytes)
                return part.getSlice(at: part.readerIndex + offset - start, length: length)
            }
            start = end
        }
        return ByteBuffer()
    }
}
