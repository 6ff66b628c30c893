import TileStore

extension RemovalReport {
    /// The fields that every removal reports.
    var fields: [(String, JSON)] {
        [
            ("removedEntries", .integer(removedEntries)),
            ("removedBlobs", .integer(removedBlobs)),
            ("freedBytes", .integer(freedBytes)),
        ]
    }

    /// One sentence: what was removed, or would be.
    func sentence(planned: Bool) -> String {
        "\(planned ? "Would remove" : "Removed") \(Figure.count(removedEntries, "entry", "entries")) and "
            + "\(Figure.count(removedBlobs, "blob")), \(planned ? "freeing" : "freed") \(Figure.size(freedBytes)) on disk"
    }
}
