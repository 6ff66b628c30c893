import TileStore

/// Looks at a cache again and again, and writes what it sees.
struct WatchLoop {
    /// How it is written.
    enum Form {
        /// Redrawn in a terminal.
        case screen
        /// A line for people each time, without control characters.
        case lines
        /// A line of JSON each time.
        case json
    }

    /// The cache's path, as it was given.
    let cache: String
    let form: Form
    /// Milliseconds.
    let interval: Int
    let look: () throws -> WatchedReading
    /// The terminal as it is now: it may be resized.
    let screen: () -> Progress.Screen
    /// Writes text; `false` when nobody reads on.
    let write: (String) throws -> Bool
    /// Waits so many milliseconds; `false` when the user wants to stop.
    let wait: (Int) -> Bool
    /// Milliseconds of a clock that never goes back.
    let clock: () -> Int

    // What was drawn last: how many lines.
    private var drawn = 0
    private var lastLook: Int?
    // How long it is since the look before the last one: a look may take long, and the process may have been stopped.
    private var passed = 0
    private var puts = 0
    private var evictedBlobs = 0
    private var lastEvent: (at: Timestamp, text: String)?

    init(
        cache: String, form: Form, interval: Int, look: @escaping () throws -> WatchedReading,
        screen: @escaping () -> Progress.Screen, write: @escaping (String) throws -> Bool,
        wait: @escaping (Int) -> Bool, clock: @escaping () -> Int = Interrupt.milliseconds
    ) {
        self.cache = cache
        self.form = form
        self.interval = interval
        self.look = look
        self.screen = screen
        self.write = write
        self.wait = wait
        self.clock = clock
    }

    private static let hidesCursor = "\u{1B}[?25l"
    private static let showsCursor = "\u{1B}[?25h"

    /// Goes on until the user stops it, nobody reads on, or the cache cannot be read.
    mutating func run() throws {
        guard form == .screen else { return try repeatedly() }
        var failure: (any Error)?
        do {
            if try write(Self.hidesCursor) { try repeatedly() }
        } catch { failure = error }
        // The first reason is what the user should see.
        do { _ = try write(Self.showsCursor) } catch { failure = failure ?? error }
        if let failure { throw failure }
    }

    private mutating func repeatedly() throws {
        repeat {
            let seen = try look()
            let now = clock()
            passed = now - (lastLook ?? now)
            lastLook = now
            puts += seen.reading.puts ?? 0
            evictedBlobs += seen.reading.evictedBlobs ?? 0
            if !seen.events.isEmpty {
                lastEvent = (seen.reading.at, seen.events.map(\.text).joined(separator: "; "))
            }
            let text =
                switch form {
                case .screen: drawing(seen)
                case .lines: line(seen) + "\n"
                case .json: JSON.object(fields(seen)).text + "\n"
                }
            guard try write(text) else { return }
        } while wait(interval)
    }

    // MARK: Texts

    private func fields(_ seen: WatchedReading) -> [(String, JSON)] {
        let reading = seen.reading
        return [
            ("time", .string(reading.at.description)), ("countedAt", .string(reading.countedAt.description)),
        ] + reading.figures.fields + [
            ("puts", .optional(reading.puts)), ("evictedBlobs", .optional(reading.evictedBlobs)),
            ("journalDamage", .integer(reading.damagedLines)),
            ("events", .array(seen.events.map { .string($0.rawValue) })),
        ]
    }

    private static func count(_ number: Int?) -> String { number.map(Figure.count) ?? "?" }

    private func line(_ seen: WatchedReading) -> String {
        let figures = seen.reading.figures
        let parts = [
            seen.reading.at.description,
            "entries \(Figure.count(figures.entries)) (\(Figure.count(figures.stale)) stale)",
            "blobs \(Figure.count(figures.blobs)), \(Figure.size(figures.allocatedBytes)) on disk",
            "manifest \(Figure.size(figures.manifestBytes)), journal \(Figure.size(figures.journalBytes))",
            "puts \(Self.count(seen.reading.puts))", "evicted blobs \(Self.count(seen.reading.evictedBlobs))",
        ]
        return (parts + seen.events.map(\.text)).joined(separator: "  ")
    }

    /// The rows of a screen, before they are cut to its size.
    private func rows(_ seen: WatchedReading) -> [String] {
        let reading = seen.reading
        let seconds = Double(interval) / 1000
        let elapsed = passed > 0 ? Double(passed) / 1000 : seconds
        func changes(_ number: Int?, _ all: Int) -> String {
            let rate = number.map { "\(Figure.decimal(Double($0) / elapsed, 1))/s" } ?? "not known"
            return "\(rate), \(Figure.count(all)) since the start"
        }
        let counted =
            reading.countedAt == reading.at ? "" : " (entries counted at \(reading.countedAt.description))"
        var rows = [
            "\(reading.at.description), every \(Figure.decimal(seconds, 1)) s\(counted)",
            "Puts".left(15) + changes(reading.puts, puts),
            "Evicted blobs".left(15) + changes(reading.evictedBlobs, evictedBlobs),
        ]
        if let lastEvent { rows.append("Last event".left(15) + "\(lastEvent.at.description): \(lastEvent.text)") }
        return rows + [""] + reading.figures.lines(cache: cache)
    }

    /// Goes back to the first line of what was drawn last, and draws over it.
    private mutating func drawing(_ seen: WatchedReading) -> String {
        let screen = screen()
        // The cursor stands below the last row; a terminal that has become lower has scrolled the first ones away.
        let rows = rows(seen).prefix(max(1, screen.height - 1))
        let up = min(drawn, max(0, screen.height - 1))
        var text = up > 0 ? "\u{1B}[\(up)A\r" : "\r"
        for row in rows { text += screen.line(row) + "\u{1B}[K\r\n" }
        drawn = rows.count
        return text + "\u{1B}[J"
    }
}
