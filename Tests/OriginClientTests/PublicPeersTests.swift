import NIOCore
import Testing

@testable import OriginClient

@Suite(.timeLimit(.minutes(60)))
struct PublicPeersTests {
    @Test(arguments: [
        ("8.8.8.8", true), ("1.1.1.1", true), ("172.32.0.1", true), ("192.0.1.1", true), ("223.255.255.255", true),
        ("0.0.0.0", false), ("10.1.2.3", false), ("127.0.0.1", false), ("127.255.0.9", false), ("100.64.0.1", false),
        ("100.128.0.1", true), ("169.254.169.254", false), ("172.16.0.1", false), ("172.31.255.255", false),
        ("192.168.1.1", false), ("192.0.0.8", false), ("198.18.0.1", false), ("224.0.0.1", false),
        ("255.255.255.255", false), ("240.0.0.1", false),
        ("2a00:1450:4001::1", true), ("2606:4700::1111", true), ("::", false), ("::1", false), ("fe80::1", false),
        ("fec0::1", false), ("fd00::1", false), ("fc00::1", false), ("ff02::1", false), ("::ffff:127.0.0.1", false),
        ("::ffff:10.0.0.1", false), ("::ffff:8.8.8.8", true), ("::7f00:1", false), ("64:ff9b::a00:1", false),
        ("64:ff9b::808:808", true), ("64:ff9b:1::808:808", false), ("2002:7f00:1::", false), ("2002:808:808::", true),
        ("2001::1", false), ("2001:db8::1", false), ("100::1", false), ("3fff::1", false), ("2001:4860::1", true),
    ])
    func onlyAddressesOfTheInternetArePublic(_ text: String, _ expected: Bool) throws {
        #expect(try SocketAddress(ipAddress: text, port: 80).isPublic == expected)
    }
}
