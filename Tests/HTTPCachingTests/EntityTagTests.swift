import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct EntityTagTests {
    @Test(
        arguments: [
            // RFC 9110 §8.8.3.2: a, b, strong, weak
            (#"W/"1""#, #"W/"1""#, false, true), (#"W/"1""#, #"W/"2""#, false, false),
            (#"W/"1""#, #""1""#, false, true),
            (#""1""#, #""1""#, true, true), (#""1""#, #""2""#, false, false), (#""""#, #""""#, true, true),
            // §8.8.3: the W is case-sensitive, and what is not well-formed is never strong
            (#"w/"1""#, #""1""#, false, false), (#"w/"1""#, #"w/"1""#, false, true), ("abc", "abc", false, true),
            ("abc", #""abc""#, false, false), (#"W"1""#, #"W"1""#, false, true), ("W/1", "1", false, false),
            (#""a"b""#, #""a"b""#, false, true), (#"""#, #"""#, false, true),
            // Bytes decide, not what Unicode calls equal
            ("\"e\u{301}\"", "\"\u{e9}\"", false, false),
        ] as [(String, String, Bool, Bool)])
    func tagsAreCompared(a: String, b: String, strongly: Bool, weakly: Bool) throws {
        let (a, b) = (try #require(EntityTag(a)), try #require(EntityTag(b)))
        #expect(a.matchesStrongly(b) == strongly)
        #expect(b.matchesStrongly(a) == strongly)
        #expect(a.matchesWeakly(b) == weakly)
        #expect(b.matchesWeakly(a) == weakly)
    }

    @Test(arguments: [#""v1""#, #"W/"v1""#, "v1", #"w/"v1""#, #""a,b""#, "\"\u{e9}\""])
    func aTagIsKeptVerbatim(text: String) throws {
        #expect(try #require(EntityTag(" " + text + "\t")).text == text)
    }

    @Test(arguments: ["", " ", "*", "\"\u{FFFD}\"", "\"a\u{7F}\""])
    func whatIsNoTagIsNone(text: String) { #expect(EntityTag(text) == nil) }

    /// RFC 9110 §8.8.3: any byte from 0x80 on may stand in a tag, and servers that write Latin-1 send it.
    @Test func aTagThatIsNotUTF8IsComparedByteByByte() throws {
        func tag(_ byte: UInt8, _ name: HTTPField.Name = .eTag) -> HTTPField {
            HTTPField(name: name, value: [0x22, byte, 0x22] as [UInt8])
        }
        let stored = try #require(EntityTag(tag(0xFC)))
        #expect(!stored.isWeak)
        #expect(stored.matchesStrongly(try #require(EntityTag(tag(0xFC)))))
        #expect(!stored.matchesWeakly(try #require(EntityTag(tag(0xFD)))))
        #expect(EntityTagList(.ifNoneMatch, in: HTTPFields([tag(0xFC, .ifNoneMatch)]))?.matchesWeakly(stored) == true)
        #expect(EntityTagList(.ifNoneMatch, in: HTTPFields([tag(0xFD, .ifNoneMatch)]))?.matchesWeakly(stored) == false)
        #expect(Validators(HTTPFields([tag(0xFC)]), now: noon).entityTag == stored)
    }

    @Test func twoInvalidEncodingsAreNeverTheSameTagAsText() {
        #expect(EntityTag(of: HTTPFields([HTTPField(name: .eTag, value: [0x22, 0xFC, 0x22] as [UInt8])])) == nil)
    }

    @Test(
        arguments: [
            // RFC 9110 §13.1.1, §13.1.2
            ([#""a""#], [#""a""#]), ([#""a", W/"b""#], [#""a""#, #"W/"b""#]),
            ([#""a""#, #""b""#], [#""a""#, #""b""#]),
            ([#", ,"a",,"#], [#""a""#]), ([#""a,b", "c""#], [#""a,b""#, #""c""#]), (["abc, def"], ["abc", "def"]),
            ([""], []), ([#""a\""#, #""b""#], [#""a\""#, #""b""#]),
        ] as [([String], [String])])
    func aListIsRead(lines: [String], tags: [String]) {
        let list = EntityTagList(.ifNoneMatch, in: fields(lines.map { "If-None-Match: " + $0 }))
        #expect(list == .tags(tags.compactMap { EntityTag($0) }))
    }

    @Test func aStarMatchesEverything() {
        #expect(EntityTagList(.ifNoneMatch, in: fields("If-None-Match: *")) == .any)
        #expect(EntityTagList(.ifMatch, in: fields("If-Match: \"a\"", "If-Match:  * ")) == .any)
        #expect(EntityTagList(.ifMatch, in: fields("If-None-Match: *")) == nil)
        #expect(EntityTagList.any.matchesWeakly(nil))
        #expect(EntityTagList.any.matchesStrongly(nil))
        #expect(!EntityTagList.tags([]).matchesWeakly(nil))
    }

    @Test func aListIsBounded() {
        let line = "If-None-Match: " + (0..<10000).map { "\"\($0)\"" }.joined(separator: ",")
        guard case .tags(let tags) = EntityTagList(.ifNoneMatch, in: fields(line)) else {
            Issue.record("no list")
            return
        }
        #expect(tags.count == EntityTagList.limit)
    }
}
