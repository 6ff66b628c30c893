/// What a transfer between a cache and an archive did.
public struct TransferReport: Sendable, Equatable {
    /// Tiles that were transferred.
    public var tiles = 0
    /// Blobs that the cache did not have before; for imports.
    public var newBlobs = 0
    /// The sum of the tiles' sizes.
    public var bytes = 0
    /// What was passed over.
    public var skipped = 0
    /// Of those the tiles that the cache had already, and newer; for imports.
    public var keptNewer = 0
    /// Of those the rows of an archive that later rows for the same tile replaced; for imports.
    public var repeated = 0
    /// Tiles that could not be transferred: damaged ones of a cache, files of a folder that cannot be read.
    public var failed = 0
    /// Whether the observer stopped it before its end.
    public var wasStopped = false

    /// An empty report.
    public init() {}

    /// Whether there was nothing to transfer.
    public var isEmpty: Bool { tiles == 0 && skipped == 0 && failed == 0 }
}

/// How far a transfer is.
public struct TransferProgress: Sendable {
    /// Tiles that are done.
    public var tiles: Int
    /// Of how many; `nil` where that is not known.
    public var total: Int?
    /// The sum of their sizes.
    public var bytes: Int
    /// Where it is: `zoom/column/row`, or what is being done.
    public var place: String
}

/// Who is told of a transfer's progress, on the thread that runs it, and may stop it.
public protocol TransferObserver: AnyObject {
    /// Something was passed over; called for each, `count` of them at once.
    func skipped(_ what: String, _ why: String, count: Int)
    /// A tile could not be transferred: it is damaged, or its file cannot be read.
    func failed(_ what: String, _ why: String)
    /// The transfer goes on; called often, so do little.
    func advanced(_ progress: @autoclosure () -> TransferProgress)
    /// Asked between two tiles: whether to stop.
    var wantsStop: Bool { get }
}
