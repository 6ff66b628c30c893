/// What each stripe of readers has for itself.
struct ReaderLocal {
    /// Uses that have not been written down.
    var uses = UseLog()
    /// When this stripe last asked whether the journal has grown.
    var lastNews: UInt64 = 0
    var isClosed = false
    /// Names that were looked up last, and their numbers: threads ask for tiles of one source again and again.
    var names = OfTables.none(LastNames())
}

/// The numbers of the names that were looked up last.
struct LastNames {
    var source = ""
    var sourceNumber: UInt16 = 0
    var scale = 1
    var format: String?
    var variant: UInt16 = 0
}
