#if canImport(Glibc)
import CMalloc
#endif

/// How the C library's heap gives memory back.
enum Heap {
    /// Larger blocks have pages of their own, which go back to the system when the block is freed: the pieces of large bodies
    /// are among them.
    static let largestShared = 128 << 10
    /// The most free memory that the end of a heap keeps for the next block.
    static let keptFree = 2 << 20

    /// Fixes both limits, which glibc otherwise moves.
    ///
    /// It raises the first to the size of each large block that is freed, up to 32 MiB, and the second to twice that. After
    /// a burst of large tiles their memory would stay with the heaps of all threads for good. Other systems' C libraries
    /// move nothing.
    static func fixLimits() {
        #if canImport(Glibc)
        // Neither value is out of glibc's range.
        _ = mallopt(M_MMAP_THRESHOLD, CInt(largestShared))
        _ = mallopt(M_TRIM_THRESHOLD, CInt(keptFree))
        #endif
    }
}
