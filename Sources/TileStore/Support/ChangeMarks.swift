/// Which parts of a table changed since they were last copied: a bit for each.
///
/// The memory for as many parts as there can ever be is asked for at once; the pages of it that no mark touches cost
/// nothing. Whoever makes them ends them with ``release()``.
struct ChangeMarks: BitwiseCopyable {
    private let words: UnsafeMutablePointer<UInt64>
    private let count: Int

    /// - Returns: `nil` without memory.
    init?(limit: Int) {
        count = (limit + 63) / 64
        guard let memory = LargeMemory.reserve(count * 8) else { return nil }
        words = memory.bindMemory(to: UInt64.self, capacity: count)
    }

    func release() { LargeMemory.giveBack(words, count * 8) }

    @inline(__always)
    func mark(_ part: Int) { words[part >> 6] |= 1 << UInt64(truncatingIfNeeded: part & 63) }

    /// Takes the marks off a range of parts.
    func clear(_ parts: Range<Int>) {
        var at = parts.lowerBound
        while at < parts.upperBound {
            if at & 63 == 0, at + 64 <= parts.upperBound {
                words[at >> 6] = 0
                at += 64
            } else {
                words[at >> 6] &= ~(1 << UInt64(truncatingIfNeeded: at & 63))
                at += 1
            }
        }
    }

    /// Takes marks off, in order, and gives each part to the body, until there were so many of them, or so many words
    /// were looked at.
    ///
    /// - Parameters:
    ///   - place: The word to begin with; afterwards the one to go on with.
    ///   - parts: Behind the last part that there is now.
    /// - Returns: Whether there may be more.
    func take(from place: inout Int, upTo parts: Int, most: Int, _ body: (Int) -> Void) -> Bool {
        let end = min(count, (parts + 63) / 64)
        var (taken, looked) = (0, 0)
        while place < end {
            if taken + 64 > most || looked >= 1 << 16 { return true }
            var word = words[place]
            if word != 0 {
                words[place] = 0
                while word != 0 {
                    body(place << 6 + word.trailingZeroBitCount)
                    word &= word &- 1
                    taken += 1
                }
            }
            place += 1
            looked += 1
        }
        return false
    }
}
