import NIOCore

/// What a server in front says first on a connection, by the PROXY protocol: for whom it was made.
///
/// Version 1 or 2. A value, without a socket. The rules are those of HAProxy's `doc/proxy-protocol.txt`; what that text leaves open is read strictly.
struct ProxyHeader: Equatable {
    /// The client; `nil` where the header names none, so that the peer is the client itself: LOCAL, UNKNOWN, a kind without
    /// addresses, or a Unix socket at the other server.
    var client: SocketAddress?
    /// How many bytes it takes.
    var length: Int

    /// Why a connection that begins like this is closed.
    struct Malformed: Error, Equatable, CustomStringConvertible {
        let description: String
    }

    /// Bytes of a header of version 1, with its line end (§2.1).
    static let longestText = 107
    /// Bytes that may follow the first 16 of a header of version 2: 216 for the longest addresses, the rest for extensions.
    static let longestRest = 4096

    private static let textStart = Array("PROXY ".utf8)
    private static let signature: [UInt8] = [13, 10, 13, 10, 0, 13, 10, 81, 85, 73, 84, 10]

    /// Reads a header from the first bytes of a connection.
    ///
    /// - Returns: `nil` if more bytes are needed, of which there are no more than the bounds say.
    static func read(_ bytes: UnsafeRawBufferPointer) throws(Malformed) -> ProxyHeader? {
        guard let first = bytes.first else { return nil }
        return first == signature[0] ? try binary(bytes) : try text(bytes)
    }

    // MARK: Version 1

    private static func text(_ bytes: UnsafeRawBufferPointer) throws(Malformed) -> ProxyHeader? {
        guard zip(bytes, textStart).allSatisfy(==) else { throw Malformed(description: "it is no PROXY header") }
        let room = min(bytes.count, longestText)
        guard let end = bytes[..<room].firstIndex(where: { $0 < 32 || $0 == 127 }) else {
            guard bytes.count < longestText else { throw Malformed(description: "it is too long") }
            return nil
        }
        guard end + 1 < longestText, bytes[end] == 13 else { throw Malformed(description: "its line does not end") }
        guard end + 1 < bytes.count else { return nil }
        guard bytes[end + 1] == 10 else { throw Malformed(description: "its line does not end") }
        let words = bytes[textStart.count..<end].split(separator: 32, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        // Whatever follows it means nothing.
        if words[0] == "UNKNOWN" { return ProxyHeader(length: end + 2) }
        guard ["TCP4", "TCP6"].contains(words[0]), words.count == 5 else {
            throw Malformed(description: "its kind, or the number of its words, is wrong")
        }
        let isV6 = words[0] == "TCP6"
        guard let client = address(words[1], words[3], isV6: isV6), address(words[2], words[4], isV6: isV6) != nil
        else {
            throw Malformed(description: "an address or a port is none")
        }
        return ProxyHeader(client: client, length: end + 2)
    }

    private static func address(_ host: String, _ port: String, isV6: Bool) -> SocketAddress? {
        guard (1...5).contains(port.utf8.count), port.utf8.allSatisfy({ (48...57).contains($0) }),
            port == "0" || !port.hasPrefix("0"), let number = UInt16(port),
            // No name of an interface behind it.
            !host.contains("%"), let address = try? SocketAddress(ipAddress: host, port: Int(number)),
            address.protocol == (isV6 ? .inet6 : .inet)
        else { return nil }
        return address
    }

    // MARK: Version 2

    private static func binary(_ bytes: UnsafeRawBufferPointer) throws(Malformed) -> ProxyHeader? {
        guard zip(bytes, signature).allSatisfy(==) else { throw Malformed(description: "it is no PROXY header") }
        guard bytes.count >= 16 else { return nil }
        guard bytes[12] >> 4 == 2 else { throw Malformed(description: "its version is unknown") }
        let rest = Int(bytes[14]) << 8 | Int(bytes[15])
        guard rest <= longestRest else { throw Malformed(description: "it is too long") }
        let family: (size: Int, isIP: Bool)
        switch (bytes[12] & 15, bytes[13]) {
        // LOCAL: the peer speaks for itself, and what else is there means nothing.
        case (0, _), (1, 0x00): family = (0, false)
        case (1, 0x11), (1, 0x12): family = (4, true)
        case (1, 0x21), (1, 0x22): family = (16, true)
        case (1, 0x31), (1, 0x32): family = (108, false)
        case (1, _): throw Malformed(description: "its kind of address is unknown")
        default: throw Malformed(description: "its command is unknown")
        }
        // Two addresses, and two ports.
        let needed = 2 * family.size + (family.isIP ? 4 : 0)
        guard rest >= needed else { throw Malformed(description: "it is too short for its addresses") }
        guard bytes.count >= 16 + rest else { return nil }
        guard family.isIP else { return ProxyHeader(length: 16 + rest) }
        let port = 16 + 2 * family.size
        guard
            let client = try? SocketAddress(
                packedIPAddress: ByteBuffer(bytes: bytes[16..<(16 + family.size)]),
                port: Int(bytes[port]) << 8 | Int(bytes[port + 1]))
        else { throw Malformed(description: "an address is none") }
        return ProxyHeader(client: client, length: 16 + rest)
    }
}
