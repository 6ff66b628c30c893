import HTTPTypes
import NIOCore
import Testing

@testable import TileProxyServer

@Suite(.timeLimit(.minutes(60)))
struct BodyParserTests {
    /// Decodes a chunked body that comes in pieces of a size: its bytes, and its trailers.
    private func chunked(_ text: String, piece: Int = .max) throws(Violation) -> (body: String, trailers: HTTPFields?)?
    {
        var decoder = ChunkedDecoder(fieldLimit: 4, trailerBytes: 200)
        var input = ByteBuffer()
        var rest = Array(text.utf8)[...]
        var body = ""
        while true {
            let event = try decoder.next(&input)
            switch event {
            case .bytes(let bytes): body += String(buffer: bytes)
            case .end(let trailers): return (body, trailers?.all)
            case .needsMore:
                guard !rest.isEmpty else { return nil }
                input.writeBytes(rest.prefix(piece))
                rest = rest.dropFirst(piece)
            }
        }
    }

    @Test(arguments: [1, 2, 3, 7, Int.max])
    func chunksAreJoinedHoweverTheyCome(piece: Int) throws {
        let found = try chunked("5\r\nhello\r\n6;a=\"b\"\r\n world\r\n0\r\nX: y\r\n\r\n", piece: piece)
        #expect(found?.body == "hello world")
        #expect(found?.trailers?[HTTPField.Name("X") ?? .date] == "y")
    }

    /// RFC 9112 §7.1.
    @Test(arguments: [
        "5\nhello\r\n0\r\n\r\n", "5\r\nhelloo\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "x\r\n", "\r\n", "-1\r\n",
        "0x5\r\nhello\r\n",
        "1 1\r\na\r\n", "fffffffffffffffff\r\n", "5\r\nhello\n0\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\n X: y\r\n\r\n",
        "+5\r\nhello\r\n",
    ])
    func aBadChunkIsRefused(text: String) {
        #expect(throws: Violation.self) { try chunked(text) }
    }

    @Test
    func chunkLinesAndTrailersAreBounded() {
        #expect(throws: Violation.self) { try chunked("5;" + String(repeating: "a", count: 300)) }
        #expect(throws: Violation.self) { try chunked("0\r\nX: " + String(repeating: "a", count: 300)) }
        #expect(throws: Violation.self) { try chunked("0\r\nA:1\r\nB:1\r\nC:1\r\nD:1\r\nE:1\r\n\r\n") }
    }

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
        ("HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\n", "204 - kept"),
        ("HTTP/1.1 304 x\r\nContent-Length: 2\r\n\r\n", "304 2 kept"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "200 - a kept"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n", "200 - closed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", "200 1 a kept"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na", "200 1 a kept"),
        ("HTTP/1.1 200 OK\r\n\r\nabc", "200 - abc closed"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", "200 1 a closed"),
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
        "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 101 x\r\n\r\n",
    ])
    func aResponseInDoubtIsAnError(text: String) {
        #expect(throws: Violation.self) { try response(text) }
    }
}
