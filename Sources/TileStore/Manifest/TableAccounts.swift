// What entries and blobs come to. Each account is that of one half of the tables: both halves are loaded at the same time.

/// How many entries there are.
struct EntryAccount {
    private(set) var count = 0
    private(set) var unpinned = 0

    @inline(__always)
    mutating func add(pinned: Bool) {
        count += 1
        if !pinned { unpinned += 1 }
    }

    @inline(__always)
    mutating func remove(pinned: Bool) {
        count -= 1
        if !pinned { unpinned -= 1 }
    }

    mutating func remove(_ number: Int, unpinned: Int) {
        count -= number
        self.unpinned -= unpinned
    }

    mutating func pin() { unpinned -= 1 }

    mutating func unpin() { unpinned += 1 }

    mutating func restore(_ state: ImageState) {
        (count, unpinned) = (Int(clamping: state.entryCount), Int(clamping: state.unpinnedEntries))
    }
}

/// How many blobs there are, and how large they are.
struct BlobAccount {
    let blockSize: Int
    private(set) var count = 0
    private(set) var bytes = 0
    /// Each blob as often as entries name it.
    private(set) var logicalBytes = 0
    private(set) var allocatedUnpinned = 0
    private(set) var allocatedPinned = 0

    var allocated: Int { allocatedUnpinned + allocatedPinned }

    init(blockSize: Int) { self.blockSize = blockSize }

    @inline(__always)
    func allocated(_ size: some BinaryInteger) -> Int { (Int(size) + blockSize - 1) / blockSize * blockSize }

    @inline(__always)
    mutating func add(_ size: UInt32) {
        count += 1
        bytes += Int(size)
        allocatedUnpinned += allocated(size)
    }

    mutating func remove(_ size: UInt32, pinned: Bool) {
        count -= 1
        bytes -= Int(size)
        if pinned { allocatedPinned -= allocated(size) } else { allocatedUnpinned -= allocated(size) }
    }

    /// Entries name a blob of that size, or no longer do.
    @inline(__always)
    mutating func refer(_ size: UInt32, by change: Int) { logicalBytes += Int(size) * change }

    mutating func pin(_ size: UInt32) {
        allocatedUnpinned -= allocated(size)
        allocatedPinned += allocated(size)
    }

    mutating func unpin(_ size: UInt32) {
        allocatedPinned -= allocated(size)
        allocatedUnpinned += allocated(size)
    }

    mutating func restore(_ state: ImageState) {
        (count, bytes) = (Int(clamping: state.blobCount), Int(clamping: state.blobBytes))
        logicalBytes = Int(clamping: state.logicalBytes)
        allocatedUnpinned = Int(clamping: state.allocatedUnpinned)
        allocatedPinned = Int(clamping: state.allocatedPinned)
    }
}
