/// How a store is opened.
public struct StoreConfiguration: Sendable {
    /// What a power cut may take.
    ///
    /// A killed process loses nothing in either mode.
    public enum Durability: Sendable {
        /// Nothing is synced: a power cut may take the last half minute; what it damaged is found when it is read.
        case relaxed
        /// A put returns when its blob and its record are on the disk, also where a relaxed store shares the folder.
        ///
        /// That holds until somebody changes the key again: what a relaxed store puts in its place is relaxed.
        case durable
    }

    /// When a blob's bytes are hashed and compared with its name.
    public enum DigestCheck: Sendable {
        /// The first time that this process reads it.
        case first
        /// Every time that it is read from disk.
        case always
        /// Never, except where blobs of a relaxed store may have been damaged by a power cut: after a new start of the machine,
        /// until ``TileStore/verify(quick:repair:progress:)`` has hashed all.
        case never
    }

    /// Sets the lasting capacity in allocated bytes of unpinned blobs; `nil` keeps what the cache has.
    public var capacity: Int?
    /// Sets the lasting limit of unpinned entries; `nil` keeps what the cache has.
    public var entryLimit: Int?
    /// Capacities of single sources, within that of the whole; this store keeps them, and the cache does not remember them.
    ///
    /// A source counts the allocated bytes of the unpinned blobs that its entries name, those that other sources name as well
    /// included. When a put makes it exceed its capacity, it loses entries, those first whose blobs were used longest ago by any
    /// source; entries of other sources stay. What it holds too much at opening is evicted in the background, and so is what other
    /// processes have put, from this store's next put on. A tile that is larger than its source's capacity is not stored.
    /// Each takes 4 bytes of memory a blob of the whole cache. A store that is opened for reading alone evicts nothing.
    public var sourceCapacities: [SourceName: Int] = [:]
    /// What a power cut may take.
    public var durability = Durability.relaxed
    /// When bytes are checked.
    public var digestCheck = DigestCheck.first
    /// Bytes of blobs that are kept in memory; 0 switches the memory tier off.
    public var memoryTierBytes = 32 << 20
    /// Whether a cache that does not exist is made.
    public var createIfMissing = true
    /// Whether the cache is opened for reading alone.
    ///
    /// A folder that this user may not write is always opened so.
    public var readOnly = false
    /// How long to wait for another process that holds the cache's lock, in seconds.
    public var lockWait = 5.0

    /// When the tables are written down as they are, to spare the next opening reading the manifest.
    package enum IndexImages: Sendable {
        /// When that spares much.
        case automatic
        /// After every compaction and at every close; for tests.
        case always
        /// Neither written nor read: the manifest is read.
        case never
    }
    package var indexImages = IndexImages.automatic

    /// The defaults.
    public init() {}
}
