import NIOCore

extension SocketAddress? {
    /// How logs name a client: its address; `unix` for one that has connected by a Unix socket; `-` where nothing is known.
    package var clientName: String {
        switch self {
        case .some(.unixDomainSocket): "unix"
        case .some(let address): address.ipAddress ?? "-"
        case nil: "-"
        }
    }
}
