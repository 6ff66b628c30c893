package import NIOCore
import NIOPosix

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension SocketAddress {
    /// Whether the address is one that anybody on the internet may have: not loopback, private, link-local, shared,
    /// multicast or reserved, nor an IPv6 address that stands for an IPv4 address of these.
    ///
    /// https://www.iana.org/assignments/iana-ipv4-special-registry,
    /// https://www.iana.org/assignments/iana-ipv6-special-registry
    package var isPublic: Bool {
        withSockAddr { address, size in
            let bytes = UnsafeRawBufferPointer(start: address, count: size)
            switch self {
            // The address stands behind family and port, and in IPv6 behind the flow too.
            case .v4: return bytes.count >= 8 && Self.isPublicV4(bytes[4], bytes[5], bytes[6])
            case .v6:
                return bytes.count >= 24 && Self.isPublicV6(UnsafeRawBufferPointer(rebasing: bytes[8..<24]))
            case .unixDomainSocket: return false
            }
        }
    }

    private static func isPublicV4(_ a: UInt8, _ b: UInt8, _ c: UInt8) -> Bool {
        switch (a, b) {
        case (0, _), (10, _), (127, _): false
        case (100, 64...127): false
        case (169, 254), (172, 16...31), (192, 168): false
        case (192, 0): c != 0 && c != 2
        case (192, 88): c != 99
        case (198, 18...19): false
        case (198, 51): c != 100
        case (203, 0): c != 113
        case (224..., _): false
        default: true
        }
    }

    private static func isPublicV6(_ bytes: UnsafeRawBufferPointer) -> Bool {
        func begins(_ prefix: [UInt8]) -> Bool { bytes.prefix(prefix.count).elementsEqual(prefix) }
        // Of all addresses only 2000::/3 is given out; the translation prefixes stand for IPv4 addresses.
        if begins([0, 0x64, 0xFF, 0x9B] + [UInt8](repeating: 0, count: 8)) {
            return isPublicV4(bytes[12], bytes[13], bytes[14])
        }
        // Mapped: what a socket for both families would connect to.
        if begins([UInt8](repeating: 0, count: 10) + [0xFF, 0xFF]) {
            return isPublicV4(bytes[12], bytes[13], bytes[14])
        }
        guard bytes[0] & 0xE0 == 0x20 else { return false }
        // 6to4, Teredo (and the rest of 2001::/23), documentation.
        if begins([0x20, 0x02]) { return isPublicV4(bytes[2], bytes[3], bytes[4]) }
        if begins([0x20, 0x01]), bytes[2] < 2 { return false }
        if begins([0x3F, 0xFF]), bytes[2] < 0x10 { return false }
        return !begins([0x20, 0x01, 0x0D, 0xB8])
    }
}

/// A name that leads to an address that is not for those who asked.
package struct ForbiddenPeer: Error, CustomStringConvertible {
    let host: String
    package var description: String { "\(host) leads to an address of a private network or of this machine" }
}

/// Looks names up as the system does, numbers in all their spellings included, and lets only permitted addresses through.
///
/// The address that is connected to is the one that was checked. If one address of a family (IPv4, IPv6) is not permitted,
/// none of that family is used.
package final class PermittedResolver: Resolver, Sendable {
    private let loop: any EventLoop
    private let permits: @Sendable (SocketAddress) -> Bool

    init(loop: any EventLoop, permits: @escaping @Sendable (SocketAddress) -> Bool) {
        self.loop = loop
        self.permits = permits
    }

    package func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        query(host, port, AF_INET)
    }

    package func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        query(host, port, AF_INET6)
    }

    package func cancelQueries() {}

    private func query(_ host: String, _ port: Int, _ family: Int32) -> EventLoopFuture<[SocketAddress]> {
        let permits = permits
        return NIOThreadPool.singleton.runIfActive(eventLoop: loop) {
            let found = Self.addresses(of: host, port, family)
            guard found.allSatisfy(permits) else { throw ForbiddenPeer(host: host) }
            return found
        }
    }

    /// All addresses of a host.
    ///
    /// Blocks.
    /// - Returns: None for a name that is not known; connecting says so then.
    static func addresses(of host: String, _ port: Int, _ family: Int32) -> [SocketAddress] {
        var hints = addrinfo()
        hints.ai_family = family
        #if canImport(Glibc)
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        hints.ai_protocol = Int32(IPPROTO_TCP)
        #else
        hints.ai_socktype = SOCK_STREAM
        hints.ai_protocol = IPPROTO_TCP
        #endif
        var first: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, String(port), &hints, &first) == 0 else { return [] }
        defer { freeaddrinfo(first) }
        var addresses: [SocketAddress] = []
        var next = first
        while let info = next?.pointee {
            if let raw = info.ai_addr {
                let bytes = UnsafeRawPointer(raw)
                switch info.ai_family {
                case AF_INET: addresses.append(SocketAddress(bytes.loadUnaligned(as: sockaddr_in.self)))
                case AF_INET6: addresses.append(SocketAddress(bytes.loadUnaligned(as: sockaddr_in6.self)))
                default: break
                }
            }
            next = info.ai_next
        }
        return addresses
    }
}
