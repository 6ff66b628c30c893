#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// How many file descriptors this process may have.
enum Descriptors {
    #if canImport(Glibc)
    private static let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #else
    private static let resource = RLIMIT_NOFILE
    #endif

    /// Raises the limit as far as it goes, root's own included.
    ///
    /// - Returns: The limit.
    static func raise(to wanted: Int) -> Int {
        var limit = rlimit()
        getrlimit(resource, &limit)
        if limit.rlim_cur < rlim_t(wanted) {
            var more = rlimit(rlim_cur: rlim_t(wanted), rlim_max: max(limit.rlim_max, rlim_t(wanted)))
            if setrlimit(resource, &more) != 0 {
                more = rlimit(rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max)
                setrlimit(resource, &more)
            }
        }
        getrlimit(resource, &limit)
        return Int(clamping: limit.rlim_cur)
    }

    /// Lowers the limit.
    static func limit(to most: Int) {
        var limit = rlimit()
        getrlimit(resource, &limit)
        limit.rlim_cur = rlim_t(most)
        setrlimit(resource, &limit)
    }

    /// Takes all that are left.
    static func takeAll() -> [Int32] {
        var taken: [Int32] = []
        while true {
            let descriptor = open("/dev/null", O_RDONLY)
            guard descriptor >= 0 else { return taken }
            taken.append(descriptor)
        }
    }
}
