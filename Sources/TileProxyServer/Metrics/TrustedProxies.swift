import HTTPListener
import HTTPWire
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The servers in front of the proxy from whose `X-Forwarded-For` the access log takes a client's address.
package struct TrustedProxies: Hashable, Sendable {
    private var networks: [IPNetwork]
    /// Whether processes that connect by a Unix socket are among them.
    private var hasSockets = false

    /// One of the servers.
    package enum Member: Hashable, Sendable {
        case network(IPNetwork)
        /// Whatever connects by a Unix socket.
        case sockets

        /// Reads `10.0.0.0/8`, `192.0.2.7` or `unix`.
        package init?(_ text: String) {
            if text == "unix" {
                self = .sockets
            } else {
                guard let network = IPNetwork(text) else { return nil }
                self = .network(network)
            }
        }
    }

    /// How many addresses of a request are looked at.
    private static let mostAddresses = 32

    package init(_ networks: [IPNetwork] = []) { self.networks = networks }

    mutating func add(_ member: Member) {
        switch member {
        case .network(let network): networks.append(network)
        case .sockets: hasSockets = true
        }
    }

    /// Whether a connection comes from one of them.
    func contains(_ peer: SocketAddress?) -> Bool {
        switch peer {
        case .some(.unixDomainSocket): return hasSockets
        case .some(let address):
            guard !networks.isEmpty, let address = address.ipAddress.flatMap({ IPAddress($0) }) else { return false }
            return isTrusted(address)
        case nil: return false
        }
    }

    /// The address of the client that sent a request: as a text for the log, or `-`.
    ///
    /// Each server in front appends the address that it was connected to from, so only the end of the list can be believed:
    /// the client is the right-most address that is not a trusted proxy's, or the first one if all are. Where the peer is
    /// not trusted, or something in the way is no address, or there are too many, it is the peer.
    func client(of fields: HeadFields, peer: SocketAddress?) -> String {
        guard contains(peer), let client = forwarded(fields) else { return peer.clientName }
        return client.description
    }

    private func isTrusted(_ address: IPAddress) -> Bool { networks.contains { $0.contains(address) } }

    private func forwarded(_ fields: HeadFields) -> IPAddress? {
        var last: IPAddress?
        var count = 0
        for line in fields.values(named: "x-forwarded-for").reversed() {
            for member in line.split(separator: ",", omittingEmptySubsequences: false).reversed() {
                count += 1
                guard count <= Self.mostAddresses, let address = IPAddress(forwarded: member) else { return nil }
                if !isTrusted(address) { return address }
                last = address
            }
        }
        return last
    }
}

/// An address of a machine; an IPv4 address and the IPv6 address that stands for it are the same.
struct IPAddress: Hashable, Sendable, CustomStringConvertible {
    fileprivate var high: UInt64
    fileprivate var low: UInt64

    private static let mapped: UInt64 = 0xFFFF_0000_0000

    /// Whether it is an IPv4 address.
    var isV4: Bool { high == 0 && low >> 32 == 0xFFFF }

    /// Reads an address and nothing else.
    init?(_ text: some StringProtocol) {
        guard text.utf8.count <= 45 else { return nil }
        let text = String(text)
        var bytes = [UInt8](repeating: 0, count: 16)
        if inet_pton(AF_INET, text, &bytes) == 1 {
            high = 0
            low = Self.mapped | bytes[..<4].reduce(0) { $0 << 8 | UInt64($1) }
        } else if inet_pton(AF_INET6, text, &bytes) == 1 {
            high = bytes[..<8].reduce(0) { $0 << 8 | UInt64($1) }
            low = bytes[8...].reduce(0) { $0 << 8 | UInt64($1) }
        } else {
            return nil
        }
    }

    /// Reads a member of `X-Forwarded-For`: an address, which may be in brackets and may have a port.
    fileprivate init?(forwarded member: Substring) {
        var text = member
        while let first = text.first, first == " " || first == "\t" { text.removeFirst() }
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        var port: Substring?
        if text.hasPrefix("[") {
            guard let end = text.firstIndex(of: "]") else { return nil }
            port = text[text.index(after: end)...]
            text = text[text.index(after: text.startIndex)..<end]
            guard text.contains(":") else { return nil }
        } else if let colon = text.firstIndex(of: ":"), text[..<colon].contains(".") {
            port = text[colon...]
            text = text[..<colon]
        }
        if let port, !port.isEmpty {
            guard port.hasPrefix(":"), UInt16(port.dropFirst()) != nil else { return nil }
        }
        self.init(text)
    }

    var description: String {
        if isV4 { return (0..<4).map { "\(low >> UInt64(24 - 8 * $0) & 0xFF)" }.joined(separator: ".") }
        let bytes = (0..<16).map { UInt8(truncatingIfNeeded: ($0 < 8 ? high : low) >> UInt64(56 - 8 * ($0 % 8))) }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        guard inet_ntop(AF_INET6, bytes, &text, socklen_t(text.count)) != nil else { return "-" }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// An address, or all addresses that begin like it: `192.0.2.7`, `10.0.0.0/8`, `2001:db8::/32`.
package struct IPNetwork: Hashable, Sendable {
    private let first: IPAddress
    private let highMask: UInt64
    private let lowMask: UInt64

    /// Reads one; `nil` for anything else, also for an address that is not the first of its network.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let address = parts.first.flatMap({ IPAddress($0) }) else { return nil }
        let isV4 = address.isV4 && !text.contains(":")
        var bits = 128
        if parts.count == 2 {
            guard let number = UInt8(parts[1]), parts[1].allSatisfy(\.isNumber), number <= (isV4 ? 32 : 128) else {
                return nil
            }
            bits = Int(number) + (isV4 ? 96 : 0)
        }
        // Shifts by 64 and more give 0.
        highMask = ~(UInt64.max >> UInt64(min(bits, 64)))
        lowMask = ~(UInt64.max >> UInt64(max(0, bits - 64)))
        guard address.high & ~highMask == 0, address.low & ~lowMask == 0 else { return nil }
        first = address
    }

    func contains(_ address: IPAddress) -> Bool {
        address.high & highMask == first.high && address.low & lowMask == first.low
    }
}
