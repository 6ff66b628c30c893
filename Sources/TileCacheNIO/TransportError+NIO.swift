#if NIO
import AsyncHTTPClient
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import TileCache

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension TransportError {
    /// Sorts what NIO and the client throw into the kinds that a caller can tell apart.
    ///
    /// The message is made here: those of the layers below may quote a path or a header field.
    init(_ error: any Error, host: String, headArrived: Bool) {
        switch error {
        case let error as TransportError: self = error
        case let error as HTTPClientError: self.init(error, host: host, headArrived: headArrived)
        case let error as HTTPParserError: self.init(error, host: host, headArrived: headArrived)
        case let error as NIOConnectionError where error.connectionErrors.isEmpty:
            self.init(.nameNotFound, "\(host): the name is not known", cause: error)
        case let error as NIOConnectionError:
            let reason = Self.words(error.connectionErrors[0].error)
            self.init(.connection, "\(host): no connection: \(reason)", cause: error)
        case is CancellationError:
            self.init(.cancelled, "\(host): cancelled", cause: error)
        case NIOSSLError.uncleanShutdown:
            self = .broken(host: host, headArrived: headArrived, cause: error)
        case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError:
            self.init(.tls, "\(host): no trusted encryption: \(error)", cause: error)
        case is NIOHTTPDecoderError:
            self.init(.malformed, "\(host): an answer to nothing that was asked", cause: error)
        case let error as IOError:
            self.init(.connection, "\(host): \(Self.words(error))", cause: error)
        default:
            self.init(.connection, "\(host): the connection failed (\(type(of: error)))", cause: error)
        }
    }

    private init(_ error: HTTPClientError, host: String, headArrived: Bool) {
        switch error {
        case .deadlineExceeded, .getConnectionFromPoolTimeout, .readTimeout, .writeTimeout:
            self.init(.timeout, "\(host): no complete answer in time", cause: error)
        case .connectTimeout, .tlsHandshakeTimeout:
            self.init(.timeout, "\(host): no connection in time", cause: error)
        case .cancelled, .alreadyShutdown, .requestStreamCancelled:
            self.init(.cancelled, "\(host): cancelled", cause: error)
        case .remoteConnectionClosed, .uncleanShutdown:
            self = .broken(host: host, headArrived: headArrived, cause: error)
        case .invalidURL, .emptyHost, .emptyScheme:
            self.init(.unsupported, "\(host): the request cannot be sent", cause: error)
        default:
            self.init(.connection, "\(host): \(error.shortDescription)", cause: error)
        }
    }

    private init(_ error: HTTPParserError, host: String, headArrived: Bool) {
        switch error {
        case .headerOverflow:
            self.init(.headTooLarge, "\(host): the header fields are too large", cause: error)
        case .invalidEOFState, .closedConnection:
            self = .broken(host: host, headArrived: headArrived, cause: error)
        default:
            self.init(.malformed, "\(host): no HTTP: \(error)", cause: error)
        }
    }

    /// The system's words for what it refused.
    ///
    /// NIO calls each refusal of a connection a reset, and puts the true reason in brackets.
    private static func words(_ error: any Error) -> String {
        guard let error = error as? IOError, let text = strerror(error.errnoCode) else { return "\(error)" }
        return String(cString: text)
    }

    /// Whether the server closed the connection, or had left something else on it, before it said anything.
    var isClosedBeforeAnswer: Bool {
        guard code == .connection || code == .malformed else { return false }
        return switch cause {
        case HTTPClientError.remoteConnectionClosed as HTTPClientError: true
        case is NIOHTTPDecoderError, is ChannelError: true
        case let error as IOError: error.errnoCode == ECONNRESET || error.errnoCode == EPIPE
        default: false
        }
    }

    /// The server closed the connection: within the body, or before there was an answer.
    private static func broken(host: String, headArrived: Bool, cause: any Error) -> TransportError {
        headArrived
            ? TransportError(.truncated, "\(host): the connection ended within the body", cause: cause)
            : TransportError(.connection, "\(host): the connection ended before an answer", cause: cause)
    }
}
#endif
