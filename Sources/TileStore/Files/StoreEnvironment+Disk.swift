import Dispatch

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension StoreEnvironment {
    /// The real world: a folder on disk, the system's clocks and random numbers.
    package static func disk(at path: String) -> StoreEnvironment {
        StoreEnvironment(
            files: DiskFileSystem(location: path),
            now: {
                var time = timespec()
                clock_gettime(CLOCK_REALTIME, &time)
                return Timestamp(seconds: Int64(time.tv_sec))
            },
            coarseTicks: {
                #if canImport(Darwin)
                return clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW_APPROX)
                #else
                var time = timespec()
                clock_gettime(CLOCK_MONOTONIC_COARSE, &time)
                return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
                #endif
            },
            ticks: {
                var time = timespec()
                clock_gettime(CLOCK_MONOTONIC, &time)
                return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
            },
            pause: { nanoseconds in
                var time = timespec(
                    tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
                nanosleep(&time, nil)
            },
            random: {
                var generator = SystemRandomNumberGenerator()
                return generator.next()
            },
            bootID: currentBootID(),
            background: true,
            spread: { DispatchQueue.concurrentPerform(iterations: $0, execute: $1) })
    }
}

private func currentBootID() -> String? {
    #if canImport(Darwin)
    var length = 0
    guard sysctlbyname("kern.bootsessionuuid", nil, &length, nil, 0) == 0, length > 1 else { return nil }
    var bytes = [UInt8](repeating: 0, count: length)
    guard sysctlbyname("kern.bootsessionuuid", &bytes, &length, nil, 0) == 0 else { return nil }
    return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    #else
    guard let file = fopen("/proc/sys/kernel/random/boot_id", "re") else { return nil }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = fread(&bytes, 1, bytes.count, file)
    let text = bytes.prefix(count).prefix { $0 > 0x20 && $0 < 0x7F && $0 != 0x22 && $0 != 0x5C }
    return text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
    #endif
}
