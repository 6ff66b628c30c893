#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The rights of what is made in a cache's folder: those of the folder, as far as the process's mask permits.
///
/// A folder that the store makes is its owner's alone. One whose group may write is meant for that group: then the group's
/// rights are the folder's, whatever the mask says. Others never get the right to write.
struct FileModes {
    let folder: mode_t
    let file: mode_t
    let blob: mode_t
    /// Whether the mask would take from the group what the folder grants it.
    let isNarrowed: Bool
    /// The bits that a new file may have where that is so.
    let allowed: mode_t

    init(folder mode: mode_t) {
        folder = (mode | 0o700) & 0o775
        file = folder & 0o666
        blob = folder & 0o444
        guard mode & 0o020 != 0 else {
            (isNarrowed, allowed) = (false, 0o777)
            return
        }
        // Where the mask cannot be read, others get nothing.
        let mask = currentMask() ?? 0o077
        isNarrowed = folder & mask & 0o070 != 0
        allowed = ~(mask & 0o007) & 0o777
    }
}

/// The process's mask for new files, read without changing it for a moment, as `umask` would for all threads.
private func currentMask() -> mode_t? {
    #if canImport(Darwin)
    return nil
    #else
    guard let file = fopen("/proc/self/status", "re") else { return nil }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    while fgets(&line, Int32(line.count), file) != nil {
        let text = line.withUnsafeBytes { String(decoding: $0.prefix { $0 > 0x20 || $0 == 0x09 }, as: UTF8.self) }
        if text.hasPrefix("Umask:") {
            return mode_t(text.dropFirst(6).drop { $0 == "\t" }, radix: 8)
        }
    }
    return nil
    #endif
}
