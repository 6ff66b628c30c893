import HTTPTypes
import HTTPWire
import NIOCore
import Testing
import TileStoreTesting

@testable import OriginClient

@Suite(.timeLimit(.minutes(60)))
struct ResponseParserTests {
    /// Reads a response to its end: what it is, and whether the connection may go on.
    private func response(_ text: String, isHead: Bool = false, ends: Bool = false) throws(Violation) -> String {
        var parser = ResponseParser(limits: UpstreamLimits(), isHead: isHead)
        var input = ByteBuffer(string: text)
        var said = ""
        while true {
            let event = try parser.next(&input)
            switch event {
            case .interim(let head): said += "\(head.status.code) "
            case .head(let head, let length): said += "\(head.status.code) \(length.map { "\($0)" } ?? "-") "
            case .bytes(let bytes): said += String(buffer: bytes) + " "
            case .end: return said + (parser.isReusable ? "kept" : "closed")
            case .needsMore:
                guard ends, case .end = parser.ended() else { return said + "incomplete" }
                return said + "closed"
            }
        }
    }

    /// RFC 9112 §6.3, by its numbers, and §2.2, §5.1, §5.2 on what to bear with.
    @Test(arguments: [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "200 2 ab kept"),
        ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nab", "200 2 ab kept"),
        ("HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n", "204 - kept"),
        ("HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\n", "204 - closed"),
        ("HTTP/1.1 304 x\r\nContent-Length: 2\r\n\r\n", "304 2 kept"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "200 - a kept"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n", "200 - closed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", "200 1 a kept"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na", "200 1 a kept"),
        ("HTTP/1.1 200 OK\r\n\r\nabc", "200 - abc closed"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", "200 1 a closed"),
        ("HTTP/1.2 200 OK\r\nContent-Length: 1\r\n\r\na", "200 1 a kept"),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", "200 1 a closed"),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", "200 1 a kept"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "200 3 ab incomplete"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "200 - ab incomplete"),
        ("HTTP/1.1 103 x\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "103 200 0 kept"),
        ("HTTP/1.1 200 OK\nContent-Length : 1\nX: a\n b\n\na", "200 1 a kept"),
    ])
    func aResponseEndsWhereItsFramingSays(text: String, expected: String) throws {
        #expect(try response(text, ends: true) == expected)
    }

    /// RFC 9112 §6.1.
    @Test
    func anOriginThatSendsChunksInOneDotZeroIsNotAskedAgainOnThatConnection() throws {
        let text = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
        #expect(try response(text) == "200 - a closed")
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "hello\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.x 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 101 x\r\n\r\n",
    ])
    func aResponseInDoubtIsAnError(text: String) {
        #expect(throws: Violation.self) { try response(text) }
    }

    /// What becomes of a head of so many bytes that comes in pieces of a size: its status, or that of the violation.
    private func status(ofHead bytes: Int, interim: Bool, piece: Int) -> Int {
        var limits = UpstreamLimits()
        limits.headBytes = 300
        var parser = ResponseParser(limits: limits, isHead: false)
        let start = interim ? "HTTP/1.1 103 x\r\nX: " : "HTTP/1.1 200 x\r\nContent-Length: 0\r\nX: "
        let text = start + String(repeating: "a", count: bytes - start.utf8.count - 4) + "\r\n\r\n"
        var rest = Array(text.utf8)[...]
        var input = ByteBuffer()
        while true {
            do throws(Violation) {
                switch try parser.next(&input) {
                case .interim(let head), .head(let head, _): return head.status.code
                case .bytes, .end: return 0
                case .needsMore:
                    guard !rest.isEmpty else { return 0 }
                    input.writeBytes(rest.prefix(piece))
                    rest = rest.dropFirst(piece)
                }
            } catch { return error.status }
        }
    }

    /// One that came in a single piece was complete before its bytes were counted, however many they were.
    @Test(arguments: [1, 7, Int.max])
    func aHeadMayHaveAsManyBytesAsItsLimitAndNoMore(piece: Int) {
        for (bytes, isTaken) in [(299, true), (300, true), (301, false), (600, false)] {
            #expect(status(ofHead: bytes, interim: false, piece: piece) == (isTaken ? 200 : 431), "\(bytes)")
            #expect(status(ofHead: bytes, interim: true, piece: piece) == (isTaken ? 103 : 431), "\(bytes)")
        }
    }

    @Test
    func noBytesCrashTheParser() {
        let pieces = [
            "HTTP/1.1 200 OK\r\n", "HTTP/1.0 ", "103", "204 x", "\r\n", "\n", "\r", ":", " ", "a", "Content-Length",
            "5", "chunked", "\0", ",", "é", "Transfer-Encoding", "Connection", "close", ";", "0", "ffffffffffffffff",
        ]
        for seed in UInt64(1)...300 {
            var random = SplitMix64(seed: seed)
            var input = ByteBuffer()
            for _ in 0..<Int.random(in: 1...40, using: &random) {
                input.writeString(pieces[Int.random(in: 0..<pieces.count, using: &random)])
            }
            var responses = ResponseParser(limits: UpstreamLimits(), isHead: seed % 4 == 0)
            while let event = try? responses.next(&input) { if case .needsMore = event { break } }
        }
    }
}
