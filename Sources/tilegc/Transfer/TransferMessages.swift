import TileArchive

/// Tells the user how a transfer goes: progress, and why the first few things were passed over.
final class TransferMessages: TransferObserver {
    private var progress = Progress()
    private var skips = Skips()
    private var failures = Skips()
    /// How many tiles were done when it was last heard of.
    private(set) var tiles = 0

    func skipped(_ what: String, _ why: String, count: Int) { skips.add(what, why, count: count) }
    func failed(_ what: String, _ why: String) { failures.add(what, why, count: 1) }

    func advanced(_ state: @autoclosure () -> TransferProgress) {
        tiles += 1
        guard Progress.isVisible else { return }
        let state = state()
        if let total = state.total {
            progress.show(state.tiles, of: total, "tiles, \(Figure.size(state.bytes)), at \(state.place)")
        } else {
            progress.show("\(Figure.count(state.tiles, "tile")), \(Figure.size(state.bytes)), at \(state.place)")
        }
    }

    var wantsStop: Bool { Interrupt.isRequested }

    /// Takes the progress away and sums up what was passed over.
    func finish() {
        progress.clear()
        skips.summarize()
        failures.summarize()
    }
}

/// Counts what was passed over, and says why for the first few.
private struct Skips {
    private var count = 0
    private var named = 0
    private static let shown = 5

    mutating func add(_ what: String, _ why: String, count more: Int) {
        count += more
        guard named < Self.shown else { return }
        named += 1
        Message.print(
            "skipped \(what.printable): \(why.printable)\(more > 1 ? " (\(Figure.count(more, "tile")))" : "")")
    }

    /// Says how many were not mentioned.
    func summarize() {
        if count > named, named >= Self.shown {
            Message.print("skipped \(Figure.count(count)) in all; only the first few are named")
        }
    }
}

extension TransferReport {
    /// The fields that `import` and `export` report.
    var json: JSON {
        .object([
            ("tiles", .integer(tiles)),
            ("newBlobs", .integer(newBlobs)),
            ("bytes", .integer(bytes)),
            ("skipped", .integer(skipped)),
            ("failed", .integer(failed)),
        ])
    }
}
