import NIOCore
import Testing
import TileStoreTesting

@testable import HTTPListener

/// The header of the PROXY protocol, as a value.
@Suite(.timeLimit(.minutes(60)))
struct ProxyHeaderTests {
    static let signature: [UInt8] = [13, 10, 13, 10, 0, 13, 10, 81, 85, 73, 84, 10]

    /// A header of version 2; its length field says how many bytes follow, unless another is given.
    static func binary(_ command: UInt8, _ kind: UInt8, _ rest: [UInt8], length: Int? = nil) -> [UInt8] {
        let length = length ?? rest.count
        return signature + [command, kind, UInt8(length >> 8 & 255), UInt8(length & 255)] + rest
    }

    /// 198.51.100.7:4711 to 192.0.2.1:443.
    static let addresses4: [UInt8] = [198, 51, 100, 7, 192, 0, 2, 1, 0x12, 0x67, 0x01, 0xBB]
    /// [2001:db8::7]:4711 to [2001:db8::1]:443.
    static let addresses6: [UInt8] =
        [0x20, 1, 0x0D, 0xB8] + [UInt8](repeating: 0, count: 11) + [7] + [0x20, 1, 0x0D, 0xB8]
        + [UInt8](repeating: 0, count: 11) + [1] + [0x12, 0x67, 0x01, 0xBB]
    /// Extensions of every form: an ALPN, a checksum that is wrong, nothing but padding, one of an unknown type.
    static let extensions: [UInt8] =
        [1, 0, 2, 0x68, 0x32, 3, 0, 4, 1, 2, 3, 4, 4, 0, 3, 0, 0, 0, 0xEE, 0, 1, 9]

    private func read(_ bytes: [UInt8]) throws(ProxyHeader.Malformed) -> ProxyHeader? {
        let result = bytes.withUnsafeBytes { bytes in
            Result { () throws(ProxyHeader.Malformed) -> ProxyHeader? in try ProxyHeader.read(bytes) }
        }
        return try result.get()
    }

    private func client(_ header: ProxyHeader?) -> String? {
        header?.client.map { "\($0.ipAddress ?? "-") \($0.port ?? -1)" }
    }

    /// A header of version 1, and the client that it names.
    private static let goodLines: [(String, String?)] = [
        ("TCP4 198.51.100.7 192.0.2.1 4711 443", "198.51.100.7 4711"),
        ("TCP4 255.255.255.255 255.255.255.255 65535 65535", "255.255.255.255 65535"),
        ("TCP4 0.0.0.0 0.0.0.0 0 0", "0.0.0.0 0"), ("TCP6 2001:db8::7 2001:db8::1 4711 443", "2001:db8::7 4711"),
        ("TCP6 ::ffff:198.51.100.7 ::1 1 2", "::ffff:198.51.100.7 1"),
        (
            "TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535"
        ),
        ("UNKNOWN", nil), ("UNKNOWN ffff::1 what ever", nil),
        // As long as a header may be.
        ("UNKNOWN " + String(repeating: "x", count: 91), nil),
    ]

    /// The same of version 2.
    private static let goodBytes: [([UInt8], String?)] = [
        (binary(0x21, 0x11, addresses4), "198.51.100.7 4711"), (binary(0x21, 0x12, addresses4), "198.51.100.7 4711"),
        (binary(0x21, 0x21, addresses6), "2001:db8::7 4711"), (binary(0x21, 0x22, addresses6), "2001:db8::7 4711"),
        (binary(0x21, 0x11, addresses4 + extensions), "198.51.100.7 4711"),
        (binary(0x21, 0x21, addresses6 + extensions), "2001:db8::7 4711"),
        (binary(0x21, 0x11, addresses4 + [UInt8](repeating: 4, count: 4084)), "198.51.100.7 4711"),
        // The peer itself: LOCAL, whatever else it says; no kind; Unix sockets.
        (binary(0x20, 0x00, []), nil), (binary(0x20, 0x11, addresses4), nil), (binary(0x20, 0xFF, extensions), nil),
        (binary(0x21, 0x00, []), nil), (binary(0x21, 0x00, extensions), nil),
        (binary(0x21, 0x31, [UInt8](repeating: 0x2F, count: 216)), nil),
        (binary(0x21, 0x32, [UInt8](repeating: 0, count: 216) + extensions), nil),
    ]

    static let good: [([UInt8], String?)] =
        goodLines.map { (Array("PROXY \($0)\r\n".utf8), $1) } + goodBytes

    @Test(arguments: good)
    func aHeaderNamesTheClient(bytes: [UInt8], expected: String?) throws {
        let header = try #require(try read(bytes))
        #expect(header.length == bytes.count)
        #expect(client(header) == expected)
        // Whatever follows is not its own.
        let more = try #require(try read(bytes + Array("GET / HTTP/1.1\r\n".utf8)))
        #expect(more == header)
        #expect(try read(bytes + bytes) == header)
    }

    @Test(arguments: good)
    func aPartOfAHeaderNeedsMore(bytes: [UInt8], expected: String?) throws {
        for end in 0..<bytes.count { #expect(try read(Array(bytes[..<end])) == nil, "\(end) of \(bytes.count)") }
    }

    /// What is no header, and from how many of its bytes on that is known.
    private static let badTexts: [(String, Int)] = [
        // Not the protocol at all.
        ("GET / HTTP/1.1\r\n", 1), ("PRI * HTTP/2.0\r\n", 3), ("\u{16}\u{3}\u{1}", 1), ("proxy TCP4", 1),
        ("PROXY\tTCP4", 6), ("PROXY\r\n", 6), ("\0", 1), ("\r\n\r\nGET", 5), ("\nPROXY ", 1), (" PROXY ", 1),
        // Lines that do not end as they must.
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n", 31), ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r ", 32),
        ("PROXY TCP4 1.1.1.1\u{0}2.2.2.2 1 2\r\n", 19), ("PROXY UNKNOWN \u{7F}\r\n", 15),
        ("PROXY UNKNOWN " + String(repeating: "x", count: 200), 107),
        ("PROXY UNKNOWN " + String(repeating: "x", count: 92) + "\r\n", 107),
    ]

    /// Lines that are refused when they are complete.
    private static let badLines: [String] = [
        "", " TCP4 1.1.1.1 2.2.2.2 1 2", "TCP5 1.1.1.1 2.2.2.2 1 2", "tcp4 1.1.1.1 2.2.2.2 1 2", "UNKNOWNS", "TCP4",
        "TCP4 1.1.1.1 2.2.2.2 1", "TCP4 1.1.1.1 2.2.2.2 1 2 3", "TCP4 1.1.1.1 2.2.2.2 1 2 ",
        "TCP4  1.1.1.1 2.2.2.2 1 2",
        // Addresses and ports.
        "TCP4 ::1 ::1 1 2", "TCP6 1.1.1.1 2.2.2.2 1 2", "TCP4 1.1.1 2.2.2.2 1 2", "TCP4 1.1.1.256 2.2.2.2 1 2",
        "TCP4 1.1.1.01 2.2.2.2 1 2", "TCP4 1.1.1.1 host 1 2", "TCP6 fe80::1%lo ::1 1 2", "TCP6 [::1] ::1 1 2",
        "TCP6 2001:::7 ::1 1 2", "TCP4 1.1.1.1 2.2.2.2 65536 2", "TCP4 1.1.1.1 2.2.2.2 1 99999999",
        "TCP4 1.1.1.1 2.2.2.2 01 2", "TCP4 1.1.1.1 2.2.2.2 -1 2", "TCP4 1.1.1.1 2.2.2.2 +1 2",
        "TCP4 1.1.1.1 2.2.2.2 1 x", "TCP4 1.1.1.1 2.2.2.2 1 ", "TCP4 1.1.1.1  1 2",
    ]

    /// Headers of version 2 that are refused after their first 16 bytes.
    private static let badBytes: [[UInt8]] = [
        // Versions, commands, kinds of addresses.
        binary(0x11, 0x11, addresses4), binary(0x31, 0x11, addresses4), binary(0x01, 0x11, addresses4),
        binary(0x22, 0x11, addresses4), binary(0x2F, 0x11, addresses4), binary(0x21, 0x10, addresses4),
        binary(0x21, 0x01, addresses4), binary(0x21, 0x13, addresses4), binary(0x21, 0x41, addresses4),
        binary(0x21, 0xFF, addresses4),
        // Lengths that are too short for the addresses, or longer than anybody needs.
        binary(0x21, 0x11, addresses4, length: 0), binary(0x21, 0x11, addresses4, length: 11),
        binary(0x21, 0x21, addresses6, length: 35), binary(0x21, 0x21, addresses6, length: 12),
        binary(0x21, 0x31, [UInt8](repeating: 0, count: 215)), binary(0x21, 0x11, addresses4, length: 4097),
        binary(0x21, 0x11, addresses4, length: 65535), binary(0x20, 0x00, [], length: 65535),
    ]

    static let bad: [([UInt8], Int)] =
        badTexts.map { (Array($0.utf8), $1) } + badLines.map { (Array("PROXY \($0)\r\n".utf8), $0.utf8.count + 8) }
        + badBytes.map { ($0, 16) } + [(Array(signature[..<11]) + [13], 12)]

    @Test(arguments: bad)
    func whatIsNoHeaderIsKnownAsSoonAsCanBe(bytes: [UInt8], from: Int) throws {
        for end in 0...bytes.count {
            let part = Array(bytes[..<end])
            if end >= from {
                #expect(throws: ProxyHeader.Malformed.self, "\(end) of \(bytes)") { try read(part) }
            } else {
                #expect(try read(part) == nil, "\(end) of \(bytes)")
            }
        }
    }

    /// Neither what is read nor how long it takes depends on more than the bounds.
    @Test(arguments: Seeds.list(8))
    func anyBytesAreReadWithoutATrap(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        let all = Self.good.map(\.0) + Self.bad.map(\.0)
        for _ in 0..<500 {
            var bytes = all[Int(random.next() % UInt64(all.count))]
            for _ in 0..<(1 + random.next() % 3) where !bytes.isEmpty {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
            let result = Result { try read(bytes) }
            if case .success(.some(let header)) = result { #expect(header.length <= bytes.count) }
            if bytes.count >= 16 + ProxyHeader.longestRest, case .success(nil) = result {
                Issue.record("more is wanted after \(bytes.count) bytes")
            }
        }
    }
}
