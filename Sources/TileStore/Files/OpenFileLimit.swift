#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// How many files the system lets this process have open at once.
///
/// Dispatch and event loops open some of their own, and end the process where they cannot. So a program asks beforehand.
package enum OpenFileLimit {
    /// Takes as many as the system lets it have; says how many.
    @discardableResult
    package static func raise() -> Int {
        var limit = rlimit()
        #if canImport(Glibc)
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        #else
        let resource = RLIMIT_NOFILE
        #endif
        guard getrlimit(resource, &limit) == 0 else { return .max }
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max
            setrlimit(resource, &limit)
            getrlimit(resource, &limit)
        }
        return Int(clamping: limit.rlim_cur)
    }

    /// What to say if fewer files than that can be opened now; `nil` if there is room.
    ///
    /// Asks by opening them, because a process may have been started with some open already.
    package static func shortage(of count: Int) -> String? {
        var opened: [Int32] = []
        defer { for file in opened { close(file) } }
        while opened.count < count {
            let file = open("/dev/null", O_RDONLY | O_CLOEXEC)
            guard file >= 0 else {
                // Without the device nothing can be told, and nothing is refused.
                guard errno == EMFILE || errno == ENFILE else { return nil }
                return
                    "only \(opened.count) more files can be open at once, and \(count) are needed: raise the limit "
                    + "(ulimit -n 256), or close what the process was started with"
            }
            opened.append(file)
        }
        return nil
    }
}
