import HTTPTypes
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import ObjectStorage

/// Documents, listings and metadata, as servers send them and as they should not.
@Suite(.timeLimit(.minutes(60)))
struct S3AnswerTests {
    private func parse(_ text: String) throws -> XMLElement { try XMLElement(parsing: Array(text.utf8)) }

    @Test(
        arguments: [
            ("1970-01-01T00:00:00Z", 0), ("2026-11-24T12:34:56.789Z", 1_795_523_696),
            ("2000-02-29T23:59:59.000Z", 951_868_799),
            ("2000-03-01T00:00:00Z", 951_868_800), ("2100-03-01T00:00:00.000000Z", 4_107_542_400),
            ("1969-12-31T23:59:59Z", nil), ("2026-13-01T00:00:00Z", nil), ("2026-11-24 12:34:56Z", nil),
            ("2026-11-24T12:34:56", nil), ("2026-11-24T12:34:56.Z9", nil), ("", nil), ("2026-11-24T12:34:5éZ", nil),
        ] as [(String, Int64?)])
    func timesOfListingsAreRead(_ text: String, _ seconds: Int64?) {
        #expect(S3Listing.time(text)?.seconds == seconds)
    }

    @Test func readsWhatServersSend() throws {
        let root = try parse(
            "\u{FEFF}<?xml version='1.0' encoding=\"utf-8\"?>\n<A xmlns=\"http://x/\" b='&lt;'>\r\n <B>a&amp;b &#252;&#x1F5FA;</B>\n"
                + " <C/><D ></D >\n <B>\r\nx\r</B></A>\n")
        #expect(root.name == "A" && root.text.isEmpty)
        #expect(root.children.map(\.name) == ["B", "C", "D", "B"])
        #expect(root.children.map(\.text) == ["a&b ü🗺", "", "", "\nx\n"])
    }

    @Test(arguments: [
        "", " ", "<", "<a", "<a>", "<a></b>", "<a><b></a></b>", "<a/><b/>", "<a/>x", "x<a/>", "<a>x<b/></a>",
        "<a><b/>x</a>",
        "<a>&nbsp;</a>", "<a>&</a>", "<a>&#0;</a>", "<a>&#x110000;</a>", "<a>&#xD800;</a>", "<a>&#;</a>", "<a>&#x1</a>",
        "<a>&#xFFFE;</a>", "<a>\u{1}</a>", "<a>\u{FFFE}</a>", "<!DOCTYPE a><a/>", "<a><!-- c --></a>",
        "<a><![CDATA[x]]></a>",
        "<?xml version=\"1.0\" encoding=\"latin1\"?><a/>", "<?php x?><a/>", "<a b=c/>", "<a b/>",
        "<a b=\"1\" b=\"2\"/>", "<a b=\"<\"/>",
        "<1/>", "<ü/>", "<a b=\"x", "<a></a", "<a>x", "< a/>", "<a>&#999999999;</a>", "<a b='1'c='2'/>",
    ])
    func refusesWhatIsNoPlainXML(text: String) {
        #expect(throws: XMLElement.Defect.self) { try parse(text) }
    }

    @Test func refusesTextThatIsNotUTF8() {
        let bytes: [[UInt8]] = [[0xFF], [0xC3], [0xC0, 0x80], [0xED, 0xA0, 0x80]]
        for bad in bytes {
            #expect(throws: XMLElement.Defect.self) {
                try XMLElement(parsing: Array("<a>".utf8) + bad + Array("</a>".utf8))
            }
        }
    }

    @Test func boundsDepthAndNumberOfElements() throws {
        func nested(_ depth: Int) -> String {
            String(repeating: "<a>", count: depth) + String(repeating: "</a>", count: depth)
        }
        _ = try parse(nested(XMLElement.depthLimit))
        #expect(throws: XMLElement.Defect.self) { try parse(nested(XMLElement.depthLimit + 1)) }
        #expect(throws: XMLElement.Defect.self) { try parse(String(repeating: "<a>", count: 1_000_000)) }
        let many = String(repeating: "<b/>", count: XMLElement.countLimit - 1)
        #expect(try parse("<a>\(many)</a>").children.count == XMLElement.countLimit - 1)
        #expect(throws: XMLElement.Defect.self) { try parse("<a>\(many)<b/></a>") }
        #expect(throws: XMLElement.Defect.self) { try parse("<\(String(repeating: "a", count: 200))/>") }
    }

    // Bytes of a good document are changed at random: nothing traps, and what is read has no control characters.
    @Test func survivesDamage() throws {
        let good = Array(
            ("<?xml version=\"1.0\"?><ListBucketResult><Name>t</Name><IsTruncated>false</IsTruncated><Contents><Key>a&amp;&#65;</Key>"
                + "<Size>1</Size></Contents></ListBucketResult>").utf8)
        for seed in Seeds.list(20) {
            var random = SplitMix64(seed: seed)
            for _ in 0..<500 {
                var bytes = good
                for _ in 0...random.below(3) {
                    let at = random.below(bytes.count)
                    switch random.below(3) {
                    case 0: bytes[at] = UInt8(truncatingIfNeeded: random.next())
                    case 1: bytes.remove(at: at)
                    default: bytes.insert(random.pick(Array("<>&;/\"'!?#x".utf8)), at: at)
                    }
                }
                guard let root = try? XMLElement(parsing: bytes) else { continue }
                _ = try? S3Listing(root, most: 1000, prefix: "")
            }
        }
    }

    // MARK: Listings

    private func listing(_ inside: String, most: Int = 1000, prefix: String = "") throws -> S3Listing {
        try S3Listing(parse("<ListBucketResult>\(inside)</ListBucketResult>"), most: most, prefix: prefix)
    }

    @Test func readsListings() throws {
        let page = try listing(
            "<Name>tiles</Name><Prefix/><EncodingType>url</EncodingType><KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>"
                + "<NextContinuationToken>ab==</NextContinuationToken>"
                + "<Contents><Key>a+b%2B%25%01</Key><LastModified>x</LastModified><ETag>&quot;e&quot;</ETag><Size>0</Size>"
                + "<Owner><ID>o</ID></Owner></Contents>"
                + "<Contents><Key>%C3%BC//</Key><Size>123456789012</Size></Contents>"
                + "<CommonPrefixes><Prefix>z%2F</Prefix></CommonPrefixes>")
        #expect(
            page.items == [
                .init(key: "a b+%\u{1}", size: 0, entityTag: "\"e\""), .init(key: "ü//", size: 123_456_789_012),
            ])
        #expect(page.commonPrefixes == ["z/"] && page.next == "ab==")
        // A server that does not encode says nothing of it.
        let plain = try listing("<IsTruncated>false</IsTruncated><Contents><Key>a+b%zz</Key><Size>1</Size></Contents>")
        #expect(plain.items.map(\.key) == ["a+b%zz"] && plain.next == nil)
    }

    @Test(arguments: [
        "", "<IsTruncated>maybe</IsTruncated>", "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken/>",
        "<IsTruncated>false</IsTruncated><IsTruncated>false</IsTruncated>",
        "<IsTruncated>false</IsTruncated><Contents><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key/><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>pa</Key></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>pa</Key><Size>-1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>pa</Key><Size>1e3</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>pa</Key><Key>pb</Key><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key><b>pa</b></Key><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>other</Key><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType><Contents><Key>p%4</Key><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType><Contents><Key>p%FF</Key><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><CommonPrefixes/>",
    ])
    func refusesListingsThatAreWrong(inside: String) {
        #expect(throws: S3AnswerDefect.self) { try listing(inside, prefix: "p") }
    }

    @Test func refusesListingsOfMoreThanWasAskedFor() throws {
        let two =
            "<IsTruncated>false</IsTruncated>" + "<Contents><Key>pa</Key><Size>1</Size></Contents>"
            + "<CommonPrefixes><Prefix>pb</Prefix></CommonPrefixes>"
        #expect(try listing(two, most: 2).items.count == 1)
        #expect(throws: S3AnswerDefect.self) { try listing(two, most: 1) }
        #expect(throws: S3AnswerDefect.self) { try S3Listing(parse("<Error/>"), most: 1, prefix: "") }
    }

    // MARK: Metadata

    private func fields(_ metadata: S3Metadata) -> HTTPFields {
        var fields = HTTPFields()
        for field in metadata.fields {
            guard let name = HTTPField.Name(field.name) else { continue }
            fields.append(HTTPField(name: name, value: field.value))
        }
        return fields
    }

    @Test func carriesEveryByteInMetadata() throws {
        for start in stride(from: 0, to: 256, by: 64) {
            let value = (start..<(start + 64)).map { UInt8($0) }
            let metadata = try S3Metadata(["a-1": value, "b": Array("plain!~".utf8)])
            for field in metadata.fields {
                #expect(field.value.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } && field.value.utf8.count <= 256)
            }
            #expect(try S3Metadata(fields(metadata)) == metadata)
        }
    }

    @Test func boundsMetadata() throws {
        let x = UInt8(ascii: "x")
        _ = try S3Metadata(["a": [UInt8](repeating: x, count: 256)])
        _ = try S3Metadata(["a": [UInt8](repeating: 0, count: 85)])
        // 8 names of 2 bytes with values of 254 are 2,048.
        let full = Dictionary(uniqueKeysWithValues: (0..<8).map { ("a\($0)", [UInt8](repeating: x, count: 254)) })
        _ = try S3Metadata(full)
        var more = full
        more["a0"]?.append(x)
        let bad: [[String: [UInt8]]] = [
            ["a": [UInt8](repeating: x, count: 257)], ["a": [UInt8](repeating: 0, count: 86)], more, ["a": []],
            ["A": [x]],
            ["": [x]], ["a_b": [x]], ["1a": [x]], ["a\r\n": [x]], ["ü": [x]],
        ]
        for values in bad { #expect(throws: S3Error.self) { try S3Metadata(values) } }
    }

    @Test func refusesMetadataThatSomebodyElseHasWritten() throws {
        let name = try #require(HTTPField.Name("X-Amz-Meta-A"))
        #expect(throws: S3AnswerDefect.self) { try S3Metadata([name: "100%"]) }
        var twice: HTTPFields = [name: "1"]
        twice.append(HTTPField(name: name, value: "2"))
        #expect(throws: S3AnswerDefect.self) { try S3Metadata(twice) }
    }
}
