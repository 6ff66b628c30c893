import HTTPTypes
import HTTPWire
import NIOCore
import Testing

@Suite(.timeLimit(.minutes(60)))
struct HeadFieldsTests {
    private func read(_ lines: [UInt8]) throws -> HTTPFields {
        let bytes = lines + Array("\r\n".utf8)
        var scanner = FieldScanner(strict: false, fieldLimit: 16)
        let isComplete = try bytes.withUnsafeBytes { bytes throws(Violation) in try scanner.fields(bytes) }
        #expect(isComplete)
        return HeadFields(bytes: ByteBuffer(bytes: bytes), spans: scanner.spans, present: scanner.present).all
    }

    @Test(arguments: [
        ("A: b", "b"), ("A:", ""), ("A: \t b c \t", "b c"), ("A: é", "é"), ("A: b\r\n c", "b   c"),
        ("A: b\r\n\té", "b  \té"), ("A: b\n c\n  d", "b  c   d"), ("A: a string of more than fifteen", nil),
    ])
    func aValueIsReadByteByByte(line: String, value: String?) throws {
        let fields = try read(Array((line + "\r\n").utf8))
        #expect(fields.map(\.name.rawName) == ["A"])
        #expect(fields.map(\.value) == [value ?? "a string of more than fifteen"])
    }

    @Test func bytesThatAreNoTextStayAsTheyAre() throws {
        let value: [UInt8] = [0x80, 0xFF, 0x41, 0xC3]
        let fields = try read(Array("A: x\r\nB: ".utf8) + value + Array("\r\n".utf8))
        #expect(fields.last.map { $0.withUnsafeBytesOfValue { Array($0) } } == value)
    }

    @Test func fieldsAreWrittenAsTheyWereRead() throws {
        let text = [
            "a: b", "Content-Type: image/png", "Empty: ", "X-Long-Name-Of-A-Field: é and more than fifteen", "a: c", "",
        ].joined(separator: "\r\n")
        for capacity in [0, 8, 64, 4096] {
            var buffer = ByteBufferAllocator().buffer(capacity: capacity)
            buffer.writeFields(try read(Array(text.utf8)))
            #expect(String(buffer: buffer) == text)
        }
    }
}
