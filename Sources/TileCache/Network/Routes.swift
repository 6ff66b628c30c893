#if !canImport(Network)
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// The routing table.
enum Routes {
    /// Whether it has a way to hosts that are not near.
    ///
    /// Connects datagram sockets, which sends nothing, to addresses that are kept for documentation (RFC 5737, RFC 3849).
    static func leadAnywhere() -> Bool { leadToIPv4() || leadToIPv6() }

    private static func leadToIPv4() -> Bool {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(9).bigEndian
        address.sin_addr.s_addr = in_addr_t(0xC000_0201).bigEndian
        return connects(AF_INET, &address)
    }

    private static func leadToIPv6() -> Bool {
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_port = in_port_t(9).bigEndian
        withUnsafeMutableBytes(of: &address.sin6_addr) { bytes in
            bytes[0] = 0x20
            bytes[1] = 0x01
            bytes[2] = 0x0D
            bytes[3] = 0xB8
            bytes[15] = 1
        }
        return connects(AF_INET6, &address)
    }

    private static func connects<Address>(_ family: Int32, _ address: inout Address) -> Bool {
        #if canImport(Musl)
        let type = SOCK_DGRAM
        #else
        let type = Int32(SOCK_DGRAM.rawValue)
        #endif
        let descriptor = socket(family, type, 0)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        let length = socklen_t(MemoryLayout<Address>.size)
        return withUnsafeBytes(of: &address) { bytes in
            guard let start = bytes.baseAddress else { return false }
            return connect(descriptor, start.assumingMemoryBound(to: sockaddr.self), length) == 0
        }
    }
}
#endif
