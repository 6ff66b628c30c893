import HTTPWire
import NIOCore
import NIOPosix
import NIOSSL

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension UpstreamFailure {
    /// Sorts what NIO says of a connection that could not be made.
    init(connecting error: any Error) {
        switch error {
        case let failure as UpstreamFailure: self = failure
        case let error as NIOConnectionError:
            for cause in [error.dnsAError, error.dnsAAAAError] {
                guard let forbidden = cause as? ForbiddenPeer else { continue }
                self = .forbidden(forbidden.description)
                return
            }
            self = error.connectionErrors.first.map { .unreachable(Self.words($0.error)) } ?? .nameNotFound
        case let error as ChannelError:
            if case .connectTimeout = error { self = .connectTimeout } else { self = .unreachable("\(error)") }
        case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError: self = .untrusted("\(error)")
        default: self = .unreachable(Self.words(error))
        }
    }

    /// What an answer breaks.
    init(_ violation: Violation) {
        self = violation.status == 431 ? .headTooLarge("\(violation.reason)") : .malformed("\(violation.reason)")
    }

    /// The system's words for what it refused; NIO's own name a reset where there was none.
    private static func words(_ error: any Error) -> String {
        (error as? IOError).map { String(cString: strerror($0.errnoCode)) } ?? "\(error)"
    }
}
