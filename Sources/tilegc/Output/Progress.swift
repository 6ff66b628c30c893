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

    /// What the terminal can show.
    struct Screen {
        /// Columns in a line.
        var width: Int
        /// Lines.
        var height = 24
        /// Whether it has no control sequences, as an editor's window: `TERM` is `dumb` or nothing.
        var isDumb: Bool

        /// The terminal behind standard error.
        static var current: Screen { Screen(of: STDERR_FILENO) }

        /// The terminal behind a standard file.
        init(of descriptor: Int32) {
            var size = winsize()
            let isKnown = ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0
            let term = getenv("TERM").map { String(cString: $0) } ?? ""
            width = isKnown ? Int(size.ws_col) : 80
            if isKnown, size.ws_row > 0 { height = Int(size.ws_row) }
            isDumb = term.isEmpty || term == "dumb"
        }

        init(width: Int, height: Int = 24, isDumb: Bool) {
            (self.width, self.height, self.isDumb) = (width, height, isDumb)
        }

        /// What takes a line away that was shown before.
        var clearing: String {
            isDumb ? "\r" + String(repeating: " ", count: max(0, width - 1)) + "\r" : "\r\u{1B}[K"
        }

        /// A text cut to one line: one that wraps could not be taken away again.
        func line(_ text: String) -> String {
            let shown = isDumb ? String(text.map { $0.isASCII ? $0 : "?" }) : text
            var left = width - 1
            let fitting = shown.prefix { character in
                left -= Self.columns(of: character)
                return left >= 0
            }
            return String(fitting)
        }

        /// How many columns a character takes: those of East Asia, and pictures, take two.
        private static func columns(of character: Character) -> Int {
            let wide: [ClosedRange<UInt32>] = [
                0x1100...0x115F, 0x2E80...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60,
                0xFFE0...0xFFE6, 0x1F300...0x1FAFF, 0x20000...0x3FFFD,
            ]
            guard let first = character.unicodeScalars.first?.value, first >= 0x1100 else { return 1 }
            return wide.contains { $0.contains(first) } ? 2 : 1
        }

        /// A bar with what it says, cut to one line.
        func bar(_ done: Int, of total: Int, _ what: String) -> String {
            let part = total > 0 ? Double(min(max(0, done), total)) / Double(total) : 1
            // The words go first where there is no room for both.
            let cells = width >= 80 ? 30 : 10
            let filled = Int(part * Double(cells))
            let (full, empty) = isDumb ? ("#", ".") : ("█", "·")
            let bar = String(repeating: full, count: filled) + String(repeating: empty, count: cells - filled)
            return line("\(bar) \(Int(part * 100)) %  \(Figure.count(done)) of \(Figure.count(total)) \(what)")
        }
    }

    /// Draws a bar, at most ten times a second.
    mutating func show(_ done: Int, of total: Int, _ what: String) {
        guard Self.isVisible, isDue(always: done >= total) else { return }
        let screen = Screen.current
        Message.write(screen.clearing + screen.bar(done, of: total, what))
    }

    /// Draws a line where the total is not known, at most ten times a second.
    mutating func show(_ text: @autoclosure () -> String) {
        guard Self.isVisible, isDue(always: false) else { return }
        let screen = Screen.current
        Message.write(screen.clearing + screen.line(text()))
    }

    /// Takes the line away.
    func clear() {
        if Self.isVisible { Message.write(Screen.current.clearing) }
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
