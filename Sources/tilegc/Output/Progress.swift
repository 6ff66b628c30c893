#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A line on standard error that says how far a command is; nothing at all where that is no terminal.
struct Progress {
    /// Whether progress is shown.
    static let isVisible = isatty(STDERR_FILENO) == 1

    private var shown: UInt64 = 0

    /// Draws a bar, at most ten times a second.
    mutating func show(_ done: Int, of total: Int, _ what: String) {
        guard Self.isVisible, isDue(always: done >= total) else { return }
        let width = 30
        let part = total > 0 ? Double(min(max(0, done), total)) / Double(total) : 1
        let filled = Int(part * Double(width))
        let bar = String(repeating: "█", count: filled) + String(repeating: "·", count: width - filled)
        Message.write("\r\u{1B}[K\(bar) \(Int(part * 100)) %  \(Figure.count(done)) of \(Figure.count(total)) \(what)")
    }

    /// Draws a line where the total is not known, at most ten times a second.
    mutating func show(_ text: @autoclosure () -> String) {
        guard Self.isVisible, isDue(always: false) else { return }
        Message.write("\r\u{1B}[K\(text())")
    }

    /// Takes the line away.
    func clear() {
        if Self.isVisible { Message.write("\r\u{1B}[K") }
    }

    private mutating func isDue(always: Bool) -> Bool {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        let now = UInt64(time.tv_sec) * 1000 + UInt64(time.tv_nsec) / 1_000_000
        guard always || now >= shown + 100 else { return false }
        shown = now
        return true
    }
}
