#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Memory for large tables, in pieces that the system may back with large pages.
///
/// A look-up in a table of many megabytes touches a page of its own each time; with pages of 2 MiB most of them are known
/// to the processor. Only pieces beyond the first few megabytes of a table are taken from here, so that a small cache
/// does not pay for pages that it hardly fills.
enum LargeMemory {
    private static var page: Int { 2 << 20 }

    #if !canImport(Darwin)
    // For a page of 2 MiB: cleared at 1 GB a second, which is slow. What follows is asked for within milliseconds.
    private static var patience: UInt64 { 2_000_000 }
    private static var retry: UInt64 { 50_000_000 }
    private static let smallPagesUntil = Locked<UInt64>(0)

    private static func nanoseconds() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
    #endif

    /// Memory of at least so many bytes, zeroed; `nil` if there is none.
    static func allocate(_ bytes: Int) -> UnsafeMutableRawPointer? {
        let size = (bytes + page - 1) / page * page
        #if canImport(Darwin)
        // Pages are as large as they are there; fresh ones are zeroed by the system.
        return calloc(1, size)
        #else
        // More than is needed, so that a part of it begins at a large page's boundary; what is not touched costs nothing.
        let all = mmap(nil, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | anonymous, -1, 0)
        guard let all, all != MAP_FAILED else { return nil }
        let start = UnsafeMutableRawPointer(
            bitPattern: (UInt(bitPattern: all) + UInt(page) - 1) / UInt(page) * UInt(page))
        guard let start else { return nil }
        let (before, after) = (start - all, page - (start - all))
        if before > 0 { munmap(all, before) }
        if after > 0 { munmap(start + size, after) }
        let begin = nanoseconds()
        guard begin >= smallPagesUntil.withLock({ $0 }) else { return start }
        // A system that has no large pages to give uses small ones.
        guard madvise(start, size, Int32(MADV_HUGEPAGE)) == 0 else { return start }
        // One that has to move other memory about for each takes several times as long as 512 small ones would: then what
        // is asked for next has small ones.
        start.storeBytes(of: 0, as: UInt8.self)
        let end = nanoseconds()
        if end - begin > patience { smallPagesUntil.withLock { $0 = end + retry } }
        return start
        #endif
    }

    /// Memory of so many bytes, zeroed, of which only the parts that are touched are ever taken; `nil` if there is none.
    ///
    /// From the system itself: `calloc` may take it from memory that was in use, and writes zeros to all of it then.
    static func reserve(_ bytes: Int) -> UnsafeMutableRawPointer? {
        let memory = mmap(nil, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | anonymous, -1, 0)
        return memory == MAP_FAILED ? nil : memory
    }

    /// Gives back what ``reserve(_:)`` gave for so many bytes.
    static func giveBack(_ memory: UnsafeMutableRawPointer, _ bytes: Int) { munmap(memory, bytes) }

    #if canImport(Darwin)
    private static var anonymous: Int32 { MAP_ANON }
    #else
    private static var anonymous: Int32 { MAP_ANONYMOUS }
    #endif

    /// Gives back what ``allocate(_:)`` gave for so many bytes.
    static func free(_ memory: UnsafeMutableRawPointer, _ bytes: Int) {
        #if canImport(Darwin)
        Darwin.free(memory)
        #else
        munmap(memory, (bytes + page - 1) / page * page)
        #endif
    }
}
