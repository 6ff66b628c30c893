import HTTPTypes
import HTTPWire
import NIOCore
import Testing

@Suite(.timeLimit(.minutes(60)))
struct ChunkedDecoderTests {
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

    /// Trailers that came in a single piece were complete before their bytes were counted.
    @Test(arguments: [1, 7, Int.max])
    func trailersMayHaveAsManyBytesAsTheirLimitAndNoMore(piece: Int) throws {
        for (bytes, isTaken) in [(199, true), (200, true), (201, false), (400, false)] {
            let text = "0\r\nX: " + String(repeating: "a", count: bytes - 7) + "\r\n\r\n"
            guard isTaken else {
                #expect(throws: Violation.self, "\(bytes)") { try chunked(text, piece: piece) }
                continue
            }
            #expect(try chunked(text, piece: piece)?.trailers?.count == 1, "\(bytes)")
        }
    }

    /// One of the most bytes was refused where it was cut between its CR and its LF.
    @Test(arguments: [1, 257, Int.max])
    func aChunkLineMayHaveAsManyBytesAsItsLimitHoweverItComes(piece: Int) throws {
        for (bytes, isTaken) in [(255, true), (256, true), (257, false)] {
            let text = "5;" + String(repeating: "a", count: bytes - 2) + "\r\nhello\r\n0\r\n\r\n"
            guard isTaken else {
                #expect(throws: Violation.self, "\(bytes)") { try chunked(text, piece: piece) }
                continue
            }
            #expect(try chunked(text, piece: piece)?.body == "hello", "\(bytes)")
        }
    }

    @Test
    func chunkLinesAndTrailersAreBounded() {
        #expect(throws: Violation.self) { try chunked("5;" + String(repeating: "a", count: 300)) }
        #expect(throws: Violation.self) { try chunked("0\r\nX: " + String(repeating: "a", count: 300)) }
        #expect(throws: Violation.self) { try chunked("0\r\nA:1\r\nB:1\r\nC:1\r\nD:1\r\nE:1\r\n\r\n") }
    }
}
