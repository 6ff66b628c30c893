#if !MBTiles
extension ArchiveError {
    /// What is said of an MBTiles file where the trait `MBTiles` is off: nothing here reads or writes SQLite then.
    static func withoutMBTiles(_ path: String) -> ArchiveError {
        ArchiveError(
            .unsupported,
            "\(path) is an MBTiles file, and this program was built without them; enable the trait MBTiles where its "
                + "Package.swift names swift-tile-cache: traits: [\"MBTiles\"]")
    }
}
#endif
