#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension ArchiveError {
    /// What the operating system refused, by the present `errno`.
    static func system(_ what: String, number: Int32 = errno) -> ArchiveError {
        let code: Code =
            switch number {
            case ENOENT: .notFound
            case ENOSPC, EDQUOT: .diskFull
            default: .io
            }
        return ArchiveError(code, "\(what): \(systemText(number))")
    }
}

/// The system's words for an error number.
func systemText(_ number: Int32) -> String { String(cString: strerror(number)) }
