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
        var limit = current()
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max
            setrlimit(resource, &limit)
        }
        return Int(clamping: current().rlim_cur)
    }

    /// What to say if fewer files than that can be opened now; `nil` if there is room.
    ///
    /// Counts the free numbers below the limit, because a process may have been started with some open already. Opens
    /// none: another thread may need just that one.
    package static func shortage(of count: Int) -> String? {
        var free = 0
        var number: CInt = 0
        let limit = CInt(clamping: current().rlim_cur)
        while free < count {
            guard number < limit else {
                return
                    "only \(free) more files can be open at once, and \(count) are needed: raise the limit "
                    + "(ulimit -n 256), or close what the process was started with"
            }
            if fcntl(number, F_GETFD) == -1 { free += 1 }
            number += 1
        }
        return nil
    }

    private static func current() -> rlimit {
        var limit = rlimit()
        // Where it cannot be had, nothing is refused.
        if getrlimit(resource, &limit) != 0 { limit.rlim_cur = rlim_t(CInt.max) }
        return limit
    }

    #if canImport(Glibc)
    private static let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #else
    private static let resource = RLIMIT_NOFILE
    #endif
}
