import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct ByteRangeTests {
    @Test(
        arguments: [
            // RFC 9110 §14.1.2, a body of 1000 bytes
            ("bytes=0-499", [0..<500]), ("bytes=500-999", [500..<1000]), ("bytes=-500", [500..<1000]),
            ("bytes=900-", [900..<1000]), ("bytes=0-0,-1", [0..<1, 999..<1000]), ("BYTES=0-0", [0..<1]),
            ("bytes= 0-0 , 200-200,,", [0..<1, 200..<201]), ("bytes=0-99999", [0..<1000]), ("bytes=-99999", [0..<1000]),
            ("bytes=999-999", [999..<1000]), ("bytes=1000-", []), ("bytes=-0", []), ("bytes=1000-,0-0", [0..<1]),
            ("bytes=99999999999999999999999-", []), ("bytes=0-99999999999999999999999", [0..<1000]),
            ("bytes=-99999999999999999999999", [0..<1000]),
            // §14.2: what touches, overlaps or nearly does is one
            ("bytes=0-9,10-19", [0..<20]), ("bytes=0-9,5-19", [0..<20]), ("bytes=0-9,0-9,0-9", [0..<10]),
            ("bytes=0-9,90-99", [0..<100]), ("bytes=0-9,91-99", [0..<10, 91..<100]),
            ("bytes=500-509,0-9", [500..<510, 0..<10]), ("bytes=0-9,200-209,5-204", [0..<210]),
        ] as [(String, [Range<Int64>])])
    func rangesAreResolved(text: String, ranges: [Range<Int64>]) throws {
        #expect(try #require(ByteRanges(text)).resolved(length: 1000) == ranges)
    }

    @Test(arguments: [
        "", "bytes", "bytes=", "bytes=,", "bytes=-", "bytes=5-4", "bytes=a-b", "bytes=1-2-3", "bytes 0-1", "items=0-1",
        "bytes=0-1,x", "bytes=0 - 1", "bytes=--1", "bytes=+1-2", "bytes =0-1",
        "bytes=" + Array(repeating: "0-0", count: 17).joined(separator: ","),
    ])
    func anInvalidRangeIsIgnored(text: String) {
        #expect(ByteRanges(text) == nil, "9110 §14.2")
        var asked = ClientPreconditions()
        asked.range = text
        #expect(Self.outcome(asked) == .whole)
    }

    static let stored = StoredResponse(
        status: .ok,
        fields: fields(
            "ETag: \"a\"", "Last-Modified: Fri, 20 Nov 2026 12:00:00 GMT", "Date: Sat, 21 Nov 2026 12:00:00 GMT",
            "Content-Type: text/plain", "Content-Length: 1000"),
        freshness: StoredFreshness(storedAt: noon, expires: noon.plus(60)))

    static func outcome(
        _ asked: ClientPreconditions, stored: StoredResponse = stored, length: Int64 = 1000,
        method: HTTPRequest.Method = .get, boundary: String = "XYZ"
    ) -> RangeOutcome {
        asked.rangeOutcome(of: stored, length: length, method: method, age: 7, boundary: boundary, now: noon)
    }

    static func asking(_ lines: String...) -> ClientPreconditions { ClientPreconditions(fields(lines)) }

    @Test func oneRangeIsSentAsItIs() {
        var head = Self.stored.fields
        head[.contentLength] = "10"
        head[.contentRange] = "bytes 5-14/1000"
        head[.age] = "7"
        for text in ["bytes=5-14", "bytes=5-9,10-14"] {
            guard case .partial(let plan) = Self.outcome(Self.asking("Range: " + text)) else {
                Issue.record("not partial")
                return
            }
            #expect(plan.response == HTTPResponse(status: .partialContent, headerFields: head), "9110 §15.3.7.1")
            #expect(plan.parts.map(\.bytes) == [5..<15])
            #expect(plan.parts.map(\.prefix) == [""])
            #expect(plan.suffix == "")
        }
    }

    @Test func severalRangesAreSentInParts() throws {
        guard case .partial(let plan) = Self.outcome(Self.asking("Range: bytes=0-0,-2")) else {
            Issue.record("not partial")
            return
        }
        let body = plan.parts.map { $0.prefix + String(repeating: "x", count: $0.bytes.count) }.joined() + plan.suffix
        #expect(
            body == """
                --XYZ\r
                Content-Type: text/plain\r
                Content-Range: bytes 0-0/1000\r
                \r
                x\r
                --XYZ\r
                Content-Type: text/plain\r
                Content-Range: bytes 998-999/1000\r
                \r
                xx\r
                --XYZ--\r

                """, "9110 §14.6")
        #expect(plan.response.headerFields[.contentType] == "multipart/byteranges; boundary=XYZ")
        #expect(plan.response.headerFields[.contentLength] == String(body.utf8.count))
        #expect(plan.response.headerFields[.contentRange] == nil, "9110 §15.3.7.2")
    }

    @Test func aRangeOutsideIsUnsatisfiable() {
        let wanted = HTTPResponse(
            status: .rangeNotSatisfiable, headerFields: fields("Content-Range: bytes */1000", "Content-Length: 0"))
        #expect(Self.outcome(Self.asking("Range: bytes=1000-")) == .unsatisfiable(wanted), "9110 §15.5.17")
    }

    @Test func onlyGetOfAStored200HasRanges() {
        let asked = Self.asking("Range: bytes=0-1")
        #expect(Self.outcome(asked, method: .head) == .whole, "9110 §14.2")
        var notFound = Self.stored
        notFound.status = .notFound
        #expect(Self.outcome(asked, stored: notFound) == .whole, "9110 §14.2")
        #expect(Self.outcome(asked, length: 0) == .whole, "nothing to take a part of")
        #expect(Self.outcome(Self.asking()) == .whole)
        #expect(Self.outcome(Self.asking("Range: bytes=0-1", "Range: bytes=2-3")) == .whole, "twice is invalid")
    }

    @Test(arguments: [
        // RFC 9110 §13.1.5
        ("\"a\"", true), ("\"b\"", false), ("W/\"a\"", false), ("Fri, 20 Nov 2026 12:00:00 GMT", true),
        ("Fri, 20 Nov 2026 12:00:01 GMT", false), ("Sat, 21 Nov 2026 12:00:00 GMT", false), ("a", false), ("", false),
    ])
    func ifRangeGuardsARange(text: String, obeyed: Bool) {
        let outcome = Self.outcome(Self.asking("Range: bytes=0-1", "If-Range: " + text))
        #expect((outcome != .whole) == obeyed)
    }

    @Test func aTagThatIsNotUTF8GuardsARangeByteByByte() {
        func tag(_ name: HTTPField.Name, _ byte: UInt8) -> HTTPField {
            HTTPField(name: name, value: [0x22, byte, 0x22] as [UInt8])
        }
        var stored = Self.stored
        stored.fields[fields: .eTag] = [tag(.eTag, 0xFC)]
        for (byte, obeyed) in [(UInt8(0xFC), true), (0xFD, false)] {
            let asked = ClientPreconditions(
                HTTPFields([HTTPField(name: .range, value: "bytes=0-1"), tag(.ifRange, byte)]))
            #expect((Self.outcome(asked, stored: stored) != .whole) == obeyed)
        }
    }

    @Test func aWeakTimeDoesNotGuardARange() {
        // Modified in the second of its Date: it may have changed again within it (9110 §8.8.2.2).
        var stored = Self.stored
        stored.fields[.lastModified] = "Sat, 21 Nov 2026 12:00:00 GMT"
        let asked = Self.asking("Range: bytes=0-1", "If-Range: Sat, 21 Nov 2026 12:00:00 GMT")
        #expect(Self.outcome(asked, stored: stored) == .whole)
    }

    @Test func aBoundaryCannotInjectFields() {
        let outcome = Self.outcome(
            Self.asking("Range: bytes=0-0,-2"), boundary: "a\r\nX: y\"" + String(repeating: "b", count: 99))
        guard case .partial(let plan) = outcome else {
            Issue.record("not partial")
            return
        }
        #expect(plan.response.headerFields[.contentType]?.utf8.count == 31 + 70)
        #expect(plan.parts.first?.prefix.hasPrefix("--aXybbb") ?? false)
    }
}
