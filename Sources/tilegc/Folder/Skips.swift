/// Counts what was passed over, and says why for the first few.
struct Skips {
    private(set) var count = 0
    private static let shown = 5

    /// Counts one.
    mutating func add(_ what: String, _ why: String) {
        count += 1
        if count <= Self.shown { Message.print("skipped \(what.printable): \(why)") }
    }

    /// Counts one of a kind that needs no words.
    mutating func addQuietly() { count += 1 }

    /// Says how many were not mentioned.
    func summarize() {
        if count > Self.shown { Message.print("skipped \(Figure.count(count)) in all; only the first few are named") }
    }
}

/// What a transfer between a cache and a folder did.
struct TransferReport {
    var tiles = 0
    var newBlobs = 0
    var bytes = 0
    var skipped = 0
    var failed = 0

    /// Whether there was nothing to transfer.
    var isEmpty: Bool { tiles == 0 && skipped == 0 && failed == 0 }

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
