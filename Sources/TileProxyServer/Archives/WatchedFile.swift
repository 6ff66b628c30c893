#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A file that a source is read from, and what it was when it was looked at last.
struct WatchedFile: Sendable {
    /// What tells a file from the one that was there before.
    struct Identity: Hashable, Sendable {
        private let device: UInt64
        private let number: UInt64
        private let size: Int64
        private let seconds: Int
        private let nanoseconds: Int

        /// Looks at a file; blocks.
        ///
        /// `nil` where there is none.
        init?(_ path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            #if canImport(Darwin)
            let time = status.st_mtimespec
            #else
            let time = status.st_mtim
            #endif
            (device, number, size) = (
                UInt64(truncatingIfNeeded: status.st_dev), UInt64(status.st_ino), Int64(status.st_size)
            )
            (seconds, nanoseconds) = (Int(time.tv_sec), Int(time.tv_nsec))
        }
    }

    let path: String
    /// Whether it appears whole, by being renamed, whoever writes it.
    let appearsWhole: Bool
    let identity: Identity?

    /// The file of a source that is to be read anew when it is replaced; blocks.
    ///
    /// `nil` if the source has none.
    init?(of source: SourceConfiguration) {
        guard let path = source.archivePath else { return nil }
        let isSet = source.setPath != nil
        guard isSet || source.isWatched else { return nil }
        self.path = path
        appearsWhole = isSet
        identity = Identity(path)
    }
}
