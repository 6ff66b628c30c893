/// What this process knows of lines that cannot be read.
struct JournalDamage {
    /// How many there are, in the files that were loaded.
    private(set) var lines = 0
    /// The last journal of which a line was skipped: a newer checkpoint may be of a process that had read the line.
    private var skippedIn: UInt64?
    /// Whether a reader without the lock met a line that only a holder of the lock may judge.
    private(set) var needsJudgement = false
    /// In a store that may not write: the offset and length at which the journal was found to end in no right line.
    private var judgedTail: (offset: Int64, size: Int64)?

    /// What is loaded is damaged so far.
    mutating func begin(_ lines: Int, in generation: UInt64) {
        self.lines = 0
        (skippedIn, needsJudgement) = (nil, false)
        skip(lines, in: generation)
    }

    /// Takes note of lines that cannot be read, or that the store did not write.
    mutating func skip(_ count: Int, in generation: UInt64) {
        guard count > 0 else { return }
        lines += count
        skippedIn = generation
    }

    mutating func forgetSkipped() { skippedIn = nil }

    /// The journal before this one of which a line was skipped: what it said stands in the next checkpoint.
    @inline(__always)
    func skipped(before generation: UInt64) -> UInt64? { skippedIn.flatMap { $0 < generation ? $0 : nil } }

    /// The journal is read anew, up to what is no right line.
    @inline(__always)
    mutating func beginReading() { needsJudgement = false }

    /// A line that is whole but wrong, or longer than any: only under the lock may it be called damage.
    mutating func leaveToHolder(_ isWhole: Bool) { needsJudgement = isWhole }

    mutating func noteTail(_ offset: Int64, _ size: Int64) { judgedTail = (offset, size) }

    func isTail(_ offset: Int64, _ size: Int64) -> Bool { judgedTail.map { $0 == (offset, size) } ?? false }
}
