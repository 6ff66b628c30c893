import Dispatch

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Reads a checkpoint in chunks: lines are checked and taken apart by whichever thread is free, and carried out in stages.
///
/// A stage sees all chunks in their order, one at a time, and a chunk goes through the stages one after the other; what one
/// stage does with a chunk and another with the next one may happen at the same time. The caller's thread needs no helper:
/// what none has taken in hand it does itself, so a pool of threads that has none to spare costs time and nothing else.
final class CheckpointReader: @unchecked Sendable {
    // `state` is touched under its lock alone; a chunk, and what a stage touches, by the one thread that has taken it out of
    // `state`. Whoever reads from the file holds `reading`, so chunks follow each other in the file as their numbers do.
    private struct State {
        var idle: [CheckpointChunk]
        /// For each stage the chunks that are ready for it, by their numbers.
        var ready: [[Int: CheckpointChunk]]
        /// For each stage the number of the chunk that it takes next.
        var next: [Int]
        /// The stages that have a chunk in hand.
        var isRunning: [Bool]
        /// Threads with a chunk in hand.
        var busy = 0
        /// Nothing more is to be read.
        var isOver = false
        var failure: (any Error)?

        init(chunks: Int, ofBytes size: Int, stages: Int) {
            idle = (0..<chunks).map { _ in CheckpointChunk(size: size) }
            ready = Array(repeating: [:], count: stages)
            next = Array(repeating: 0, count: stages)
            isRunning = Array(repeating: false, count: stages)
        }

        /// What the thread that asks should do next; `nil` if it has to wait.
        mutating func turn() -> Turn? {
            if failure != nil { return .over }
            // The last stage first: what is nearly done makes room.
            for stage in ready.indices.reversed() where !isRunning[stage] {
                if let chunk = ready[stage].removeValue(forKey: next[stage]) {
                    isRunning[stage] = true
                    next[stage] += 1
                    busy += 1
                    return .carryOut(stage: stage, chunk)
                }
            }
            if !isOver {
                guard let chunk = idle.popLast() else { return nil }
                busy += 1
                return .read(chunk)
            }
            return busy == 0 ? .over : nil
        }

        mutating func hand(_ chunk: CheckpointChunk, to stage: Int) { ready[stage][chunk.number] = chunk }
    }
    private struct Position {
        var offset: Int64 = 0
        var number = 0
        var isAtEnd = false
    }
    private enum Turn { case carryOut(stage: Int, CheckpointChunk), read(CheckpointChunk), over }
    typealias Stage = (CheckpointChunk) throws -> Void

    private let files: any FileSystem
    private let file: OpenFile
    private let reading = Locked(Position())
    private let state: Monitor<State>
    private let helpers: Int
    // Emptied by the caller's thread when nobody has a chunk in hand any more.
    private var stages: [Stage]

    private init(_ files: any FileSystem, _ file: OpenFile, helpers: Int, chunkSize: Int, stages: [Stage]) {
        self.files = files
        self.file = file
        self.helpers = helpers
        self.stages = stages
        // One for each thread to read into, and one that waits before each stage.
        state = Monitor(State(chunks: helpers + 1 + stages.count, ofBytes: chunkSize, stages: stages.count))
    }

    /// How many helpers pay for a file of some length.
    static func helpers(for size: Int64) -> Int {
        // Below that it is read before a thread has started.
        size < 4 << 20 ? 0 : min(3, max(0, processorCount() - 1))
    }

    /// Carries out all chunks of a file; when it returns, nobody uses the file or the stages any more.
    ///
    /// - Parameters:
    ///   - helpers: How many threads may help.
    ///   - chunkSize: How many bytes are read at a time; longer lines are read all the same.
    /// - Throws: What reading the file or a stage threw first.
    static func read(
        _ files: any FileSystem, _ file: OpenFile, helpers: Int, chunkSize: Int, stages: [Stage]
    ) throws {
        let reader = CheckpointReader(files, file, helpers: helpers, chunkSize: chunkSize, stages: stages)
        try reader.run()
    }

    private func run() throws {
        // Helpers come when the first chunk is there and is not all: a short file has no other.
        guard helpers > 0 else { return try finish() }
        if case .read(let first) = state.wait(until: { $0.turn() }) {
            readAndParse(first)
            if !first.isLast {
                for _ in 0..<helpers { DispatchQueue.global(qos: .userInitiated).async { [self] in work() } }
            }
        }
        try finish()
    }

    private func finish() throws {
        work()
        let failure = state.wait(until: { $0.busy == 0 ? .some($0.failure) : nil })
        // A helper that comes only now finds nothing to do, and keeps nothing alive.
        stages = []
        if let failure { throw failure }
    }

    /// Does what is to be done until all is done.
    private func work() {
        while true {
            switch state.wait(until: { $0.turn() }) {
            case .over: return
            case .read(let chunk): readAndParse(chunk)
            case .carryOut(let stage, let chunk): carryOut(stage, chunk)
            }
        }
    }

    private func carryOut(_ stage: Int, _ chunk: CheckpointChunk) {
        var failure: (any Error)?
        do { try stages[stage](chunk) } catch { failure = error }
        state.withLock { state in
            state.isRunning[stage] = false
            state.busy -= 1
            if state.failure == nil { state.failure = failure }
            if stage + 1 == state.ready.count { state.idle.append(chunk) } else { state.hand(chunk, to: stage + 1) }
        }
        state.wakeAll()
    }

    private func readAndParse(_ chunk: CheckpointChunk) {
        let isThere = reading.withLock { position -> Bool in
            guard !position.isAtEnd else { return false }
            position.isAtEnd = chunk.fill(from: files, file, at: position.offset)
            position.offset += chunk.covered
            chunk.number = position.number
            position.number += 1
            return true
        }
        if isThere { chunk.parse() }
        state.withLock { state in
            state.busy -= 1
            if !isThere || chunk.isLast { state.isOver = true }
            if !isThere {
                state.idle.append(chunk)
            } else if let failure = chunk.failure {
                if state.failure == nil { state.failure = failure }
            } else {
                state.hand(chunk, to: 0)
            }
        }
        state.wakeAll()
    }
}

func processorCount() -> Int {
    #if canImport(Darwin)
    return Int(sysconf(_SC_NPROCESSORS_ONLN))
    #else
    return Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    #endif
}
