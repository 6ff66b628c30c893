import HTTPCaching
import Testing

@Suite(.timeLimit(.minutes(60)))
struct ContentRangeTests {
    @Test(
        arguments: [
            ("bytes 0-499/1000", 0..<500, 1000), ("bytes 999-999/1000", 999..<1000, 1000), ("BYTES 0-0/1", 0..<1, 1),
            (" bytes 1-2/9223372036854775807 ", 1..<3, .max),
        ] as [(String, Range<Int64>, Int64)])
    func bytesAndLengthAreRead(text: String, bytes: Range<Int64>, length: Int64) throws {
        let range = try #require(ContentRange(text))
        #expect(range.bytes == bytes && range.length == length)
    }

    @Test(arguments: [
        "", "bytes", "bytes ", "bytes 0-1", "bytes */10", "bytes 0-1/*", "bytes 0-10/10", "bytes 5-4/10", "bytes -1/10",
        "bytes 0-/10", "bytes=0-1/10", "items 0-1/10", "bytes 0-1/10, bytes 0-1/10", "bytes 0 - 1/10", "bytes +0-1/10",
        "bytes 0-9223372036854775807/9223372036854775807", "bytes 0-1/10/10", "bytes 0/1-10",
        "bytes 0-99999999999999999999/99999999999999999999",
    ])
    func everythingElseIsNone(text: String) { #expect(ContentRange(text) == nil) }
}
