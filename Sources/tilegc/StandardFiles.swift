#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Opens `/dev/null` in the place of standard files that the parent has closed.
///
/// Otherwise the next file that is opened gets the number of one, and a report would be written into the cache's
/// journal. To be called before anything is opened.
func openStandardFiles() {
    for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(number, F_GETFD) == -1 {
        // The lowest free number is taken, which is this one.
        _ = open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY)
    }
}
